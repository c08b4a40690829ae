//! A package as a lock names it: by its content, never by the host that it came from.

use serde::{Deserialize, Serialize};
use stackforge_types::Digest;

/// One exact package file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedDeb {
    /// The package's name.
    pub name: String,
    /// The full version, with epoch and revision.
    pub version: String,
    /// Architecture in Debian's spelling (`amd64`, `arm64`), or `all`.
    pub architecture: String,
    /// The kind of archive: `debian`, `debian-security`, `ubuntu`, …
    pub archive: String,
    /// Path below the archive's root, such as `pool/main/d/dash/dash_0.5.12-2_amd64.deb`.
    pub path: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// Digest of the file, which a lock writes in lower-case hexadecimal.
    #[serde(with = "stackforge_types::digest::hex")]
    pub sha256: Digest,
}

/// A malformed field of a locked package.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("locked package `{package}`: {field} `{value}` is not {expected}")]
pub struct MalformedLock {
    package: String,
    field: &'static str,
    value: String,
    expected: &'static str,
}

impl LockedDeb {
    /// Checks every field that is text. Locks are edited by hand and by merges, so their values are checked
    /// before they become part of a path or a URL.
    ///
    /// # Errors
    /// If a field is malformed.
    pub fn check(&self) -> Result<(), MalformedLock> {
        let bad = |field, value: &str, expected| {
            Err(MalformedLock {
                package: self.name.escape_debug().to_string(),
                field,
                value: value.escape_debug().to_string(),
                expected,
            })
        };
        if !is_package_name(&self.name) {
            return bad("name", &self.name, "a package name");
        }
        if super::version::Version::parse(&self.version).is_err() {
            return bad("version", &self.version, "a Debian version");
        }
        if !is_word(&self.architecture) {
            return bad("architecture", &self.architecture, "an architecture");
        }
        if !is_word(&self.archive) {
            return bad(
                "archive",
                &self.archive,
                "a kind of archive such as `debian`",
            );
        }
        if !is_pool_path(&self.path) {
            return bad("path", &self.path, "a path below the archive's root");
        }
        Ok(())
    }
}

/// Whether a name follows Policy 5.6.1: at least two characters of `a-z0-9+-.`, the first of which is a
/// letter or a digit. Names of more than 200 characters are refused.
pub fn is_package_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() >= 2
        && name.len() <= 200
        && bytes
            .next()
            .is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b))
}

/// Whether a text can name an architecture, archive, suite or component.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

/// Whether a path is relative and has only plain parts that need no escaping in a URL: no `..`, `%`,
/// `?` or `#`.
pub(super) fn is_pool_path(path: &str) -> bool {
    path.len() <= 1024
        && path.split('/').all(|part| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"+-._~:=@".contains(&b))
        })
}

/// Returns bytes in lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DASH: &str = "33ea40061da2f1a861ec46212b2b6a34f0776a049b1a3f0abce2fb8cb994258f";

    fn dash() -> LockedDeb {
        LockedDeb {
            name: "dash".into(),
            version: "0.5.12-2".into(),
            architecture: "amd64".into(),
            archive: "debian".into(),
            path: "pool/main/d/dash/dash_0.5.12-2_amd64.deb".into(),
            size: 91848,
            sha256: Digest::from_hex(DASH).unwrap(),
        }
    }

    #[test]
    fn accepts_what_archives_hold_and_refuses_paths_that_escape() {
        assert_eq!(dash().check(), Ok(()));
        for path in [
            "/etc/passwd",
            "../x.deb",
            "pool/../x",
            "pool//x",
            "a?b",
            "",
            "a/./b",
            "a%2fb",
        ] {
            let deb = LockedDeb {
                path: path.into(),
                ..dash()
            };
            assert!(deb.check().is_err(), "{path}");
        }
        for name in ["", "a", "Dash", "-a", "a/b", "a b"] {
            assert!(
                LockedDeb {
                    name: name.into(),
                    ..dash()
                }
                .check()
                .is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn survives_the_lock_which_refuses_unknown_keys_and_bad_digests() {
        let text = toml::to_string(&dash()).unwrap();
        assert!(text.contains(&format!("sha256 = \"{DASH}\"")), "{text}");
        assert_eq!(toml::from_str::<LockedDeb>(&text).unwrap(), dash());
        for bad in [DASH.to_uppercase().as_str(), "33ea", ""] {
            let text = text.replace(DASH, bad);
            let error = toml::from_str::<LockedDeb>(&text).unwrap_err();
            assert!(error.message().contains("is not a sha256"), "{error}");
        }
        assert!(toml::from_str::<LockedDeb>(&format!("{text}host = \"x\"\n")).is_err());
    }
}
