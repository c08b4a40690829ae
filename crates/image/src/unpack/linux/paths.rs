//! Paths of a layer: their parts, and a set of them in a few bytes each.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Most paths, as many as an image may have files (`oci/merge/mod.rs`).
const MOST: usize = 2_000_000;

/// Paths and their parent directories, as 128-bit hashes with keys of this process: 16 bytes for each
/// distinct path, however long.
pub(super) struct Paths {
    keys: [RandomState; 2],
    hashes: HashSet<u128>,
    most: usize,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            keys: Default::default(),
            hashes: HashSet::new(),
            most: MOST,
        }
    }
}

impl Paths {
    /// Adds a path and its parent directories. False if there are too many.
    #[must_use]
    pub(super) fn insert(&mut self, path: &str) -> bool {
        let Self { keys, hashes, most } = self;
        hashes.extend(prefixes(keys, path));
        hashes.len() <= *most
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        prefixes(&self.keys, path)
            .last()
            .is_some_and(|hash| self.hashes.contains(&hash))
    }
}

/// Hashes of a path's prefixes: `a`, `a/b` and `a/b/c`.
fn prefixes(keys: &[RandomState; 2], path: &str) -> impl Iterator<Item = u128> {
    let mut hashers = keys.each_ref().map(|key| key.build_hasher());
    path.split('/').map(move |part| {
        let [high, low] = hashers.each_mut().map(|hasher| {
            hasher.write(part.as_bytes());
            hasher.write_u8(b'/');
            hasher.finish()
        });
        u128::from(high) << 64 | u128::from(low)
    })
}

/// Joins a directory of the layer and a name.
pub(super) fn join(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_in_it_and_what_only_looks_alike_is_not() {
        let mut paths = Paths::default();
        for _ in 0..3 {
            assert!(paths.insert("a/bc/d"));
        }
        assert_eq!(paths.hashes.len(), 3);
        for (path, contained) in [
            ("a", true),
            ("a/bc", true),
            ("a/bc/d", true),
            ("a/b", false),
            ("a/b/c/d", false),
            ("abc", false),
            ("", false),
        ] {
            assert_eq!(paths.contains(path), contained, "{path}");
        }
    }

    #[test]
    fn there_is_an_end() {
        let mut paths = Paths {
            most: 1000,
            ..Paths::default()
        };
        let mut entered = 0;
        while paths.insert(&entered.to_string()) {
            entered += 1;
        }
        assert_eq!(entered, 1000);
    }
}
