//! Outputs of a build, and the facts that an index of variants has of an image.

use super::BuildError;
use super::Options;
use stackforge_distribute::publish::{Facts, PublishError, Settings};
use stackforge_transfer::registry::Reference;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An output, as `-o` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// `oci:DIR`, an image layout.
    Oci(PathBuf),
    /// `oci-archive:FILE`, a tar of a layout, which `docker load` reads too.
    Archive(PathBuf),
    /// `docker`, the engine's own store of images.
    Docker,
    /// `registry:REF`.
    Registry(Reference),
    /// `index:REF`, an index of variants in a registry.
    Index(Reference),
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("oci", path)) if !path.is_empty() => Ok(Self::Oci(path.into())),
            Some(("oci-archive", path)) if !path.is_empty() => Ok(Self::Archive(path.into())),
            Some(("registry", name)) => (name.parse().map(Self::Registry))
                .map_err(|e| format!("`{name}` is not a reference: {e}")),
            Some(("index", name)) => (name.parse().map(Self::Index))
                .map_err(|e| format!("`{name}` is not a reference: {e}")),
            None if text == "docker" => Ok(Self::Docker),
            _ => Err(
                "an output is oci:DIR, oci-archive:FILE, docker, registry:REF or index:REF"
                    .to_owned(),
            ),
        }
    }
}

/// As `-o` takes it.
impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oci(path) => write!(f, "oci:{}", path.display()),
            Self::Archive(path) => write!(f, "oci-archive:{}", path.display()),
            Self::Docker => f.write_str("docker"),
            Self::Registry(reference) => write!(f, "registry:{reference}"),
            Self::Index(reference) => write!(f, "index:{reference}"),
        }
    }
}

impl Output {
    /// The directory or file of the output. `None` for an engine or a registry.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Oci(path) | Self::Archive(path) => Some(path),
            Self::Docker | Self::Registry(_) | Self::Index(_) => None,
        }
    }

    /// Whether the engine that built the image can write this output itself.
    pub fn of_engine(&self) -> bool {
        self.path().is_none()
    }
}

/// Reads from an image's labels on which devices it runs.
pub(super) fn facts(
    labels: &BTreeMap<String, String>,
    options: &Options<'_>,
) -> Result<Facts, BuildError> {
    let mut facts = Facts::read(labels).map_err(PublishError::Fact)?;
    facts.complete(options.catalog);
    Ok(facts)
}

pub(super) fn settings<'a>(options: &'a Options<'_>) -> Settings<'a> {
    Settings {
        store: Some(options.store),
        plain_http: options.plain_http,
        ..Settings::default()
    }
}
