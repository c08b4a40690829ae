//! Amounts of bytes in people's notation: `20GB`, `512MiB`, `1.5 TB`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size: write it as `20GB` or `512MiB`")]
pub struct NoSize(String);

impl FromStr for Size {
    type Err = NoSize;

    fn from_str(text: &str) -> Result<Self, NoSize> {
        let wrong = || NoSize(text.escape_debug().take(40).collect());
        let trimmed = text.trim();
        let end = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let unit = unit.trim().to_ascii_lowercase();
        let (_, factor) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(wrong)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(*factor).map(Self).ok_or_else(wrong);
        }
        let number: f64 = number.parse().map_err(|_| wrong())?;
        // Digits beyond a float's precision make no difference to a budget.
        Ok(Self((number * *factor as f64) as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("20GB", 20_000_000_000),
            ("1.5 gb", 1_500_000_000),
            ("512MiB", 512 << 20),
            ("7b", 7),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bad in [
            "",
            "GB",
            "-1GB",
            "1 XB",
            "1e3",
            "1..2GB",
            "99999999999999TB",
        ] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
