//! Writes the files of an image into a directory, while later layers are still being fetched.
//!
//! In: a [`Resolved`] image, and the digest of each blob that is complete and verified. Out: a directory that
//! replaces the previous one in one step, when all files are complete and synced. Until then the new files
//! are in a hidden directory beside it (`beside.rs`). A marker in the files' root names their image
//! (`marker.rs`), so one rename changes both, and the state that a killed process left can be read from the
//! directories alone. One process at a time works on a directory. Never: replaces, renames or removes a
//! directory that stackforge did not write; replaces a symbolic link by a directory; moves a mount; lets two
//! images share a file that a program can write to.
//!
//! Files that an earlier image beside the target has unchanged are taken from there (`records.rs`).

mod before;
mod beside;
mod earlier;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
mod job;
mod marker;
#[cfg(target_os = "linux")]
mod records;
mod rest;
mod target;
#[cfg(target_os = "linux")]
mod unpacker;

use super::PullError;
use super::resolve::Resolved;
use beside::Beside;
#[cfg(not(target_os = "linux"))]
use elsewhere::Records;
use job::Job;
use marker::Marker;
#[cfg(target_os = "linux")]
use records::Records;
use rest::Rest;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use stackforge_image::store::Store;
use stackforge_image::unpack::supported;
use stackforge_types::{Cancel, Digest};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use target::{State, Target};
use tokio::sync::oneshot;
use tokio::task::block_in_place;

/// Time between two tries to take a lock that another process holds.
const WAIT: Duration = Duration::from_millis(200);

pub struct Rootfs {
    whole: Option<Sender<Digest>>,
    unpacker: Option<JoinHandle<()>>,
    unpacked: Option<oneshot::Receiver<Result<Rest, PullError>>>,
    stop: Cancel,
    beside: Beside,
    /// Whether there is nothing to clean up on drop.
    done: bool,
    /// The last field, so that its lock is released last.
    target: Target,
}

impl Rootfs {
    /// Prepares each of `directories` that does not hold the image yet. Waits for other processes that write to
    /// them.
    pub async fn begin(
        directories: impl Iterator<Item = &Path>,
        resolved: &Resolved,
        store: &Store,
        keep: u32,
    ) -> Result<Vec<Self>, PullError> {
        Self::begin_beside(directories, resolved, store, keep, None).await
    }

    /// As [`Rootfs::begin`] for a directory that no program uses: its files may move to the new image. Files are
    /// also taken from the directory `current`.
    pub async fn begin_unused(
        directory: &Path,
        current: &Path,
        resolved: &Resolved,
        store: &Store,
    ) -> Result<Vec<Self>, PullError> {
        Self::begin_beside(
            std::iter::once(directory),
            resolved,
            store,
            0,
            Some(current),
        )
        .await
    }

    async fn begin_beside(
        directories: impl Iterator<Item = &Path>,
        resolved: &Resolved,
        store: &Store,
        keep: u32,
        current: Option<&Path>,
    ) -> Result<Vec<Self>, PullError> {
        let targets: Result<Vec<Target>, PullError> = directories.map(Target::find).collect();
        let mut targets = targets?;
        if let (Some(first), Err(source)) = (targets.first(), supported()) {
            let path = first.path().to_owned();
            return Err(PullError::Unpack { path, source });
        }
        // Lock in one order, so that two processes never wait for each other.
        targets.sort_by(|a, b| a.path().cmp(b.path()));
        targets.dedup_by(|a, b| a.path() == b.path());
        let mut all = Vec::new();
        for mut target in targets {
            wait(&mut target).await?;
            all.extend(block_in_place(|| {
                Self::one(target, resolved, store, keep, current)
            })?);
        }
        Ok(all)
    }

    fn one(
        target: Target,
        resolved: &Resolved,
        store: &Store,
        keep: u32,
        current: Option<&Path>,
    ) -> Result<Option<Self>, PullError> {
        let digest = &resolved.manifest.digest;
        target.unmounted()?;
        earlier::take_over(&target).map_err(|e| PullError::io("mark", target.path(), e))?;
        for left in Beside::leftovers(&target)? {
            if let Some(tree) = left.recover()? {
                before::enter(&target, &left, &tree, keep)?;
            }
            left.close()?;
        }
        match target.state()? {
            State::Image(marker) if marker.digest.as_ref() == Some(digest) => {
                let more = before::after(&target, keep)?;
                if !more.is_empty() {
                    let beside = Beside::make(&target, digest)?;
                    more.iter().try_for_each(|tree| beside.discard(tree))?;
                    beside.close()?;
                }
                return Ok(None);
            }
            State::Image(_) | State::Empty => {}
            State::Foreign => return Err(PullError::InTheWay(target.path().to_owned())),
        }
        before::free(&target, keep)?;
        let mut trees = before::beside(&target, keep)?;
        trees.push((target.path().to_owned(), current.is_some()));
        trees.extend(current.map(|path| (path.to_owned(), false)));
        let beside = Beside::make(&target, digest)?;
        let (sender, receiver) = channel();
        let stop = Cancel::new();
        let (result, unpacked) = oneshot::channel();
        let mut rootfs = Self {
            whole: Some(sender),
            unpacker: None,
            unpacked: Some(unpacked),
            stop: stop.clone(),
            beside,
            done: false,
            target,
        };
        let job = Job {
            root: store.root().to_owned(),
            config: resolved.blobs.first().map(|blob| blob.digest.clone()),
            layers: resolved.layers.clone(),
            into: rootfs.beside.grow()?,
            staged: rootfs.beside.staged(),
            gone: rootfs.beside.gone(),
            records: Records::of(store, digest)?,
            trees,
            whole: BTreeSet::new(),
            receiver,
            stop,
        };
        rootfs.unpacker = Some(std::thread::spawn(move || {
            // After a cancellation nobody receives the result.
            let _ = result.send(job.run());
        }));
        Ok(Some(rootfs))
    }

    /// Tells the unpacker that a blob is in the store and verified.
    pub fn blob_stored(&self, digest: &Digest) {
        if let Some(sender) = &self.whole {
            // If the unpacker has failed, `finish` reports the reason.
            let _ = sender.send(digest.clone());
        }
    }

    /// Waits until everything is unpacked, and puts it in its place. The `keep` latest previous images stay as
    /// `DIR~1` and so on.
    pub async fn finish(mut self, keep: u32) -> Result<(), PullError> {
        drop(self.whole.take());
        let unpacked = self.unpacked.take().ok_or(PullError::Thread)?;
        let rest = unpacked.await.map_err(|_| PullError::Thread)??;
        block_in_place(|| self.replace(keep, rest))
    }

    fn replace(&mut self, keep: u32, rest: Rest) -> Result<(), PullError> {
        let (root, rest) = std::thread::scope(|scope| {
            let rest = scope.spawn(|| rest.finish());
            (self.beside.ripen(), rest.join())
        });
        rest.map_err(|_| PullError::Thread)??;
        let root = root?;
        self.place(&root)?;
        self.target.sync()?;
        if root.symlink_metadata().is_ok() {
            before::enter(&self.target, &self.beside, &root, keep)?;
        }
        for more in before::after(&self.target, keep)? {
            self.beside.discard(&more)?;
        }
        self.beside.close()?;
        self.done = true;
        Ok(())
    }

    /// Exchanges the new files with the target's. The previous files, if there were any, are at `root` then.
    fn place(&self, root: &Path) -> Result<(), PullError> {
        let path = self.target.path();
        let failed = |e| PullError::io("replace", path, e);
        let exchange = || renameat_with(CWD, root, CWD, path, RenameFlags::EXCHANGE);
        let in_the_way = || PullError::InTheWay(path.to_owned());
        // Other processes may have changed it while layers were fetched.
        self.target.unmounted()?;
        match self.target.state()? {
            State::Foreign => return Err(in_the_way()),
            // rename(2) replaces an empty directory and no other one.
            State::Empty => return fs::rename(root, path).map_err(failed),
            State::Image(_) => exchange().map_err(|e| failed(e.into()))?,
        }
        if Marker::read(root).is_none() {
            exchange().map_err(|e| failed(e.into()))?;
            return Err(in_the_way());
        }
        Ok(())
    }
}

/// Returns the image whose files a directory holds. `None` if stackforge did not write the directory.
pub fn image_in(directory: &Path) -> Option<Digest> {
    Marker::read(directory)?.digest
}

/// Fails if an image must not replace the directory.
pub fn replaceable(directory: &Path) -> Result<(), PullError> {
    let target = Target::find(directory)?;
    target.unmounted()?;
    match target.state()? {
        State::Foreign => Err(PullError::InTheWay(target.path().to_owned())),
        State::Image(_) | State::Empty => Ok(()),
    }
}

/// Exchanges the files of two directories in one step. If one of them is empty or missing, the files move
/// there. Both have the same parent directory.
pub fn exchange(one: &Path, other: &Path) -> Result<(), PullError> {
    replaceable(one)?;
    replaceable(other)?;
    let (one, other) = (Target::find(one)?, Target::find(other)?);
    let (from, to) = match (one.state()?, other.state()?) {
        (State::Empty, State::Empty) => return Ok(()),
        (State::Empty, _) => (&other, &one),
        (_, State::Empty) => (&one, &other),
        _ => {
            let both = (one.path(), other.path());
            renameat_with(CWD, both.0, CWD, both.1, RenameFlags::EXCHANGE)
                .map_err(|e| PullError::io("replace", both.0, e.into()))?;
            return one.sync();
        }
    };
    // rename(2) replaces an empty directory and no other one.
    fs::rename(from.path(), to.path()).map_err(|e| PullError::io("replace", to.path(), e))?;
    to.sync()
}

impl Drop for Rootfs {
    fn drop(&mut self) {
        self.stop.cancel();
        drop(self.whole.take());
        if let Some(unpacker) = self.unpacker.take() {
            let _ = unpacker.join();
        }
        if self.done {
            return;
        }
        let left = match self.beside.recover() {
            Ok(None) => self.beside.close(),
            // The next pull gives the previous image its name.
            Ok(Some(_)) => Ok(()),
            Err(e) => Err(e),
        };
        if let Err(e) = left {
            tracing::warn!("what was begun stays: {e}");
        }
    }
}

/// Takes the lock on a target.
async fn wait(target: &mut Target) -> Result<(), PullError> {
    let mut warned = false;
    while !target.try_lock()? {
        if !std::mem::replace(&mut warned, true) {
            let path = target.path().display();
            tracing::warn!("another pull writes {path}: waiting until it ends");
        }
        tokio::time::sleep(WAIT).await;
    }
    Ok(())
}

/// Renames, but never replaces an existing file or directory.
fn rename(from: &Path, to: &Path) -> Result<(), PullError> {
    let renamed = match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support NOREPLACE: then an empty directory may be replaced.
        Err(Errno::INVAL) => fs::rename(from, to),
        renamed => renamed.map_err(Into::into),
    };
    renamed.map_err(|e| PullError::io("rename", from, e))
}
