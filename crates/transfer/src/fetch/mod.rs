//! Fetches files of known content over HTTP into a directory.
//!
//! In: [`Download`]s, each a name, addresses in order of preference and a SHA-256. Out: paths of files with
//! that digest, and progress events. Fetches several at a time and resumes where an earlier attempt stopped,
//! in this process or an earlier one; if two processes want one file, one fetches it and the other waits.
//! Small responses without a digest (indexes, pages) are read whole by [`Fetcher::get`], ranges of large files
//! by [`Fetcher::range`].
//!
//! Never: gives a final name to bytes that were not verified, shows a credential in a message, requests
//! bytes that are already here if the server supports ranges.

mod address;
mod download;
mod error;
mod fetcher;
mod file;
mod get;
mod netrc;
mod note;
mod partial;
mod progress;
mod writer;

use std::path::Path;

use progress::Tracker;

pub use download::{Download, FetchedFile};
pub use error::FetchError;
pub use fetcher::{Fetcher, client};
pub use get::Answer;
pub use netrc::{Netrc, NetrcError};
pub use partial::PartialContent;
pub use progress::{Event, Progress, What};
pub use stackforge_types::printable::without_credentials;

impl Fetcher {
    /// Fetches all files; returns them in the order of `downloads`. The first error ends the others, whose
    /// parts are kept for the next call.
    ///
    /// # Errors
    /// The first error of any file: all addresses failed, the content differs, or the disk fails.
    pub async fn all(
        &self,
        downloads: &[Download],
        directory: &Path,
        on_event: &(dyn Fn(Event<'_>) + Sync),
    ) -> Result<Vec<FetchedFile>, FetchError> {
        let tracker = Tracker::new(downloads, on_event);
        let files = downloads.iter().enumerate().map(|(index, download)| {
            let reporter = tracker.reporter(index);
            async move { self.one(download, directory, &reporter).await }
        });
        futures_util::future::try_join_all(files).await
    }

    /// Fetches one file.
    ///
    /// # Errors
    /// If all addresses failed, the content differs, or the disk fails.
    pub async fn file(
        &self,
        download: &Download,
        directory: &Path,
        on_event: &(dyn Fn(Event<'_>) + Sync),
    ) -> Result<FetchedFile, FetchError> {
        let downloads = std::slice::from_ref(download);
        let tracker = Tracker::new(downloads, on_event);
        self.one(download, directory, &tracker.reporter(0)).await
    }
}
