//! Reads ranges of files at an address, for readers that need little of a large file (RFC 9110, 14 and 15.3.7).

use std::ops::Range;

use bytes::Bytes;
use reqwest::{StatusCode, Url, header};
use stackforge_types::printable::without_credentials;

use super::address;
use super::error::FetchError;
use super::fetcher::Fetcher;
use crate::header::{content_range, text};

/// A range of a file. No digest vouches for it: whoever takes it has to do without, or to verify the whole.
#[derive(Debug, Clone)]
pub struct PartialContent {
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
    /// Size of the whole file in bytes.
    pub size: u64,
}

/// What is asked for.
enum Wanted {
    Range(Range<u64>),
    Suffix(u64),
}

impl Fetcher {
    /// Reads the bytes of a range, which must not be empty. A file that ends before gives fewer. `None` if the
    /// server does not serve ranges.
    ///
    /// # Errors
    /// If the address is not HTTP, or the server refuses or does not answer in all attempts of the policy.
    pub async fn range(
        &self,
        url: &str,
        range: Range<u64>,
    ) -> Result<Option<PartialContent>, FetchError> {
        self.partial(url, Wanted::Range(range)).await
    }

    /// Reads the last `bytes` of a file, or all of a shorter one. `None` if the server does not serve ranges.
    ///
    /// # Errors
    /// As [`Fetcher::range`].
    pub async fn suffix(
        &self,
        url: &str,
        bytes: u64,
    ) -> Result<Option<PartialContent>, FetchError> {
        self.partial(url, Wanted::Suffix(bytes)).await
    }

    async fn partial(
        &self,
        url: &str,
        wanted: Wanted,
    ) -> Result<Option<PartialContent>, FetchError> {
        let address = address::parse(url)?;
        self.in_attempts(async || {
            let _slot = self.slots.acquire().await;
            self.partial_once(&address, &wanted).await
        })
        .await
    }

    async fn partial_once(
        &self,
        url: &Url,
        wanted: &Wanted,
    ) -> Result<Option<PartialContent>, FetchError> {
        let (range, limit) = match wanted {
            Wanted::Range(range) => (
                format!("bytes={}-{}", range.start, range.end.saturating_sub(1)),
                range.end.saturating_sub(range.start),
            ),
            Wanted::Suffix(bytes) => (format!("bytes=-{bytes}"), *bytes),
        };
        let request = self.request(url).header(header::RANGE, range);
        let response = request
            .send()
            .await
            .map_err(|source| FetchError::transfer(url, source))?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            // A server that knows no suffixes may call them unsatisfiable, and one that knows no ranges sends all.
            StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE => return Ok(None),
            _ => return Err(self.refused(url, &response)),
        }
        let sent = text(response.headers(), header::CONTENT_RANGE.as_str()).and_then(content_range);
        let Some((sent, size)) = sent.and_then(|sent| Some((sent, sent.size?))) else {
            return Ok(None);
        };
        if matches!(wanted, Wanted::Range(range) if range.start != sent.first) {
            return Ok(None);
        }
        let bytes = self.body(url, response, limit).await?;
        let (have, size_sent) = (bytes.len() as u64, sent.last - sent.first + 1);
        if have != size_sent {
            return Err(FetchError::Short {
                url: without_credentials(url.as_str()),
                have,
                size: size_sent,
            });
        }
        Ok(Some(PartialContent {
            offset: sent.first,
            bytes,
            size,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RetryPolicy;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Serves one answer for each request and returns the `Range` headers.
    async fn served(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/x.whl", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut ranges = Vec::new();
            for answer in answers {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(socket.read_u8().await.unwrap());
                }
                let request = String::from_utf8_lossy(&request).to_lowercase();
                let range = request.lines().find_map(|l| l.strip_prefix("range: "));
                ranges.push(range.unwrap_or_default().to_owned());
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
            ranges
        });
        (url, server)
    }

    fn answer(status: &str, range: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\n{range}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    }

    #[tokio::test]
    async fn ranges_are_asked_for_and_wrong_ones_are_none() {
        let (url, server) = served(vec![
            answer("206 X", "Content-Range: bytes 6-9/10\r\n", "6789"),
            answer("206 X", "Content-Range: bytes 2-4/10\r\n", "234"),
            answer("200 X", "", "0123456789"),
            answer("206 X", "Content-Range: bytes 0-2/10\r\n", "012"),
            answer("404 X", "", ""),
        ])
        .await;
        let fetcher = Fetcher::new(RetryPolicy::default()).unwrap();
        let part = fetcher.suffix(&url, 4).await.unwrap().unwrap();
        assert_eq!((part.offset, part.size), (6, 10));
        assert_eq!(&part.bytes[..], b"6789");
        let part = fetcher.range(&url, 2..5).await.unwrap().unwrap();
        assert_eq!(&part.bytes[..], b"234");
        assert!(fetcher.range(&url, 2..5).await.unwrap().is_none());
        assert!(fetcher.range(&url, 2..5).await.unwrap().is_none());
        assert!(fetcher.range(&url, 2..5).await.unwrap_err().is_missing());
        let ranges = server.await.unwrap();
        assert_eq!(ranges[..2], ["bytes=-4", "bytes=2-4"]);
    }
}
