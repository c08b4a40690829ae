//! Dates as text: RFC 3339 in images, RFC 2822 in Debian's releases. All are in UTC.

use std::time::SystemTime;
use time::format_description::well_known::Rfc2822;
use time::{Duration, OffsetDateTime};

/// Formats a time in seconds since 1970 as RFC 3339: `2026-11-25T22:17:41Z`.
pub fn rfc3339(seconds: u32) -> String {
    let at = OffsetDateTime::UNIX_EPOCH + Duration::seconds(i64::from(seconds));
    let (hour, minute, second) = at.to_hms();
    let (year, month, day) = at.to_calendar_date();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Parses a date of RFC 2822, such as `Wed, 25 Nov 2026 22:17:41 +0000`, also with `UTC` as its zone, as
/// Debian's archives write it, and with hours of one digit, as others do. `None` if it is another text.
pub fn parse_rfc2822(text: &str) -> Option<SystemTime> {
    let words: Vec<String> = text
        .split_ascii_whitespace()
        .map(|word| match word {
            // RFC 2822 has no `UTC`.
            "UTC" => "GMT".to_owned(),
            clock if clock.contains(':') => padded(clock),
            word => word.to_owned(),
        })
        .collect();
    let date = OffsetDateTime::parse(&words.join(" "), &Rfc2822);
    date.ok().map(SystemTime::from)
}

/// Returns the time of day with two digits for each number.
fn padded(clock: &str) -> String {
    let pad = |part: &str| match part.len() {
        1 => format!("0{part}"),
        _ => part.to_owned(),
    };
    clock.split(':').map(pad).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_are_those_of_date() {
        // As `date -u -d @SECONDS +%FT%TZ` prints them.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (u32::MAX, "2106-02-07T06:28:15Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn zones_of_archives_are_read() {
        let at = UNIX_EPOCH + Duration::from_secs(1_795_645_061);
        for zone in ["UTC", "GMT", "+0000", "Z"] {
            let text = format!("Wed, 25 Nov 2026 22:17:41 {zone}");
            assert_eq!(parse_rfc2822(&text), Some(at), "{zone}");
        }
        let short = "Thu, 1 Jan 1970 0:01:5 UTC";
        assert_eq!(
            parse_rfc2822(short),
            Some(UNIX_EPOCH + Duration::from_secs(65))
        );
        let east = "Thu, 26 Nov 2026 00:17:41 +0200";
        assert_eq!(parse_rfc2822(east), Some(at));
        for bad in [
            "",
            "UTC",
            "Wed, 25 Nov 2026 22:17:41",
            "Wed, 25 Nov 2026 22:17:41 :",
            "Wed, 25 Nov 2026 ::41 UTC",
            "Wed, 25 Nov 2026 22:17:41 CET",
            "Wed, 0 Foo 1 1:1:1 UTC",
            "Wed, 31 Feb 2026 22:17:41 UTC",
        ] {
            assert_eq!(parse_rfc2822(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = parse_rfc2822(&text);
        }
    }
}
