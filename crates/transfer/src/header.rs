//! Headers of HTTP and of the distribution specification: ranges, links, delays.
//!
//! In: values from a server. Out: numbers and addresses, or `None` if a value cannot be read.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;

/// The value of `Content-Range`: `bytes 10-19/100` or `bytes 10-19/*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte, inclusive.
    pub last: u64,
    /// Size of the whole in bytes; `None` for `*`.
    pub size: Option<u64>,
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Parses `Content-Range`. `None` if it is malformed or names an empty range.
pub fn content_range(value: &str) -> Option<ContentRange> {
    let (unit, rest) = value.trim().split_once(' ')?;
    let (range, size) = rest.trim().split_once('/')?;
    let (first, last) = pair(range)?;
    let size = match size.trim() {
        "*" => None,
        size => Some(number(size)?),
    };
    let fits = unit.eq_ignore_ascii_case("bytes") && size.is_none_or(|size| last < size);
    fits.then_some(ContentRange { first, last, size })
}

/// How many bytes an upload has received, from `Range: 0-99` or the `bytes=0-99` that some registries send.
/// The specification has no value for zero bytes; an absent header and `0-0` are both used (registry:2 sends
/// the latter), so one byte is read as zero.
pub fn received(value: &str) -> Option<u64> {
    let value = value.trim();
    let (first, last) = pair(value.strip_prefix("bytes=").unwrap_or(value))?;
    match (first, last) {
        (0, 0) => Some(0),
        (0, last) => last.checked_add(1),
        _ => None,
    }
}

fn pair(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (number(first.trim())?, number(last.trim())?);
    (first <= last).then_some((first, last))
}

/// Parses digits alone: `parse` would also accept a sign.
fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

/// The address of the next page, from `Link: </v2/…>; rel="next"` (RFC 8288).
pub fn next_page(value: &str) -> Option<&str> {
    let mut rest = value;
    while let Some(open) = rest.find('<') {
        let (address, after) = rest[open + 1..].split_once('>')?;
        let end = after.find('<').unwrap_or(after.len());
        let is_next = after[..end].split([';', ',']).any(|parameter| {
            parameter.split_once('=').is_some_and(|(name, value)| {
                name.trim().eq_ignore_ascii_case("rel") && value.trim().trim_matches('"') == "next"
            })
        });
        if is_next {
            return Some(address);
        }
        rest = &after[end..];
    }
    None
}

/// The value of `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = text(headers, "retry-after")?.trim();
    match number(value) {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => Some(
            httpdate::parse_http_date(value)
                .ok()?
                .duration_since(SystemTime::now())
                .unwrap_or_default(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_read_strictly() {
        let range = |first, last, size| Some(ContentRange { first, last, size });
        assert_eq!(content_range("bytes 0-0/1"), range(0, 0, Some(1)));
        assert_eq!(content_range("Bytes 10-19/*"), range(10, 19, None));
        for bad in [
            "",
            "bytes",
            "bytes */100",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "lines 0-1/2",
            "bytes -1-2/3",
            "bytes +1-2/3",
            "bytes 0-99999999999999999999/*",
        ] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_an_upload_has() {
        assert_eq!(received("0-99"), Some(100));
        assert_eq!(received("bytes=0-99"), Some(100));
        assert_eq!(received("0-0"), Some(0));
        for bad in ["", "1-5", "0-", "-5", "0-18446744073709551615"] {
            assert_eq!(received(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_next_page_is_found_among_links() {
        let link = r#"</v2/a/tags/list?last=x&n=2>; rel="next""#;
        assert_eq!(next_page(link), Some("/v2/a/tags/list?last=x&n=2"));
        assert_eq!(next_page("</p>; rel=prev, </n>; rel=next"), Some("/n"));
        assert_eq!(next_page("</p>; rel=prev"), None);
        assert_eq!(next_page("<open"), None);
    }

    #[test]
    fn delays_are_seconds_or_dates() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", value.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(of("120"), Some(Duration::from_secs(120)));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(of("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    proptest! {
        #[test]
        fn no_value_panics(value in "[ -~]{0,40}") {
            content_range(&value);
            received(&value);
            next_page(&value);
        }

        #[test]
        fn a_range_comes_back(first in 0u64..1 << 40, length in 1u64..1 << 40, more in 0u64..9) {
            let last = first + length - 1;
            let size = last + 1 + more;
            prop_assert_eq!(
                content_range(&format!("bytes {first}-{last}/{size}")),
                Some(ContentRange { first, last, size: Some(size) })
            );
        }
    }
}
