//! What happens while files are fetched, of each and of all together.

use super::{Download, FetchError};
use std::sync::Mutex;
use std::time::Duration;

/// How far something is, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are there.
    pub have: u64,
    /// None while a server has yet to tell.
    pub size: Option<u64>,
}

/// Something that happened to one download.
#[derive(Debug)]
pub struct Event<'a> {
    /// Whose event it is.
    pub download: &'a Download,
    /// What happened.
    pub what: What<'a>,
    /// How far this file is.
    pub file: Progress,
    /// How far all files of the call are together.
    pub all: Progress,
}

/// What happened to a download.
#[derive(Debug)]
pub enum What<'a> {
    /// It was there, and its digest is right.
    Cached,
    /// Another process fetches it.
    Waiting,
    /// Bytes come, after those that an earlier try left.
    Started,
    /// So many more have come.
    Bytes(u64),
    /// What was there is of no use: it begins anew.
    Again {
        /// The reason, for people.
        why: &'a str,
    },
    /// A try failed and the next follows after a pause.
    Retrying {
        /// Why it failed.
        error: &'a FetchError,
        /// How long the pause is.
        pause: Duration,
    },
    /// It has its final name.
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

    pub(crate) fn of(&self, index: usize) -> Reporter<'_> {
        Reporter {
            tracker: self,
            index,
        }
    }
}

/// Tells of one file.
pub(super) struct Reporter<'a> {
    tracker: &'a Tracker<'a>,
    index: usize,
}

impl Reporter<'_> {
    pub(crate) fn tell(&self, what: What<'_>, have: u64, size: Option<u64>) {
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
