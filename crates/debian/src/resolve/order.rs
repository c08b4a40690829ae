//! The order in which the chosen packages can be unpacked.

use std::collections::BTreeSet;

use super::super::package::LockedDeb;
use super::{Chosen, Resolver};

impl<'a> Resolver<'a> {
    /// Dependencies first, in circles as it comes; among equals the more urgent, then by name.
    pub(super) fn ordered(&self) -> Vec<LockedDeb> {
        let mut roots: Vec<&Chosen<'a>> = self.chosen.values().collect();
        roots.sort_by_key(|chosen| (chosen.package.priority(), chosen.package.name()));
        let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
        // Each frame: a package and how many of its groups have been looked at.
        let mut stack: Vec<(&Chosen<'a>, usize)> = Vec::new();
        for root in roots {
            if seen.insert(root.package.name()) {
                stack.push((root, 0));
            }
            while let Some((chosen, next)) = stack.last_mut() {
                let Some(group) = chosen.groups.get(*next) else {
                    order.push(chosen.package.locked());
                    stack.pop();
                    continue;
                };
                *next += 1;
                let satisfier = group
                    .iter()
                    .find_map(|alternative| self.satisfier(alternative));
                if let Some(dependency) = satisfier.and_then(|name| self.chosen.get(name))
                    && seen.insert(dependency.package.name())
                {
                    stack.push((dependency, 0));
                }
            }
        }
        order
    }
}
