//! The files of an image in a directory, unpacked while later layers are still fetched.
//!
//! In: a [`Resolved`] image, and word of each blob that is whole and verified. Out: a directory that
//! replaces the one before in one step, when all is there. Until then the new one grows beside it
//! under a name of its own; what a killed process left of that is removed by the next one. A
//! directory that stackforge did not write is never replaced: a file beside it tells.

use super::PullError;
use super::resolve::Resolved;
use crate::oci::{Layer, Proof, parse};
use crate::spec::nouns::Digest;
use crate::store::{Store, write_atomically};
use crate::unpack::{self, Owner};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use serde_json::json;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

/// What is read ahead of who writes: so much at a time, so often.
const PIECE: usize = 256 << 10;
const PIECES: usize = 16;

pub struct Rootfs {
    target: PathBuf,
    fresh: PathBuf,
    _lock: File,
    whole: Option<Sender<Digest>>,
    unpacker: Option<JoinHandle<Result<(), PullError>>>,
    /// Whether what lies at `fresh` is what was there before.
    placed: bool,
}

impl Rootfs {
    /// Gets ready for an image; none where the directory holds it already.
    pub fn begin(
        target: &Path,
        resolved: &Resolved,
        store: &Store,
    ) -> Result<Option<Self>, PullError> {
        let target = std::path::absolute(target)
            .map_err(|e| PullError::io("find the directory", target, e))?;
        if target.file_name().is_none() {
            return Err(PullError::InTheWay(target));
        }
        match there(&target)? {
            There::Image(digest) if digest == resolved.manifest.digest => return Ok(None),
            There::Image(_) | There::Nothing => {}
            There::Other => return Err(PullError::InTheWay(target)),
        }
        let above = target.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(above).map_err(|e| PullError::io("make", above, e))?;
        sweep(&target);
        let fresh = beside(&target, &format!(".new-{:016x}", fastrand::u64(..)));
        fs::create_dir(&fresh).map_err(|e| PullError::io("make", &fresh, e))?;
        let lock = lock(&fresh).map_err(|e| PullError::io("lock", &fresh, e))?;
        let (sender, receiver) = channel();
        let job = Job {
            root: store.root().to_owned(),
            config: resolved.blobs.first().map(|blob| blob.digest.clone()),
            layers: resolved.layers.clone(),
            into: fresh.clone(),
            whole: BTreeSet::new(),
            receiver,
        };
        Ok(Some(Self {
            target,
            fresh,
            _lock: lock,
            whole: Some(sender),
            unpacker: Some(std::thread::spawn(move || job.run())),
            placed: false,
        }))
    }

    /// A blob lies verified in the store.
    pub fn whole(&self, digest: &Digest) {
        if let Some(sender) = &self.whole {
            // When the unpacker has failed, `finish` says why.
            let _ = sender.send(digest.clone());
        }
    }

    /// Waits until all is unpacked, and puts it in its place. As many of those that were there before
    /// as `keep` says stay as `DIR~1` and so on.
    pub fn finish(mut self, digest: &Digest, keep: u32) -> Result<(), PullError> {
        drop(self.whole.take());
        let unpacked = self.unpacker.take().map(JoinHandle::join);
        unpacked
            .ok_or(PullError::Thread)?
            .map_err(|_| PullError::Thread)??;
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |e: rustix::io::Errno| PullError::io(doing, &path, e.into())
        };
        let folder = File::open(&self.fresh).map_err(|e| PullError::io("open", &self.fresh, e))?;
        rustix::fs::syncfs(&folder).map_err(failed("write", &self.fresh))?;
        let flags = match self.target.exists() {
            true => RenameFlags::EXCHANGE,
            false => RenameFlags::NOREPLACE,
        };
        renameat_with(CWD, &self.fresh, CWD, &self.target, flags)
            .map_err(failed("replace", &self.target))?;
        self.placed = true;
        let marker = json!({ "digest": digest }).to_string();
        let path = beside(&self.target, ".stackforge.json");
        write_atomically(&path, marker.as_bytes()).map_err(|e| PullError::io("write", &path, e))?;
        self.rotate(keep)
    }

    /// What was there lies under the name that the new one had.
    fn rotate(&self, keep: u32) -> Result<(), PullError> {
        // Nothing was there, or a directory without files.
        if !self.fresh.exists() || fs::remove_dir(&self.fresh).is_ok() {
            return Ok(());
        }
        let place = |n: u32| with(&self.target, &format!("~{n}"));
        for n in (keep.max(1)..).take_while(|n| place(*n).exists()) {
            remove(&place(n))?;
        }
        if keep == 0 {
            return remove(&self.fresh);
        }
        for n in (1..keep).rev().filter(|n| place(*n).exists()) {
            rename(&place(n), &place(n + 1))?;
        }
        rename(&self.fresh, &place(1))
    }
}

impl Drop for Rootfs {
    fn drop(&mut self) {
        drop(self.whole.take());
        if let Some(unpacker) = self.unpacker.take() {
            let _ = unpacker.join();
        }
        if !self.placed {
            let _ = remove(&self.fresh);
        }
    }
}

enum There {
    Nothing,
    Image(Digest),
    Other,
}

fn there(target: &Path) -> Result<There, PullError> {
    let mut entries = match fs::read_dir(target) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(There::Nothing),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Ok(There::Other),
        entries => entries.map_err(|e| PullError::io("list", target, e))?,
    };
    if entries.next().is_none() {
        return Ok(There::Nothing);
    }
    let marker = fs::read(beside(target, ".stackforge.json")).ok();
    let marker = marker.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    let digest = marker.and_then(|m| m["digest"].as_str()?.parse().ok());
    Ok(digest.map_or(There::Other, There::Image))
}

/// `.NAMEsuffix` in the same directory.
fn beside(target: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(suffix);
    target.with_file_name(name)
}

fn with(target: &Path, suffix: &str) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    target.with_file_name(name)
}

fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Removes what killed processes left.
fn sweep(target: &Path) {
    let start = beside(target, ".new-");
    let start = start.file_name().unwrap_or_default().to_string_lossy();
    let above = target.parent().unwrap_or(Path::new("/"));
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(&*start);
        if ours && let Ok(_lock) = lock(&entry.path()) {
            let _ = remove(&entry.path());
        }
    }
}

fn remove(folder: &Path) -> Result<(), PullError> {
    fs::remove_dir_all(folder).map_err(|e| PullError::io("remove", folder, e))
}

fn rename(from: &Path, to: &Path) -> Result<(), PullError> {
    fs::rename(from, to).map_err(|e| PullError::io("rename", from, e))
}

struct Job {
    root: PathBuf,
    config: Option<Digest>,
    layers: Vec<oci_spec::image::Descriptor>,
    into: PathBuf,
    whole: BTreeSet<Digest>,
    receiver: Receiver<Digest>,
}

impl Job {
    fn run(mut self) -> Result<(), PullError> {
        let Some(config) = self.config.clone() else {
            return Ok(());
        };
        if !self.wait(&config) {
            return Ok(());
        }
        let path = self.root.join("blobs/sha256").join(config.hex());
        let bytes = fs::read(&path).map_err(|e| PullError::io("read", &path, e))?;
        let (_, diff_ids) = parse::config("the configuration", &bytes)?;
        for (descriptor, diff_id) in self.layers.clone().iter().zip(diff_ids) {
            let layer = Layer::of_blob(&self.root, descriptor, diff_id)?;
            // The fetch has failed, and says why.
            if !self.wait(layer.digest()) {
                return Ok(());
            }
            let (tar, proof) = layer.tar_of_verified()?;
            let unpacked = Ahead::read(tar, proof, |tar| {
                unpack::over(tar, &self.into, Owner::of_process())
            });
            unpacked.map_err(|source| PullError::Unpack {
                path: self.into.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// Whether the blob came.
    fn wait(&mut self, digest: &Digest) -> bool {
        while !self.whole.contains(digest) {
            match self.receiver.recv() {
                Ok(whole) => self.whole.insert(whole),
                Err(_) => return false,
            };
        }
        true
    }
}

/// A tar that two threads read ahead: one inflates, one hashes, and this one writes files.
struct Ahead {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Ahead {
    fn read<T>(mut stream: impl Read + Send, mut proof: Proof, take: impl FnOnce(Self) -> T) -> T {
        std::thread::scope(|scope| {
            let (sender, inflated) = sync_channel(PIECES);
            scope.spawn(move || {
                loop {
                    let mut piece = vec![0; PIECE];
                    let read = unpack::fill(&mut stream, &mut piece).map(|n| {
                        piece.truncate(n);
                        piece
                    });
                    let last = read.as_ref().map_or(true, Vec::is_empty);
                    // Whoever reads may have enough.
                    if sender.send(read).is_err() || last {
                        return;
                    }
                }
            });
            let (sender, pieces) = sync_channel(PIECES);
            scope.spawn(move || {
                for piece in inflated {
                    let proven = piece.and_then(|piece| {
                        match piece.is_empty() {
                            true => proof.verify()?,
                            false => proof.update(&piece),
                        }
                        Ok(piece)
                    });
                    if sender.send(proven).is_err() {
                        return;
                    }
                }
            });
            take(Self {
                pieces,
                piece: io::Cursor::default(),
            })
        })
    }
}

impl Read for Ahead {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.piece.read(buf)? {
                0 if !buf.is_empty() => match self.pieces.recv() {
                    Ok(Ok(piece)) if piece.is_empty() => return Ok(0),
                    Ok(piece) => self.piece = io::Cursor::new(piece?),
                    // It has sent its end or its error.
                    Err(_) => return Ok(0),
                },
                n => return Ok(n),
            }
        }
    }
}
