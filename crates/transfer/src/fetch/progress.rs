//! Progress events of downloads, for each file and for all together.

use super::download::Download;
use super::error::FetchError;
use std::sync::Mutex;
use std::time::Duration;

/// Progress in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes received or already here.
    pub have: u64,
    /// Total bytes. `None` until a server states them.
    pub size: Option<u64>,
}

/// An event of one download.
#[derive(Debug)]
pub struct Event<'a> {
    /// The download.
    pub download: &'a Download,
    /// What happened.
    pub what: What<'a>,
    /// Progress of this file.
    pub file: Progress,
    /// Progress of all files of the call.
    pub all: Progress,
}

/// What happened to a download.
#[derive(Debug)]
pub enum What<'a> {
    /// The file existed, and its digest is right.
    Cached,
    /// Another process fetches it.
    Waiting,
    /// The transfer starts, after the bytes of an earlier attempt.
    Started,
    /// So many more bytes arrived.
    Bytes(u64),
    /// The received bytes are of no use: the file is fetched again from its start.
    Again {
        /// The reason, for people.
        why: &'a str,
    },
    /// An attempt failed and the next one follows after a pause.
    Retrying {
        /// Why it failed.
        error: &'a FetchError,
        /// How long the pause is.
        pause: Duration,
    },
    /// The file has its final name.
    Done,
}

pub(super) struct Tracker<'a> {
    downloads: &'a [Download],
    files: Mutex<Vec<Progress>>,
    on_event: &'a (dyn Fn(Event<'_>) + Sync),
}

impl<'a> Tracker<'a> {
    pub(crate) fn new(downloads: &'a [Download], on_event: &'a (dyn Fn(Event<'_>) + Sync)) -> Self {
        let files = downloads.iter().map(|d| Progress {
            have: 0,
            size: d.size,
        });
        Self {
            downloads,
            files: Mutex::new(files.collect()),
            on_event,
        }
    }

    pub(crate) fn reporter(&self, index: usize) -> Reporter<'_> {
        Reporter {
            tracker: self,
            index,
        }
    }
}

/// Reports the events of one file.
pub(super) struct Reporter<'a> {
    tracker: &'a Tracker<'a>,
    index: usize,
}

impl Reporter<'_> {
    pub(crate) fn report(&self, what: What<'_>, have: u64, size: Option<u64>) {
        let (file, all) = {
            let lock = self.tracker.files.lock();
            let mut files = lock.unwrap_or_else(std::sync::PoisonError::into_inner);
            let file = &mut files[self.index];
            file.have = have;
            file.size = size.or(file.size);
            let all = Progress {
                have: files.iter().map(|f| f.have).sum(),
                size: files.iter().map(|f| f.size).sum(),
            };
            (files[self.index], all)
        };
        (self.tracker.on_event)(Event {
            download: &self.tracker.downloads[self.index],
            what,
            file,
            all,
        });
    }
}
