//! Fetches one file: from its addresses, through its part file, to its final name.

use super::address;
use super::download::{Download, FetchedFile};
use super::error::FetchError;
use super::fetcher::Fetcher;
use super::note::{Note, NotedPart, Validators};
use super::progress::{Reporter, What};
use super::writer::Writer;
use crate::header::{content_range, text};
use crate::part::verified;
use crate::retry::Backoff;
use futures_util::StreamExt as _;
use reqwest::{Response, StatusCode, Url, header};
use stackforge_types::Digest;
use stackforge_types::printable::without_credentials;
use std::path::Path;
use std::time::Duration;

/// Largest file in bytes: no package is larger, and a server that sends without end is stopped.
const LARGEST: u64 = 64 << 30;
/// Longest name in bytes that leaves room for the longest suffix in 255 bytes.
const LONGEST_NAME: usize = 255 - ".part.json".len();

/// The state of one download.
struct State<'a> {
    fetcher: &'a Fetcher,
    download: &'a Download,
    reporter: &'a Reporter<'a>,
    /// Bytes received over the network.
    received: u64,
    /// Most bytes that the part has had. Bytes before it are no progress: a server without ranges sends them
    /// again and again.
    furthest: u64,
    size: Option<u64>,
    /// Whether to send `Range`; false once the server turns out not to support it.
    ranges: bool,
}

/// Why an attempt failed.
enum Failure {
    Error(FetchError),
    /// The server cannot resume from the bytes that are here.
    Ranges(&'static str),
    /// The bytes are not those of the requested file.
    Altered(String),
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        Self::Error(error)
    }
}

impl Fetcher {
    pub(super) async fn one(
        &self,
        download: &Download,
        directory: &Path,
        reporter: &Reporter<'_>,
    ) -> Result<FetchedFile, FetchError> {
        let path = directory.join(plain(&download.name)?);
        if let Some(found) = existing(&path, download, reporter).await? {
            return Ok(found);
        }
        if download.urls.is_empty() {
            let name = download.name.clone();
            return Err(FetchError::Nowhere { name });
        }
        tokio::fs::create_dir_all(directory)
            .await
            .map_err(|e| FetchError::io("creating", directory, e))?;
        // Cannot fail: the semaphore is never closed.
        let _slot = self.slots.acquire().await;
        let parts = self.parts.as_deref().unwrap_or(directory);
        let mut writer = claim(parts, directory, download, reporter).await?;
        if let Some(found) = existing(&path, download, reporter).await? {
            writer.release().await?;
            return Ok(found);
        }
        writer
            .recover(download.sha256.clone(), download.size)
            .await?;
        let mut state = State {
            fetcher: self,
            download,
            reporter,
            received: 0,
            furthest: writer.have(),
            size: download.size,
            ranges: true,
        };
        reporter.report(What::Started, writer.have(), download.size);
        match state.any_address(&mut writer).await {
            Ok(()) => {
                let have = writer.have();
                writer.finish(&path).await?;
                reporter.report(What::Done, have, Some(have));
                Ok(FetchedFile {
                    path,
                    bytes: state.received,
                    cached: false,
                })
            }
            Err(error) => {
                writer.release().await?;
                Err(error)
            }
        }
    }
}

impl State<'_> {
    async fn any_address(&mut self, writer: &mut Writer) -> Result<(), FetchError> {
        // An earlier process was killed between the last byte and the rename.
        if writer.have() > 0 && writer.digest().await? == self.download.sha256 {
            return Ok(());
        }
        let mut first = None;
        for url in &self.download.urls {
            match self.one_address(url, writer).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_local() => return Err(error),
                // Of several servers' errors, one other than a missing file tells more.
                Err(error) if first.as_ref().is_none_or(FetchError::is_missing) => {
                    first = Some(error);
                }
                Err(_) => {}
            }
        }
        let name = self.download.name.clone();
        Err(first.unwrap_or(FetchError::Nowhere { name }))
    }

    /// Tries one address until the file is complete and verified, or the address is of no use.
    async fn one_address(&mut self, url: &str, writer: &mut Writer) -> Result<(), FetchError> {
        let address = address::parse(url)?;
        let mut backoff = Backoff::default();
        let mut anew = false;
        self.ranges = true;
        loop {
            let failure = match self.attempt(&address, writer, anew).await {
                Ok(()) => match self.wrong(writer).await? {
                    None => return Ok(()),
                    Some(reason) => Failure::Altered(reason),
                },
                Err(failure) => failure,
            };
            match failure {
                Failure::Ranges(why) => {
                    writer.restart().await?;
                    self.ranges = false;
                    self.reporter.report(What::Again { why }, 0, self.size);
                }
                Failure::Altered(reason) => {
                    writer.restart().await?;
                    if anew {
                        return Err(FetchError::Mismatch {
                            name: self.download.name.clone(),
                            url: without_credentials(url),
                            reason,
                        });
                    }
                    anew = true;
                    self.size = self.download.size;
                    let why = reason.as_str();
                    self.reporter.report(What::Again { why }, 0, self.size);
                }
                Failure::Error(error) => {
                    // A full disk must not be hidden by the network's error, nor the reverse.
                    if !error.is_local() {
                        writer.flush().await?;
                    }
                    if !error.is_passing() {
                        return Err(error);
                    }
                    let Some(pause) = self.pause(&mut backoff, writer.have(), &error) else {
                        return Err(error);
                    };
                    if !self.ranges {
                        writer.restart().await?;
                    }
                    let error = &error;
                    let what = What::Retrying { error, pause };
                    self.reporter.report(what, writer.have(), self.size);
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// The pause after a failed attempt that left `have` bytes in the part, or `None` to give up.
    fn pause(&mut self, backoff: &mut Backoff, have: u64, error: &FetchError) -> Option<Duration> {
        let gained = have.saturating_sub(self.furthest);
        self.furthest = self.furthest.max(have);
        backoff.gained(gained);
        backoff.pause(&self.fetcher.retry, error.wait())
    }

    /// Describes how the complete file differs from the requested one. `None` if it does not.
    async fn wrong(&self, writer: &mut Writer) -> Result<Option<String>, FetchError> {
        let found = writer.digest().await?;
        let wanted = &self.download.sha256;
        Ok((found != *wanted).then(|| {
            let have = writer.have();
            match self.download.size {
                Some(size) => format!("{have} bytes with {found} instead of {size} with {wanted}"),
                None => format!("{have} bytes with {found} instead of {wanted}"),
            }
        }))
    }

    /// Sends one request and reads the body to its end. With `anew`, asks every cache to be bypassed.
    async fn attempt(&mut self, url: &Url, writer: &mut Writer, anew: bool) -> Result<(), Failure> {
        let transfer = |source| FetchError::transfer(url, source);
        let note = writer.note().await?;
        let from = Digest::of(url.as_str().as_bytes());
        let have = writer.have();
        let mut request = self.fetcher.request(url);
        request = request.header(header::ACCEPT_ENCODING, "identity");
        if anew {
            request = request.header(header::CACHE_CONTROL, "no-cache");
        }
        if have > 0 {
            request = request.header(header::RANGE, format!("bytes={have}-"));
            // Another server's validators mean nothing to this one; the digest is checked at the end.
            let same = note.as_ref().filter(|note| note.from == from);
            if let Some(value) = same.and_then(|note| note.validators.if_range()) {
                request = request.header(header::IF_RANGE, value);
            }
        }
        let response = request.send().await.map_err(transfer)?;
        match response.status() {
            StatusCode::OK => {
                if have > 0 {
                    writer.restart().await?;
                    let why = "the server sends the whole file";
                    self.reporter.report(What::Again { why }, 0, self.size);
                }
                self.expect(response.content_length())?;
            }
            StatusCode::PARTIAL_CONTENT if have > 0 => match sent_range(&response) {
                Some(sent) if sent.first == have => self.expect(sent.size)?,
                _ => return Err(Failure::Ranges("the server sends another part of it")),
            },
            StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => {
                return Err(Failure::Ranges("the server has no more of it"));
            }
            _ => return Err(self.fetcher.refused(url, &response).into()),
        }
        let validators = Validators::of(response.headers());
        let note = Note {
            sha256: self.download.sha256.clone(),
            from,
            validators,
        };
        writer.annotate(note).await?;
        self.body(url, response, writer).await
    }

    /// Takes the length that the server states, and fails if it differs from the known one.
    fn expect(&mut self, reported: Option<u64>) -> Result<(), Failure> {
        match (reported, self.download.size) {
            (Some(reported), Some(size)) if reported != size => Err(Failure::Altered(format!(
                "{reported} bytes instead of {size}: the digest cannot be {}",
                self.download.sha256
            ))),
            (reported, known) => {
                self.size = known.or(reported);
                Ok(())
            }
        }
    }

    async fn body(
        &mut self,
        url: &Url,
        response: Response,
        writer: &mut Writer,
    ) -> Result<(), Failure> {
        let limit = self.size.unwrap_or(LARGEST);
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|source| FetchError::transfer(url, source))?;
            if writer.have() + chunk.len() as u64 > limit {
                return Err(Failure::Altered(format!("it is longer than {limit} bytes")));
            }
            writer.append(&chunk).await?;
            self.received += chunk.len() as u64;
            let what = What::Bytes(chunk.len() as u64);
            self.reporter.report(what, writer.have(), self.size);
        }
        match self.size {
            Some(size) if writer.have() < size => Err(Failure::Error(FetchError::Short {
                url: without_credentials(url.as_str()),
                have: writer.have(),
                size,
            })),
            _ => Ok(()),
        }
    }
}

/// Returns the file if it exists with the right content.
async fn existing(
    path: &Path,
    download: &Download,
    reporter: &Reporter<'_>,
) -> Result<Option<FetchedFile>, FetchError> {
    let (file, sha256, size) = (path.to_owned(), download.sha256.clone(), download.size);
    let look = move || verified(&file, &sha256, size);
    let found = tokio::task::spawn_blocking(look).await.unwrap_or(None);
    Ok(found.map(|have| {
        reporter.report(What::Cached, have, Some(have));
        FetchedFile {
            path: path.to_owned(),
            bytes: 0,
            cached: true,
        }
    }))
}

/// Returns the part file, once no other process holds its lock.
async fn claim(
    parts: &Path,
    directory: &Path,
    download: &Download,
    reporter: &Reporter<'_>,
) -> Result<Writer, FetchError> {
    let on_busy = || reporter.report(What::Waiting, 0, download.size);
    NotedPart::lock(parts, &download.name, on_busy)
        .await
        .map(Writer::new)
        .map_err(|e| FetchError::io("opening the part of", &directory.join(&download.name), e))
}

fn sent_range(response: &Response) -> Option<crate::header::ContentRange> {
    content_range(text(response.headers(), header::CONTENT_RANGE.as_str())?)
}

fn plain(name: &str) -> Result<&str, FetchError> {
    let strange = name.contains(['/', '\\']) || name.chars().any(char::is_control);
    if name.is_empty() || strange || name.starts_with('.') || name.len() > LONGEST_NAME {
        let name = name.escape_debug().take(120).collect();
        return Err(FetchError::Name { name });
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_directory() {
        for bad in ["", ".", "..", "../x", "a/b", "/x", ".x", "a\nb", "a\\b"] {
            assert!(plain(bad).is_err(), "{bad:?}");
        }
        assert!(plain(&"x".repeat(246)).is_err());
        assert!(plain("torch-2.13.0+cu130-cp312-cp312-linux_aarch64.whl").is_ok());
    }
}
