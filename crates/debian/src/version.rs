//! Debian version numbers and their total order.
//!
//! The form is `[epoch:]upstream[-revision]`, compared as Debian Policy 5.6.12 says: the epoch as a
//! number, then upstream and revision in alternating runs of non-digits (letters before other
//! characters, `~` before everything, even the end) and digits (as numbers of any length).

use std::cmp::Ordering;
use std::fmt;

/// A version that keeps its text as written. Equality follows the order: `1.0` equals `0:1.00`.
#[derive(Debug, Clone)]
pub struct Version(Box<str>);

/// A text that is not a version.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("`{text}` is not a Debian version: {reason}")]
pub struct InvalidVersion {
    text: String,
    reason: &'static str,
}

impl Version {
    /// Parses a version.
    ///
    /// # Errors
    /// If the text is longer than 512 characters, the epoch is not a number, the upstream part or a
    /// revision is empty, or a character is not allowed (Debian Policy 5.6.12).
    pub fn parse(text: &str) -> Result<Self, InvalidVersion> {
        let refuse = |reason| {
            Err(InvalidVersion {
                text: text
                    .chars()
                    .take(100)
                    .flat_map(char::escape_debug)
                    .collect(),
                reason,
            })
        };
        if text.len() > 512 {
            return refuse("it is longer than 512 characters");
        }
        let (epoch, upstream, revision) = split(text);
        if text.contains(':') && (epoch.is_empty() || !epoch.bytes().all(|b| b.is_ascii_digit())) {
            return refuse("its epoch is not a number");
        }
        if upstream.is_empty() {
            return refuse("its upstream part is empty");
        }
        if text.ends_with('-') {
            return refuse("its revision is empty");
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b".+~".contains(&b);
        if !upstream.bytes().all(|b| plain(b) || b == b'-' || b == b':')
            || !revision.bytes().all(plain)
        {
            return refuse("it holds a character other than A-Z a-z 0-9 . + ~ - :");
        }
        Ok(Version(text.into()))
    }

    /// Returns the version as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Compares the texts of two versions without parsing them. The order is total over all strings.
pub fn compare(left: &str, right: &str) -> Ordering {
    let (left_epoch, left_upstream, left_revision) = split(left);
    let (right_epoch, right_upstream, right_revision) = split(right);
    compare_part(left_epoch, right_epoch)
        .then_with(|| compare_part(left_upstream, right_upstream))
        .then_with(|| compare_part(left_revision, right_revision))
}

fn split(text: &str) -> (&str, &str, &str) {
    let (epoch, rest) = text.split_once(':').unwrap_or(("", text));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch, upstream, revision)
}

/// Compares alternating runs of non-digits and digits, as dpkg does. A missing part equals `0`.
fn compare_part(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    while !left.is_empty() || !right.is_empty() {
        loop {
            let (a, b) = (left.first().copied(), right.first().copied());
            if weight(a) != weight(b) {
                return weight(a).cmp(&weight(b));
            }
            // Two equal weights other than 0 are the same character; 0 is a digit or the end.
            if weight(a) == 0 {
                break;
            }
            left = &left[1..];
            right = &right[1..];
        }
        let (a, rest_of_left) = number(left);
        let (b, rest_of_right) = number(right);
        let order = a.len().cmp(&b.len()).then_with(|| a.cmp(b));
        if order != Ordering::Equal {
            return order;
        }
        (left, right) = (rest_of_left, rest_of_right);
    }
    Ordering::Equal
}

fn weight(byte: Option<u8>) -> i32 {
    match byte {
        None => 0,
        Some(b'0'..=b'9') => 0,
        Some(b'~') => -1,
        Some(b) if b.is_ascii_alphabetic() => i32::from(b),
        Some(b) => i32::from(b) + 256,
    }
}

/// Splits off the leading run of digits, without its leading zeros.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let first = digits
        .iter()
        .position(|b| *b != b'0')
        .unwrap_or(digits.len());
    (&digits[first..], rest)
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use std::process::{Command, Stdio};

    const RISING: &[&str] = &[
        "0~~",
        "0~",
        "0",
        "0+",
        "1.0~beta1~svn1245",
        "1.0~beta1",
        "1.0",
        "1.0-0.1",
        "1.0-1",
        "1.0-1+b1",
        "1.0-1+deb12u1",
        "1.0-1+deb12u10",
        "1.0a",
        "1.0+dfsg-1",
        "1.0.1",
        "1.2",
        "1.10",
        "1.10-1~bpo",
        "1.10-1",
        "2:0.1",
        "10:0",
    ];

    #[test]
    fn orders_as_policy_says() {
        for (i, a) in RISING.iter().enumerate() {
            for (j, b) in RISING.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a} {b}");
            }
        }
        for (a, b) in [
            ("1.0", "0:1.0"),
            ("1.0", "1.00"),
            ("1.0", "1.0-0"),
            ("1.", "1.0"),
        ] {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} {b}");
        }
    }

    #[test]
    fn refuses_what_is_no_version() {
        for text in [
            "",
            ":1",
            "a:1",
            "1:",
            "1-",
            "1_2",
            "1 2",
            "1/2",
            "-1",
            "ü",
            "1-2:3",
            &"1".repeat(600),
        ] {
            assert!(Version::parse(text).is_err(), "{text}");
        }
        for text in RISING
            .iter()
            .chain(&["1:2:3", "1-2-3", "3.11.2-6+deb12u8", "v1"])
        {
            assert_eq!(Version::parse(text).unwrap().as_str(), *text);
        }
    }

    fn near() -> impl Strategy<Value = String> {
        "([0-2]:)?[0-9a-cA.+~]{1,6}(-[0-9a~+.]{1,3})?"
    }

    proptest! {
        #[test]
        fn is_a_total_order(a in near(), b in near(), c in near()) {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(compare(&a, &a), Ordering::Equal);
            if compare(&a, &b) != Ordering::Greater && compare(&b, &c) != Ordering::Greater {
                prop_assert_ne!(compare(&a, &c), Ordering::Greater);
            }
        }

        #[test]
        fn never_panics(a in any::<String>(), b in any::<String>()) {
            let _ = Version::parse(&a);
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
        }
    }

    /// Asks dpkg, if it is installed. Each pair costs a process, so there are few pairs.
    #[test]
    fn agrees_with_dpkg() {
        let dpkg = |a: &str, op: &str, b: &str| {
            Command::new("dpkg")
                .args(["--compare-versions", a, op, b])
                .stderr(Stdio::null())
                .status()
        };
        if dpkg("1", "eq", "1").is_err() {
            return;
        }
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let mut pairs: Vec<(String, String)> = RISING
            .windows(2)
            .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
            .collect();
        for _ in 0..60 {
            let mut draw = || near().new_tree(&mut runner).unwrap().current();
            pairs.push((draw(), draw()));
        }
        for (a, b) in pairs {
            // dpkg expects the upstream part to start with a digit.
            let (a, b) = (a.replacen(':', ":1", 1), b.replacen(':', ":1", 1));
            let (a, b) = match (a.contains(':'), b.contains(':')) {
                (true, true) => (a, b),
                _ => (
                    format!("1{}", a.replace(':', "")),
                    format!("1{}", b.replace(':', "")),
                ),
            };
            let op = match compare(&a, &b) {
                Ordering::Less => "lt",
                Ordering::Equal => "eq",
                Ordering::Greater => "gt",
            };
            assert!(dpkg(&a, op, &b).unwrap().success(), "{a} {op} {b}");
        }
    }
}
