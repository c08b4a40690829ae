//! Wheel file names, and which of several wheels fits a target best.
//!
//! In: file names, as an index lists them, and a [`WheelTarget`]. Out: the name's parts, and
//! a rank in the order of preference that PEP 425 and PEP 600 define for CPython on glibc.
//! A name that is not strictly a wheel's is rejected, never repaired.

use crate::{Platform, PythonVersion};
use pep440_rs::Version;
use std::str::FromStr;

/// The system that wheels must run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WheelTarget {
    /// The interpreter, a CPython.
    pub python: PythonVersion,
    /// The operating system and the architecture.
    pub platform: Platform,
    /// Minor version of glibc 2.
    pub glibc: u16,
}

/// A wheel's file name, split into its parts (the wheel format's "file name convention").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WheelName {
    /// Normalized distribution name.
    pub name: String,
    /// The version, with its local part (`+cu128`).
    pub version: Version,
    /// Build tag: digits, then the rest; orders wheels that are otherwise equal.
    build: Option<(u64, String)>,
    python: Vec<String>,
    abi: Vec<String>,
    platform: Vec<String>,
}

/// The text that is not a wheel's file name, its first 120 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the file name of a wheel")]
pub struct NotAWheel(String);

/// What the file name of a source distribution says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SdistName {
    /// Normalized distribution name.
    pub name: String,
    /// The version.
    pub version: Version,
}

impl SdistName {
    /// Reads `NAME-VERSION.tar.gz`, or a name with one of the endings of before PEP 625. `None` if it is another
    /// file's name.
    pub fn parse(file: &str) -> Option<Self> {
        let endings = [".tar.gz", ".zip", ".tgz", ".tar.bz2"];
        let stem = endings
            .iter()
            .find_map(|ending| file.strip_suffix(ending))?;
        let (name, version) = stem.rsplit_once('-')?;
        let named = name.bytes().any(|b| b.is_ascii_alphanumeric());
        Some(Self {
            name: normalized(name),
            version: version.parse().ok().filter(|_| named)?,
        })
    }
}

/// Whether a distribution's name may have that character.
pub fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Returns the normalized name that a requirement begins with.
pub fn distribution_of(requirement: &str) -> String {
    let end = requirement.find(|c| !is_of_name(c));
    normalized(&requirement[..end.unwrap_or(requirement.len())])
}

/// PEP 503's form of a distribution name.
pub fn normalized(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut separated = false;
    for c in name.chars() {
        if matches!(c, '-' | '_' | '.') {
            separated = !out.is_empty();
        } else {
            if separated {
                out.push('-');
            }
            separated = false;
            out.push(c.to_ascii_lowercase());
        }
    }
    out
}

impl FromStr for WheelName {
    type Err = NotAWheel;

    fn from_str(file: &str) -> Result<Self, NotAWheel> {
        let wrong = || NotAWheel(file.chars().take(120).collect());
        let plain = |c: u8| c.is_ascii_alphanumeric() || b"_.".contains(&c);
        let stem = file
            .strip_suffix(".whl")
            .filter(|_| file.len() <= 255)
            .ok_or_else(wrong)?;
        let parts: Vec<&str> = stem.split('-').collect();
        let (name, version, build, tags) = match parts[..] {
            [name, version, python, abi, platform] => {
                (name, version, None, [python, abi, platform])
            }
            [name, version, build, python, abi, platform] => {
                (name, version, Some(build), [python, abi, platform])
            }
            _ => return Err(wrong()),
        };
        let starts_plain = |s: &str| s.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let words = tags.iter().copied().chain([name]).chain(build);
        if !words.clone().all(|w| !w.is_empty() && w.bytes().all(plain)) || !starts_plain(name) {
            return Err(wrong());
        }
        let build = match build {
            None => None,
            Some(tag) => {
                let digits = tag.bytes().take_while(u8::is_ascii_digit).count();
                let number = tag[..digits].parse().map_err(|_| wrong())?;
                Some((number, tag[digits..].to_owned()))
            }
        };
        // In file names `-` is written as `_`, also in local versions.
        let version = Version::from_str(&version.replace('_', "-")).map_err(|_| wrong())?;
        let set = |tag: &str| tag.split('.').map(str::to_owned).collect::<Vec<_>>();
        Ok(Self {
            name: normalized(name),
            version,
            build,
            python: set(tags[0]),
            abi: set(tags[1]),
            platform: set(tags[2]),
        })
    }
}

/// Rank in the order of preference: the lowest is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u32, u32);

impl WheelName {
    /// How well the wheel fits. `None` if it does not.
    pub fn rank(&self, target: &WheelTarget) -> Option<Rank> {
        let mut best = None;
        for python in &self.python {
            for abi in &self.abi {
                for platform in &self.platform {
                    let rank = tag_rank(python, abi, platform, target);
                    best = match (best, rank) {
                        (Some(a), Some(b)) => Some(std::cmp::min(a, b)),
                        (a, b) => a.or(b),
                    };
                }
            }
        }
        best
    }

    /// The build tag: the higher one is newer.
    pub fn build(&self) -> Option<&(u64, String)> {
        self.build.as_ref()
    }

    /// The CPython version of its tags, if they name only one and not the stable ABI.
    pub fn python(&self) -> Option<PythonVersion> {
        let [tag] = self.python.as_slice() else {
            return None;
        };
        let exact = self.abi.iter().all(|abi| abi.trim_end_matches('t') == tag);
        let minor = tag.strip_prefix("cp3").filter(|_| exact)?;
        format!("3.{minor}").parse().ok()
    }

    /// Whether it fits every platform, as wheels without compiled code do.
    pub fn is_for_any_platform(&self) -> bool {
        self.platform.iter().any(|p| p == "any")
    }

    /// Whether it was built for a Linux system with its own libraries (`linux_aarch64`), as wheels for one
    /// vendor's system are; a public index accepts no such wheel.
    pub fn is_for_one_system(&self) -> bool {
        self.platform.iter().all(|p| p.starts_with("linux_"))
    }
}

/// Returns the wheel that fits best.
pub fn best<'a, T>(
    wheels: impl IntoIterator<Item = (&'a WheelName, T)>,
    target: &WheelTarget,
) -> Option<T> {
    wheels
        .into_iter()
        .filter_map(|(name, item)| Some((name.rank(target)?, name, item)))
        .min_by(|(a, x, _), (b, y, _)| a.cmp(b).then_with(|| y.build.cmp(&x.build)))
        .map(|(_, _, item)| item)
}

fn tag_rank(python: &str, abi: &str, platform: &str, target: &WheelTarget) -> Option<Rank> {
    let PythonVersion { major, minor } = target.python;
    let minor = u32::from(minor);
    let own = format!("{major}{minor}");
    // Minor version of a `cp3N` or `py3N` tag that this Python can use.
    let older = |prefix: &str| {
        let rest = python
            .strip_prefix(prefix)?
            .strip_prefix(&major.to_string())?;
        let n: u32 = rest.parse().ok().filter(|_| !rest.starts_with('+'))?;
        minor.checked_sub(n)
    };
    let cpython = python.strip_prefix("cp") == Some(&own);
    let generic = python.strip_prefix("py") == Some(&major.to_string());
    if platform == "any" {
        let interpreter = match abi {
            "none" if cpython => 0,
            "none" if generic => 2,
            "none" => match older("py")? {
                0 => 1,
                distance => 2 + distance,
            },
            _ => return None,
        };
        return Some(Rank(1000 + interpreter, 0));
    }
    let place = platform_rank(platform, target)?;
    let interpreter = match abi {
        _ if cpython && abi.strip_prefix("cp") == Some(&own) => 0,
        "abi3" => match older("cp").filter(|distance| minor - distance >= 2)? {
            0 => 1,
            distance => 2 + distance,
        },
        "none" if cpython => 2,
        "none" if generic => 501,
        "none" => match older("py")? {
            0 => 500,
            distance => 501 + distance,
        },
        _ => return None,
    };
    Some(Rank(interpreter, place))
}

/// Newest glibc first, then the legacy names, then plain Linux.
fn platform_rank(platform: &str, target: &WheelTarget) -> Option<u32> {
    let tag = platform
        .strip_suffix(target.platform.machine())?
        .strip_suffix('_')?;
    let legacy = [
        ("manylinux2014", 17),
        ("manylinux2010", 12),
        ("manylinux1", 5),
    ];
    let (glibc, alias) = match legacy.iter().find(|(name, _)| *name == tag) {
        Some((_, glibc)) => (*glibc, 1),
        None if tag == "linux" => return Some(u32::MAX),
        None => {
            let minor = tag.strip_prefix("manylinux_2_")?;
            let digits = minor.bytes().all(|b| b.is_ascii_digit());
            (minor.parse::<u16>().ok().filter(|_| digits)?, 0)
        }
    };
    let older = target.glibc.checked_sub(glibc)?;
    Some(u32::from(older) * 2 + alias)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn thor() -> WheelTarget {
        WheelTarget {
            python: "3.12".parse().unwrap(),
            platform: Platform::LinuxArm64,
            glibc: 39,
        }
    }

    fn name(file: &str) -> WheelName {
        file.parse().unwrap()
    }

    fn choose<'a>(files: &[&'a str]) -> Option<&'a str> {
        let names: Vec<_> = files.iter().map(|f| name(f)).collect();
        best(names.iter().zip(files.iter().copied()), &thor())
    }

    #[test]
    fn names_are_split_and_normalized() {
        let wheel = name("Foo.Bar_baz-1.0+cu128-2b-cp312.cp313-abi3-manylinux2014_x86_64.whl");
        assert_eq!(wheel.name, "foo-bar-baz");
        assert_eq!(wheel.version.to_string(), "1.0+cu128");
        assert_eq!(wheel.build, Some((2, "b".into())));
        assert_eq!(wheel.python, ["cp312", "cp313"]);
        for bad in [
            "",
            "x.whl",
            "a-1-py3-none.whl",
            "a-1-py3-none-any.zip",
            "a-one-py3-none-any.whl",
            "a-1-b2-py3-none-any.whl",
            "../a-1-py3-none-any.whl",
            "a-1-py3-none-an y.whl",
            "-1-py3-none-any.whl",
            "a-1-py3--any.whl",
        ] {
            assert!(bad.parse::<WheelName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_nearest_wheel_wins() {
        assert_eq!(
            choose(&[
                "c-1-py3-none-any.whl",
                "c-1-cp37-abi3-manylinux_2_28_aarch64.whl",
                "c-1-cp312-cp312-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
                "c-1-cp313-cp313-manylinux_2_28_aarch64.whl",
            ]),
            Some("c-1-cp312-cp312-manylinux2014_aarch64.manylinux_2_17_aarch64.whl")
        );
        assert_eq!(
            choose(&[
                "c-1-cp39-abi3-manylinux_2_34_aarch64.whl",
                "c-1-cp311-abi3-manylinux_2_28_aarch64.whl",
                "c-1-cp311-abi3-manylinux_2_34_aarch64.whl",
                "c-1-cp311-abi3-manylinux_2_40_aarch64.whl",
                "c-1-cp311-abi3-manylinux_2_34_x86_64.whl",
            ]),
            Some("c-1-cp311-abi3-manylinux_2_34_aarch64.whl")
        );
        assert_eq!(
            choose(&["c-1-1-py3-none-any.whl", "c-1-10-py3-none-any.whl"]),
            Some("c-1-10-py3-none-any.whl")
        );
        assert_eq!(
            choose(&["c-1-cp312-cp312t-linux_aarch64.whl", "c-1-py2-none-any.whl"]),
            None
        );
    }

    #[test]
    fn a_stable_abi_newer_than_the_python_does_not_fit() {
        let wheel = name("a-1-cp313-abi3-manylinux_2_28_aarch64.whl");
        assert_eq!(wheel.rank(&thor()), None);
        assert_eq!(name("a-1-py313-none-any.whl").rank(&thor()), None);
    }

    #[test]
    fn wheels_for_one_system_are_known_by_their_platform() {
        assert!(name("torch-2.8.0-cp310-cp310-linux_aarch64.whl").is_for_one_system());
        assert!(!name("torch-2.8.0-cp310-cp310-manylinux_2_28_aarch64.whl").is_for_one_system());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(s in "\\PC*") {
            let _ = s.parse::<WheelName>();
            let _ = format!("a-1-{s}.whl").parse::<WheelName>();
        }

        #[test]
        fn an_unfit_wheel_changes_no_choice(minor in 40u16..99, at in 0usize..3) {
            let mut files = vec![
                "c-1-cp312-cp312-manylinux_2_28_aarch64.whl".to_owned(),
                "c-1-py3-none-any.whl".to_owned(),
            ];
            files.insert(at, format!("c-1-cp312-cp312-manylinux_2_{minor}_aarch64.whl"));
            let refs: Vec<&str> = files.iter().map(String::as_str).collect();
            prop_assert_eq!(choose(&refs), Some("c-1-cp312-cp312-manylinux_2_28_aarch64.whl"));
        }

        #[test]
        fn the_choice_does_not_depend_on_order(a in 5u16..60, b in 5u16..60) {
            let x = format!("c-1-cp312-cp312-manylinux_2_{a}_aarch64.whl");
            let y = format!("c-1-cp312-cp312-manylinux_2_{b}_aarch64.whl");
            let (first, second) = (choose(&[&x, &y]), choose(&[&y, &x]));
            prop_assert_eq!(first.map(str::to_owned), second.map(str::to_owned));
            let newest = [a, b].into_iter().filter(|m| *m <= 39).max();
            let wanted = newest.map(|m| format!("c-1-cp312-cp312-manylinux_2_{m}_aarch64.whl"));
            prop_assert_eq!(choose(&[&x, &y]).map(str::to_owned), wanted);
        }

        #[test]
        fn normalizing_is_idempotent(s in "[A-Za-z0-9._-]{0,20}") {
            let once = normalized(&s);
            prop_assert_eq!(normalized(&once), once);
        }
    }
}
