//! Keeps space free during a download: sizes in a manifest may be wrong, and other programs write too.

#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "only unpacking asks for room bit by bit")
)]

use super::PullError;
use stackforge_device as device;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes that stay free in any case.
pub(super) const RESERVE: u64 = 16 << 20;
/// Bytes written between two checks; `PAUSE` is the time between two checks.
const STRIDE: u64 = 32 << 20;
const PAUSE: Duration = Duration::from_millis(250);

/// The free space of a file system that is written to.
pub(super) struct Room {
    path: PathBuf,
    written: u64,
}

impl Room {
    pub fn of(path: &Path) -> Self {
        let path = path.to_owned();
        Self { path, written: 0 }
    }

    /// Counts written bytes. Fails if less than the reserve is free.
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

/// Waits until less than the reserve is free, and returns the error.
pub(super) async fn runs_out(path: &Path, needed: u64) -> PullError {
    loop {
        tokio::time::sleep(PAUSE).await;
        if let Some(free) = device::free(path).filter(|free| *free < RESERVE) {
            let path = path.to_owned();
            return PullError::Space { path, free, needed };
        }
    }
}
