//! Leases what this process uses, so that no other process collects it: a locked file with one digest a
//! line.
//!
//! A digest is added under the store's shared lock and read under its exclusive one, so nothing is removed
//! between being found and being leased. The lock on the file ends with the process, and a lease that is not
//! locked is ignored.

use super::error::StoreError;
use super::files::entries;
use super::handle::{Lease, Store};
use super::lock::{open, try_lock};
use stackforge_types::Digest;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;

impl Store {
    /// Keeps blobs from being collected as long as this store, or a clone of it, is open.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn lease<'a>(
        &self,
        digests: impl IntoIterator<Item = &'a Digest>,
    ) -> Result<(), StoreError> {
        let lock = self.0.lease.lock();
        let mut lease = lock.unwrap_or_else(std::sync::PoisonError::into_inner);
        let held = |d: &Digest| lease.as_ref().is_some_and(|l| l.held.contains(d));
        let new: BTreeSet<Digest> = digests.into_iter().filter(|d| !held(d)).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        let _shared = self.shared()?;
        if lease.is_none() {
            *lease = Some(self.new_lease()?);
        }
        let Some(lease) = lease.as_mut() else {
            return Ok(());
        };
        let lines: String = new.iter().map(|d| format!("{}\n", d.hex())).collect();
        lease
            .file
            .write_all(lines.as_bytes())
            .map_err(|e| StoreError::at("write the lease", &lease.path, e))?;
        lease.held.extend(new);
        Ok(())
    }

    fn new_lease(&self) -> Result<Lease, StoreError> {
        let folder = self.dir("leases")?;
        let name = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
        let path = folder.join(name);
        let file = open(&path)?;
        // Its name is new, so no other process can have locked it.
        try_lock(&file, &path)?;
        let held = BTreeSet::new();
        Ok(Lease { path, file, held })
    }

    /// Digests that running processes use. The caller holds the exclusive lock.
    pub(super) fn leased(&self) -> Result<BTreeSet<Digest>, StoreError> {
        let mut leased = BTreeSet::new();
        for path in entries(&self.root().join("leases"))? {
            let Ok(file) = File::open(&path) else {
                continue;
            };
            if try_lock(&file, &path)? {
                let _ = std::fs::remove_file(&path);
                continue;
            }
            let text = std::fs::read_to_string(&path)
                .map_err(|e| StoreError::at("read the lease", &path, e))?;
            leased.extend(text.lines().filter_map(|hex| Digest::from_hex(hex).ok()));
        }
        Ok(leased)
    }
}
