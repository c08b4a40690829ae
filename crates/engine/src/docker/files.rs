//! The files of an image, as a tar stream of what a container of it would see.

use std::io::{self, Read};

use bollard::models::ContainerCreateBody;
use bytes::{Buf as _, Bytes};
use futures_util::StreamExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::client::Docker;
use super::container::Container;
use super::reference::check_reference;
use crate::EngineError;
use stackforge_types::Cancel;

/// Number of chunks from the engine that may wait to be read.
const AHEAD: usize = 64;

/// An image whose files can be read. This uses a container that is never started, and is removed on
/// drop.
pub struct Files {
    docker: Docker,
    image: String,
    container: Container,
    runtime: Handle,
    cancel: Cancel,
}

impl Docker {
    /// Prepares to read the files of an image of the engine.
    ///
    /// # Errors
    /// If the image does not exist, or the engine cannot be asked.
    pub async fn files(&self, image: &str, cancel: &Cancel) -> Result<Files, EngineError> {
        check_reference(image)?;
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            // The container is never started, but an image without a command would be refused.
            cmd: Some(vec!["-".to_owned()]),
            ..ContainerCreateBody::default()
        };
        Ok(Files {
            docker: self.clone(),
            image: image.to_owned(),
            container: Container::create(self, body).await?,
            runtime: Handle::current(),
            cancel: cancel.clone(),
        })
    }
}

impl Files {
    /// Returns all files as a tar stream. It blocks while the engine sends, so it must be read by a
    /// thread that runs no async tasks. The layers are merged, and the tar contains nothing of the
    /// engine's own.
    pub fn open(&self) -> impl Read + Send + use<> {
        let (send, pieces) = mpsc::channel(AHEAD);
        let (docker, name) = (self.docker.clone(), self.container.name.clone());
        let doing = format!("reading the files of {}", self.image);
        let cancel = self.cancel.clone();
        self.runtime.spawn(async move {
            let mut chunks = std::pin::pin!(docker.api.export_container(&name));
            loop {
                let piece = tokio::select! {
                    chunk = chunks.next() => match chunk {
                        None => return,
                        Some(chunk) => chunk.map_err(|e| docker.failed(e, &doing)),
                    },
                    () = cancel.cancelled() => {
                        let doing = doing.clone();
                        Err(EngineError::Cancelled { doing })
                    }
                };
                let last = piece.is_err();
                if send.send(piece).await.is_err() || last {
                    return;
                }
            }
        });
        Pieces {
            pieces,
            current: Bytes::new(),
        }
    }

    /// Stops reading and removes the container.
    pub async fn close(self) {
        self.container.remove().await;
    }
}

struct Pieces {
    pieces: mpsc::Receiver<Result<Bytes, EngineError>>,
    current: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.current = piece.map_err(io::Error::other)?,
            }
        }
        let n = self.current.len().min(buf.len());
        self.current.copy_to_slice(&mut buf[..n]);
        Ok(n)
    }
}
