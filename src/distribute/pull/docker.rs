//! Loads an image of the store into Docker. Only the layers that the engine lacks are sent.

use super::PullError;
use stackforge_engine::EngineError;
use stackforge_engine::docker::Docker;
use stackforge_image::assemble::{Assembled, output};
use stackforge_types::Cancel;
use std::path::Path;

/// Loads an image under each of `names`, and checks that the engine has it under each.
pub async fn load(
    docker: &Docker,
    image: &Assembled,
    names: &[String],
    blobs: &Path,
    cancel: &Cancel,
) -> Result<(), EngineError> {
    let diff_ids: Vec<String> = image.layers.iter().map(|l| l.diff_id.to_string()).collect();
    // Docker identifies a layer together with those below it, so only leading layers can be skipped.
    let existing = docker.count_existing_layers(&diff_ids).await?;
    let load = |from: usize| {
        let (image, names, blobs) = (image.clone(), names.to_owned(), blobs.to_owned());
        docker.load(
            move |out| output::archive(&image, &names, &blobs, |n| n >= from, out),
            cancel,
        )
    };
    match load(existing).await {
        // With another image store (containerd's) the engine needs every file that the archive's index names.
        Err(_) if existing > 0 && !cancel.is_cancelled() => load(0).await,
        other => other,
    }?;
    docker
        .expect(names, &ids(image).each_ref().map(String::as_str))
        .await
}

/// Returns the image's possible IDs: the configuration's digest with a graph driver, the manifest's with
/// containerd.
fn ids(image: &Assembled) -> [String; 2] {
    [&image.config_digest, &image.digest].map(ToString::to_string)
}

/// Loads an image under `name`. The current image of that name stays until the new one is complete; then the
/// `keep` latest ones stay as `NAME-previous-1` and so on. An older one only loses that name: Docker removes
/// an image with its last name, unless a container uses it.
pub async fn replace(
    image: &Assembled,
    name: &str,
    keep: u32,
    blobs: &Path,
    cancel: &Cancel,
) -> Result<(), PullError> {
    let docker = Docker::connect(None).await?;
    let previous = Previous {
        docker: &docker,
        name,
    };
    // Finish what a killed process began.
    previous.settle().await?;
    if let Some(before) = previous.id(name).await? {
        docker.tag(&before, &previous.slot(0)).await?;
    }
    let loaded = load(&docker, image, &[name.to_owned()], blobs, cancel).await;
    let settled = previous.settle().await;
    loaded?;
    settled?;
    Ok(previous.forget(keep).await?)
}

/// The names of previous images. Slot 0 names the current image while the new one is loaded, so that it
/// always has a name; slots from 1 are those that `--keep` counts.
struct Previous<'a> {
    docker: &'a Docker,
    name: &'a str,
}

impl Previous<'_> {
    fn slot(&self, n: u32) -> String {
        format!("{}-previous-{n}", self.name)
    }

    async fn id(&self, name: &str) -> Result<Option<String>, EngineError> {
        Ok(self.docker.image(name).await?.map(|image| image.id))
    }

    /// Empties slot 0: moves its image to slot 1, unless `name` still points to it.
    async fn settle(&self) -> Result<(), EngineError> {
        let Some(held) = self.id(&self.slot(0)).await? else {
            return Ok(());
        };
        if self.id(self.name).await?.as_ref() != Some(&held) {
            self.enter(&held).await?;
        }
        self.docker.remove_image(&self.slot(0)).await?;
        Ok(())
    }

    /// Gives slot 1 to an image and moves the others up, to the first free slot. A slot with the same image as
    /// the next one counts as free: a killed process leaves that.
    async fn enter(&self, image: &str) -> Result<(), EngineError> {
        let mut moving = Vec::new();
        let mut next = self.id(&self.slot(1)).await?;
        while let Some(id) = next.take() {
            next = self.id(&self.slot(moving.len() as u32 + 2)).await?;
            if id == image || next.as_ref() == Some(&id) {
                break;
            }
            moving.push(id);
        }
        // Move the last one first, so that each has its new name before it loses the old one.
        for (n, id) in moving.iter().enumerate().rev() {
            self.docker.tag(id, &self.slot(n as u32 + 2)).await?;
        }
        self.docker.tag(image, &self.slot(1)).await
    }

    /// Removes the names of images after the first `keep`.
    async fn forget(&self, keep: u32) -> Result<(), EngineError> {
        let names = self.docker.names().await?;
        for n in slots(self.name, &names).filter(|n| *n > keep) {
            // Docker refuses if it is the last name of an image that a container uses. The next pull tries again.
            if let Err(error) = self.docker.remove_image(&self.slot(n)).await {
                tracing::debug!(%error, "an old image stays");
            }
        }
        Ok(())
    }
}

/// Returns the numbers of the slots among an engine's names. Docker leaves out `docker.io/library/`.
fn slots(name: &str, names: &[String]) -> impl Iterator<Item = u32> {
    names.iter().filter_map(move |full| {
        let (image, number) = full.rsplit_once("-previous-")?;
        let above = name.strip_suffix(image)?;
        let number = number.parse().ok()?;
        (above.is_empty() || above.ends_with('/')).then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_image() {
        let of = |name: &str, full: &str| slots(name, &[full.to_owned()]).next();
        assert_eq!(of("h:5000/a:1", "h:5000/a:1-previous-12"), Some(12));
        assert_eq!(of("docker.io/library/a:1", "a:1-previous-2"), Some(2));
        for other in [
            "h:5000/a:1",
            "h:5000/a:1-previous-x",
            "h:5000/aa:1-previous-1",
            "000/a:1-previous-1",
            "h:5000/a:1-previous-1-previous-",
        ] {
            assert_eq!(of("h:5000/a:1", other), None, "{other}");
        }
    }
}
