//! The thread that unpacks layers as they arrive, the lowest first.

use crate::pull::PullError;
use crate::pull::room::Room;
use stackforge_image::Layer;
use stackforge_image::oci::{Proof, parse};
use stackforge_image::unpack::{self, Owner};
use stackforge_types::{Cancel, Digest};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};

/// Bytes of one piece that is read ahead of the writer; `PIECES` of them may wait.
const PIECE: usize = 256 << 10;
const PIECES: usize = 16;

pub(super) struct Job {
    pub root: PathBuf,
    pub config: Option<Digest>,
    pub layers: Vec<oci_spec::image::Descriptor>,
    pub into: PathBuf,
    pub whole: BTreeSet<Digest>,
    pub receiver: Receiver<Digest>,
    /// Cancelled when the files are not wanted any more.
    pub stop: Cancel,
}

impl Job {
    pub fn run(mut self) -> Result<(), PullError> {
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
            // The fetch failed and reports the reason.
            if !self.wait(&layer.digest) {
                return Ok(());
            }
            let (tar, proof) = layer.tar_of_verified()?;
            let room = Room::of(&self.into);
            let unpacked = Ahead::read(tar, proof, room, &self.stop, |tar| {
                unpack::over(tar, &self.into, Owner::of_process())
            });
            unpacked.map_err(|source| PullError::Unpack {
                path: self.into.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// Waits for a blob. Returns false if it will not come.
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

/// A tar that two threads read ahead, one inflating and one hashing, while this thread writes files.
struct Ahead<'a> {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
    /// Fails the reading if the disk gets full: a layer may be far larger than it states.
    room: Room,
    stop: &'a Cancel,
}

impl<'a> Ahead<'a> {
    fn read<T>(
        mut stream: impl Read + Send,
        mut proof: Proof,
        room: Room,
        stop: &'a Cancel,
        take: impl FnOnce(Self) -> T,
    ) -> T {
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
                    // The reader may have stopped early.
                    if sender.send(read).is_err() || last {
                        return;
                    }
                }
            });
            let (sender, pieces) = sync_channel(PIECES);
            scope.spawn(move || {
                for piece in inflated {
                    let proven = piece.and_then(|piece| {
                        if piece.is_empty() {
                            proof.verify()?
                        } else {
                            proof.update(&piece)
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
                room,
                stop,
            })
        })
    }
}

impl Read for Ahead<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.piece.read(buf)? {
                0 if !buf.is_empty() => match self.pieces.recv() {
                    Ok(Ok(piece)) if piece.is_empty() => return Ok(0),
                    Ok(_) if self.stop.is_cancelled() => {
                        return Err(io::Error::other("stopped"));
                    }
                    Ok(piece) => {
                        let piece = piece?;
                        self.room.take(piece.len() as u64)?;
                        self.piece = io::Cursor::new(piece);
                    }
                    // The hashing thread has ended, after sending the tar's end or an error.
                    Err(_) => return Ok(0),
                },
                n => return Ok(n),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_wants_any_more_is_given_up() {
        let stop = Cancel::new();
        let (sender, pieces) = sync_channel(PIECES);
        for _ in 0..2 {
            sender.send(Ok(vec![0; 4])).unwrap();
        }
        let mut tar = Ahead {
            pieces,
            piece: io::Cursor::default(),
            room: Room::of(&std::env::temp_dir()),
            stop: &stop,
        };
        assert_eq!(tar.read(&mut [0; 4]).unwrap(), 4);
        stop.cancel();
        assert_eq!(tar.read(&mut [0; 4]).unwrap_err().to_string(), "stopped");
    }
}
