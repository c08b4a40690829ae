//! Unpacks an image's root file system into one directory of the store.

use super::PullError;
use stackforge_image::oci::Image;
use stackforge_image::store::Store;
use stackforge_image::unpack::{Owner, over};
use stackforge_types::Digest;
use std::path::PathBuf;

/// Unpacks the layers over one another, each verified to its last byte, or returns the existing tree.
pub fn tree(image: &Image, store: &Store) -> Result<PathBuf, PullError> {
    let key = chain(image.layers.iter().map(|layer| &layer.diff_id));
    store.tree(&key, |into| {
        let mut bytes = 0;
        for layer in &image.layers {
            let unpacked = over(layer.tar()?, into, Owner::of_process());
            let failed = |source| PullError::Unpack {
                path: into.to_owned(),
                source,
            };
            bytes += unpacked.map_err(failed)?.content;
        }
        Ok(bytes)
    })
}

/// Computes the chain ID of the OCI image specification; for one layer, its diff ID.
fn chain<'a>(mut layers: impl Iterator<Item = &'a Digest>) -> Digest {
    let Some(first) = layers.next() else {
        return Digest::of(b"");
    };
    layers.fold(first.clone(), |below, layer| {
        Digest::of(format!("{below} {layer}").as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_layer_is_its_own_chain() {
        let [a, b, c] = ["a", "b", "c"].map(|text| Digest::of(text.as_bytes()));
        assert_eq!(chain([&a].into_iter()), a);
        let two = Digest::of(format!("{a} {b}").as_bytes());
        assert_eq!(chain([&a, &b].into_iter()), two);
        let three = Digest::of(format!("{two} {c}").as_bytes());
        assert_eq!(chain([&a, &b, &c].into_iter()), three);
    }
}
