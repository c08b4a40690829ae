//! Verifies every blob on all cores, and finds references to missing blobs.

use super::error::StoreError;
use super::files::remove;
use super::handle::{OnProgress, Store};
use super::lock::is_at;
use serde::Serialize;
use serde_json::Value;
use stackforge_types::{Digest, Platform, Sha256};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const PIECE: usize = 1 << 20;

/// A blob whose bytes do not have the digest in its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damaged {
    /// The digest in its name.
    pub digest: Digest,
    /// The digest of its bytes. `None` if they cannot be read.
    pub found: Option<Digest>,
    /// Size of its file in bytes.
    pub size: u64,
    /// Its file names.
    pub names: Vec<String>,
}

/// An object of a compile that lacks a part, or whose checksum is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamagedObject {
    /// The library that it belongs to.
    pub library: String,
    /// The platform that it is for.
    pub platform: Platform,
    /// Its file below the directory of the library's objects.
    pub name: String,
}

/// The result of verifying a store.
#[derive(Debug, Default, Serialize)]
pub struct Verified {
    /// Number of blobs that were read.
    pub blobs: usize,
    /// Bytes of the blobs.
    pub bytes: u64,
    /// Blobs whose bytes have another digest than their name.
    pub damaged: Vec<Damaged>,
    /// Number of objects of compiles that were read.
    pub objects: usize,
    /// Objects that are not what sccache wrote.
    pub damaged_objects: Vec<DamagedObject>,
    /// Keys of actions that cannot be read, or reference a missing or damaged blob.
    pub dangling: Vec<Digest>,
    /// Names of images with a missing or damaged blob.
    pub incomplete: Vec<String>,
    /// Why `index.json` cannot be read; `None` if it can.
    pub index: Option<String>,
    /// Names that a repair recovered from the damaged `index.json`.
    pub restored: Vec<String>,
    /// Where a repair kept the damaged `index.json`.
    pub aside: Option<PathBuf>,
    /// Whether a repair removed what was wrong.
    pub repaired: bool,
}

impl Verified {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty()
            && self.damaged_objects.is_empty()
            && self.dangling.is_empty()
            && self.incomplete.is_empty()
            && self.index.is_none()
    }
}

struct Checked {
    damaged: Damaged,
    /// The file that was read.
    file: Option<File>,
    path: PathBuf,
}

impl Store {
    /// Reads every blob. With `repair`, damaged blobs are removed with all references to them, so that they
    /// are fetched or made again.
    ///
    /// # Errors
    /// If the store cannot be read, or `on_progress` ends the check. Damaged blobs are not an error.
    pub fn verify(
        &self,
        repair: bool,
        on_progress: OnProgress<'_>,
    ) -> Result<Verified, StoreError> {
        let mut blobs: Vec<(Digest, PathBuf, u64)> = Vec::new();
        for (digest, path) in self.blobs()? {
            let size = std::fs::metadata(&path).map_or(0, |m| m.len());
            blobs.push((digest, path, size));
        }
        // The largest first, so that all cores finish at about the same time.
        blobs.sort_by_key(|blob| std::cmp::Reverse(blob.2));
        let bytes = blobs.iter().map(|b| b.2).sum();
        let mut damaged = check(&blobs, bytes, on_progress)?;
        let (objects, damaged_objects) =
            self.check_objects(repair, &|| on_progress(bytes, bytes))?;
        for blob in &mut damaged {
            blob.damaged.names = self.names_of(&blob.damaged.digest);
        }
        let bad: BTreeSet<Digest> = damaged.iter().map(|d| d.damaged.digest.clone()).collect();
        let mut out = Verified {
            blobs: blobs.len(),
            bytes,
            damaged: damaged.iter().map(|d| d.damaged.clone()).collect(),
            objects,
            damaged_objects,
            ..Verified::default()
        };
        let whole = |digest: &Digest| !bad.contains(digest) && self.blob_path(digest).is_file();
        for key in self.keys()? {
            let action = self.read_action(&key);
            if !action.is_some_and(|a| a.outputs.values().all(whole)) {
                out.dangling.push(key);
            }
        }
        match self.refs() {
            Ok(refs) => {
                for image in refs {
                    let closure = self.closure(&image.digest);
                    if !closure.missing.is_empty() || !closure.blobs.keys().all(whole) {
                        let name = image.name.unwrap_or_else(|| image.digest.to_string());
                        out.incomplete.push(name);
                    }
                }
            }
            Err(StoreError::Index { why, .. }) => out.index = Some(why),
            Err(e) => return Err(e),
        }
        if repair && !out.is_clean() {
            self.repair(&damaged, &mut out, &bad)?;
            out.repaired = true;
        }
        Ok(out)
    }

    /// Reads the objects of every library that no process uses, and returns how many there are and which are damaged.
    /// With `repair` those are removed.
    fn check_objects(
        &self,
        repair: bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(usize, Vec<DamagedObject>), StoreError> {
        let (mut count, mut damaged) = (0, Vec::new());
        for (platform, library) in self.libraries_with_objects()? {
            let Some(folder) = self.open_objects(platform, &library)? else {
                continue;
            };
            for name in folder.names()? {
                if !goes_on() {
                    return Err(StoreError::Interrupted);
                }
                count += 1;
                if folder.is_whole(&name) {
                    continue;
                }
                if repair {
                    folder.remove(&name)?;
                }
                damaged.push(DamagedObject {
                    library: library.clone(),
                    platform,
                    name,
                });
            }
        }
        Ok((count, damaged))
    }

    fn repair(
        &self,
        damaged: &[Checked],
        found: &mut Verified,
        bad: &BTreeSet<Digest>,
    ) -> Result<(), StoreError> {
        self.prepare()?;
        // Leases are taken under the shared lock, so nothing is leased while the exclusive one is held.
        let salvaged = match found.index {
            Some(_) => Some(self.salvage(&self.index_text()?)?),
            None => None,
        };
        let _alone = self.exclusive()?;
        if let Some(salvaged) = salvaged {
            found.aside = self.replace_index(&salvaged.entries)?;
            found.restored = salvaged.names;
            found.incomplete = salvaged.lost;
        }
        self.untag_without(bad)?;
        for key in &found.dangling {
            self.forget(key);
        }
        for blob in damaged {
            // Another process may have replaced the blob with a good one meanwhile.
            let same = blob.file.as_ref().is_none_or(|f| is_at(f, &blob.path));
            if same {
                self.forget_names(&blob.damaged.digest);
                remove(&blob.path)?;
            }
        }
        Ok(())
    }

    /// Writes a new index with these entries; returns where the old one is kept.
    fn replace_index(&self, entries: &[Value]) -> Result<Option<PathBuf>, StoreError> {
        let _lock = self.index_lock()?;
        let path = self.root().join("index.json");
        let failed = |e: io::Error| StoreError::at("write", &path, e);
        let aside = put_aside(&path)?;
        let empty = serde_json::from_str::<Value>(super::layout::EMPTY_INDEX);
        let mut index = empty.map_err(|e| failed(e.into()))?;
        index["manifests"] = entries.into();
        super::write_atomically(&path, index.to_string().as_bytes()).map_err(failed)?;
        Ok(aside)
    }
}

/// Keeps an unreadable file under an unused name: `index.json.damaged-1`, … The original also stays in
/// place, so that a killed repair can start again.
fn put_aside(path: &Path) -> Result<Option<PathBuf>, StoreError> {
    let free = (1..).map(|n| path.with_extension(format!("json.damaged-{n}")));
    let Some(aside) = free.into_iter().find(|aside| !aside.exists()) else {
        return Ok(None);
    };
    std::fs::hard_link(path, &aside)
        // Not every file system has hard links.
        .or_else(|_| std::fs::copy(path, &aside).map(drop))
        .map_err(|e| StoreError::at("put aside", path, e))?;
    Ok(Some(aside))
}

fn check(
    blobs: &[(Digest, PathBuf, u64)],
    total: u64,
    on_progress: OnProgress<'_>,
) -> Result<Vec<Checked>, StoreError> {
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let stopped = AtomicBool::new(false);
    let damaged = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let count = |bytes: u64| {
        let now = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if !on_progress(now, total) {
            stopped.store(true, Ordering::Relaxed);
        }
        !stopped.load(Ordering::Relaxed)
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(blobs.len()) {
            scope.spawn(|| {
                while let Some((digest, path, size)) =
                    blobs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let (file, found) = match File::open(path) {
                        // Collected by another process meanwhile.
                        Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                        Err(_) => (None, None),
                        Ok(mut file) => match hash(&mut file, &count) {
                            Ok(Some(found)) => (Some(file), Some(found)),
                            Ok(None) => return,
                            Err(_) => (Some(file), None),
                        },
                    };
                    if found.as_ref() == Some(digest) {
                        continue;
                    }
                    let damage = Checked {
                        damaged: Damaged {
                            digest: digest.clone(),
                            found,
                            size: *size,
                            names: Vec::new(),
                        },
                        file,
                        path: path.clone(),
                    };
                    damaged
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push(damage);
                }
            });
        }
    });
    if stopped.into_inner() {
        return Err(StoreError::Interrupted);
    }
    let mut damaged = damaged
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    damaged.sort_by(|a, b| a.damaged.digest.cmp(&b.damaged.digest));
    Ok(damaged)
}

/// Returns `None` once `count` ends the check.
fn hash(file: &mut File, count: &impl Fn(u64) -> bool) -> io::Result<Option<Digest>> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(Some(Digest::from_hash(&hash.finalize()))),
            Ok(read) => {
                hash.update(&piece[..read]);
                if !count(read as u64) {
                    return Ok(None);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
