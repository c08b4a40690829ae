//! Images at rest, as targets of [`super::audit`].

use super::image::{Fault, Image};
use stackforge_image::oci;
use std::io::{BufReader, Read};

/// An image of an OCI layout or an archive.
pub struct AtRest {
    name: String,
    image: oci::Image,
    env: Vec<String>,
}

impl AtRest {
    pub fn new(name: &str, image: oci::Image) -> Self {
        let config = image.config.config().as_ref();
        let env = config.and_then(|c| c.env().clone()).unwrap_or_default();
        Self {
            name: name.to_owned(),
            image,
            env,
        }
    }
}

impl Image for AtRest {
    fn name(&self) -> &str {
        &self.name
    }

    fn env(&self) -> &[String] {
        &self.env
    }

    fn layers(&self) -> usize {
        self.image.layers.len()
    }

    fn open(&self, layer: usize) -> Result<Box<dyn Read + Send + '_>, Fault> {
        Ok(Box::new(BufReader::with_capacity(
            256 << 10,
            self.image.layers[layer].tar()?,
        )))
    }
}
