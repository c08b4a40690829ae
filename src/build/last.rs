//! The steps of each variant's latest build, for `plan --why`: `last/VARIANT-ARCH.json` in the store, and
//! `last/VARIANT-ARCH-native.json` for the native engine.

use serde::Serialize;
use stackforge_image::store::{Store, StoreError, write_atomically};
use stackforge_plan::{Plan, Step, StepId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// An input that differs from the last build of the same step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Changed {
    pub input: String,
    pub before: Option<String>,
    pub now: Option<String>,
}

fn path(store: &Store, plan: &Plan) -> PathBuf {
    // The engines have different steps.
    let engine = if plan.is_native() { "-native" } else { "" };
    let name = format!("{}-{}{engine}.json", plan.variant, plan.platform.arch());
    store.root().join("last").join(name)
}

/// Records the plan's inputs as those of the latest build.
pub(super) fn record(store: &Store, plan: &Plan) -> Result<(), StoreError> {
    store.dir("last")?;
    let inputs: BTreeMap<String, &BTreeMap<String, String>> = plan
        .steps
        .iter()
        .map(|s| (s.id.to_string(), &s.inputs))
        .collect();
    let path = path(store, plan);
    let failed = |e| StoreError::at("write", &path, e);
    let text = serde_json::to_vec_pretty(&inputs).map_err(|e| failed(std::io::Error::other(e)))?;
    write_atomically(&path, &text).map_err(failed)
}

/// Returns the inputs of each step that changed since the latest build. `None` if there was no build.
pub fn why(store: &Store, plan: &Plan) -> Option<BTreeMap<StepId, Vec<Changed>>> {
    let text = std::fs::read(path(store, plan)).ok()?;
    let last: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_slice(&text).ok()?;
    let none = BTreeMap::new();
    Some(
        plan.steps
            .iter()
            .map(|step| {
                let before = last.get(&step.id.to_string()).unwrap_or(&none);
                (step.id.clone(), changed(step, before))
            })
            .filter(|(_, changes)| !changes.is_empty())
            .collect(),
    )
}

fn changed(step: &Step, before: &BTreeMap<String, String>) -> Vec<Changed> {
    let names: BTreeSet<&String> = step.inputs.keys().chain(before.keys()).collect();
    names
        .into_iter()
        .filter(|n| step.inputs.get(*n) != before.get(*n))
        .map(|n| Changed {
            input: n.clone(),
            before: before.get(n).cloned(),
            now: step.inputs.get(n).cloned(),
        })
        .collect()
}
