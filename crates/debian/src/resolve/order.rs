//! The order in which the chosen packages can be unpacked.

use std::collections::BTreeSet;

use super::super::package::LockedDeb;
use super::selection::{Chosen, Selection};

impl<'a> Selection<'a> {
    /// Returns dependencies before their dependents, except in cycles. Otherwise more important
    /// packages come first, then the order is by name.
    pub(super) fn ordered(&self) -> Vec<LockedDeb> {
        let mut roots: Vec<&Chosen<'a>> = self.chosen.values().collect();
        roots.sort_by_key(|chosen| (chosen.package.priority(), chosen.package.name()));
        let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
        // Each frame is a package and the number of its groups that have been visited.
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
