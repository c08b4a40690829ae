//! `stackforge build`.

use super::Outcome;
use super::args::{BuildArgs, Common, EngineChoice};
use super::diagnose::{of_build, of_report, text};
use super::native::of_native;
use super::output::{ENGINE_FAULT, Failure, colored, json, print, print_status};
use super::progress::{Progress, sizes};
use super::push::plain_http;
use super::session::{Session, runtime};
use super::signals::stop_on_signal;
use serde_json::Value;
use stackforge_build::native::assemble;
use stackforge_build::{
    AUDIT_PATH, BuildError, Built, ChosenEngine, EngineKind, EngineRequest, IndexSettings, Options,
    Output, StepResult, build, noted, plan_step, stage,
};
use stackforge_engine::EngineError;
use stackforge_image::store::Store;
use stackforge_plan::project::Project;
use stackforge_plan::{Plan, StepId};
use stackforge_stack::diag::{Diagnostic, Explained as _, Report, codes};
use stackforge_stack::spec::Stack;
use stackforge_types::Cancel;
use stackforge_types::printable;
use std::io::IsTerminal as _;

pub fn run(common: &Common, args: &BuildArgs) -> Outcome {
    let store = Store::open(common.store.as_deref())?;
    for path in args.outputs.iter().filter_map(Output::path) {
        store.outside(path)?;
    }
    if args.all_variants {
        return super::variants::run(common, args);
    }
    let session = Session::open(common, &args.stack)?;
    let variant = args.variant.as_deref();
    let (chosen, plan, new_lock) = session.plan_locking(common, variant, args.locked)?;
    let tags = tags(&args.tags, &plan)?;
    let native = of_native(args.compression)?;
    let runtime = runtime()?;
    let builders = session.config.builders.get(&plan.platform);
    let request = EngineRequest {
        kind: match args.engine {
            EngineChoice::Auto => None,
            EngineChoice::Docker => Some(EngineKind::Docker),
            EngineChoice::Native => Some(EngineKind::Native),
        },
        outputs: outputs(args),
        builders: builders.map_or(&[], Vec::as_slice),
    };
    let ChosenEngine { docker, outputs } =
        (runtime.block_on(request.choose(&plan))).map_err(refused)?;
    let docker = match docker {
        Some(docker) => Some(runtime.block_on(noted(docker, &session.store))),
        None => None,
    };
    let options = Options {
        store: &session.store,
        catalog: &session.project.catalog,
        overlay: session.project.overlay.as_deref(),
        tags,
        outputs,
        plain_http: plain_http(args.plain_http),
        jobs: args.jobs,
        no_cache: args.no_cache,
        compile_cache: !args.no_compile_cache && session.config.compile_cache != Some(false),
        index: IndexSettings(stackforge_resolve::index_settings(&chosen.stack)),
        config: &session.config,
        stack: Some(&chosen.stack),
        offline: common.offline,
        gpu: args.gpu,
    };
    let mut progress = Progress::new(common);
    let result = runtime.block_on(async {
        let cancel = Cancel::new();
        stop_on_signal(&cancel);
        let mut on = |event| progress.on_event(&event);
        match &docker {
            Some(docker) => build(&plan, docker, &options, &cancel, &mut on).await,
            None => assemble(&plan, &native, &options, &cancel, &mut on).await,
        }
    });
    match result {
        Ok(built) => {
            show(common, &plan, &built, new_lock);
            // An image that already existed has not made the store larger.
            if !built.noop {
                super::cache::after_build(common, &session.store, &session.config);
            }
            Ok(())
        }
        Err(e) => Err(failure(common, &session.project, &chosen.stack, e)),
    }
}

/// Returns the outputs that were asked for.
fn outputs(args: &BuildArgs) -> Vec<Output> {
    let pushed = args.push.clone().map(|reference| {
        if args.index {
            Output::Index(reference)
        } else {
            Output::Registry(reference)
        }
    });
    args.outputs.iter().cloned().chain(pushed).collect()
}

fn tags(asked: &[String], plan: &Plan) -> Result<Vec<String>, Failure> {
    if asked.is_empty() {
        return Ok(vec![format!("{}:latest", plan.variant)]);
    }
    asked
        .iter()
        .map(|tag| {
            if !stackforge_types::reference::image_reference(tag) || tag.contains('@') {
                return Err(Failure::of(
                    Diagnostic::error(codes::BAD_REFERENCE, format!("`{tag}` is not a tag"))
                        .help("tags are `[REGISTRY/]NAME[:TAG]`"),
                ));
            }
            let last = tag.rsplit('/').next().unwrap_or(tag);
            Ok(if last.contains(':') {
                tag.clone()
            } else {
                format!("{tag}:latest")
            })
        })
        .collect()
}

fn show(common: &Common, plan: &Plan, built: &Built, new_lock: Option<Value>) {
    if common.json {
        json(&serde_json::json!({
            "image": {
                "id": built.id, "tags": built.tags, "platform": plan.platform,
                "size": built.size.bytes(), "packed_size": built.size.packed,
                "unpacked_size": built.size.unpacked,
                "key": plan.key(), "digest": built.id, "layers": built.layers,
            },
            "cached": built.noop,
            "steps": built.steps,
            "validation": built.report,
            "audit": built.audit,
            "log": built.log,
            "locked": new_lock,
        }));
        return;
    }
    if !built.noop {
        for line in steps(&built.steps).lines() {
            print_status(common, line);
        }
    }
    let tags = built.tags.join(", ");
    let state = if built.noop { "nothing to do" } else { "built" };
    print(&format!(
        "{}audit: {}{}\n{tags}: {state}, {} ({})\n",
        built.report.table(),
        built.audit,
        hint(built),
        sizes(built.size),
        built.id.get(..19).unwrap_or(&built.id),
    ));
}

/// Returns a hint to where the findings are, if there are any.
fn hint(built: &Built) -> String {
    match built.audit.warnings {
        0 => String::new(),
        _ => format!(" (in the image: {AUDIT_PATH})"),
    }
}

fn steps(steps: &[StepResult]) -> String {
    let width = steps.iter().map(|s| s.id.to_string().chars().count());
    let width = width.max().unwrap_or(0);
    steps
        .iter()
        .map(|s| {
            let state = if s.cached {
                "cached".to_owned()
            } else {
                format!("{:.1} s", s.seconds)
            };
            format!("  {:width$}  {state:>8}", s.id.to_string())
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the failure of a build that left no log. Its document says whether the engine alone is at fault.
fn refused(e: BuildError) -> Failure {
    let at_fault = matches!(
        e,
        BuildError::Engine(
            EngineError::NotReachable { .. }
                | EngineError::Gone { .. }
                | EngineError::NoSpace { .. },
        )
    );
    let failure = Failure::from(e);
    if at_fault {
        failure.with(ENGINE_FAULT, true.into())
    } else {
        failure
    }
}

/// Returns a failure with the last lines of the step's log, the diagnoses of the whole log, and the stack's
/// line that causes the step.
fn failure(common: &Common, project: &Project, stack: &Stack, e: BuildError) -> Failure {
    let exit = e.exit();
    let mut out = match &e {
        BuildError::Step { failure, log } => {
            let step = stage(&failure.name).and_then(plan_step);
            let name = match &step {
                Some(step) => step.to_string(),
                None => failure.name.chars().take(72).collect(),
            };
            let code = match failure.exit_code {
                Some(code) => format!(" with exit code {code}"),
                None => String::new(),
            };
            let help = format!("{}\nwhole log: {}", e.help(), log.display());
            let mut d =
                Diagnostic::error(e.code(), format!("step `{name}` failed{code}")).help(help);
            let asked = step
                .as_ref()
                .and_then(StepId::library)
                .and_then(|library| stack.library(library));
            if let Some(library) = asked {
                d = d.at(library.name.span).label("asked for here");
            }
            let mut before = format!("last lines of `{name}`:\n");
            for line in &failure.tail {
                before.push_str(&format!("  | {}\n", printable::line(line)));
            }
            let mut out = Failure::new(exit, Report::new(stack.source.clone(), vec![d]));
            out.before = Some(before);
            out.json
                .insert("log".into(), log.display().to_string().into());
            out.json.insert("step".into(), name.into());
            if e.code() == codes::NO_SPACE {
                out.json.insert(ENGINE_FAULT.into(), true.into());
            }
            out
        }
        BuildError::Validation { report, .. } | BuildError::Invalid { report } => {
            let table = report.table();
            let document = serde_json::to_value(report).unwrap_or_default();
            let help = match &e {
                BuildError::Validation { log, .. } => {
                    format!("{}\nwhole log: {}", e.help(), log.display())
                }
                _ => e.help(),
            };
            let d = Diagnostic::error(e.code(), e.to_string()).help(help);
            let mut out = Failure::of(d);
            out.before = Some(table);
            out.json.insert("validation".into(), document);
            out
        }
        BuildError::Audit { audit, .. } => {
            let d = Diagnostic::error(e.code(), e.to_string()).help(e.help());
            let mut diagnostics: Vec<Diagnostic> = (audit.findings.iter())
                .filter(|f| f.is_error())
                .map(|f| f.diagnostic.clone())
                .collect();
            diagnostics.push(d);
            let mut out = Failure::new(exit, Report::new(Default::default(), diagnostics));
            let document = serde_json::to_value(audit).unwrap_or_default();
            out.json.insert("audit".into(), document);
            out
        }
        _ => return refused(e),
    };
    let overlay = project.overlay.as_deref();
    let found = match &e {
        BuildError::Step { log, .. } | BuildError::Validation { log, .. } => {
            let name = log.file_name().unwrap_or_default().to_string_lossy();
            Some((name.into_owned(), of_build(log, overlay)))
        }
        BuildError::Invalid { report } => {
            Some(("validation".to_owned(), of_report(report, overlay)))
        }
        _ => None,
    };
    if let Some((name, matches)) = found {
        let color = colored(common, std::io::stderr().is_terminal());
        out.log = text(&name, &matches, color);
        out.json
            .insert("matches".into(), serde_json::json!(matches));
    }
    out
}
