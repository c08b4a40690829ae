//! A file that a library is taken from in place of an index: a wheel or a source distribution.
//!
//! In: an address or a path of a stack. Out: a [`DirectFile`], whose name says what it is. Nothing is fetched
//! or opened here.

use pep440_rs::Version;
use percent_encoding::percent_decode_str;
use serde::{Serialize, Serializer};
use stackforge_types::Digest;
use stackforge_types::printable::without_credentials;
use stackforge_types::wheel::{SdistName, WheelName};
use std::path::{Path, PathBuf};

/// A wheel or source distribution that the stack names by its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectFile {
    pub place: Place,
    /// Its file name.
    pub name: String,
    pub kind: FileKind,
    /// What its content has to be, if the stack says so.
    pub sha256: Option<Digest>,
}

/// Where a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An https or http address, which may hold credentials or a signature.
    Url(String),
    /// A path; a relative one starts at the stack file's folder.
    Path(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileKind {
    Wheel(WheelName),
    /// A source distribution: normalized name and version.
    Sdist(String, Version),
}

/// Why a text does not name a file that a library can be taken from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirectFileError {
    #[error("`{0}` is a source repository")]
    Repository(String),
    #[error("`{0}` is a folder")]
    Folder(String),
    #[error("`{0}` is an address of another kind than https, http and file")]
    Scheme(String),
    #[error(
        "`{0}` names neither a wheel (`.whl`) nor a source distribution (`NAME-VERSION.tar.gz`)"
    )]
    Kind(String),
    #[error("`{0}` is not a SHA-256 digest")]
    Digest(String),
    #[error("it has two digests: one in the address and one in `sha256`")]
    TwoDigests,
}

impl DirectFileError {
    pub fn help(&self) -> &'static str {
        match self {
            Self::Repository(_) => {
                "name the repository with `git` and the revision with `ref`; a recipe says how it is built"
            }
            Self::Folder(_) => {
                "build a wheel of it (`pip wheel --no-deps FOLDER`, `uv build --wheel FOLDER`) and name that file"
            }
            Self::Scheme(_) => "give an address that begins with https://, or a path",
            Self::Kind(_) => {
                "its file name has to say name and version: `x-1.0-py3-none-any.whl`, `x-1.0.tar.gz`"
            }
            Self::Digest(_) => "it has 64 hexadecimal digits, as `sha256sum` prints them",
            Self::TwoDigests => "keep one of them",
        }
    }
}

/// Whether the text in the place of a version names a file: an address, a path or a file's name.
pub fn is_file(text: &str) -> bool {
    let text = text.strip_prefix('@').map_or(text, str::trim_start);
    let text = text.split(['#', '?']).next().unwrap_or(text);
    let path = ["./", "../", "/", "~/"].iter().any(|p| text.starts_with(p));
    let ending = [".whl", ".tar.gz", ".zip", ".tgz", ".tar.bz2"];
    path || text == "." || text.contains("://") || ending.iter().any(|e| text.ends_with(e))
}

impl DirectFile {
    /// Reads an address or a path. A digest may follow an address, as pip writes it: `#sha256=…`.
    ///
    /// # Errors
    /// If it is of another kind, or its name does not say name and version.
    pub fn parse(text: &str, sha256: Option<&str>) -> Result<Self, DirectFileError> {
        let text = text.strip_prefix('@').map_or(text, str::trim_start);
        let shown = || {
            // What follows the last `@` of a repository may be its revision.
            let revision = text
                .rfind('@')
                .filter(|at| text.rfind('/').is_some_and(|s| s < *at));
            clipped(&without_credentials(
                &text[..revision.unwrap_or(text.len())],
            ))
        };
        if ["git+", "hg+", "svn+", "bzr+"]
            .iter()
            .any(|p| text.starts_with(p))
            || is_repository(text)
        {
            return Err(DirectFileError::Repository(shown()));
        }
        let (place, name, fragment) = match text.split_once("://") {
            None => place_of_path(text),
            Some(("https" | "http", _)) => place_of_url(text),
            Some(("file", path)) if path.starts_with('/') => {
                place_of_path(&percent_decode_str(path).decode_utf8_lossy())
            }
            Some(_) => return Err(DirectFileError::Scheme(shown())),
        };
        let plain = |c: char| !c.is_control() && c != '/' && c != '\\';
        let Some(name) = name.filter(|n| n.chars().all(plain)) else {
            return Err(DirectFileError::Folder(shown()));
        };
        let kind = FileKind::of(&name).ok_or_else(|| {
            if name.contains('.') {
                DirectFileError::Kind(shown())
            } else {
                DirectFileError::Folder(shown())
            }
        })?;
        let of_address = fragment.as_deref().and_then(digest_in);
        let sha256 = match (of_address, sha256) {
            (Some(_), Some(_)) => return Err(DirectFileError::TwoDigests),
            (of_address, given) => match of_address.as_deref().or(given) {
                Some(hex) => Some(digest(hex)?),
                None => None,
            },
        };
        Ok(Self {
            place,
            name,
            kind,
            sha256,
        })
    }

    /// Returns its path, if it is on this machine. `stack` is the stack file's path.
    pub fn path(&self, stack: &Path) -> Option<PathBuf> {
        match &self.place {
            Place::Url(_) => None,
            Place::Path(path) => Some(stack.parent().unwrap_or(Path::new("")).join(path)),
        }
    }

    /// Returns its place as messages may show it.
    pub fn shown(&self) -> String {
        match &self.place {
            Place::Url(url) => without_credentials(url),
            Place::Path(path) => path.display().to_string(),
        }
    }
}

impl Serialize for DirectFile {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.shown())
    }
}

impl FileKind {
    /// Reads a file's name.
    fn of(file: &str) -> Option<Self> {
        if file.ends_with(".whl") {
            return file.parse().ok().map(Self::Wheel);
        }
        let sdist = SdistName::parse(file)?;
        Some(Self::Sdist(sdist.name, sdist.version))
    }

    /// Returns the normalized name of the distribution.
    pub fn distribution(&self) -> &str {
        match self {
            Self::Wheel(wheel) => &wheel.name,
            Self::Sdist(name, _) => name,
        }
    }

    pub fn version(&self) -> &Version {
        match self {
            Self::Wheel(wheel) => &wheel.version,
            Self::Sdist(_, version) => version,
        }
    }
}

type Found = (Place, Option<String>, Option<String>);

fn place_of_path(text: &str) -> Found {
    let path = PathBuf::from(text);
    let name = path.file_name().and_then(|n| n.to_str());
    let name = name.filter(|_| !text.ends_with('/')).map(str::to_owned);
    (Place::Path(path), name, None)
}

fn place_of_url(text: &str) -> Found {
    let (url, fragment) = match text.split_once('#') {
        Some((url, fragment)) => (url, Some(fragment.to_owned())),
        None => (text, None),
    };
    let path = url.split('?').next().unwrap_or(url);
    let last = path.rsplit('/').next().unwrap_or_default();
    let name = percent_decode_str(last).decode_utf8().ok();
    let name = name.filter(|n| !n.is_empty()).map(|n| n.into_owned());
    (Place::Url(url.to_owned()), name, fragment)
}

/// Whether an address is that of a repository's page or of a clone.
fn is_repository(text: &str) -> bool {
    let path = text.split(['#', '?']).next().unwrap_or(text);
    path.ends_with(".git") || text.starts_with("git@") || text.starts_with("ssh://")
}

fn digest_in(fragment: &str) -> Option<String> {
    let mut parts = fragment.split('&');
    let found = parts.find_map(|part| part.strip_prefix("sha256="))?;
    Some(found.to_owned())
}

fn digest(hex: &str) -> Result<Digest, DirectFileError> {
    let hex = hex.strip_prefix("sha256:").unwrap_or(hex);
    Digest::from_hex(&hex.to_ascii_lowercase()).map_err(|_| DirectFileError::Digest(clipped(hex)))
}

fn clipped(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_are_known_by_their_names() {
        for (text, name, version) in [
            ("./wheels/My_Lib-1.0-py3-none-any.whl", "my-lib", "1.0"),
            ("x-1.0.tar.gz", "x", "1.0"),
            ("x-1.0.zip", "x", "1.0"),
            ("/srv/a.b-2!1.0.post1.tar.gz", "a-b", "2!1.0.post1"),
            ("file:///srv/my%20wheels/x-1-py3-none-any.whl", "x", "1"),
            (
                "https://u:p@h.test/d/torch-2.13.0%2Bcu130-cp312-cp312-manylinux_2_28_x86_64.whl?sig=1",
                "torch",
                "2.13.0+cu130",
            ),
            ("@ https://h.test/x-1-py3-none-any.whl", "x", "1"),
        ] {
            assert!(is_file(text), "{text}");
            let file = DirectFile::parse(text, None).unwrap();
            assert_eq!(file.kind.distribution(), name, "{text}");
            assert_eq!(file.kind.version().to_string(), version, "{text}");
            assert!(!file.shown().contains("u:p"), "{}", file.shown());
        }
        for version in ["auto", "2.13.*", ">=1,<2", "1.0", "~=2.1", "==1.0+cu130"] {
            assert!(!is_file(version), "{version}");
        }
    }

    #[test]
    fn what_is_no_such_file_is_told_apart() {
        let repository = [
            "git+https://github.com/a/b@main",
            "https://github.com/a/b.git",
            "git@github.com:a/b.git",
            "ssh://git@h.test/a/b",
        ];
        for text in repository {
            let fault = DirectFile::parse(text, None).unwrap_err();
            assert!(matches!(fault, DirectFileError::Repository(_)), "{text}");
        }
        for text in [
            ".",
            "./mylib",
            "../x/",
            "https://h.test/simple/",
            "/srv/wheels",
        ] {
            let fault = DirectFile::parse(text, None).unwrap_err();
            assert!(
                matches!(fault, DirectFileError::Folder(_)),
                "{text}: {fault}"
            );
        }
        for text in [
            "https://github.com/a/b/archive/refs/tags/v1.0.tar.gz",
            "https://h.test/main.zip",
            "x.whl",
            "-1.0.tar.gz",
        ] {
            let fault = DirectFile::parse(text, None).unwrap_err();
            assert!(matches!(fault, DirectFileError::Kind(_)), "{text}: {fault}");
        }
        let fault = DirectFile::parse("ftp://h.test/x-1.0.tar.gz", None);
        assert!(matches!(fault, Err(DirectFileError::Scheme(_))));
    }

    #[test]
    fn a_digest_is_given_once() {
        let hex = "AB".repeat(32);
        let url = format!("https://h.test/x-1.0.tar.gz#egg=x&sha256={hex}");
        let file = DirectFile::parse(&url, None).unwrap();
        assert_eq!(file.sha256.unwrap().hex(), "ab".repeat(32));
        assert_eq!(file.place, Place::Url("https://h.test/x-1.0.tar.gz".into()));
        assert!(matches!(
            DirectFile::parse(&url, Some(&hex)),
            Err(DirectFileError::TwoDigests)
        ));
        assert!(matches!(
            DirectFile::parse("x-1.0.tar.gz", Some("abc")),
            Err(DirectFileError::Digest(_))
        ));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}", sha256 in proptest::option::of("\\PC{0,70}")) {
            let _ = is_file(&text);
            let _ = DirectFile::parse(&text, sha256.as_deref());
        }
    }
}
