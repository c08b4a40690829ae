//! Asks what kind of file paths of an image are.

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::ContainerArchiveInfoOptions;

use super::client::Docker;
use super::container::Container;
use super::image;
use super::reference::check_reference;
use crate::EngineError;

/// Bits of a mode as Go writes it.
const FOLDER: u32 = 1 << 31;
const LINK: u32 = 1 << 27;

/// The kind of a file in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Folder,
    /// A symbolic link, with its target as the engine resolves it.
    Link(String),
    /// Anything else.
    Other,
}

impl Docker {
    /// Returns the kind of each path of an image, without following a link at its end. `None` for a path that the
    /// image does not have.
    ///
    /// # Errors
    /// If the image does not exist, or the engine cannot be asked.
    pub async fn kinds(
        &self,
        image: &str,
        paths: &[String],
    ) -> Result<Vec<Option<FileKind>>, EngineError> {
        check_reference(image)?;
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            // The container is never started, but an image without a command would be refused.
            cmd: Some(vec!["-".to_owned()]),
            ..ContainerCreateBody::default()
        };
        let container = Container::create(self, body).await?;
        let mut kinds = Vec::new();
        let mut failed = None;
        for path in paths {
            match self.kind(&container.name, image, path).await {
                Ok(kind) => kinds.push(kind),
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        container.remove().await;
        failed.map_or(Ok(kinds), Err)
    }

    async fn kind(
        &self,
        container: &str,
        image: &str,
        path: &str,
    ) -> Result<Option<FileKind>, EngineError> {
        let options = ContainerArchiveInfoOptions {
            path: format!("/{}", path.trim_start_matches('/')),
        };
        match self
            .api
            .get_container_archive_info(container, Some(options))
            .await
        {
            Ok(found) if found.file_mode & FOLDER != 0 => Ok(Some(FileKind::Folder)),
            Ok(found) if found.file_mode & LINK != 0 => Ok(Some(FileKind::Link(found.link_target))),
            Ok(_) => Ok(Some(FileKind::Other)),
            Err(error) if image::is_missing(&error) => Ok(None),
            Err(error) => Err(self.failed(error, &format!("looking at {path} in {image}"))),
        }
    }
}
