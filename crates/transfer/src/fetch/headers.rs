//! What the headers of a response say about the part of a file that follows.

use reqwest::Response;
use reqwest::header::{self, HeaderMap};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// The headers by which a server tells versions of a file apart, for `If-Range` (RFC 9110, 13.1.5).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Validators {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

impl Validators {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name| {
            let value = headers.get(name)?.to_str().ok()?;
            (value.len() <= 256).then(|| value.to_owned())
        };
        Self {
            // A weak entity tag does not promise the same bytes.
            etag: text(header::ETAG).filter(|tag| tag.starts_with('"')),
            last_modified: text(header::LAST_MODIFIED),
        }
    }

    pub(crate) fn if_range(&self) -> Option<&str> {
        self.etag.as_deref().or(self.last_modified.as_deref())
    }
}

/// The offset of the first byte and the total length in a `Content-Range`.
pub(super) fn content_range(response: &Response) -> Option<(u64, Option<u64>)> {
    let value = response.headers().get(header::CONTENT_RANGE)?;
    range(value.to_str().ok()?)
}

fn range(value: &str) -> Option<(u64, Option<u64>)> {
    let (part, whole) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = part.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let whole = match whole {
        "*" => None,
        digits => Some(number(digits)?),
    };
    (first <= last && whole.is_none_or(|w| last < w)).then_some((first, whole))
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// The value of `Retry-After`, in seconds or as a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    match number(value) {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => {
            let date = httpdate::parse_http_date(value).ok()?;
            Some(
                date.duration_since(SystemTime::now())
                    .unwrap_or(Duration::ZERO),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_strict() {
        assert_eq!(range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(range("bytes 5-9/*"), Some((5, None)));
        for bad in [
            "bytes */10",
            "bytes 5-9",
            "bytes 9-5/10",
            "bytes 5-10/10",
            "bytes +5-9/10",
            "items 5-9/10",
            "bytes 5-99999999999999999999/*",
        ] {
            assert_eq!(range(bad), None, "{bad}");
        }
    }

    #[test]
    fn weak_tags_resume_nothing() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ETAG, "W/\"1\"".parse().unwrap());
        assert_eq!(Validators::of(&headers).if_range(), None);
        headers.insert(header::LAST_MODIFIED, "x".parse().unwrap());
        assert_eq!(Validators::of(&headers).if_range(), Some("x"));
        headers.insert(header::ETAG, "\"1\"".parse().unwrap());
        assert_eq!(Validators::of(&headers).if_range(), Some("\"1\""));
    }

    #[test]
    fn waits_are_seconds_or_dates() {
        let wait = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("-1"), None);
        assert_eq!(wait("soon"), None);
    }

    proptest! {
        #[test]
        fn a_range_is_read_or_refused(s in "\\PC*", a in 0u64..9, b in 0u64..9, n in 0u64..20) {
            let _ = range(&s);
            let read = range(&format!("bytes {a}-{b}/{n}"));
            prop_assert_eq!(read.is_some(), a <= b && b < n);
        }
    }
}
