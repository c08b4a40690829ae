//! SHA-256 of streams, each on a thread of its own.
//!
//! In: pieces, shared between the sums that they are part of. Out: digests. A digest is serial, so
//! the tar, the files in it and the compressed layer have a thread each.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use sha2::{Digest as _, Sha256};

use super::LayerError;
use super::record;

/// Pieces that may wait.
const WAITING: usize = 8;

pub(super) enum Piece {
    Bytes(Arc<Vec<u8>>),
    /// One digest ends, the next begins.
    End,
}

pub(super) struct Sums<'scope> {
    pieces: SyncSender<Piece>,
    digests: ScopedJoinHandle<'scope, Vec<record::Sha256>>,
}

impl<'scope> Sums<'scope> {
    pub fn start<'env>(scope: &'scope Scope<'scope, 'env>) -> Self {
        let (pieces, received) = sync_channel(WAITING);
        let digests = scope.spawn(move || sum(received));
        Self { pieces, digests }
    }

    pub fn put(&self, piece: Piece) -> Result<(), LayerError> {
        self.pieces.send(piece).map_err(|_| LayerError::Thread)
    }

    /// One digest for each `End`.
    pub fn finish(self) -> Result<Vec<record::Sha256>, LayerError> {
        drop(self.pieces);
        self.digests.join().map_err(|_| LayerError::Thread)
    }
}

fn sum(pieces: Receiver<Piece>) -> Vec<record::Sha256> {
    let mut digests = Vec::new();
    let mut hash = Sha256::new();
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => hash.update(&*bytes),
            Piece::End => digests.push(hash.finalize_reset().into()),
        }
    }
    digests
}
