//! The thread that unpacks layers as they arrive, the lowest first; or builds the tree from earlier ones, when
//! the layers that none of them has are unpacked.

use super::job::Job;
use super::records::Directory;
use super::rest::Rest;
use crate::pull::PullError;
use crate::pull::room::Room;
use stackforge_image::Layer;
use stackforge_image::oci::{Proof, parse};
use stackforge_image::unpack::update::{Listing, Record, Tree, TreeUpdate, UpdateError};
use stackforge_image::unpack::{self, Owner};
use stackforge_types::{Cancel, Digest};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

/// Bytes of one piece that is read ahead of the writer; `PIECES` of them may wait.
const PIECE: usize = 256 << 10;
const PIECES: usize = 16;

/// The fetch failed and reports the reason.
struct NotFetched;

type Maybe<T> = Result<Result<T, UpdateError>, NotFetched>;

impl Job {
    /// Returns what is left to do once the files are there.
    pub fn run(mut self) -> Result<Rest, PullError> {
        let Some(config) = self.config.clone() else {
            return Ok(Rest::default());
        };
        if self.wait(&config).is_err() {
            return Ok(Rest::default());
        }
        let path = self.root.join("blobs/sha256").join(config.hex());
        let bytes = fs::read(&path).map_err(|e| PullError::io("read", &path, e))?;
        let (_, diff_ids) = parse::config("the configuration", &bytes)?;
        let layers: Result<Vec<Layer>, _> = (self.layers.iter().zip(diff_ids))
            .map(|(descriptor, diff_id)| Layer::of_blob(&self.root, descriptor, diff_id))
            .collect();
        let layers = layers?;
        match self.update(&layers) {
            Err(NotFetched) => return Ok(Rest::default()),
            Ok(Ok(Some(rest))) => return Ok(rest),
            Ok(Ok(None)) => {}
            Ok(Err(e)) => tracing::debug!("{} is unpacked anew: {e}", self.into.display()),
        }
        if self.stop.is_cancelled() {
            return Ok(Rest::default());
        }
        self.empty()
            .map_err(|e| PullError::io("empty", &self.into, e))?;
        self.anew(&layers)
    }

    /// Builds the tree from earlier ones. `None` if there are none with one of the layers.
    fn update(&mut self, layers: &[Layer]) -> Maybe<Option<Rest>> {
        let diff_ids: Vec<Digest> = layers.iter().map(|layer| layer.diff_id.clone()).collect();
        let trees = self.trees.iter();
        let mut spare = None;
        let trees = trees.filter_map(|(path, is_spare)| {
            let record = self.records.read(path)?;
            // Only one loses its name before its files move.
            let is_spare = *is_spare && spare.is_none();
            if is_spare {
                spare = Some(path.to_owned());
            }
            Some(Tree {
                path,
                record,
                is_spare,
            })
        });
        let trees: Vec<Tree<'_>> = trees.collect();
        if trees.is_empty() {
            return Ok(Ok(None));
        }
        let begun = DirBuilder::new().mode(0o700).create(&self.staged);
        let owner = Owner::of_process();
        let begun = begun
            .map_err(UpdateError::from)
            .and_then(|()| TreeUpdate::begin(&diff_ids, trees, &self.staged, owner));
        let mut update = match begun {
            Ok(Some(update)) => update,
            Ok(None) => return Ok(Ok(None)),
            Err(e) => return Ok(Err(e)),
        };
        for (n, layer) in layers.iter().enumerate() {
            self.wait(&layer.digest)?;
            if !update.knows(n)
                && let Err(e) = self.ahead(layer, |tar| update.stage(n, tar))
            {
                return Ok(Err(e));
            }
        }
        Ok(self.build(update, layers, spare.as_deref()).map(Some))
    }

    /// Builds the tree when all layers are there. `spare` loses its name.
    fn build(
        &self,
        mut update: TreeUpdate,
        layers: &[Layer],
        spare: Option<&Path>,
    ) -> Result<Rest, UpdateError> {
        for (n, members) in update.plan()? {
            let layer = layers
                .get(n)
                .ok_or(UpdateError::Unclear("a layer is missing"))?;
            self.ahead(layer, |tar| update.fill(n, &members, tar))?;
        }
        if let Some(spare) = spare {
            // From here on nobody finds an incomplete tree under its name.
            super::rename(spare, &self.gone).map_err(io::Error::other)?;
        }
        let (sources, record) = update.write(&self.into, &|| self.stop.is_cancelled())?;
        tracing::debug!("{}: {sources:?}", self.into.display());
        Ok(Rest {
            used: vec![self.gone.clone(), self.staged.clone()],
            record: Some((self.records.clone(), Directory::of(&self.into)?, record)),
        })
    }

    /// Removes what an attempt to use earlier trees left.
    fn empty(&self) -> io::Result<()> {
        for used in [&self.gone, &self.staged, &self.into] {
            if used.symlink_metadata().is_ok() {
                stackforge_types::remove(used)?;
            }
        }
        fs::create_dir(&self.into)?;
        // The umask may have reduced the mode.
        fs::set_permissions(&self.into, Permissions::from_mode(0o755))
    }

    /// Unpacks all layers.
    fn anew(&mut self, layers: &[Layer]) -> Result<Rest, PullError> {
        let mut listings = Vec::new();
        for layer in layers {
            if self.wait(&layer.digest).is_err() {
                return Ok(Rest::default());
            }
            let mut listing = Listing::default();
            let unpacked = self.ahead(layer, |tar| {
                let list = &mut |header: &_| listing.add(header);
                unpack::over_listed(tar, &self.into, Owner::of_process(), list)?;
                Ok::<_, UpdateError>(())
            });
            unpacked.map_err(|e| match e {
                UpdateError::Unpack(source) => PullError::Unpack {
                    path: self.into.clone(),
                    source,
                },
                UpdateError::Layer(e) => e.into(),
                e => PullError::io("unpack", &self.into, io::Error::other(e)),
            })?;
            listings.push((layer.diff_id.clone(), listing));
        }
        let is_complete = listings.iter().all(|(_, listing)| listing.is_complete());
        let recorded = is_complete.then(|| {
            let record = Record::of(&self.into, listings).ok().flatten()?;
            Some((
                self.records.clone(),
                Directory::of(&self.into).ok()?,
                record,
            ))
        });
        Ok(Rest {
            used: Vec::new(),
            record: recorded.flatten(),
        })
    }

    /// Reads a layer's tar ahead of `take`.
    fn ahead<T>(
        &self,
        layer: &Layer,
        take: impl FnOnce(Ahead<'_>) -> Result<T, UpdateError>,
    ) -> Result<T, UpdateError> {
        let (tar, proof) = layer.tar_of_verified()?;
        Ahead::read(tar, proof, Room::of(&self.into), &self.stop, take)
    }

    /// Waits for a blob.
    fn wait(&mut self, digest: &Digest) -> Result<(), NotFetched> {
        while !self.whole.contains(digest) {
            let whole = self.receiver.recv().map_err(|_| NotFetched)?;
            self.whole.insert(whole);
        }
        Ok(())
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
