//! Images at rest, as targets of [`super::audit`].

use super::image::{Fault, Image, LayerReading};
use stackforge_image::oci;
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::sync::{Mutex, PoisonError};

/// An image of an OCI layout or an archive.
pub struct AtRest {
    name: String,
    image: oci::Image,
    env: Vec<String>,
    /// What was read of layers before, by their numbers.
    readings: Mutex<BTreeMap<usize, LayerReading>>,
}

impl AtRest {
    pub fn new(name: &str, image: oci::Image) -> Self {
        let config = image.config.config().as_ref();
        let env = config.and_then(|c| c.env().clone()).unwrap_or_default();
        Self {
            name: name.to_owned(),
            image,
            env,
            readings: Mutex::default(),
        }
    }

    /// Gives it layers that were read before, by diff ID.
    pub fn with_readings(self, mut readings: BTreeMap<Digest, LayerReading>) -> Self {
        let layers = self.image.layers.iter().enumerate();
        let known = layers.filter_map(|(n, layer)| Some((n, readings.remove(&layer.diff_id)?)));
        Self {
            readings: Mutex::new(known.collect()),
            ..self
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

    fn take_reading(&self, layer: usize) -> Option<LayerReading> {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        readings.remove(&layer)
    }
}
