//! Computes SHA-256 of streams, each on a thread of its own.
//!
//! In: pieces, shared between the sums that they are part of. Out: digests. A digest is computed serially,
//! so the tar, the files in it and the compressed layer have a thread each.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use stackforge_types::Sha256;

use super::LayerError;
use super::record;

/// Most batches that are queued.
const WAITING: usize = 4;
/// Small pieces are batched, up to so many bytes or pieces: waking a thread costs more than hashing a small
/// file.
const BATCH: usize = 256 << 10;
const PIECES: usize = 256;

pub(super) enum Piece {
    Bytes(Arc<Vec<u8>>),
    /// Ends one digest; the next piece starts another.
    End,
}

pub(super) struct Sums<'scope> {
    batch: Vec<Piece>,
    /// Bytes in the current batch.
    bytes: usize,
    batches: SyncSender<Vec<Piece>>,
    digests: ScopedJoinHandle<'scope, Vec<record::Sha256>>,
}

impl<'scope> Sums<'scope> {
    pub(super) fn start<'env>(scope: &'scope Scope<'scope, 'env>) -> Self {
        let (batches, received) = sync_channel(WAITING);
        Self {
            batch: Vec::new(),
            bytes: 0,
            batches,
            digests: scope.spawn(move || sum(received)),
        }
    }

    pub(super) fn put(&mut self, piece: Piece) -> Result<(), LayerError> {
        if let Piece::Bytes(bytes) = &piece {
            self.bytes += bytes.len();
        }
        self.batch.push(piece);
        if self.bytes >= BATCH || self.batch.len() >= PIECES {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), LayerError> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.batches.send(batch).map_err(|_| LayerError::Thread)
    }

    /// Returns one digest for each `End`.
    pub(super) fn finish(mut self) -> Result<Vec<record::Sha256>, LayerError> {
        self.send()?;
        drop(self.batches);
        self.digests.join().map_err(|_| LayerError::Thread)
    }
}

fn sum(batches: Receiver<Vec<Piece>>) -> Vec<record::Sha256> {
    let mut digests = Vec::new();
    let mut hash = Sha256::new();
    for piece in batches.into_iter().flatten() {
        match piece {
            Piece::Bytes(bytes) => hash.update(&*bytes),
            Piece::End => digests.push(hash.finalize_reset()),
        }
    }
    digests
}
