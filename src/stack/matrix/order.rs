//! The order of builds in which every object is compiled once.
//!
//! In: variants. Out: their order, and how many of the first fill the cache of objects for the others. Device
//! code depends on the SM that it is compiled for, host code on the instruction set; everything else that either
//! depends on is the same for variants that differ in these two alone. So a few variants with every SM and every
//! instruction set compile all there is, and the others find it.

use super::Variant;
use crate::spec::{Platform, PythonVersion};
use std::collections::BTreeMap;

/// Variants by number, in the order in which to build them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildOrder {
    pub order: Vec<usize>,
    /// How many of the first compile what the others find compiled. All of them if nothing is shared.
    pub filling: usize,
}

/// Returns the order in which builds that share a cache compile least. Variants that compile nothing keep their
/// order.
pub fn build_order(variants: &[Variant]) -> BuildOrder {
    if variants.iter().all(|v| v.compiled.is_empty()) {
        return BuildOrder {
            order: (0..variants.len()).collect(),
            filling: variants.len(),
        };
    }
    let mut families: BTreeMap<(Platform, &str, PythonVersion), Vec<usize>> = BTreeMap::new();
    for (number, variant) in variants.iter().enumerate() {
        let family = (variant.platform, variant.base.as_str(), variant.python);
        families.entry(family).or_default().push(number);
    }
    let mut fills = vec![false; variants.len()];
    for family in families.values() {
        let sides: Vec<(String, String)> = family
            .iter()
            .map(|&number| {
                let variant = &variants[number];
                let isa = variant.isa.as_ref().map(ToString::to_string);
                (variant.sm.join(","), isa.unwrap_or_default())
            })
            .collect();
        for place in cover(&sides) {
            fills[family[place]] = true;
        }
    }
    let (mut order, then): (Vec<usize>, Vec<usize>) = (0..variants.len()).partition(|&n| fills[n]);
    let filling = order.len();
    order.extend(then);
    BuildOrder { order, filling }
}

/// Returns the fewest pairs that have every left and every right side: a minimum edge cover, which is a maximum
/// matching and one pair for each side that it leaves.
fn cover(pairs: &[(String, String)]) -> Vec<usize> {
    let mut of_left: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, (left, _)) in pairs.iter().enumerate() {
        of_left.entry(left).or_default().push(number);
    }
    let mut matched = BTreeMap::new();
    for left in of_left.keys() {
        augment(left, pairs, &of_left, &mut matched, &mut Vec::new());
    }
    let mut chosen: Vec<usize> = matched.into_values().collect();
    for (number, (left, right)) in pairs.iter().enumerate() {
        let has_left = chosen.iter().any(|&c| pairs[c].0 == *left);
        let has_right = chosen.iter().any(|&c| pairs[c].1 == *right);
        if !has_left || !has_right {
            chosen.push(number);
        }
    }
    chosen
}

/// Finds a right side for `left`, where needed by giving others another one (Kuhn's algorithm). `matched` has the
/// pair of each right side.
fn augment<'p>(
    left: &str,
    pairs: &'p [(String, String)],
    of_left: &BTreeMap<&'p str, Vec<usize>>,
    matched: &mut BTreeMap<&'p str, usize>,
    seen: &mut Vec<&'p str>,
) -> bool {
    for &number in &of_left[left] {
        let right = pairs[number].1.as_str();
        if seen.contains(&right) {
            continue;
        }
        seen.push(right);
        let is_free = match matched.get(right) {
            None => true,
            Some(&other) => augment(&pairs[other].0, pairs, of_left, matched, seen),
        };
        if is_free {
            matched.insert(right, number);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn sides(pairs: &[(String, String)], chosen: &[usize]) -> BTreeSet<(bool, String)> {
        let of = |&number: &usize| {
            let (left, right) = pairs[number].clone();
            [(false, left), (true, right)]
        };
        chosen.iter().flat_map(of).collect()
    }

    #[test]
    fn every_combination_takes_as_many_as_the_longer_side() {
        for (lefts, rights) in [(1, 1), (3, 5), (5, 3), (10, 7), (4, 4)] {
            let pairs: Vec<_> = (0..lefts)
                .flat_map(|l: usize| {
                    (0..rights).map(move |r: usize| (l.to_string(), r.to_string()))
                })
                .collect();
            assert_eq!(cover(&pairs).len(), lefts.max(rights));
        }
    }

    proptest! {
        #[test]
        fn a_cover_has_all_sides_and_none_is_smaller(
            made in proptest::collection::btree_set((0..4u8, 0..4u8), 0..10)
        ) {
            let pairs: Vec<_> = made.iter().map(|(l, r)| (l.to_string(), r.to_string())).collect();
            let all: Vec<usize> = (0..pairs.len()).collect();
            let mut chosen = cover(&pairs);
            chosen.sort_unstable();
            chosen.dedup();
            prop_assert_eq!(sides(&pairs, &chosen), sides(&pairs, &all));
            let smallest = (0..1u32 << pairs.len())
                .filter(|set| {
                    let some: Vec<usize> = all.iter().copied().filter(|n| set >> n & 1 == 1).collect();
                    sides(&pairs, &some) == sides(&pairs, &all)
                })
                .map(u32::count_ones)
                .min();
            prop_assert_eq!(Some(chosen.len() as u32), smallest);
        }
    }
}
