//! What the store remembers of a plan's steps. `plan` shows it, and a build goes by it.

use super::existing;
use crate::validate::Report;
use stackforge_image::Layer;
use stackforge_image::store::{Action, Store};
use stackforge_plan::{Op, Plan, Step};
use stackforge_types::Digest;
use std::collections::BTreeMap;

/// Whether a build finds the step's output and need not do it again. `plan` asks this; a build calls [`wheel`],
/// [`layers`] and [`report`]. What a Docker engine keeps is known only by what it did: another engine, or one that was
/// cleaned up, does the step again.
pub fn cached(store: &Store, plan: &Plan, step: &Step) -> bool {
    match &step.op {
        Op::Compile(_) | Op::Project(_) => wheel(store, step).is_some(),
        // They are set up whenever something is compiled, out of trees that the store keeps.
        Op::Tools(_) if plan.is_native() => {
            let mut compiles = plan.steps.iter().filter(|s| matches!(s.op, Op::Compile(_)));
            compiles.all(|s| wheel(store, s).is_some())
        }
        Op::Base(_) if plan.is_native() => layers(store, plan, step).is_some(),
        Op::Bytecode(_) if plan.is_native() => layers(store, plan, step).is_some(),
        Op::Packages(_) | Op::Environment(_) | Op::Layer(_) => layers(store, plan, step).is_some(),
        Op::App(_) if plan.is_native() => layers(store, plan, step).is_some(),
        Op::Validate(_) if plan.is_native() => {
            let below = plan.steps.iter().filter(|s| s.op.makes_layers());
            let below: Option<Vec<Vec<Layer>>> = below.map(|s| layers(store, plan, s)).collect();
            below.is_some_and(|l| report(store, step, &l.concat()).is_some())
        }
        Op::Image(_) if plan.is_native() => {
            existing::recorded(store, &plan.of_environment()).is_some()
        }
        Op::Service(_) if plan.is_native() => existing::recorded(store, plan).is_some(),
        _ => store.has(&step.key),
    }
}

/// Returns the digest of the audited wheel that a compile step made, if the store has it.
pub(super) fn wheel(store: &Store, step: &Step) -> Option<Digest> {
    let action = store.action(&step.key).filter(|a| a.audit.is_some())?;
    let digest = action.outputs.get("wheel")?;
    store.names_of(digest).first()?;
    store.blob(digest).map(|_| digest.clone())
}

/// Returns the layers that a step made, if the store has their blobs and the wheels in them are those that
/// the plan's compile steps made last.
pub(super) fn layers(store: &Store, plan: &Plan, step: &Step) -> Option<Vec<Layer>> {
    let action = store.action(&step.key)?;
    if compiled(store, plan, step)
        .iter()
        .any(|(role, digest)| action.outputs.get(role) != Some(digest))
    {
        return None;
    }
    let layers: Vec<Layer> = serde_json::from_value(action.made?).ok()?;
    let here = |layer: &Layer| store.blob(&layer.digest).is_some();
    layers.iter().all(here).then_some(layers)
}

/// Returns the compiled wheels that a step's layer is made of, as outputs of its action.
pub(super) fn compiled(store: &Store, plan: &Plan, step: &Step) -> BTreeMap<String, Digest> {
    let of = match &step.op {
        Op::Bytecode(bytecode) => bytecode.of.as_ref().and_then(|id| plan.step(id)),
        _ => Some(step),
    };
    let Some(Op::Layer(layer)) = of.map(|s| &s.op) else {
        return BTreeMap::new();
    };
    let compiled = layer.wheels.iter().filter(|w| w.file.is_none());
    let made = compiled.map(|w| {
        let digest = plan.compile(&w.name).and_then(|s| wheel(store, s));
        // A wheel that is not there matches no record.
        let digest = digest.unwrap_or_else(|| Digest::of(b""));
        (format!("compiled:{}", w.name), digest)
    });
    made.collect()
}

/// Returns the report of an earlier validation of exactly these layers.
pub(super) fn report(store: &Store, step: &Step, layers: &[Layer]) -> Option<Report> {
    let action = store.action(&step.key)?;
    if action.outputs != outputs(layers) {
        return None;
    }
    serde_json::from_value(action.report?).ok()
}

/// Records a validation of these layers.
pub(super) fn validated(report: &Report, layers: &[Layer], seconds: f64) -> Action {
    Action {
        step: "validate".to_owned(),
        outputs: outputs(layers),
        seconds,
        report: serde_json::to_value(report).ok(),
        ..Action::default()
    }
}

fn outputs(layers: &[Layer]) -> BTreeMap<String, Digest> {
    let layers = layers.iter().enumerate();
    layers
        .map(|(n, l)| (format!("layer:{n:03}"), l.digest.clone()))
        .collect()
}
