//! Parses uv's answers: versions with the distributions that require them, and files with digests.
//!
//! In: the two texts that `uv pip compile` writes. Out: plain data. Content from an index is untrusted: file
//! names and digests have to match their grammars or are refused.

use super::ResolveError;
use pep440_rs::Version;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use stackforge_stack::lock::PythonFile;
use stackforge_types::Digest;
use stackforge_types::wheel::{WheelName, WheelTarget, best, normalized};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Name of the project that asks uv for all requirements. [`Pin::via`] leaves it out.
pub(super) const ROOT: &str = "stackforge-stack";

/// A resolved distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pin {
    pub version: Version,
    /// Distributions that require it.
    pub via: Vec<String>,
    /// Whether the stack itself names it.
    pub named: bool,
}

impl Pin {
    /// Returns what a lock says of who requires it: nobody besides the stack, if that names it.
    pub fn locked_via(&self) -> Vec<String> {
        if self.named {
            Vec::new()
        } else {
            self.via.clone()
        }
    }
}

/// Pins by normalized name.
pub(super) type Pins = BTreeMap<String, Pin>;

/// Parses `name==version` lines with `# via` comments below them.
pub(super) fn pins(text: &str) -> Pins {
    let mut pins = Pins::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(comment) = trimmed.strip_prefix('#') {
            let Some(pin) = current.as_ref().and_then(|n| pins.get_mut(n)) else {
                continue;
            };
            let comment = comment.trim();
            let who = comment.strip_prefix("via").map_or(comment, str::trim);
            if who.starts_with(ROOT) {
                pin.named = true;
            } else if !who.is_empty() && !who.starts_with('-') && !who.contains(' ') {
                // `name[extra]` stands for the distribution `name`.
                let name = who.split('[').next().unwrap_or(who);
                pin.via.push(normalized(name));
            }
        } else if let Some((name, version)) = trimmed.split_once("==") {
            let name = normalized(name.split('[').next().unwrap_or(name).trim());
            let version = version.split([' ', ';', '\\']).next().unwrap_or(version);
            current = Version::from_str(version).ok().map(|version| {
                pins.insert(
                    name.clone(),
                    Pin {
                        version,
                        via: Vec::new(),
                        named: false,
                    },
                );
                name
            });
        }
    }
    for pin in pins.values_mut() {
        pin.via.sort();
        pin.via.dedup();
    }
    pins
}

/// Returns requirement lines that pin exactly these versions.
pub(super) fn pin_lines(pins: &Pins) -> Vec<String> {
    pins.iter()
        .map(|(name, pin)| format!("{name}=={}", pin.version))
        .collect()
}

#[derive(Deserialize)]
struct PylockFile {
    #[serde(rename = "lock-version")]
    lock_version: String,
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: Option<String>,
    #[serde(default)]
    wheels: Vec<File>,
    sdist: Option<File>,
}

#[derive(Deserialize)]
struct File {
    name: Option<String>,
    url: Option<String>,
    path: Option<String>,
    size: Option<u64>,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

/// The files that a lock chooses from.
#[derive(Debug)]
pub(super) struct Files {
    by_name: BTreeMap<String, Candidates>,
    /// URL or path of each file. They go into no lock.
    addresses: BTreeMap<Digest, String>,
}

#[derive(Debug)]
struct Candidates {
    version: String,
    wheels: Vec<(WheelName, PythonFile)>,
    sdist: Option<PythonFile>,
}

impl Files {
    /// Parses a `pylock.toml` (PEP 751).
    pub fn parse(text: &str) -> Result<Self, ResolveError> {
        let pylock: PylockFile =
            toml::from_str(text).map_err(|e| ResolveError::Pylock(e.message().to_owned()))?;
        if !pylock.lock_version.starts_with("1.") {
            return Err(ResolveError::Pylock(format!(
                "its format is {}, known is 1",
                pylock.lock_version
            )));
        }
        let mut by_name = BTreeMap::new();
        let mut addresses = BTreeMap::new();
        for package in pylock.packages {
            let name = normalized(&package.name);
            let version = package
                .version
                .filter(|v| Version::from_str(v).is_ok())
                .ok_or_else(|| ResolveError::Pylock(format!("`{name}` has no version")))?;
            let mut locked = |listed: &File| {
                let file = listed.locked(&name, &version)?;
                if let Some(address) = listed.url.as_ref().or(listed.path.as_ref()) {
                    addresses.insert(file.sha256.clone(), address.clone());
                }
                Ok::<_, ResolveError>(file)
            };
            let mut wheels = Vec::new();
            for listed in &package.wheels {
                let file = locked(listed)?;
                let parsed: WheelName = file.file.parse().map_err(pylock_error)?;
                if parsed.name != name {
                    return Err(ResolveError::Pylock(format!(
                        "`{name}` has a wheel named {}",
                        file.file
                    )));
                }
                wheels.push((parsed, file));
            }
            let sdist = package.sdist.as_ref().map(locked).transpose()?;
            by_name.insert(
                name,
                Candidates {
                    version,
                    wheels,
                    sdist,
                },
            );
        }
        Ok(Self { by_name, addresses })
    }

    /// Returns where the index has a file: a URL, or a path.
    pub fn address(&self, sha256: &Digest) -> Option<&str> {
        self.addresses.get(sha256).map(String::as_str)
    }

    pub fn wheel(&self, name: &str, target: &WheelTarget) -> Result<PythonFile, ResolveError> {
        let candidates = self.candidates(name)?;
        best(candidates.wheels.iter().map(|(n, f)| (n, f)), target)
            .cloned()
            .ok_or_else(|| no_file(name, &candidates.version, target))
    }

    pub fn sdist(&self, name: &str) -> Result<PythonFile, ResolveError> {
        let candidates = self.candidates(name)?;
        candidates
            .sdist
            .clone()
            .ok_or_else(|| ResolveError::NoFile {
                name: name.to_owned(),
                version: candidates.version.clone(),
                target: "a build from source".to_owned(),
            })
    }

    fn candidates(&self, name: &str) -> Result<&Candidates, ResolveError> {
        self.by_name
            .get(name)
            .ok_or_else(|| ResolveError::Pylock(format!("`{name}` is missing")))
    }
}

fn pylock_error(e: impl std::fmt::Display) -> ResolveError {
    ResolveError::Pylock(e.to_string())
}

fn no_file(name: &str, version: &str, target: &WheelTarget) -> ResolveError {
    ResolveError::NoFile {
        name: name.to_owned(),
        version: version.to_owned(),
        target: format!(
            "{}, Python {} and glibc 2.{}",
            target.platform, target.python, target.glibc
        ),
    }
}

impl File {
    fn locked(&self, name: &str, version: &str) -> Result<PythonFile, ResolveError> {
        let file = self.file_name().ok_or_else(|| {
            ResolveError::Pylock(format!("a file of `{name}` has no proper name"))
        })?;
        let sha256 = self
            .hashes
            .get("sha256")
            .and_then(|hex| Digest::from_hex(hex).ok())
            .ok_or_else(|| ResolveError::NoHash { file: file.clone() })?;
        Ok(PythonFile {
            name: name.to_owned(),
            version: version.to_owned(),
            size: self.size.unwrap_or(0),
            sha256,
            via: Vec::new(),
            file,
        })
    }

    /// Returns the file's stated name, else the last segment of its URL.
    fn file_name(&self) -> Option<String> {
        let address = self.url.as_ref().or(self.path.as_ref());
        let name = match (&self.name, address) {
            (Some(name), _) => name.clone(),
            (None, address) => {
                let address = address?.split(['?', '#']).next()?;
                let last = address.rsplit('/').next()?;
                percent_decode_str(last).decode_utf8().ok()?.into_owned()
            }
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.+!".contains(&b);
        let kind = [".whl", ".tar.gz", ".zip", ".tar.bz2", ".tar.xz", ".tgz"];
        let good = name.len() <= 255
            && name.bytes().all(plain)
            && name
                .bytes()
                .next()
                .is_some_and(|b| b.is_ascii_alphanumeric())
            && kind.iter().any(|k| name.ends_with(k));
        good.then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANSWER: &str = "\
jinja2==3.1.6
    # via
    #   stackforge-stack (pyproject.toml)
    #   torch
    #   torch
torch==2.13.0+cu130
    # via
    #   --override overrides.txt
    #   -c constraints.txt
    #   Causal_Conv1d[extra]
causal-conv1d==1.7.0
    # via stackforge-stack (pyproject.toml)
";

    #[test]
    fn who_asked_is_read_without_files_and_options() {
        let pins = pins(ANSWER);
        assert_eq!(pins["jinja2"].via, ["torch"]);
        assert!(pins["jinja2"].named);
        assert_eq!(pins["torch"].via, ["causal-conv1d"]);
        assert!(!pins["torch"].named);
        assert_eq!(
            pin_lines(&pins),
            [
                "causal-conv1d==1.7.0",
                "jinja2==3.1.6",
                "torch==2.13.0+cu130"
            ]
        );
    }

    fn pylock(file: &str) -> String {
        format!(
            "lock-version = \"1.0\"\n[[packages]]\nname = \"x\"\nversion = \"1\"\nwheels = [{file}]\n"
        )
    }

    fn target() -> WheelTarget {
        WheelTarget {
            python: "3.12".parse().unwrap(),
            platform: stackforge_stack::spec::Platform::LinuxAmd64,
            glibc: 36,
        }
    }

    #[test]
    fn files_come_with_decoded_names_sizes_and_digests() {
        let hash = "ab".repeat(32);
        let text = pylock(&format!(
            "{{ url = \"https://h.test/a/x-1%2Bcu128-py3-none-any.whl#f\", size = 7, hashes = {{ sha256 = \"{hash}\" }} }}"
        ));
        let wheel = Files::parse(&text).unwrap().wheel("x", &target()).unwrap();
        assert_eq!(wheel.file, "x-1+cu128-py3-none-any.whl");
        assert_eq!((wheel.size, wheel.sha256.hex()), (7, hash.as_str()));
    }

    #[test]
    fn a_bad_file_is_refused() {
        let hash = "ab".repeat(32);
        for (url, hash) in [
            ("https://h.test/..%2Fx-1-py3-none-any.whl", hash.as_str()),
            ("https://h.test/x-1-py3-none-any.whl%zz", &hash),
            ("https://h.test/y-1-py3-none-any.whl", &hash),
            ("https://h.test/x.exe", &hash),
            ("https://h.test/x-1-py3-none-any.whl", "AB"),
        ] {
            let text = pylock(&format!(
                "{{ url = \"{url}\", hashes = {{ sha256 = \"{hash}\" }} }}"
            ));
            assert!(Files::parse(&text).is_err(), "{url}");
        }
        let e =
            Files::parse(&pylock("{ url = \"https://h.test/x-1-py3-none-any.whl\" }")).unwrap_err();
        assert!(matches!(e, ResolveError::NoHash { .. }), "{e}");
        assert!(Files::parse("lock-version = \"2.0\"").is_err());
    }

    #[test]
    fn no_fitting_wheel_is_an_error_that_names_the_target() {
        let text = pylock(&format!(
            "{{ url = \"https://h.test/x-1-cp311-cp311-linux_x86_64.whl\", hashes = {{ sha256 = \"{}\" }} }}",
            "ab".repeat(32)
        ));
        let e = Files::parse(&text)
            .unwrap()
            .wheel("x", &target())
            .unwrap_err();
        assert_eq!(
            e.to_string(),
            "`x` 1 has no file for linux/amd64, Python 3.12 and glibc 2.36"
        );
    }

    proptest! {
        #[test]
        fn reading_never_panics(s in "\\PC*") {
            let _ = pins(&s);
            let _ = Files::parse(&s);
        }
    }
}
