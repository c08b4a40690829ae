//! Decompresses the data of several packages in parallel and passes it on in order.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};

use super::deb::{Deb, DebError};

/// Chunks of decompressed data that may wait per package, and the size of a chunk in bytes.
const CHUNKS_AHEAD: usize = 64;
const CHUNK: usize = 256 << 10;

/// Passes each package's data to `visit` in the given order while other threads decompress the data of
/// the next packages.
pub(crate) fn for_each_data<E: From<DebError>>(
    order: &[usize],
    packages: &[Deb],
    mut visit: impl FnMut(usize, &mut dyn Read) -> Result<(), E>,
) -> Result<(), E> {
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
    std::thread::scope(|scope| {
        let mut waiting = VecDeque::new();
        let mut todo = order.iter();
        loop {
            while waiting.len() < threads
                && let Some(&index) = todo.next()
            {
                let mut data = packages[index].data()?;
                let (sender, receiver) = sync_channel(CHUNKS_AHEAD);
                scope.spawn(move || {
                    loop {
                        let mut chunk = Vec::with_capacity(CHUNK);
                        let read = data.by_ref().take(CHUNK as u64).read_to_end(&mut chunk);
                        let last = !matches!(read, Ok(1..));
                        // The receiver is gone if the writer failed; then nobody needs this chunk.
                        if sender.send(read.map(|_| chunk)).is_err() || last {
                            break;
                        }
                    }
                });
                waiting.push_back((index, receiver));
            }
            let Some((index, receiver)) = waiting.pop_front() else {
                return Ok(());
            };
            visit(
                index,
                &mut ChunkReader {
                    receiver,
                    chunk: Vec::new(),
                    at: 0,
                },
            )?;
        }
    })
}

struct ChunkReader {
    receiver: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    at: usize,
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.chunk.len() {
            // After the last, empty chunk the sender is gone, which reads as the end of the data again.
            self.chunk = self.receiver.recv().unwrap_or_else(|_| Ok(Vec::new()))?;
            self.at = 0;
        }
        let count = buffer.len().min(self.chunk.len() - self.at);
        buffer[..count].copy_from_slice(&self.chunk[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
