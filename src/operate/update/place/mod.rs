//! The place of a service's image, and how another image gets there.
//!
//! A new image is put beside the current one and takes its place in one step, which is repeated after a
//! power cut. The previous image keeps a name of its own until the next update succeeds.

mod docker;
mod layout;
mod rootfs;

use super::UpdateError;
use stackforge_build::ValidationRequest;
use stackforge_build::validate::Report;
use stackforge_distribute::pull::{self, Resolved};
use stackforge_image::store::{Limits, Store};
use stackforge_stack::spec::Platform;
use stackforge_types::Cancel;
use stackforge_types::Digest;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use tokio::task::block_in_place;

/// A place, as the settings name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A tag in the engine.
    Docker(String),
    /// A directory with the files of the image, for systemd-nspawn or a unit with `RootDirectory=`. The other
    /// image is in `DIR.other`.
    Rootfs(PathBuf),
    /// An image layout, for container engines that read one.
    Layout(PathBuf),
}

/// The result of going back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// The previous image is in its place again; or there was none, and there is none.
    Done,
    /// Another program has put another image there. It stays.
    Moved,
    /// The previous image does not exist any more. The new one stays.
    Gone,
}

/// A place, and what an update of it needs.
pub struct PlaceContext<'a> {
    pub place: &'a Place,
    pub store: &'a Store,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a place is docker:NAME, rootfs:DIR or oci:DIR".to_owned();
        let path = |rest: &str| {
            let path = PathBuf::from(rest);
            if path.is_absolute() {
                Ok(path)
            } else {
                Err(format!("`{text}`: a service finds only an absolute path"))
            }
        };
        match text.split_once(':').ok_or_else(wrong)? {
            ("docker", name)
                if stackforge_types::reference::image_reference(name) && !name.contains('@') =>
            {
                let short = name.rsplit('/').next().unwrap_or(name);
                let tag = if short.contains(':') { "" } else { ":latest" };
                Ok(Self::Docker(format!("{name}{tag}")))
            }
            ("rootfs", rest) => path(rest).map(Self::Rootfs),
            ("oci", rest) => path(rest).map(Self::Layout),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Docker(name) => write!(f, "docker:{name}"),
            Self::Rootfs(path) => write!(f, "rootfs:{}", path.display()),
            Self::Layout(path) => write!(f, "oci:{}", path.display()),
        }
    }
}

impl PlaceContext<'_> {
    /// Returns the ID of the current image. `None` if there is no image.
    pub async fn current_id(&self) -> Result<Option<String>, UpdateError> {
        match self.place {
            Place::Docker(name) => docker::current_id(name).await,
            Place::Rootfs(dir) => Ok(rootfs::current_id(dir)),
            Place::Layout(dir) => layout::current_id(dir, &self.name()),
        }
    }

    /// Fetches an image and puts it beside the current one. Returns the image's ID in the place.
    pub async fn bring(
        &self,
        resolved: &Resolved,
        settings: &pull::Settings<'_>,
        cancel: &Cancel,
    ) -> Result<String, UpdateError> {
        let fetched = match self.place {
            Place::Rootfs(dir) => rootfs::bring(dir, resolved, settings).await?,
            _ => pull::fetch(resolved, settings, None).await?,
        };
        // The tag protects the blobs from garbage collection: the next update reuses parts of them.
        let digest = &resolved.manifest.digest;
        self.store.tag(&self.beside("next"), digest)?;
        match self.place {
            Place::Docker(name) => docker::bring(name, &fetched.image, self.store, cancel).await,
            Place::Rootfs(_) => Ok(digest.to_string()),
            Place::Layout(dir) => {
                // Copy the layers now: only the index is left to write while the service is stopped.
                layout::write(dir, None, &fetched.image, self.store)?;
                Ok(digest.to_string())
            }
        }
    }

    pub async fn validate(
        &self,
        id: &str,
        gpu: bool,
        cancel: &Cancel,
        line: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Report, UpdateError> {
        let request = ValidationRequest {
            gpu,
            ..ValidationRequest::default()
        };
        Ok(match self.place {
            Place::Docker(_) => docker::validate(id, request, self.store, cancel, line).await?,
            Place::Rootfs(dir) => {
                let other = rootfs::other(dir);
                stackforge_build::validate_rootfs(&other, request, cancel, line).await?
            }
            Place::Layout(_) => {
                let image = self.of_store(id)?;
                let validate = stackforge_build::validate_at_rest;
                validate(self.store, &image, request, cancel, line).await?
            }
        })
    }

    /// Ends what a killed validation left running.
    pub async fn forget(&self) -> Result<(), UpdateError> {
        match self.place {
            Place::Docker(name) => docker::forget(name).await,
            // A sandbox ends with the process that made it.
            Place::Rootfs(_) | Place::Layout(_) => Ok(()),
        }
    }

    /// Puts the new image in its place. Idempotent.
    pub async fn switch(&self, id: &str, before: Option<&str>) -> Result<(), UpdateError> {
        match self.place {
            Place::Docker(name) => docker::switch(name, id, before).await,
            Place::Rootfs(dir) => rootfs::switch(dir, id),
            Place::Layout(dir) => {
                // Ignore a failure: another program may have written the layout, so the store lacks that image.
                if let Some(before) = before.and_then(|before| before.parse().ok()) {
                    let _ = self.store.tag(&self.beside("before"), &before);
                }
                layout::write(dir, Some(&self.name()), &self.of_store(id)?, self.store)
            }
        }
    }

    /// Puts the previous image in its place again. Idempotent.
    pub async fn back(&self, id: &str, before: Option<&str>) -> Result<Back, UpdateError> {
        match self.place {
            Place::Docker(name) => docker::back(name, id, before).await,
            Place::Rootfs(dir) => rootfs::back(dir, id, before),
            Place::Layout(dir) => {
                let current_id = layout::current_id(dir, &self.name())?;
                if current_id.as_deref() == before {
                    return Ok(Back::Done);
                }
                if current_id.as_deref() != Some(id) {
                    return Ok(Back::Moved);
                }
                let Some(before) = before else {
                    layout::unname(dir, &self.name())?;
                    return Ok(Back::Done);
                };
                match self.of_store(before) {
                    Err(_) => Ok(Back::Gone),
                    Ok(image) => {
                        layout::write(dir, Some(&self.name()), &image, self.store)?;
                        Ok(Back::Done)
                    }
                }
            }
        }
    }

    /// Cleans up beside the place after an image was taken or refused.
    pub async fn settle(&self, kept: Option<&Digest>) -> Result<(), UpdateError> {
        if let Some(image) = kept {
            pull::keep(self.store, &self.name(), image, 1)?;
        }
        self.store.untag(&self.beside("next"))?;
        match self.place {
            Place::Docker(name) => docker::settle(name).await?,
            Place::Layout(dir) => layout::sweep(dir),
            Place::Rootfs(_) => {}
        }
        // Remove blobs that no image of the store needs any more.
        if kept.is_some()
            && let Err(error) = block_in_place(|| self.store.gc(&Limits::default()))
        {
            tracing::warn!("the store keeps what it does not need: {error}");
        }
        Ok(())
    }

    /// Returns the image's name in a layout and in the store. It follows from the place, since the settings may
    /// name another image while an update is under way.
    fn name(&self) -> String {
        let place = Digest::of(self.place.to_string().as_bytes());
        format!("localhost/edge-{}:current", &place.hex()[..12])
    }

    /// Returns a tag in the store.
    fn beside(&self, what: &str) -> String {
        format!("{}-{what}", self.name())
    }

    fn of_store(&self, id: &str) -> Result<stackforge_image::oci::Image, UpdateError> {
        Ok(stackforge_image::oci::open(
            self.store.root(),
            Some(id),
            Platform::of_processor(),
        )?)
    }
}
