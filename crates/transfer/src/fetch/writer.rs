//! Hashes and writes a part while the next bytes arrive.

use super::error::FetchError;
use super::note::{Note, NotedPart};
use stackforge_types::Digest;
use std::io;
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;

/// Bytes that are handed over at a time, and the most that are lost when a download is dropped.
const BUFFER: usize = 256 << 10;

pub(super) struct Writer {
    state: State,
    buffer: Vec<u8>,
    spare: Vec<u8>,
    path: PathBuf,
    /// Bytes of the part, including those in the buffer.
    have: u64,
}

enum State {
    Idle(Box<NotedPart>),
    Busy(JoinHandle<Written>),
    /// The writing thread panicked or ended, and the part was lost with it.
    Lost,
}

type Written = (Box<NotedPart>, Vec<u8>, io::Result<()>);

impl Writer {
    pub(crate) fn new(part: NotedPart) -> Self {
        Self {
            path: part.path().to_owned(),
            have: part.have(),
            state: State::Idle(Box::new(part)),
            buffer: Vec::with_capacity(BUFFER),
            spare: Vec::with_capacity(BUFFER),
        }
    }

    pub(crate) fn have(&self) -> u64 {
        self.have
    }

    pub(crate) async fn append(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        self.buffer.extend_from_slice(bytes);
        self.have += bytes.len() as u64;
        if self.buffer.len() >= BUFFER {
            self.hand_over().await?;
        }
        Ok(())
    }

    async fn hand_over(&mut self) -> Result<(), FetchError> {
        let mut part = self.idle().await?;
        let empty = std::mem::take(&mut self.spare);
        let mut bytes = std::mem::replace(&mut self.buffer, empty);
        self.state = State::Busy(tokio::task::spawn_blocking(move || {
            let done = part.append(&bytes);
            bytes.clear();
            (part, bytes, done)
        }));
        Ok(())
    }

    /// Waits until the bytes handed over are written.
    async fn idle(&mut self) -> Result<Box<NotedPart>, FetchError> {
        let lost = || io::Error::other("the thread that writes it ended");
        match &mut self.state {
            State::Busy(task) => {
                // The task stays in the state until it is done, because this future may be dropped while it
                // waits.
                let written = task.await;
                self.state = State::Lost;
                let (part, bytes, done) = written.map_err(|_| self.failed(lost(), 0))?;
                self.spare = bytes;
                match done {
                    Ok(()) => Ok(part),
                    Err(error) => {
                        self.buffer.clear();
                        self.have = part.have();
                        self.state = State::Idle(part);
                        Err(self.failed(error, self.have))
                    }
                }
            }
            state => match std::mem::replace(state, State::Lost) {
                State::Idle(part) => Ok(part),
                _ => Err(self.failed(lost(), 0)),
            },
        }
    }

    /// Runs `work` with the part on a thread that may block, after all bytes are written.
    async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut NotedPart) -> io::Result<T> + Send + 'static,
    ) -> Result<T, FetchError> {
        let mut part = self.idle().await?;
        let bytes = std::mem::take(&mut self.buffer);
        let task = tokio::task::spawn_blocking(move || {
            let done = part.append(&bytes).and_then(|()| work(&mut part));
            (part, done)
        });
        match task.await {
            Ok((part, done)) => {
                self.have = part.have();
                self.state = State::Idle(part);
                done.map_err(|error| self.failed(error, self.have))
            }
            Err(_) => Err(self.failed(io::Error::other("the thread that writes it ended"), 0)),
        }
    }

    pub(crate) async fn flush(&mut self) -> Result<(), FetchError> {
        self.with(|_| Ok(())).await
    }

    pub(crate) async fn restart(&mut self) -> Result<(), FetchError> {
        self.with(NotedPart::restart).await
    }

    pub(crate) async fn recover(
        &mut self,
        sha256: Digest,
        size: Option<u64>,
    ) -> Result<(), FetchError> {
        self.with(move |part| part.recover(&sha256, size)).await
    }

    pub(crate) async fn annotate(&mut self, note: Note) -> Result<(), FetchError> {
        self.with(move |part| part.annotate(note)).await
    }

    pub(crate) async fn note(&mut self) -> Result<Option<Note>, FetchError> {
        self.with(|part| Ok(part.note().cloned())).await
    }

    pub(crate) async fn digest(&mut self) -> Result<Digest, FetchError> {
        self.with(|part| Ok(part.digest())).await
    }

    /// Gives the file its final name.
    pub(crate) async fn finish(mut self, name: &Path) -> Result<(), FetchError> {
        self.flush().await?;
        let name = name.to_owned();
        self.last(move |part| part.finish(&name)).await
    }

    pub(crate) async fn release(mut self) -> Result<(), FetchError> {
        self.last(|part| part.release()).await
    }

    async fn last<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(NotedPart) -> io::Result<T> + Send + 'static,
    ) -> Result<T, FetchError> {
        let part = self.idle().await?;
        let done = tokio::task::spawn_blocking(move || work(*part)).await;
        done.unwrap_or_else(|_| Err(io::Error::other("the thread that writes it ended")))
            .map_err(|error| self.failed(error, self.have))
    }

    fn failed(&self, source: io::Error, kept: u64) -> FetchError {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let path = self.path.clone();
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => FetchError::Full { path, kept, source },
            _ => FetchError::Io {
                doing: "writing",
                path,
                source,
            },
        }
    }
}
