//! Places besides the store that a pulled image is written to.

use super::{PullError, docker};
use stackforge_image::assemble::{Assembled, output};
use stackforge_image::oci::Image;
use stackforge_image::store::{Save, Store};
use stackforge_types::Cancel;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tokio::task::block_in_place;

/// A place for an image, as `-o` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `docker`, the engine's own store of images.
    Docker,
    /// `oci:DIR`, an image layout.
    Oci(PathBuf),
    /// `oci-archive:FILE`, a tar of a layout, which `docker load` reads too.
    Archive(PathBuf),
    /// `rootfs:DIR`, the files of the image.
    Rootfs(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("oci", path)) if !path.is_empty() => Ok(Self::Oci(path.into())),
            Some(("oci-archive", path)) if !path.is_empty() => Ok(Self::Archive(path.into())),
            Some(("rootfs", path)) if !path.is_empty() => Ok(Self::Rootfs(path.into())),
            None if text == "docker" => Ok(Self::Docker),
            _ => Err("an output is docker, oci:DIR, oci-archive:FILE or rootfs:DIR".to_owned()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Docker => f.write_str("docker"),
            Self::Oci(path) => write!(f, "oci:{}", path.display()),
            Self::Archive(path) => write!(f, "oci-archive:{}", path.display()),
            Self::Rootfs(path) => write!(f, "rootfs:{}", path.display()),
        }
    }
}

/// Returns an image of the store in the form that outputs are written from. `None` without its documents.
pub fn assembled(image: &Image) -> Option<Assembled> {
    let documents = image.documents.as_ref()?;
    let platform = format!("{}/{}", image.config.os(), image.config.architecture());
    Some(Assembled {
        platform: platform.parse().ok()?,
        manifest: documents.manifest.clone(),
        config: documents.config.clone(),
        digest: image.digest.clone(),
        config_digest: documents.config_digest.clone(),
        layers: image.layers.clone(),
    })
}

impl Place {
    /// Writes an image of the store to this place, under `name`. A root file system is written while its
    /// layers are fetched: see [`super::Rootfs`].
    pub async fn write(
        &self,
        image: &Assembled,
        name: &str,
        keep: u32,
        store: &Store,
        cancel: &Cancel,
    ) -> Result<(), PullError> {
        let blobs = store.dir("blobs/sha256")?;
        match self {
            Self::Docker => docker::replace(image, name, keep, &blobs, cancel).await,
            Self::Oci(directory) => Ok(block_in_place(|| {
                store.keeping_notes(image.blobs().values(), || {
                    output::layout(image, name, &blobs, directory)
                })
            })?),
            Self::Archive(file) => block_in_place(|| archive(image, name, &blobs, file)),
            Self::Rootfs(_) => Ok(()),
        }
    }

    /// The directory or file of the place. `None` for an engine.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Docker => None,
            Self::Oci(path) | Self::Archive(path) | Self::Rootfs(path) => Some(path),
        }
    }

    pub fn rootfs(&self) -> Option<&Path> {
        match self {
            Self::Rootfs(path) => Some(path),
            _ => None,
        }
    }
}

/// Writes an archive. It gets its name only when it is complete.
fn archive(image: &Assembled, name: &str, blobs: &Path, path: &Path) -> Result<(), PullError> {
    let failed = |source| PullError::io("write the archive", path, source);
    let file = Save::begin(path).map_err(failed)?;
    output::archive(image, &[name.to_owned()], blobs, |_| true, file.file()).map_err(failed)?;
    file.finish().map_err(failed)
}
