//! Where an image runs, as its labels say it: an index of variants repeats them.

use crate::audit::{Audit, Reach};
use crate::catalog::Catalog;
use crate::plan::Plan;
use crate::publish::Facts;
use crate::rules::DriverVersion;
use crate::spec::Sm;
use std::collections::BTreeMap;

const SM: &str = "io.stackforge.sm";

/// Labels that follow from what the audit of the image found, and from the base's releases of L4T.
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
        found(&mut facts, reach);
    }
    let mut labels = facts.annotations();
    // Also when it has machine code for none: the plan's label names all SMs.
    labels.entry(SM.to_owned()).or_default();
    labels
}

/// What was planned, made what was found.
fn found(facts: &mut Facts, reach: &Reach) {
    // A GPU of the target that runs some libraries natively and some by PTX stays among those that
    // need no PTX: nothing follows from it for newer ones.
    let by_ptx = |sm: &Sm| reach.ptx.is_some_and(|from| from <= sm.base());
    facts
        .sms
        .retain(|sm| reach.native.contains(&sm.base()) || !by_ptx(sm));
    facts.ptx = reach.ptx.into_iter().collect();
    // Of two floors the higher holds.
    let driver = |text: &Option<String>| text.as_deref()?.parse::<DriverVersion>().ok();
    facts.driver = facts.driver.take().max(driver(&reach.mixed_driver));
    facts.jit_driver = facts.jit_driver.take().max(driver(&reach.ptx_driver));
}

/// The base is what ties an image to releases of NVIDIA's Linux for Jetson.
fn l4t(plan: &Plan, catalog: &Catalog) -> Vec<String> {
    let base = &plan.parts.base.name;
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

    /// SMs, PTX and the two drivers that a plan's become.
    fn told(planned: &[&str], reach: &Reach) -> (Vec<Sm>, Vec<Sm>, String, String) {
        let mut facts = Facts {
            sms: sms(planned),
            driver: "525".parse().ok(),
            jit_driver: "580.65.06".parse().ok(),
            ..Facts::default()
        };
        found(&mut facts, reach);
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
            native: sms(&["9.0"]),
            ptx: Some("10.0".parse().unwrap()),
            ptx_driver: Some("570.26".to_owned()),
            mixed_driver: None,
        };
        let (native, ptx, driver, jit) = told(&["9.0a", "11.0"], &reach);
        assert_eq!((native, ptx), (sms(&["9.0a"]), sms(&["10.0"])));
        assert_eq!((driver.as_str(), jit.as_str()), ("525", "580.65.06"));
    }

    #[test]
    fn a_gpu_that_only_compiles_some_needs_the_driver_for_it() {
        let reach = Reach {
            native: sms(&["9.0"]),
            ptx: None,
            ptx_driver: None,
            mixed_driver: Some("570.26".to_owned()),
        };
        let (native, ptx, driver, _) = told(&["9.0", "11.0"], &reach);
        assert_eq!((native, ptx), (sms(&["9.0", "11.0"]), sms(&[])));
        assert_eq!(driver, "570.26");
    }
}
