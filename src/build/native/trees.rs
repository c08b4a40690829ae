//! Unpacks layers into directories, to read files or run programs in them.

use super::super::BuildError;
use super::super::unpacked::trees;
use super::layers::NativeBuilder;
use stackforge_image::Layer;
use stackforge_image::assemble::Draft;
use stackforge_image::oci::Image;
use std::path::PathBuf;

impl NativeBuilder<'_, '_> {
    /// Returns the directory of each layer, the lowest first.
    pub fn trees(&self, image: &Image) -> Result<Vec<PathBuf>, BuildError> {
        trees(self.options.store, image, self.threads, self.cancel)
    }

    /// Returns an image at rest of just these layers.
    pub fn image_of(&self, layers: &[Layer]) -> Result<Image, BuildError> {
        let draft = Draft {
            platform: self.plan.platform,
            epoch: self.native.epoch,
            base: None,
            layers: layers.to_vec(),
            from_base: 0,
            env: Vec::new(),
            cmd: Vec::new(),
            labels: Default::default(),
            keys: Default::default(),
        };
        let image = draft.assemble()?;
        self.store_documents(&image)?;
        self.at_rest(&image)
    }
}
