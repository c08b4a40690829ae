//! Where an image runs, as its labels say it: an index of variants repeats them.

use crate::audit::{Audit, Reach};
use crate::catalog::Catalog;
use crate::plan::Plan;
use crate::publish::Facts;
use std::collections::BTreeMap;

const SM: &str = "io.stackforge.sm";

/// Labels that follow from what the audit of the image found, and from the base's releases of L4T.
pub(super) fn labels(plan: &Plan, audit: &Audit, catalog: &Catalog) -> BTreeMap<String, String> {
    let mut facts = facts(plan, audit.reach.as_ref(), l4t(plan, catalog));
    // Of two floors the higher holds.
    let (driver, jit_driver) = (facts.driver.take(), facts.jit_driver.take());
    facts.complete(catalog);
    facts.driver = facts.driver.max(driver);
    facts.jit_driver = facts.jit_driver.max(jit_driver);
    let mut labels = facts.annotations();
    // Also when it has machine code for none: the plan's label names all SMs.
    labels.entry(SM.to_owned()).or_default();
    labels
}

fn facts(plan: &Plan, reach: Option<&Reach>, l4t: Vec<String>) -> Facts {
    let mut facts = Facts {
        stack: Some(plan.stack.clone()),
        sms: plan.sm.clone(),
        cuda: plan.cuda.clone(),
        isa: plan.isa.clone(),
        l4t,
        ..Facts::default()
    };
    let Some(reach) = reach else {
        return facts;
    };
    let driver = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
    let from = |from| plan.sm.iter().filter(move |sm| from <= sm.base());
    // What runs by PTX alone is said to.
    let by_ptx: Vec<_> = reach.ptx.into_iter().flat_map(from).collect();
    let native = |sm: &_| reach.native.contains(sm);
    facts
        .sms
        .retain(|sm| native(&sm.base()) || !by_ptx.contains(&sm));
    facts.ptx = reach.ptx.into_iter().collect();
    facts.jit_driver = driver(&reach.ptx_driver);
    facts.driver = driver(&reach.mixed_driver);
    facts
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
