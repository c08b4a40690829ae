//! Loads images into the engine, without the layers that it already has.

use super::answer::{list, raw, text, texts};
use super::client::Docker;
use super::{context, lines};
use crate::EngineError;
use bollard::query_parameters::{ImportImageOptions, ListImagesOptions};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use stackforge_types::Cancel;
use std::collections::BTreeSet;
use std::io;
use std::io::Write;

/// Number of images that are inspected concurrently.
const AT_ONCE: usize = 8;

impl Docker {
    /// Returns how many of these layers, given by diff ID from the lowest up, some image of the engine
    /// starts with.
    ///
    /// # Errors
    /// If the images cannot be listed.
    pub async fn count_existing_layers(&self, diff_ids: &[String]) -> Result<usize, EngineError> {
        let doing = "listing the engine's images";
        let options = ListImagesOptions {
            all: true,
            ..ListImagesOptions::default()
        };
        let images = raw(self.api.list_images(Some(options)).await);
        let images = images.map_err(|error| self.failed(error, doing))?;
        let ids: BTreeSet<String> = list(&images).map(|image| text(&image["Id"])).collect();
        let common = |id: String| async move {
            // An image that was removed in between has no layers.
            let image = raw(self.api.inspect_image(&id).await).unwrap_or_default();
            let same = |(own, its): &(&String, &String)| own == its;
            let layers = texts(&image["RootFS"]["Layers"]);
            diff_ids.iter().zip(&layers).take_while(same).count()
        };
        let counts = stream::iter(ids).map(common).buffer_unordered(AT_ONCE);
        Ok(counts.fold(0, |most, n| async move { most.max(n) }).await)
    }

    /// Loads the archive that `archive` writes, in the format of `docker save`.
    ///
    /// # Errors
    /// If `archive` fails, the engine rejects its output, or `cancel` was set.
    pub async fn load(
        &self,
        archive: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
        cancel: &Cancel,
    ) -> Result<(), EngineError> {
        let doing = "loading the image".to_owned();
        let (body, upload) = context::stream_of(archive);
        let options = ImportImageOptions {
            quiet: true,
            ..ImportImageOptions::default()
        };
        let body = bollard::body_try_stream(body);
        let answers = lines::whole(self.api.import_image(options, body, None));
        let loaded = tokio::select! {
            loaded = answers.try_collect::<Vec<_>>() => loaded,
            () = cancel.cancelled() => return Err(EngineError::Cancelled { doing }),
        };
        match loaded {
            Ok(_) => Ok(()),
            Err(error) => Err(upload
                .take_failure()
                .unwrap_or_else(|| self.failed(error, &doing))),
        }
    }
}
