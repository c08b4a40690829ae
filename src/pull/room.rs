//! Space that stays free while bytes arrive: what a manifest says of sizes may be wrong, and others write too.

use super::PullError;
use crate::device;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// That stays free, whatever is fetched.
pub(super) const RESERVE: u64 = 16 << 20;
/// Between two looks, in bytes that are written and in time.
const STRIDE: u64 = 32 << 20;
const PAUSE: Duration = Duration::from_millis(250);

/// A disk that somebody writes to.
pub(super) struct Room {
    path: PathBuf,
    written: u64,
}

impl Room {
    pub fn of(path: &Path) -> Self {
        let path = path.to_owned();
        Self { path, written: 0 }
    }

    /// Refuses more once the reserve is reached.
    pub fn take(&mut self, bytes: u64) -> io::Result<()> {
        self.written = self.written.saturating_add(bytes);
        if self.written < STRIDE {
            return Ok(());
        }
        self.written = 0;
        match device::free(&self.path) {
            Some(free) if free < RESERVE => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

/// Ends when the reserve is reached, with the error.
pub(super) async fn runs_out(path: &Path, needed: u64) -> PullError {
    loop {
        tokio::time::sleep(PAUSE).await;
        if let Some(free) = device::free(path).filter(|free| *free < RESERVE) {
            let path = path.to_owned();
            return PullError::Space { path, free, needed };
        }
    }
}
