//! Unpacks an image's layers into directories of the store, which builds and validations share.

use super::BuildError;
use super::base::io as failed_at;
use stackforge_image::oci::Image;
use stackforge_image::store::Store;
use stackforge_image::unpack::{Owner, UnpackError, unpack};
use stackforge_types::Cancel;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Returns the directory of each layer, the lowest first. Missing ones are unpacked, several at a time,
/// and verified to the last byte.
pub(super) fn trees(
    store: &Store,
    image: &Image,
    threads: usize,
    cancel: &Cancel,
) -> Result<Vec<PathBuf>, BuildError> {
    let all: Vec<usize> = (0..image.layers.len()).collect();
    let mut order = all.clone();
    order.sort_by_key(|&n| std::cmp::Reverse(image.layers[n].size));
    let next = AtomicUsize::new(0);
    let made = Mutex::new(all.iter().map(|_| None).collect::<Vec<_>>());
    let work = || {
        while let Some(&n) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let tree = if cancel.is_cancelled() {
                Err(BuildError::Stopped)
            } else {
                tree(store, &image.layers[n], cancel)
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
    // A thread that failed left a layer out.
    made.into_iter()
        .map(|tree| tree.unwrap_or(Err(BuildError::Stopped)))
        .collect()
}

fn tree(
    store: &Store,
    layer: &stackforge_image::Layer,
    cancel: &Cancel,
) -> Result<PathBuf, BuildError> {
    let made = store.tree(&layer.diff_id, |into| {
        let tar = Stoppable {
            tar: layer.tar()?,
            cancel,
        };
        let unpacked = unpack(tar, into, Owner::of_process());
        Ok(unpacked.map_err(|e| unpack_error(e, into))?.content)
    });
    match made {
        Err(_) if cancel.is_cancelled() => Err(BuildError::Stopped),
        made => made,
    }
}

/// A tar whose reads fail after cancellation: unpacking a layer may take minutes.
struct Stoppable<'a, R> {
    tar: R,
    cancel: &'a Cancel,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            Err(io::Error::other("stopped"))
        } else {
            self.tar.read(buf)
        }
    }
}

/// A full disk is an error of the store, every other one is of the layer.
pub(super) fn unpack_error(error: UnpackError, into: &Path) -> BuildError {
    match error {
        UnpackError::Write { source, .. } => failed_at("unpack a layer below", into, source),
        other => BuildError::Unpack(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_without_an_end_is_given_up() {
        let cancel = Cancel::new();
        let mut tar = Stoppable {
            tar: io::repeat(0),
            cancel: &cancel,
        };
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || io::copy(&mut tar, &mut io::sink()));
            cancel.cancel();
            assert_eq!(reader.join().unwrap().unwrap_err().to_string(), "stopped");
        });
    }
}
