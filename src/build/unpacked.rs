//! The layers of an image as directories of the store, which builds and validations share.

use super::BuildError;
use super::base::io as failed_at;
use stackforge_image::oci::{self, Image};
use stackforge_image::store::Store;
use stackforge_image::unpack::{Owner, UnpackError, unpack};
use stackforge_types::Cancel;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Each layer's directory, the lowest first; those that are not there are unpacked, several at
/// a time, and every byte of them is verified.
pub(super) fn trees(
    store: &Store,
    image: &Image,
    threads: usize,
    cancel: &Cancel,
) -> Result<Vec<PathBuf>, BuildError> {
    let all: Vec<usize> = (0..image.layers.len()).collect();
    let mut order = all.clone();
    order.sort_by_key(|&n| std::cmp::Reverse(image.layers[n].size()));
    let next = AtomicUsize::new(0);
    let made = Mutex::new(all.iter().map(|_| None).collect::<Vec<_>>());
    let work = || {
        while let Some(&n) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let tree = match cancel.is_cancelled() {
                true => Err(BuildError::Stopped),
                false => tree(store, &image.layers[n]),
            };
            made.lock().unwrap_or_else(PoisonError::into_inner)[n] = Some(tree);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(all.len()) {
            scope.spawn(work);
        }
    });
    let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    // A thread that ended early left one out.
    made.into_iter()
        .map(|tree| tree.unwrap_or(Err(BuildError::Stopped)))
        .collect()
}

fn tree(store: &Store, layer: &oci::Layer) -> Result<PathBuf, BuildError> {
    store.tree(layer.diff_id(), |into| {
        let unpacked = unpack(layer.tar()?, into, Owner::of_process());
        Ok(unpacked.map_err(|e| unpack_error(e, into))?.content)
    })
}

/// A full disk is the store's to tell, all else is the layer's.
pub(super) fn unpack_error(error: UnpackError, into: &Path) -> BuildError {
    match error {
        UnpackError::Write { source, .. } => failed_at("unpack a layer below", into, source),
        other => BuildError::Unpack(other),
    }
}
