//! `stackforge plan`.

use super::Outcome;
use super::args::{Common, CompressionChoice, EngineChoice, PlanArgs};
use super::native::of_native;
use super::output::{Failure, json_as_is, print};
use super::session::Session;
use serde::Serialize;
use stackforge_build::last::{self, Changed};
use stackforge_build::native::planned;
use stackforge_build::{EngineNeed, wants};
use stackforge_image::store::Store;
use stackforge_plan::{Op, OpKind, Plan, Step, StepId};
use stackforge_stack::catalog::DistributionKind;
use stackforge_stack::rules::{Decision, Machine};
use stackforge_types::{Digest, Platform, PythonVersion, printable};
use std::collections::{BTreeMap, BTreeSet};

pub fn run(common: &Common, args: &PlanArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?;
    if session.project.file.single().is_none() && args.variant.is_none() && !args.dot {
        return all(common, args, &session);
    }
    let (_, plan) = session.plan(common, args.variant.as_deref())?;
    let engine = wants(&plan);
    let mut plan = of_engine(plan, args.engine, &session.store)?;
    session.mark(&mut plan);
    if args.dot {
        print(&plan.dot());
        return Ok(());
    }
    let why = args.why.then(|| last::why(&session.store, &plan)).flatten();
    if common.json {
        let variants = vec![variant(&plan, &engine, why.as_ref())];
        json_as_is(&Document::of(&plan.stack, variants));
        return Ok(());
    }
    print(&table(&plan, &engine));
    if args.why {
        print(&match why {
            None => "\nno earlier build of this stack to compare with\n".to_owned(),
            Some(why) => reasons(&why),
        });
    }
    Ok(())
}

/// Prints the plan of every variant of a matrix.
fn all(common: &Common, args: &PlanArgs, session: &Session) -> Outcome {
    let project = &session.project;
    let lock = project.required_lock()?;
    let (expansion, stale) = project.judged(Some(&lock), &Machine::default())?;
    project.admitted(stale)?;
    let (mut plans, mut engines) = (Vec::new(), Vec::new());
    for variant in &expansion.variants {
        let plan = project.planned(&variant.stack, &lock)?.plan;
        engines.push(wants(&plan));
        let mut plan = of_engine(plan, args.engine, &session.store)?;
        session.mark(&mut plan);
        plans.push(plan);
    }
    if common.json {
        let why = |plan| args.why.then(|| last::why(&session.store, plan)).flatten();
        let reasons: Vec<_> = plans.iter().map(why).collect();
        let variants = plans.iter().zip(&engines).zip(&reasons);
        let variants = variants.map(|((plan, engine), why)| variant(plan, engine, why.as_ref()));
        let name = project.file.pattern.stack.value.as_str();
        json_as_is(&Document::of(name, variants.collect()));
    } else {
        print(&summary(&plans));
    }
    Ok(())
}

/// Returns the plan for the engine that was asked for.
fn of_engine(plan: Plan, engine: EngineChoice, store: &Store) -> Result<Plan, Failure> {
    let native = match engine {
        EngineChoice::Auto => !wants(&plan).docker(),
        EngineChoice::Docker => false,
        EngineChoice::Native => true,
    };
    if native {
        let native = of_native(CompressionChoice::Gzip)?;
        return Ok(planned(&plan, &native, store));
    }
    Ok(plan)
}

fn summary(plans: &[Plan]) -> String {
    let width = plans.iter().map(|p| p.variant.len()).max().unwrap_or(0);
    let mut out = String::new();
    let mut keys = BTreeSet::new();
    for plan in plans {
        let cached = plan.steps.iter().filter(|s| s.cached).count();
        out.push_str(&format!(
            "{:width$}  {}  {} steps, {cached} cached\n",
            plan.variant,
            plan.key().short(),
            plan.steps.len(),
        ));
        keys.extend(plan.steps.iter().map(|s| &s.key));
    }
    let steps: usize = plans.iter().map(|p| p.steps.len()).sum();
    out.push_str(&format!(
        "\n{}, {steps} steps, {} of them different; `--variant NAME` shows one\n",
        super::matrix::counted(plans.len(), "variant"),
        keys.len(),
    ));
    out
}

/// What `--json` prints. It borrows the plans: those of a matrix have megabytes of steps.
#[derive(Serialize)]
struct Document<'a> {
    schema: u8,
    ok: bool,
    stack: &'a str,
    variants: Vec<VariantDocument<'a>>,
}

impl<'a> Document<'a> {
    fn of(stack: &'a str, variants: Vec<VariantDocument<'a>>) -> Self {
        Self {
            schema: 1,
            ok: true,
            stack,
            variants,
        }
    }
}

#[derive(Serialize)]
struct VariantDocument<'a> {
    cuda: Option<&'a str>,
    engine: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    isa: Option<&'a str>,
    key: &'a Digest,
    libraries: &'a [Decision],
    name: &'a str,
    platform: Platform,
    python: PythonVersion,
    sm: Vec<String>,
    steps: Vec<StepDocument<'a>>,
}

#[derive(Serialize)]
struct StepDocument<'a> {
    by: &'a BTreeMap<String, String>,
    cached: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<&'a [Changed]>,
    id: &'a StepId,
    inputs: &'a [StepId],
    key: &'a Digest,
    kind: OpKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    op: &'a Op,
}

fn variant<'a>(
    plan: &'a Plan,
    engine: &EngineNeed,
    why: Option<&'a BTreeMap<StepId, Vec<Changed>>>,
) -> VariantDocument<'a> {
    let step = |step: &'a Step| StepDocument {
        by: &step.inputs,
        cached: step.cached,
        changed: why.and_then(|why| why.get(&step.id)).map(Vec::as_slice),
        id: &step.id,
        inputs: &step.after,
        key: &step.key,
        kind: step.kind,
        note: step.note.as_deref(),
        op: &step.op,
    };
    VariantDocument {
        cuda: plan.cuda.as_deref(),
        engine: engine.to_string(),
        isa: plan.isa.as_ref().map(|isa| isa.as_str()),
        key: plan.key(),
        libraries: &plan.libraries,
        name: &plan.variant,
        platform: plan.platform,
        python: plan.python,
        sm: plan.sm.iter().map(|sm| sm.digits()).collect(),
        steps: plan.steps.iter().map(step).collect(),
    }
}

fn table(plan: &Plan, engine: &EngineNeed) -> String {
    let sms: Vec<String> = plan
        .sm
        .iter()
        .map(|s| format!("sm_{}", s.digits()))
        .collect();
    let mut out = format!(
        "{} · {} · Python {} · CUDA {} · {}\n",
        plan.variant,
        plan.platform,
        plan.python,
        plan.cuda.as_deref().unwrap_or("none"),
        sms.join(", "),
    );
    let named = |d: &Decision| format!("{} {}", d.library, d.version);
    let width = plan.libraries.iter().map(|d| named(d).len()).max();
    for decision in &plan.libraries {
        let from = match decision.from {
            DistributionKind::Wheel => "wheel",
            DistributionKind::Source => "source",
        };
        let line = format!(
            "  {:width$}  {from:6}  {}",
            named(decision),
            decision.reason,
            width = width.unwrap_or(0),
        );
        out.push_str(&printable::line(&line));
        out.push('\n');
    }
    let packages = added(plan);
    let width = packages.keys().map(|name| name.len()).max().unwrap_or(0);
    for (name, why) in packages {
        let line = format!("  {name:width$}  OS package  {why}");
        out.push_str(&printable::line(&line));
        out.push('\n');
    }
    out.push_str(&format!("\n  engine  {engine}\n\n"));
    let width = plan.steps.iter().map(|s| s.id.to_string().chars().count());
    let width = width.max().unwrap_or(0);
    for step in &plan.steps {
        let kind = format!("{:?}", step.kind).to_lowercase();
        let state = if step.cached { "cached" } else { "to do" };
        let note = step.note.clone().unwrap_or_else(|| counted(step));
        let line = format!(
            "  {:width$}  {kind:8}  {}  {state}  {note}",
            step.id.to_string(),
            step.key.short()
        );
        out.push_str(&printable::line(line.trim_end()));
        out.push('\n');
    }
    out
}

/// Returns the OS packages that wheels need and the stack does not name, each with its reason.
fn added(plan: &Plan) -> BTreeMap<&str, String> {
    let lists = plan.steps.iter().filter_map(|step| match &step.op {
        Op::Runtime(runtime) => Some(&runtime.packages),
        Op::Packages(packages) => Some(&packages.packages),
        _ => None,
    });
    let packages = lists
        .flatten()
        .filter_map(|p| Some((p.name.as_str(), p.why()?)));
    packages.collect()
}

/// Counts a step's inputs, as a note for steps that have no better one.
fn counted(step: &stackforge_plan::Step) -> String {
    let count = |prefix: &str| step.inputs.keys().filter(|k| k.starts_with(prefix)).count();
    let parts = [
        (count("wheel:"), "wheel"),
        (count("package:"), "OS package"),
    ];
    let words: Vec<String> = parts
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| super::matrix::counted(*n, what))
        .collect();
    words.join(", ")
}

fn reasons(why: &BTreeMap<StepId, Vec<Changed>>) -> String {
    if why.is_empty() {
        return "\nnothing changed since the last build\n".to_owned();
    }
    let mut out = String::from("\nchanged since the last build:\n");
    let short = |v: &Option<String>| match v {
        None => "absent".to_owned(),
        Some(v) => v.chars().take(60).collect(),
    };
    for (step, changes) in why {
        for c in changes {
            let line = match c.input.strip_prefix("step:") {
                Some(other) => format!("  {step}: because `{other}` changed"),
                None => format!(
                    "  {step}: {} {} → {}",
                    c.input,
                    short(&c.before),
                    short(&c.now)
                ),
            };
            out.push_str(&printable::line(&line));
            out.push('\n');
        }
    }
    out
}
