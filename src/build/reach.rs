//! Makes the labels that say on which devices an image runs. An index of variants repeats them.

use stackforge_audit::{Audit, Reach};
use stackforge_distribute::publish::Facts;
use stackforge_gpu::DriverVersion;
use stackforge_plan::Plan;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::labels::SM;
use stackforge_stack::spec::Sm;
use stackforge_types::Suffix;
use std::collections::BTreeMap;

/// Returns the labels that follow from the audit of the image and from the L4T releases of its base.
pub(super) fn labels(plan: &Plan, audit: &Audit, catalog: &Catalog) -> BTreeMap<String, String> {
    let mut facts = Facts {
        stack: Some(plan.stack.clone()),
        sms: plan.sm.clone(),
        cuda: plan.cuda.clone(),
        isa: plan.isa.clone(),
        l4t: l4t(plan, catalog),
        ..Facts::default()
    };
    facts.complete(catalog);
    if let Some(reach) = &audit.reach {
        found(&mut facts, reach, plan.image().prune);
    }
    let mut labels = facts.annotations();
    // Set even if empty, because the plan's own label names all SMs.
    labels.entry(SM.to_owned()).or_default();
    labels
}

/// Replaces the planned facts by what the audit found. A pruned image runs on exactly the SMs that it was
/// pruned for: kernels and PTX for other GPUs are gone.
fn found(facts: &mut Facts, reach: &Reach, pruned: bool) {
    let by_ptx = |sm: &Sm| reach.ptx.is_some_and(|from| from <= sm.base());
    let alone = |sm: Sm| Sm {
        suffix: Some(Suffix::Arch),
        ..sm
    };
    let known = |sm: Sm| {
        let native = reach.native.iter().find(|own| own.base() == sm.base());
        match native {
            // Prefer the suffix of the code that was found over the planned one.
            Some(own) => Some(Sm {
                suffix: own.suffix.or(sm.suffix),
                ..sm
            }),
            None if by_ptx(&sm) => None,
            // Code of another SM runs on this one, but maybe not on its family.
            None => Some(alone(sm)),
        }
    };
    let planned = std::mem::take(&mut facts.sms);
    let native = planned.iter().copied().filter_map(known);
    if pruned {
        facts.sms = native.map(alone).collect();
        let compile = planned.iter().filter(|sm| known(**sm).is_none());
        facts.ptx = compile.map(|sm| alone(*sm)).collect();
    } else {
        facts.sms = native.collect();
        facts.ptx = reach.ptx.into_iter().collect();
    }
    // Of two minimum drivers the newer counts.
    let driver = |text: &Option<String>| text.as_deref()?.parse::<DriverVersion>().ok();
    if !reach.mixed.is_empty() {
        let floor = driver(&reach.mixed_driver).or_else(|| facts.jit_driver.clone());
        facts.driver = facts.driver.take().max(floor);
    }
    facts.jit_driver = facts.jit_driver.take().max(driver(&reach.ptx_driver));
}

/// Returns the L4T releases that the base runs on; empty if it is not a Jetson base.
fn l4t(plan: &Plan, catalog: &Catalog) -> Vec<String> {
    let base = &plan.base().lock.name;
    let image = catalog.images.get(base);
    if image.is_none_or(|image| image.l4t.is_none()) {
        return Vec::new();
    }
    let releases = catalog.jetson.iter();
    let releases = releases.filter(|release| release.bases.contains(base));
    releases.flat_map(|release| release.l4t.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sms(digits: &[&str]) -> Vec<Sm> {
        digits.iter().map(|d| d.parse().unwrap()).collect()
    }

    /// Returns the SMs, PTX, driver and PTX driver that the plan's facts become.
    fn label_values(planned: &[&str], reach: &Reach) -> (Vec<Sm>, Vec<Sm>, String, String) {
        labelled(planned, reach, false)
    }

    fn labelled(
        planned: &[&str],
        reach: &Reach,
        pruned: bool,
    ) -> (Vec<Sm>, Vec<Sm>, String, String) {
        let mut facts = Facts {
            sms: sms(planned),
            driver: "525".parse().ok(),
            jit_driver: "580.65.06".parse().ok(),
            ..Facts::default()
        };
        found(&mut facts, reach, pruned);
        let text = |driver: Option<DriverVersion>| driver.unwrap().to_string();
        (
            facts.sms,
            facts.ptx,
            text(facts.driver),
            text(facts.jit_driver),
        )
    }

    #[test]
    fn gpus_that_compile_are_those_of_the_ptx() {
        let reach = Reach {
            native: sms(&["9.0", "10.0a"]),
            ptx: Some("11.0".parse().unwrap()),
            ptx_driver: Some("570.26".to_owned()),
            ..Reach::default()
        };
        let (native, ptx, driver, jit) = label_values(&["9.0a", "10.0", "11.0"], &reach);
        // Code for sm_100a does not run on sm_103 of the same family.
        assert_eq!((native, ptx), (sms(&["9.0a", "10.0a"]), sms(&["11.0"])));
        assert_eq!((driver.as_str(), jit.as_str()), ("525", "580.65.06"));
    }

    #[test]
    fn a_pruned_image_is_for_its_gpus_alone() {
        let reach = Reach {
            native: sms(&["8.0", "9.0"]),
            ptx: Some("8.0".parse().unwrap()),
            ptx_driver: Some("570.26".to_owned()),
            ..Reach::default()
        };
        let (native, ptx, ..) = labelled(&["8.0", "9.0", "12.0"], &reach, true);
        // 8.9 is missing: its own kernels were pruned. 12.1 is missing: its PTX may have been.
        assert_eq!((native, ptx), (sms(&["8.0a", "9.0a"]), sms(&["12.0a"])));
    }

    #[test]
    fn a_gpu_that_only_compiles_some_needs_the_driver_for_it() {
        let mut reach = Reach {
            native: sms(&["9.0"]),
            mixed: sms(&["11.0"]),
            mixed_driver: Some("570.26".to_owned()),
            ..Reach::default()
        };
        let (native, ptx, driver, _) = label_values(&["9.0", "11.0"], &reach);
        assert_eq!((native, ptx), (sms(&["9.0", "11.0a"]), sms(&[])));
        assert_eq!(driver, "570.26");
        reach.mixed_driver = None;
        let (_, _, driver, _) = label_values(&["9.0", "11.0"], &reach);
        assert_eq!(
            driver, "580.65.06",
            "unknown: what compiles all that its CUDA writes"
        );
    }
}
