//! Values that are parsed once, where they enter the program, and are always valid afterwards.

use std::fmt;
use std::str::FromStr;

/// Serializes a type by its `Display` and reads it by its `FromStr`.
#[macro_export]
macro_rules! string_serde {
    ($ty:ty) => {
        impl ::serde::Serialize for $ty {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $ty {
            fn deserialize<D: ::serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                <String as ::serde::Deserialize>::deserialize(d)?
                    .parse()
                    .map_err(::serde::de::Error::custom)
            }
        }
    };
}

/// Text that does not parse as its type; `expected` completes "… is not".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not {expected}")]
pub struct Malformed {
    /// The text, its first 80 characters.
    pub found: String,
    /// What the text should have been, with an article: `a platform: …`.
    pub expected: &'static str,
}

/// The error for text that does not parse, shortened for a message.
pub fn malformed(found: &str, expected: &'static str) -> Malformed {
    let found = found.chars().take(80).collect();
    Malformed { found, expected }
}

/// Compute capability of a device or of code for it, with NVIDIA's suffix for code:
/// `a` runs on that SM only, `f` within its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sm {
    /// The number before the dot, below 100.
    pub major: u8,
    /// The digit after the dot, below 10.
    pub minor: u8,
    /// What the code is restricted to besides the SM. `None` for a device, and for code without a
    /// suffix.
    pub suffix: Option<Suffix>,
}

/// Which devices can run code for an SM (CUDA C++ Programming Guide, "Feature Set Compiler Targets").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suffix {
    /// `a`: this SM alone.
    Arch,
    /// `f`: this SM and later ones of its family.
    Family,
}

impl Sm {
    /// An SM without a suffix. `FromStr` also checks the bounds of both numbers.
    pub fn new(major: u8, minor: u8) -> Self {
        Self {
            major,
            minor,
            suffix: None,
        }
    }

    fn suffix_letter(&self) -> &'static str {
        match self.suffix {
            None => "",
            Some(Suffix::Arch) => "a",
            Some(Suffix::Family) => "f",
        }
    }

    /// `90`, `110`, `90a`: as in `sm_90a`.
    pub fn digits(&self) -> String {
        format!("{}{}{}", self.major, self.minor, self.suffix_letter())
    }

    /// The SM without its suffix.
    pub fn base(self) -> Self {
        Self {
            suffix: None,
            ..self
        }
    }
}

/// `9.0`, `11.0a`: as in `TORCH_CUDA_ARCH_LIST`.
impl fmt::Display for Sm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}{}", self.major, self.minor, self.suffix_letter())
    }
}

impl FromStr for Sm {
    type Err = Malformed;

    /// Takes `9.0`, `9.0a`, `sm_90`, `sm90` and `90`.
    fn from_str(s: &str) -> Result<Self, Malformed> {
        let bad = || malformed(s, "an SM such as `9.0` or `sm_90`");
        let body = s
            .strip_prefix("sm_")
            .or_else(|| s.strip_prefix("sm"))
            .unwrap_or(s);
        let (number, suffix) = match body.as_bytes().last() {
            Some(b'a') => (&body[..body.len() - 1], Some(Suffix::Arch)),
            Some(b'f') => (&body[..body.len() - 1], Some(Suffix::Family)),
            _ => (body, None),
        };
        let (major, minor) = match number.split_once('.') {
            Some(parts) => parts,
            None if number.is_ascii() && number.len() >= 2 => number.split_at(number.len() - 1),
            None => return Err(bad()),
        };
        let digits = |p: &str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit());
        if !digits(major) || minor.len() != 1 || !digits(minor) || major.len() > 2 {
            return Err(bad());
        }
        Ok(Self {
            major: major.parse().map_err(|_| bad())?,
            minor: minor.parse().map_err(|_| bad())?,
            suffix,
        })
    }
}

string_serde!(Sm);

/// Platform of an image, as OCI writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Platform {
    /// `linux/amd64`.
    LinuxAmd64,
    /// `linux/arm64`, without a variant.
    LinuxArm64,
}

impl Platform {
    /// Every platform.
    pub const ALL: [Self; 2] = [Self::LinuxAmd64, Self::LinuxArm64];

    /// OCI's and Debian's name of the architecture.
    pub fn arch(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "amd64",
            Self::LinuxArm64 => "arm64",
        }
    }

    /// The kernel's and the wheel tags' name of the architecture.
    pub fn machine(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "x86_64",
            Self::LinuxArm64 => "aarch64",
        }
    }

    /// The platform whose programs this machine runs itself. `None` on another system than Linux, and on a processor
    /// that no platform is for.
    pub fn host() -> Option<Self> {
        Self::of_processor().filter(|_| cfg!(target_os = "linux"))
    }

    /// The platform of this machine's processor: that of [`Platform::host`], or of a container engine that brings
    /// Linux along in a virtual machine.
    pub fn of_processor() -> Option<Self> {
        let own = |p: &Self| p.machine() == std::env::consts::ARCH;
        Self::ALL.into_iter().find(own)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.arch())
    }
}

impl FromStr for Platform {
    type Err = Malformed;

    fn from_str(s: &str) -> Result<Self, Malformed> {
        Self::ALL
            .into_iter()
            .find(|p| p.to_string() == s)
            .ok_or_else(|| malformed(s, "a platform: `linux/amd64` or `linux/arm64`"))
    }
}

string_serde!(Platform);

/// Python's major and minor version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PythonVersion {
    /// Always 3 in a version that was parsed.
    pub major: u8,
    /// At least 6 in a version that was parsed.
    pub minor: u8,
}

impl fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for PythonVersion {
    type Err = Malformed;

    fn from_str(s: &str) -> Result<Self, Malformed> {
        let bad = || malformed(s, "a Python version such as `\"3.12\"`");
        let (major, minor) = s.split_once('.').ok_or_else(bad)?;
        let part = |p: &str| {
            let plain = p.bytes().all(|b| b.is_ascii_digit()) && (p == "0" || !p.starts_with('0'));
            plain.then(|| p.parse::<u8>().ok()).flatten()
        };
        match (part(major), part(minor)) {
            (Some(3), Some(minor)) if minor >= 6 => Ok(Self { major: 3, minor }),
            _ => Err(bad()),
        }
    }
}

string_serde!(PythonVersion);

macro_rules! name {
    ($(#[$doc:meta])* $ty:ident, $expected:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $ty(String);

        impl $ty {
            /// The name as it was written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $ty {
            type Err = Malformed;

            fn from_str(s: &str) -> Result<Self, Malformed> {
                let valid: fn(&str) -> bool = $valid;
                if valid(s) {
                    Ok(Self(s.to_owned()))
                } else {
                    Err(malformed(s, $expected))
                }
            }
        }

        string_serde!($ty);
    };
}

fn plain_name(s: &str, max: usize, separators: &[u8]) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = s.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= max
        && plain(bytes[0])
        && plain(bytes[bytes.len() - 1])
        && bytes.windows(2).all(|w| plain(w[0]) || plain(w[1]))
        && bytes.iter().all(|b| plain(*b) || separators.contains(b))
}

name!(
    /// Name of a stack; also a valid image name component and file name.
    StackName,
    "a stack name: lower-case letters and digits, single `-`, `_` or `.` between them, at most 64",
    |s| plain_name(s, 64, b"-_.")
);
name!(
    /// Normalized distribution name (PEP 503).
    LibraryName,
    "a library name: lower-case letters and digits with single `-` between them, at most 64",
    |s| plain_name(s, 64, b"-")
);
name!(
    /// Name of a CPU's instruction set, as in catalog/cpus.yaml.
    IsaName,
    "an instruction set's name: lower-case letters and digits with single `_` between them",
    |s| plain_name(s, 32, b"_")
);
name!(
    /// Name of a Debian package (Debian Policy 5.6.1).
    OsPackage,
    "an OS package name",
    |s| {
        let b = s.as_bytes();
        (2..=100).contains(&b.len())
            && (b[0].is_ascii_lowercase() || b[0].is_ascii_digit())
            && b.iter()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"+-.".contains(c))
    }
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sm_takes_each_spelling() {
        for s in ["9.0", "sm_90", "sm90", "90"] {
            assert_eq!(s.parse(), Ok(Sm::new(9, 0)), "{s}");
        }
        let thor: Sm = "sm_110a".parse().unwrap();
        assert_eq!((thor.major, thor.minor), (11, 0));
        assert_eq!(thor.to_string(), "11.0a");
        assert_eq!(thor.digits(), "110a");
        for s in [
            "", "9", "a", "sm_", "9.00", "9.0b", "9.é", "é0", "-90", "1000",
        ] {
            assert!(s.parse::<Sm>().is_err(), "{s}");
        }
    }

    #[test]
    fn names_are_strict() {
        for ok in ["thor-cuda13", "a", "x1.2_b"] {
            assert!(ok.parse::<StackName>().is_ok(), "{ok}");
        }
        for bad in ["", "-a", "a-", "A", "a b", "a--b", "a/../b", "a\n", "ü"] {
            assert!(bad.parse::<StackName>().is_err(), "{bad}");
        }
        assert!("g++".parse::<OsPackage>().is_ok());
        assert!("$(id)".parse::<OsPackage>().is_err());
    }

    #[test]
    fn python_versions() {
        assert_eq!(
            "3.12".parse(),
            Ok(PythonVersion {
                major: 3,
                minor: 12
            })
        );
        for bad in ["3", "3.1", "2.7", "3.012", "3.12.1", "three"] {
            assert!(bad.parse::<PythonVersion>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn parsers_never_panic(s in "\\PC*") {
            let _ = s.parse::<Sm>();
            let _ = s.parse::<StackName>();
            let _ = s.parse::<LibraryName>();
            let _ = s.parse::<OsPackage>();
            let _ = s.parse::<PythonVersion>();
        }

        #[test]
        fn sm_round_trips(major in 1u8..99, minor in 0u8..10) {
            let sm = Sm::new(major, minor);
            prop_assert_eq!(sm.to_string().parse::<Sm>(), Ok(sm));
            prop_assert_eq!(sm.digits().parse::<Sm>(), Ok(sm));
        }
    }
}
