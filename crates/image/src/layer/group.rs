//! Decides which wheels share a layer.
//!
//! In: wheels' names and sizes, and the largest number of layers. Out: groups of wheels. A large
//! wheel gets a layer of its own; each of the others goes to a layer chosen by its name alone. So a new
//! version of one library changes one layer, adding or removing a library changes one layer, and stacks with
//! the same libraries share layers whatever else they contain.
//!
//! Dependencies do not decide: a new requirement of one wheel would move others. A wheel moves only when its
//! size crosses the threshold, or when the number of large wheels exceeds the limit: the threshold then
//! doubles until they fit.

use std::collections::BTreeMap;

use stackforge_types::Sha256;

/// A wheel to place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// Normalized name of the distribution.
    pub name: &'a str,
    /// Size of the wheel in bytes.
    pub size: u64,
}

/// How wheels are spread over layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Smallest size in bytes of a wheel that gets a layer of its own.
    pub large: u64,
    /// Number of layers that the other wheels are spread over.
    pub shared: usize,
    /// Largest number of layers.
    pub layers: usize,
}

impl Default for Limits {
    /// A stack has some 200 wheels, of which some 30 have more than 8 MiB. Eight layers for the others stay
    /// small. A layer of byte code may stand above each of the 54, and the base needs some too: Docker's overlayfs
    /// mounts 127.
    fn default() -> Self {
        Self {
            large: 8 << 20,
            shared: 8,
            layers: 54,
        }
    }
}

/// Groups of indexes into `parts`: first the large wheels by name, then the shared layers. No group is
/// empty.
pub fn group(parts: &[Part<'_>], limits: &Limits) -> Vec<Vec<usize>> {
    let layers = limits.layers.max(1);
    let shared = limits.shared.clamp(1, layers);
    let mut large = limits.large.max(1);
    while parts.iter().filter(|part| part.size >= large).count() > layers - shared {
        if large == u64::MAX {
            break;
        }
        large = large.saturating_mul(2);
    }
    let mut alone: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut together: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&place| parts[place].name);
    for place in order {
        let part = parts[place];
        if part.size >= large && large < u64::MAX {
            alone.entry(part.name).or_default().push(place);
        } else {
            let layer = bucket(part.name, shared as u64);
            together.entry(layer).or_default().push(place);
        }
    }
    alone.into_values().chain(together.into_values()).collect()
}

/// The bucket of a name among `count`: rendezvous hashing, so that another count moves few names.
fn bucket(name: &str, count: u64) -> u64 {
    let weight = |bucket: &u64| {
        let mut hash = Sha256::new();
        hash.update(bucket.to_le_bytes());
        hash.update(name);
        hash.finalize()
    };
    (0..count).max_by_key(weight).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    type Names = BTreeSet<String>;

    fn groups(wheels: &BTreeMap<String, u64>, limits: &Limits) -> BTreeSet<Names> {
        let parts: Vec<Part<'_>> = wheels
            .iter()
            .map(|(name, size)| Part { name, size: *size })
            .collect();
        let names = |group: Vec<usize>| group.iter().map(|i| parts[*i].name.to_owned()).collect();
        group(&parts, limits).into_iter().map(names).collect()
    }

    fn stack() -> BTreeMap<String, u64> {
        (0..200)
            .map(|i| {
                (
                    format!("lib{i}"),
                    if i % 7 == 0 { 9 << 20 } else { 1 << 18 },
                )
            })
            .collect()
    }

    #[test]
    fn a_new_version_moves_nothing() {
        let limits = Limits::default();
        let before = groups(&stack(), &limits);
        let mut other = stack();
        other.insert("lib3".to_owned(), 2 << 20);
        other.insert("lib7".to_owned(), 90 << 20);
        assert_eq!(groups(&other, &limits), before);
        assert_eq!(before.len(), 29 + 8);
    }

    #[test]
    fn a_library_more_changes_one_layer() {
        let before = groups(&stack(), &Limits::default());
        for size in [1 << 10, 1 << 30] {
            let mut other = stack();
            other.insert("another".to_owned(), size);
            let after = groups(&other, &Limits::default());
            assert_eq!(after.difference(&before).count(), 1);
        }
    }

    #[test]
    fn more_large_wheels_than_layers_share_some() {
        let limits = Limits {
            large: 1,
            shared: 4,
            layers: 20,
        };
        let groups = groups(&stack(), &limits);
        assert!(groups.len() <= 20, "{}", groups.len());
    }

    proptest! {
        #[test]
        fn every_wheel_is_in_one_layer(
            sizes in proptest::collection::vec(any::<u64>(), 0..60),
            large in any::<u64>(), shared in 0usize..12, layers in 0usize..30,
        ) {
            let names: Vec<String> = (0..sizes.len()).map(|i| format!("n{i}")).collect();
            let parts: Vec<Part<'_>> = (names.iter().zip(&sizes))
                .map(|(name, size)| Part { name, size: *size })
                .collect();
            let limits = Limits { large, shared, layers };
            let groups = group(&parts, &limits);
            prop_assert!(groups.len() <= layers.max(1));
            prop_assert!(groups.iter().all(|g| !g.is_empty()));
            let mut all: Vec<usize> = groups.concat();
            all.sort();
            prop_assert_eq!(all, (0..parts.len()).collect::<Vec<_>>());
        }
    }
}
