//! Garbage collection: removes what was not used for the longest time first, and never what a running
//! process uses.
//!
//! Files are removed only under the store's exclusive lock, which is held for that moment only. References
//! to a blob are removed before the blob, so a killed collection leaves no dangling reference.

use super::error::StoreError;
use super::files::{entries, remove, weight};
use super::handle::Store;
use super::images::{digest, name_of};
use super::list::{Entry, EntryKind};
use super::lock::{is_at, open, try_lock};
use serde::Serialize;
use stackforge_types::Digest;
use std::collections::BTreeSet;
use std::fs::File;
use std::time::{Duration, SystemTime};

/// Minimum age of files without a lease of their own before they are removed.
const FRESH: Duration = Duration::from_secs(24 * 3600);

/// Limits of a collection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Most bytes of the whole store.
    pub max_size: Option<u64>,
    /// Longest time since the last use; older entries are removed whatever the size.
    pub keep: Option<Duration>,
    /// Whether images that have a name may be removed too.
    pub all: bool,
    /// Whether to remove nothing and only report what would be removed.
    pub dry_run: bool,
}

/// What a collection removed, or would remove.
#[derive(Debug, Default, Serialize)]
pub struct Collected {
    /// Removed entries, by kind and name.
    pub removed: Vec<Entry>,
    /// Bytes that were freed, including leftovers of killed processes.
    pub freed: u64,
    /// Bytes that remain in the store.
    pub left: u64,
    /// Bytes of entries that running processes use.
    pub in_use: u64,
    /// Bytes of images that have a name.
    pub named: u64,
    /// Number of actions that were removed with their outputs.
    pub actions: usize,
}

impl Store {
    /// Removes what exceeds the limits, and everything that is of no use.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub fn gc(&self, limits: &Limits) -> Result<Collected, StoreError> {
        self.prepare()?;
        let _alone = self.exclusive()?;
        let now = SystemTime::now();
        let mut out = Collected::default();
        if !limits.dry_run {
            out.freed += self.sweep()?;
            self.sweep_locks()?;
            self.sweep_notes()?;
            self.sweep_unnamed(now)?;
        }
        let leased = self.leased()?;
        let mut images = BTreeSet::new();
        for image in self.refs()? {
            images.extend(self.closure(&image.digest).blobs.into_keys());
        }
        let listing = self.list()?;
        out.left = listing.size();
        let mut candidates = Vec::new();
        for entry in listing.entries {
            let is =
                |set: &BTreeSet<Digest>| entry.digest.as_ref().is_some_and(|d| set.contains(d));
            if is(&leased) {
                out.in_use += entry.size;
            } else if !entry.kind.is_folder() && is(&images) && !limits.all {
                out.named += entry.size;
            } else if may_go(&entry, limits.all, now) {
                candidates.push(entry);
            }
        }
        candidates.sort_by_key(|e| e.used);
        for entry in candidates {
            let old = |keep| now.duration_since(entry.used).is_ok_and(|age| age > keep);
            let fits = limits.max_size.is_none_or(|max| out.left <= max);
            if fits && !limits.keep.is_some_and(old) {
                continue;
            }
            out.left -= entry.size;
            out.freed += entry.size;
            out.removed.push(entry);
        }
        (out.removed).sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        self.remove(limits, &leased, now, &mut out)?;
        Ok(out)
    }

    fn remove(
        &self,
        limits: &Limits,
        leased: &BTreeSet<Digest>,
        now: SystemTime,
        out: &mut Collected,
    ) -> Result<(), StoreError> {
        let blobs = out.removed.iter().filter(|e| !e.kind.is_folder());
        let gone = blobs.filter_map(|e| e.digest.clone());
        let gone: BTreeSet<Digest> = gone.collect();
        if !limits.dry_run {
            self.untag_without(&gone)?;
        }
        for key in self.keys()? {
            let path = self
                .root()
                .join("actions")
                .join(format!("{}.json", key.hex()));
            let action = self.read_action(&key);
            let outputs = action.iter().flat_map(|a| a.outputs.values());
            let dangling = outputs
                .clone()
                .any(|d| gone.contains(d) || !self.blob_path(d).is_file());
            let unused = |keep| {
                let used = std::fs::metadata(&path).and_then(|m| m.modified());
                used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age > keep))
            };
            let old =
                limits.keep.is_some_and(unused) && !outputs.clone().any(|d| leased.contains(d));
            if action.is_none() || dangling || old {
                out.actions += 1;
                if !limits.dry_run {
                    self.forget(&key);
                }
            }
        }
        if limits.dry_run {
            return Ok(());
        }
        for entry in &out.removed {
            if entry.kind.is_folder() {
                match self.remove_tree(&entry.path) {
                    // Foreign code may leave files of other users there. The rest can still be collected.
                    Err(e) if entry.kind == EntryKind::Objects => {
                        tracing::warn!("{} stay: {e}", entry.name);
                    }
                    removed => removed?,
                }
                continue;
            }
            if let Some(digest) = &entry.digest {
                self.forget_names(digest);
            }
            remove(&entry.path)?;
            if entry.kind == EntryKind::Part {
                // The note on its server lies beside it.
                remove(&entry.path.with_extension("part.json"))?;
            }
        }
        Ok(())
    }

    /// Removes the names of images that would be incomplete without those blobs.
    pub(super) fn untag_without(&self, gone: &BTreeSet<Digest>) -> Result<usize, StoreError> {
        let broken = |top: &Digest| {
            let closure = self.closure(top);
            !closure.missing.is_empty() || closure.blobs.keys().any(|d| gone.contains(d))
        };
        let refs = self.refs()?;
        let broken: BTreeSet<Digest> = refs.into_iter().map(|r| r.digest).filter(broken).collect();
        if broken.is_empty() {
            return Ok(0);
        }
        let mut names = 0;
        self.change_index(|entries| {
            entries.retain(|entry| {
                let gone = digest(entry).is_some_and(|d| broken.contains(&d));
                if gone {
                    names += 1;
                    tracing::debug!(name = name_of(entry), "no longer whole");
                }
                !gone
            });
        })?;
        Ok(names)
    }

    /// Removes small temporary files that a killed process did not rename; they have no lock.
    fn sweep_unnamed(&self, now: SystemTime) -> Result<(), StoreError> {
        for folder in ["", "actions", "last", "parts"] {
            for path in entries(&self.root().join(folder))? {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let unnamed = name.starts_with(".tmp-") || name.starts_with(".part-");
                let (_, changed) = weight(&path);
                let old = || now.duration_since(changed).is_ok_and(|age| age > FRESH);
                if unnamed && old() {
                    remove(&path)?;
                }
            }
        }
        // A process that creates one of these links at the moment tries again.
        for folder in entries(&self.root().join("names"))? {
            for path in entries(&folder)? {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if name.starts_with(".tmp-") {
                    remove(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Removes lock files that a killed process left.
    fn sweep_locks(&self) -> Result<(), StoreError> {
        for path in entries(&self.root().join("locks"))? {
            let is_digest = path.file_name().is_some_and(|n| n.len() == 64);
            if !is_digest {
                continue;
            }
            let file = open(&path)?;
            if try_lock(&file, &path)? && is_at(&file, &path) {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Whether an entry may be removed by its age alone: a part may be growing, a log may be written to. With
/// `all`, a part that no process has locked may be removed.
fn may_go(entry: &Entry, all: bool, now: SystemTime) -> bool {
    match entry.kind {
        EntryKind::Tool => false,
        EntryKind::Part if all => {
            let free = |file: File| {
                Ok::<_, StoreError>(try_lock(&file, &entry.path)? && is_at(&file, &entry.path))
            };
            open(&entry.path).and_then(free).unwrap_or(false)
        }
        EntryKind::Part | EntryKind::Log | EntryKind::Index => {
            now.duration_since(entry.used).is_ok_and(|age| age > FRESH)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::images::tests::image;
    use super::*;
    use std::fs::File;
    use std::path::Path;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// A store whose blobs were last used so many days ago, by processes that ended.
    fn filled(dir: &Path, days: &[u64]) -> Vec<Digest> {
        let store = Store::open(Some(dir)).unwrap();
        let put = |age: &u64| {
            let blob = store.put(format!("{age:0>10}").as_bytes(), None).unwrap();
            let then = SystemTime::now() - DAY * u32::try_from(*age).unwrap();
            File::open(&blob.path).unwrap().set_modified(then).unwrap();
            blob.digest
        };
        days.iter().map(put).collect()
    }

    #[test]
    fn the_longest_unused_goes_first_and_what_is_used_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [old, used, new] = filled(dir.path(), &[9, 8, 1]).try_into().unwrap();
        let user = Store::open(Some(dir.path())).unwrap();
        user.lease([&used]).unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let limits = Limits {
            max_size: Some(20),
            ..Limits::default()
        };
        let dry = Limits {
            dry_run: true,
            ..limits
        };
        assert_eq!(store.gc(&dry).unwrap().left, 20);
        assert!(store.blob_path(&old).exists());
        let done = store.gc(&limits).unwrap();
        assert_eq!((done.left, done.freed, done.in_use), (20, 10, 10));
        assert!(!store.blob_path(&old).exists());
        let none = Limits {
            max_size: Some(0),
            ..Limits::default()
        };
        assert_eq!(store.gc(&none).unwrap().left, 10);
        assert!(store.blob_path(&used).exists() && !store.blob_path(&new).exists());
        drop(user);
        assert_eq!(store.gc(&none).unwrap().left, 0);
    }

    #[test]
    fn days_count_and_an_action_goes_with_its_output() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new] = filled(dir.path(), &[9, 1]).try_into().unwrap();
        let (gone, kept) = (Digest::of(b"gone"), Digest::of(b"kept"));
        {
            let store = Store::open(Some(dir.path())).unwrap();
            for (key, output) in [(&gone, &old), (&kept, &new)] {
                let action = super::super::Action {
                    outputs: [("x".to_owned(), output.clone())].into(),
                    ..Default::default()
                };
                store.record(key, &action).unwrap();
            }
        }
        let store = Store::open(Some(dir.path())).unwrap();
        let limits = Limits {
            keep: Some(DAY * 5),
            ..Limits::default()
        };
        let done = store.gc(&limits).unwrap();
        assert_eq!((done.removed.len(), done.actions), (1, 1));
        assert!(!store.has(&gone) && store.has(&kept));
    }

    #[test]
    fn images_with_a_name_stay_unless_all_may_go() {
        let dir = tempfile::tempdir().unwrap();
        {
            let store = Store::open(Some(dir.path())).unwrap();
            store.tag("a", &image(&store, b"layer")[0]).unwrap();
            store.put(&b"other"[..], None).unwrap();
        }
        let store = Store::open(Some(dir.path())).unwrap();
        let mut limits = Limits {
            max_size: Some(0),
            ..Limits::default()
        };
        let done = store.gc(&limits).unwrap();
        assert_eq!((done.removed.len(), store.refs().unwrap().len()), (1, 1));
        assert_eq!(done.left, done.named);
        limits.all = true;
        let done = store.gc(&limits).unwrap();
        assert_eq!((done.removed.len(), done.left), (3, 0));
        assert!(store.refs().unwrap().is_empty());
    }

    #[test]
    fn with_all_a_part_goes_that_no_process_holds() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let parts = ["held", "left"].map(|name| store.part(&Digest::of(name.as_bytes())).unwrap());
        for part in &parts {
            std::fs::write(part, "1234").unwrap();
        }
        let held = File::open(&parts[0]).unwrap();
        held.lock().unwrap();
        let nothing = Limits {
            max_size: Some(0),
            ..Limits::default()
        };
        assert_eq!(store.gc(&nothing).unwrap().freed, 0, "they are young");
        let all = Limits {
            all: true,
            ..nothing
        };
        assert_eq!(store.gc(&all).unwrap().freed, 4);
        assert!(parts[0].exists() && !parts[1].exists());
    }

    #[test]
    fn what_a_killed_process_left_goes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        store.prepare().unwrap();
        let lock = dir.path().join("locks").join("0".repeat(64));
        std::fs::write(&lock, "").unwrap();
        std::fs::write(dir.path().join("leases/1-2"), "").unwrap();
        std::fs::write(dir.path().join("tmp/x"), "123").unwrap();
        let unnamed = dir.path().join("actions/.tmp-x");
        let file = File::create(&unnamed).unwrap();
        file.set_modified(SystemTime::now() - DAY * 2).unwrap();
        let held = store.alone(&Digest::of(b"held")).unwrap();
        assert_eq!(store.gc(&Limits::default()).unwrap().freed, 3);
        assert!(!lock.exists() && !unnamed.exists());
        assert!(entries(&dir.path().join("leases")).unwrap().is_empty());
        assert_eq!(entries(&dir.path().join("locks")).unwrap().len(), 2);
        drop(held);
    }
}
