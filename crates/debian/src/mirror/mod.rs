//! Where packages come from.
//!
//! Mirrors are the user's choice: given by the caller, else by the environment variable
//! `STACKFORGE_DEBIAN_MIRROR`, else by the host's own apt sources. The result is, per kind of archive,
//! a list of base URLs in order of preference. This program names no mirror, and a lock never contains
//! one.

use std::path::{Path, PathBuf};

use super::control::StanzaReader;
use super::package::is_word;
use stackforge_transfer::fetch::without_credentials;

/// Environment variable with URLs separated by white space or commas, each `URL` or `ARCHIVE=URL`.
pub const ENVIRONMENT: &str = "STACKFORGE_DEBIAN_MIRROR";

const ARCHIVES: [&str; 4] = ["debian", "debian-security", "ubuntu", "ubuntu-ports"];
const DEBIAN: [&str; 9] = [
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
];
const UBUNTU: [&str; 4] = ["focal", "jammy", "noble", "resolute"];
const POCKETS: [&str; 5] = [
    "",
    "-updates",
    "-security",
    "-backports",
    "-proposed-updates",
];

/// Why the mirrors are not known.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MirrorError {
    /// The URL does not parse, or has an unsupported scheme.
    #[error("mirror `{text}` is not an http or https address")]
    Address {
        /// The text as it was given, without credentials.
        text: String,
    },
    /// The archive is not given, and the last part of the URL is not a kind of archive.
    #[error("mirror `{text}` does not say of which archive it is")]
    Archive {
        /// The text as it was given, without credentials.
        text: String,
    },
    /// An archive has no mirror.
    #[error("no mirror of the archive `{archive}` is known")]
    Missing {
        /// Kind of the archive.
        archive: String,
    },
}

impl MirrorError {
    /// Hides the text if the list may contain a password. A password with a comma or a space is split
    /// into words, each of which may be a part of it.
    fn without_passwords(self, list: &str) -> Self {
        let hidden = || "…".to_owned();
        match self {
            Self::Address { .. } if list.contains('@') => Self::Address { text: hidden() },
            Self::Archive { .. } if list.contains('@') => Self::Archive { text: hidden() },
            other => other,
        }
    }

    /// Returns what to do about it, as a sentence without its full stop.
    pub fn help(&self) -> String {
        match self {
            Self::Address { .. } => "write it as `https://HOST/PATH`".to_owned(),
            Self::Archive { .. } => format!(
                "write it as `ARCHIVE=URL` with one of {}",
                ARCHIVES.join(", ")
            ),
            Self::Missing { archive } => {
                format!("set {ENVIRONMENT}=\"{archive}=https://HOST/PATH\", or configure a mirror")
            }
        }
    }
}

fn environment() -> Result<Option<String>, MirrorError> {
    match std::env::var(ENVIRONMENT) {
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(MirrorError::Address {
            text: "… (not UTF-8)".to_owned(),
        }),
    }
}

/// One mirror of one archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Kind of archive: `debian`, `debian-security`, `ubuntu`, …
    pub archive: String,
    /// Base URL, without a trailing slash.
    pub url: String,
}

/// Mirrors in order of preference.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mirrors(pub Vec<Mirror>);

impl Mirrors {
    /// Returns the caller's mirrors, else the environment's, else those of the host's apt sources.
    ///
    /// # Errors
    /// If a URL is malformed, or its archive is not clear.
    pub fn discover(requested: &[String]) -> Result<Self, MirrorError> {
        Self::choose(requested, environment()?.as_deref(), Path::new("/etc/apt"))
    }

    fn choose(
        requested: &[String],
        environment: Option<&str>,
        apt: &Path,
    ) -> Result<Self, MirrorError> {
        if !requested.is_empty() {
            return Self::parse(requested.iter().map(String::as_str));
        }
        match environment.filter(|text| !text.trim().is_empty()) {
            Some(text) => {
                let words = text.split(|c: char| c == ',' || c.is_whitespace());
                Self::parse(words.filter(|word| !word.is_empty()))
                    .map_err(|e| e.without_passwords(text))
            }
            None => Ok(Self::of_apt(apt)),
        }
    }

    /// Parses URLs, each `URL` or `ARCHIVE=URL`. A bare URL whose last part is a kind of archive
    /// belongs to that archive.
    ///
    /// # Errors
    /// If a URL is malformed, or its archive is not clear.
    pub fn parse<'a>(list: impl Iterator<Item = &'a str>) -> Result<Self, MirrorError> {
        let mut mirrors = Mirrors::default();
        for text in list {
            let (archive, url) = match text.split_once('=') {
                Some((archive, url)) if is_word(archive) => (Some(archive), url),
                _ => (None, text),
            };
            let url = address(url).ok_or_else(|| MirrorError::Address {
                text: without_credentials(text),
            })?;
            let last = url.rsplit('/').next().unwrap_or_default();
            let archive = archive
                .or(ARCHIVES.into_iter().find(|known| *known == last))
                .ok_or_else(|| MirrorError::Archive {
                    text: without_credentials(text),
                })?;
            mirrors.push(archive, url.clone());
        }
        Ok(mirrors)
    }

    /// Returns the mirrors of an archive, at least one.
    ///
    /// # Errors
    /// [`MirrorError::Missing`] if the archive has no mirror.
    pub fn for_archive(&self, archive: &str) -> Result<Vec<&str>, MirrorError> {
        let urls: Vec<&str> = self
            .0
            .iter()
            .filter(|mirror| mirror.archive == archive)
            .map(|mirror| mirror.url.as_str())
            .collect();
        if urls.is_empty() {
            Err(MirrorError::Missing {
                archive: archive.to_owned(),
            })
        } else {
            Ok(urls)
        }
    }

    fn push(&mut self, archive: &str, url: String) {
        let mirror = Mirror {
            archive: archive.to_owned(),
            url,
        };
        if !self.0.contains(&mirror) {
            self.0.push(mirror);
        }
    }

    /// Reads the mirrors that the host's apt uses for Debian's and Ubuntu's own archives. Sources that
    /// cannot be read, and those of other archives, are skipped.
    fn of_apt(apt: &Path) -> Self {
        let mut files = vec![apt.join("sources.list")];
        let parts = std::fs::read_dir(apt.join("sources.list.d"));
        let mut parts: Vec<PathBuf> = parts
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        parts.sort();
        files.extend(parts);
        let mut mirrors = Mirrors::default();
        for file in files {
            let Ok(text) = std::fs::read_to_string(&file) else {
                continue;
            };
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("list") => mirrors.add_lines(&text),
                Some("sources") => mirrors.add_stanzas(&text),
                _ => {}
            }
        }
        mirrors
    }

    /// Adds sources of the one-line style of sources.list(5): `deb [options] URI SUITE COMPONENT…`.
    fn add_lines(&mut self, text: &str) {
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let Some(rest) = line
                .strip_prefix("deb")
                .filter(|rest| rest.starts_with([' ', '\t']))
            else {
                continue;
            };
            let rest = rest.trim_start();
            let (options, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            {
                Some((options, rest)) => (options, rest),
                None => ("", rest),
            };
            let keyring = options
                .split_ascii_whitespace()
                .find_map(|option| option.strip_prefix("signed-by="));
            let mut words = rest.split_ascii_whitespace();
            if let (Some(uri), Some(suite)) = (words.next(), words.next()) {
                self.add_source(&[uri], &[suite], &words.collect::<Vec<_>>(), keyring);
            }
        }
    }

    /// Adds sources of the deb822 style of sources.list(5).
    fn add_stanzas(&mut self, text: &str) {
        let mut reader = StanzaReader::new(text.as_bytes());
        while let Ok(Some(stanza)) = reader.next_stanza() {
            let words = |name| -> Vec<&str> {
                stanza
                    .get(name)
                    .unwrap_or_default()
                    .split_ascii_whitespace()
                    .collect()
            };
            let disabled = stanza
                .get("Enabled")
                .is_some_and(|value| ["no", "false", "0"].contains(&value));
            if words("Types").contains(&"deb") && !disabled {
                self.add_source(
                    &words("URIs"),
                    &words("Suites"),
                    &words("Components"),
                    stanza.get("Signed-By"),
                );
            }
        }
    }

    fn add_source(
        &mut self,
        uris: &[&str],
        suites: &[&str],
        components: &[&str],
        keyring: Option<&str>,
    ) {
        // Archives of third parties use the same suites, and have keyrings of their own.
        let theirs = |keyring: &str| {
            !["debian-archive", "ubuntu-archive", "-----BEGIN"]
                .iter()
                .any(|own| keyring.contains(own))
        };
        if !components.contains(&"main") || keyring.is_some_and(theirs) {
            return;
        }
        for uri in uris {
            let urls = match uri.strip_prefix("mirror+file:") {
                // apt-transport-mirror(1): a file with one URL per line.
                Some(list) => std::fs::read_to_string(list).unwrap_or_default(),
                None => (*uri).to_owned(),
            };
            for url in urls
                .lines()
                .filter_map(|line| address(line.split_ascii_whitespace().next()?))
            {
                for archive in suites.iter().filter_map(|suite| archive_of(suite, &url)) {
                    self.push(archive, url.clone());
                }
            }
        }
    }
}

/// Returns the archive that a mirror serves, judged by its suite: Debian's security suites have their
/// own archive, Ubuntu's do not.
fn archive_of(suite: &str, url: &str) -> Option<&'static str> {
    let (name, pocket) = match suite.strip_suffix("/updates") {
        Some(name) => (name, "-security"),
        None => suite.split_at(suite.find('-').unwrap_or(suite.len())),
    };
    if !POCKETS.contains(&pocket) {
        return None;
    }
    if DEBIAN.contains(&name) {
        return Some(if pocket == "-security" {
            "debian-security"
        } else {
            "debian"
        });
    }
    UBUNTU
        .contains(&name)
        .then_some(if url.ends_with("/ubuntu-ports") {
            "ubuntu-ports"
        } else {
            "ubuntu"
        })
}

fn address(text: &str) -> Option<String> {
    let url = reqwest::Url::parse(text).ok()?;
    let usable = ["http", "https"].contains(&url.scheme())
        && url.query().is_none()
        && url.fragment().is_none();
    usable.then(|| text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests;
