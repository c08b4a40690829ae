//! Runs the validation programs in an image at rest: a layout, an archive or an image of the store.
//! Its layers are stacked as an overlay in namespaces, and what the programs write is discarded.

use super::BuildError;
use super::in_place::{SYSTEM_PATH, validate_root};
use super::unpacked::trees;
use super::validation::{OUTPUT, ValidationRequest, recorded};
use crate::validate::{Report, SPEC_PATH};
use stackforge_image::oci::Image;
use stackforge_image::store::Store;
use stackforge_sandbox::{Root, Writes};
use stackforge_stack::spec::Platform;
use stackforge_types::Cancel;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tokio::task::block_in_place;

/// Runs the validation programs in `image`, whose layers are unpacked into the store, and returns their
/// report. Fails if `image` is for another platform than this machine's.
pub async fn validate_at_rest(
    store: &Store,
    image: &Image,
    request: ValidationRequest,
    cancel: &Cancel,
    line: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, BuildError> {
    stackforge_sandbox::supported()?;
    if let Some(host) = Platform::host() {
        image.is_for(host)?;
    }
    let layers = unpacked(store, image, cancel)?;
    let own = || recorded(topmost(&layers, SPEC_PATH).as_deref());
    let request = request.with(own);
    let config = image.config.config().as_ref();
    let env = config.and_then(|c| c.env().clone()).unwrap_or_default();
    let mut env = environment(&env);
    // Docker sets this PATH too if the image has none.
    env.entry("PATH".into())
        .or_insert_with(|| SYSTEM_PATH.into());
    let root = Root {
        layers,
        writes: Writes::Discard,
    };
    validate_root(root, env, request, cancel, line).await
}

/// Unpacks the layers of `image` that the store does not have unpacked, and returns the directory of each, the
/// lowest first. They stay while the store is open.
pub fn unpacked(store: &Store, image: &Image, cancel: &Cancel) -> Result<Vec<PathBuf>, BuildError> {
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    block_in_place(|| trees(store, image, threads, cancel))
}

/// Reads a small file of an image from the highest layer that has it. Layers are untrusted, so symbolic links
/// in them are not followed.
pub fn topmost(layers: &[PathBuf], path: &str) -> Option<Vec<u8>> {
    layers.iter().rev().find_map(|layer| file_in(layer, path))
}

fn file_in(layer: &Path, file: &str) -> Option<Vec<u8>> {
    let mut path = layer.to_owned();
    for part in file.split('/').filter(|part| !part.is_empty()) {
        path.push(part);
        if path.symlink_metadata().ok()?.is_symlink() {
            return None;
        }
    }
    let file = File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(OUTPUT as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Parses the `NAME=VALUE` variables of an image's configuration.
pub(super) fn environment(variables: &[String]) -> BTreeMap<OsString, OsString> {
    let split = |v: &String| {
        let (name, value) = v.split_once('=')?;
        Some((name.into(), value.into()))
    };
    variables.iter().filter_map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_its_variables() {
        let env = environment(&["A=b=c".to_owned(), "nothing".to_owned()]);
        assert_eq!(env, BTreeMap::from([("A".into(), "b=c".into())]));
    }

    #[test]
    fn the_highest_record_counts_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let layer = |name: &str| dir.path().join(name);
        let record = |name: &str| layer(name).join(SPEC_PATH.trim_start_matches('/'));
        let layers = ["low", "high", "link", "folder"].map(layer).to_vec();
        assert_eq!(topmost(&layers, SPEC_PATH), None);
        for name in ["low", "high", "link"] {
            std::fs::create_dir_all(record(name).parent().unwrap()).unwrap();
        }
        std::fs::create_dir(layer("folder")).unwrap();
        std::fs::write(record("low"), "1").unwrap();
        std::fs::write(record("high"), "2").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", record("link")).unwrap();
        std::os::unix::fs::symlink(layer("low").join("usr"), layer("folder").join("usr")).unwrap();
        assert_eq!(topmost(&layers, SPEC_PATH).unwrap(), b"2");
    }
}
