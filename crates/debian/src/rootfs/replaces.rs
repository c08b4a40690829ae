//! Which package may take over another's files, and the order of writing that follows from it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::deb::Deb;
use super::super::relation::parse_relations;
use super::error::RootfsError;

/// Returns pairs (a, b): package `a` may take over files of package `b`.
pub(super) fn replacements(
    packages: &[Deb],
    architecture: &str,
) -> Result<BTreeSet<(usize, usize)>, RootfsError> {
    let by_name: BTreeMap<&str, usize> = packages
        .iter()
        .enumerate()
        .map(|(i, deb)| (deb.name(), i))
        .collect();
    let mut pairs = BTreeSet::new();
    for (index, deb) in packages.iter().enumerate() {
        let Some(field) = deb.field("Replaces") else {
            continue;
        };
        let groups =
            parse_relations(field, architecture).map_err(|source| RootfsError::Relation {
                package: deb.name().to_owned(),
                source,
            })?;
        for alternative in groups.iter().flatten() {
            if let Some(&other) = by_name.get(alternative.name)
                && other != index
                && alternative.accepts(packages[other].version())
            {
                pairs.insert((index, other));
            }
        }
    }
    Ok(pairs)
}

/// Returns the order of writing: as given, except that a package that replaces another's files comes
/// before it, so a file that is replaced is never written. The order does not decide which of the two
/// wins.
pub(super) fn order(count: usize, replaces: &BTreeSet<(usize, usize)>) -> Vec<usize> {
    fn visit(
        index: usize,
        replaces: &BTreeSet<(usize, usize)>,
        seen: &mut [bool],
        order: &mut Vec<usize>,
    ) {
        if std::mem::replace(&mut seen[index], true) {
            return;
        }
        for (by, _) in replaces.iter().filter(|(_, replaced)| *replaced == index) {
            visit(*by, replaces, seen, order);
        }
        order.push(index);
    }
    let (mut seen, mut order) = (vec![false; count], Vec::with_capacity(count));
    for index in 0..count {
        visit(index, replaces, &mut seen, &mut order);
    }
    order
}
