//! Unpacks a layer, and reads it for the audit, while it is made: the bytes of its tar pass once.
//!
//! In: the pieces of a layer's tar, in order. Out: what could be made of them, a directory of the store and a
//! [`LayerReading`]. What could not be made is made from the layer's blob when it is wanted, which says why.

use super::super::BuildError;
use stackforge_audit::LayerReading;
use stackforge_image::Layer;
use stackforge_image::store::{Store, UnnamedTree};
use stackforge_image::unpack::{Owner, unpack};
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle, scope};

/// Small pieces are passed on together: waking a thread costs more than unpacking a small file.
const BATCH: usize = 256 << 10;
const PIECES: usize = 256;
/// Most batches that a reader is behind.
const WAITING: usize = 8;

type Batch = Vec<Arc<Vec<u8>>>;

/// Directories and readings of layers, made before the validation and the audit ask for them.
#[derive(Default)]
pub(super) struct Ahead {
    /// With their sizes in bytes. They get names only when they are wanted: that syncs them.
    trees: BTreeMap<Digest, (UnnamedTree, u64)>,
    readings: BTreeMap<Digest, LayerReading>,
}

impl Ahead {
    /// Calls `make` with a function that takes the pieces of the layer's tar; `make` returns the layer's diff ID
    /// too. With `unpacks` the layer is unpacked.
    pub fn watch<T>(
        &mut self,
        store: &Store,
        unpacks: bool,
        make: impl FnOnce(&mut dyn FnMut(&Arc<Vec<u8>>)) -> Result<(Digest, T), BuildError>,
    ) -> Result<T, BuildError> {
        let (made, tree, reading) = scope(|scope| {
            let mut pieces = Pieces::default();
            let tree = unpacks.then(|| pieces.reader(scope, |tar| unpacked(store, tar)));
            let reading = pieces.reader(scope, |tar| LayerReading::of(tar).ok());
            let made = make(&mut |piece| pieces.put(piece));
            if made.is_ok() {
                pieces.end();
            } else {
                drop(pieces);
            }
            let tree = tree.and_then(joined);
            (made, tree, joined(reading))
        });
        let (diff_id, made) = made?;
        if let Some(tree) = tree {
            self.trees.insert(diff_id.clone(), tree);
        }
        if let Some(reading) = reading {
            self.readings.insert(diff_id, reading);
        }
        Ok(made)
    }

    /// Gives the directories of these layers their names, under which unpacking finds them.
    pub fn name_trees(&mut self, store: &Store, of: &[Layer]) -> Result<(), BuildError> {
        for layer in of {
            if let Some((tree, bytes)) = self.trees.remove(&layer.diff_id) {
                store.name_tree(&layer.diff_id, tree, bytes)?;
            }
        }
        Ok(())
    }

    /// Hands over what was read, by diff ID.
    pub fn take_readings(&mut self) -> BTreeMap<Digest, LayerReading> {
        std::mem::take(&mut self.readings)
    }
}

fn unpacked(store: &Store, tar: impl Read) -> Option<(UnnamedTree, u64)> {
    let tree = store.unnamed_tree().ok()?;
    let unpacked = unpack(tar, tree.root(), Owner::of_process()).ok()?;
    Some((tree, unpacked.content))
}

/// Returns what a reader made. One that failed, or did not get all, made nothing.
fn joined<T>(reader: ScopedJoinHandle<'_, Option<T>>) -> Option<T> {
    reader.join().ok().flatten()
}

/// Passes pieces to readers, each on a thread of its own.
#[derive(Default)]
struct Pieces {
    batch: Batch,
    bytes: usize,
    /// None for one that has ended.
    readers: Vec<Option<SyncSender<Option<Batch>>>>,
}

impl Pieces {
    fn reader<'scope, T: Send + 'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        read: impl FnOnce(&mut Tar) -> Option<T> + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, Option<T>> {
        let (batches, received) = sync_channel(WAITING);
        self.readers.push(Some(batches));
        scope.spawn(move || {
            let mut tar = Tar::new(received);
            let made = read(&mut tar)?;
            // A reader may stop at the end of the archive, before the end of the stream.
            io::copy(&mut tar, &mut io::sink()).ok()?;
            Some(made)
        })
    }

    fn put(&mut self, piece: &Arc<Vec<u8>>) {
        self.bytes += piece.len();
        self.batch.push(Arc::clone(piece));
        if self.bytes >= BATCH || self.batch.len() >= PIECES {
            self.send();
        }
    }

    fn send(&mut self) {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        for reader in &mut self.readers {
            if let Some(batches) = reader
                && batches.send(Some(batch.clone())).is_err()
            {
                *reader = None;
            }
        }
    }

    /// Says that these were all.
    fn end(mut self) {
        self.send();
        for batches in self.readers.iter().flatten() {
            let _ = batches.send(None);
        }
    }
}

/// A tar of which pieces arrive. It fails where they end without saying that they were all.
struct Tar {
    batches: Receiver<Option<Batch>>,
    batch: std::vec::IntoIter<Arc<Vec<u8>>>,
    piece: Arc<Vec<u8>>,
    at: usize,
    is_whole: bool,
}

impl Tar {
    fn new(batches: Receiver<Option<Batch>>) -> Self {
        Self {
            batches,
            batch: Vec::new().into_iter(),
            piece: Arc::default(),
            at: 0,
            is_whole: false,
        }
    }
}

impl Read for Tar {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            if let Some(piece) = self.batch.next() {
                (self.piece, self.at) = (piece, 0);
            } else if self.is_whole {
                return Ok(0);
            } else {
                match self.batches.recv() {
                    Ok(Some(batch)) => self.batch = batch.into_iter(),
                    Ok(None) => self.is_whole = true,
                    Err(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
        }
        let rest = &self.piece[self.at..];
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        self.at += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stackforge_binary::tar::{Attributes, Format, Writer};
    use std::path::Path;

    fn tar() -> Vec<u8> {
        let mut tar = Writer::new(Format::Ustar, Vec::new());
        tar.directory("opt", Attributes::new(0o755)).unwrap();
        for n in 0..300u32 {
            let content = vec![n as u8; n as usize * 37];
            let size = content.len() as u64;
            let path = format!("opt/f{n}");
            tar.file(&path, Attributes::new(0o644), size, &content[..])
                .unwrap();
        }
        tar.finish().unwrap()
    }

    fn layer(diff_id: &Digest) -> Layer {
        Layer::new("", diff_id.clone(), diff_id.clone(), 0, 0)
    }

    fn left(folder: &Path) -> usize {
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn pieces_of_any_size_are_one_tar(mut sizes in prop::collection::vec(0usize..9000, 1..5)) {
            sizes.push(1000);
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(Some(dir.path())).unwrap();
            let (tar, mut ahead) = (tar(), Ahead::default());
            let diff_id = Digest::of(&tar);
            ahead
                .watch(&store, true, |on_plain| {
                    let (mut rest, mut sizes) = (&tar[..], sizes.iter().cycle());
                    while !rest.is_empty() {
                        let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                        on_plain(&Arc::new(piece.to_vec()));
                        rest = after;
                    }
                    Ok((diff_id.clone(), ()))
                })
                .unwrap();
            prop_assert!(ahead.take_readings().contains_key(&diff_id));
            ahead.name_trees(&store, &[layer(&diff_id)]).unwrap();
            let tree = store.tree(&diff_id, |_| Err::<u64, BuildError>(BuildError::Stopped)).unwrap();
            prop_assert_eq!(left(&tree.join("opt")), 300);
            prop_assert_eq!(std::fs::read(tree.join("opt/f299")).unwrap(), vec![43; 299 * 37]);
            prop_assert_eq!(left(&dir.path().join("tmp")), 0);
        }
    }

    #[test]
    fn what_is_not_whole_is_neither_a_tree_nor_a_reading() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let (tar, mut ahead) = (tar(), Ahead::default());
        let diff_id = Digest::of(&tar);
        // Writing fails after all of the tar was passed on.
        let made = ahead.watch(&store, true, |on_plain| {
            on_plain(&Arc::new(tar.clone()));
            Err::<(Digest, ()), _>(BuildError::Stopped)
        });
        assert!(made.is_err());
        // The pieces are not a tar; writing the layer succeeds all the same.
        let made = ahead.watch(&store, true, |on_plain| {
            for _ in 0..100 {
                on_plain(&Arc::new(vec![7; 100_000]));
            }
            Ok((diff_id.clone(), 5))
        });
        assert_eq!(made.unwrap(), 5);
        assert!(ahead.trees.is_empty() && ahead.readings.is_empty());
        assert_eq!(left(&dir.path().join("tmp")), 0);
    }

    #[test]
    fn what_does_not_run_here_is_read_and_not_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let (tar, mut ahead) = (tar(), Ahead::default());
        let diff_id = Digest::of(&tar);
        let made = ahead.watch(&store, false, |on_plain| {
            on_plain(&Arc::new(tar.clone()));
            Ok((diff_id.clone(), ()))
        });
        made.unwrap();
        assert!(ahead.trees.is_empty() && ahead.readings.contains_key(&diff_id));
    }
}
