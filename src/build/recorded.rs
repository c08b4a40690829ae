//! What the store remembers of a plan's steps. `plan` shows it, and a build goes by it.

use super::existing;
use crate::validate::Report;
use stackforge_image::Layer;
use stackforge_image::store::{Action, Store};
use stackforge_plan::{Op, Plan, Step};
use stackforge_types::{Digest, Platform};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tokio::runtime::Builder;

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
            let report = below.and_then(|l| report(store, step, &l.concat()));
            report.is_some_and(|report| !is_due(&report, plan))
        }
        Op::Image(_) if plan.is_native() => is_made(store, &plan.of_environment()),
        Op::Service(_) if plan.is_native() => is_made(store, plan),
        _ => store.has(&step.key),
    }
}

fn is_made(store: &Store, plan: &Plan) -> bool {
    let made = existing::recorded(store, plan);
    made.is_some_and(|(_, existing)| !is_due(&existing.report, plan))
}

/// Whether an image was not validated where it was made, and this machine can validate it: its kernel or its settings
/// changed.
pub(super) fn is_due(report: &Report, plan: &Plan) -> bool {
    !report.has_run() && Platform::host() == Some(plan.platform) && sandboxes_start()
}

/// Whether programs of images run in sandboxes here. Asks the machine once.
pub(super) fn sandboxes_start() -> bool {
    static START: LazyLock<bool> = LazyLock::new(|| {
        let ask = || {
            let runtime = Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(stackforge_sandbox::probe(None)).ok()
        };
        // A runtime cannot be started on a thread that has one.
        let answer = std::thread::spawn(ask).join();
        answer.ok().flatten().is_some_and(|can| can.works)
    });
    *START
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
