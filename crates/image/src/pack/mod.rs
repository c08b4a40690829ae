//! Compresses any content to a blob: packages, compiled files, everything that is not a wheel.
//!
//! In: bytes, most often a tar, as they are produced. Out: the compressed bytes, and a [`Layer`] with both
//! digests, in one pass and on all cores. The content is cut into pieces of one size, each of which becomes
//! a gzip member or a zstd frame of its own, so the output depends on the content and the [`Compression`]
//! alone, never on the number of threads. Holds a few pieces for each thread, whatever the size of the
//! content.
//!
//! Sources: RFC 1952, section 2.2 (concatenated members are one file); RFC 8878, section 3 (frames).

mod compress;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use compress::Compressor;

use crate::oci::Layer;
use stackforge_types::{Digest, Sha256};

pub use compress::Compression;

/// Message of an error whose cause is lost.
pub const ENDED: &str = "a thread that compresses ended early";
/// More threads would wait for the digests and hold memory.
const MAX_THREADS: usize = 64;

/// Why packing failed.
#[derive(Debug, thiserror::Error)]
pub enum PackError<E> {
    /// Making the content failed.
    #[error(transparent)]
    Content(E),
    /// The output failed.
    #[error("writing the compressed layer")]
    Write(#[source] io::Error),
    /// A thread ended before its work was done, which is a bug of this program.
    #[error("{ENDED}")]
    Thread,
}

/// A piece of content, and the channel for its compressed bytes.
type Job = (Arc<Vec<u8>>, SyncSender<io::Result<Vec<u8>>>);

/// Takes the content and cuts it into pieces.
pub struct Sink {
    piece: Vec<u8>,
    size: usize,
    plain: u64,
    pieces: SyncSender<Job>,
    order: SyncSender<Receiver<io::Result<Vec<u8>>>>,
    sum: SyncSender<Arc<Vec<u8>>>,
}

impl Sink {
    fn send(&mut self) -> io::Result<()> {
        let piece = Arc::new(std::mem::replace(
            &mut self.piece,
            Vec::with_capacity(self.size),
        ));
        self.plain += piece.len() as u64;
        let (sender, receiver) = sync_channel(1);
        let ended = |()| io::Error::from(io::ErrorKind::BrokenPipe);
        let sent = self.order.send(receiver).map_err(drop);
        let sent = sent.and_then(|()| self.sum.send(Arc::clone(&piece)).map_err(drop));
        let sent = sent.and_then(|()| self.pieces.send((piece, sender)).map_err(drop));
        sent.map_err(ended)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(self.size - self.piece.len());
        self.piece.extend_from_slice(&bytes[..len]);
        if self.piece.len() == self.size {
            self.send()?;
        }
        Ok(len)
    }

    /// Does nothing: a piece ends when it is full, not when the writer flushes.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Packs what `make` writes into `out`, with `threads` compressing threads. Bytes written before an error
/// are not a valid layer.
///
/// # Errors
/// What `make` fails with, or [`PackError`].
pub fn pack<E>(
    compression: Compression,
    threads: usize,
    out: impl Write + Send,
    make: impl FnOnce(&mut Sink) -> Result<(), E>,
) -> Result<Layer, PackError<E>>
where
    E: From<io::Error>,
{
    let threads = threads.clamp(1, MAX_THREADS);
    let (pieces, to_compress) = sync_channel(threads);
    let (order, compressed) = sync_channel(2 * threads);
    let (sum, to_sum) = sync_channel::<Arc<Vec<u8>>>(2 * threads);
    let to_compress = Mutex::new(to_compress);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(compression, &to_compress));
        }
        let summing = scope.spawn(move || {
            let mut hash = Sha256::new();
            to_sum.iter().for_each(|piece| hash.update(&**piece));
            hash
        });
        let writing = scope.spawn(move || write(out, &compressed));
        let size = compression.piece();
        let mut sink = Sink {
            piece: Vec::with_capacity(size),
            size,
            plain: 0,
            pieces,
            order,
            sum,
        };
        let mut made = make(&mut sink);
        if made.is_ok() && (!sink.piece.is_empty() || sink.plain == 0) {
            made = sink.send().map_err(E::from);
        }
        let plain_size = sink.plain;
        drop(sink);
        let written = writing.join().map_err(|_| PackError::Thread)?;
        let sum = summing.join().map_err(|_| PackError::Thread)?;
        // A failed output makes `make` fail too, so its error is the cause and comes first.
        let (hash, size) = written.map_err(PackError::Write)?;
        made.map_err(PackError::Content)?;
        Ok(Layer::new(
            compression.media_type(),
            Digest::from_hash(&hash.finalize()),
            Digest::from_hash(&sum.finalize()),
            size,
            plain_size,
        ))
    })
}

type Jobs = Mutex<Receiver<(Arc<Vec<u8>>, SyncSender<io::Result<Vec<u8>>>)>>;

fn work(compression: Compression, jobs: &Jobs) {
    let mut compressor = Compressor::new(compression);
    loop {
        let job = jobs.lock().map(|jobs| jobs.recv());
        let Ok(Ok((piece, made))) = job else { return };
        // Nobody receives it if the output has failed.
        let _ = made.send(compressor.compress(&piece));
    }
}

fn write(
    mut out: impl Write,
    compressed: &Receiver<Receiver<io::Result<Vec<u8>>>>,
) -> io::Result<(Sha256, u64)> {
    let (mut hash, mut size) = (Sha256::new(), 0);
    for piece in compressed {
        let ended = |_| io::Error::other(ENDED);
        let bytes = piece.recv().map_err(ended)??;
        out.write_all(&bytes)?;
        hash.update(&bytes);
        size += bytes.len() as u64;
    }
    out.flush()?;
    Ok((hash, size))
}
