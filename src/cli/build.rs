//! `stackforge build`.

use super::Outcome;
use super::args::{BuildArgs, Common};
use super::diagnose::{of_build, text};
use super::output::{Failure, colored, json, print, say};
use super::progress::{Progress, mib};
use super::session::{Session, runtime};
use crate::build::{
    AUDIT_PATH, BuildError, Built, IndexSettings, Options, StepResult, build, plan_step, stage,
};
use crate::diag::{Diagnostic, Report, codes};
use crate::engine::Cancel;
use crate::engine::docker::Docker;
use crate::plan::Plan;
use std::io::IsTerminal as _;

pub fn run(common: &Common, args: &BuildArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?.choose(args.variant.as_deref())?;
    let plan = session.plan(common)?;
    let tags = tags(&args.tags, &plan)?;
    let options = Options {
        store: &session.store,
        catalog: &session.catalog,
        overlay: session.overlay.as_deref(),
        tags,
        jobs: args.jobs,
        no_cache: args.no_cache,
        index: IndexSettings(crate::resolve::index_settings(&session.stack)),
        config: &session.config,
    };
    let mut progress = Progress::new(common);
    let result = runtime()?.block_on(async {
        let docker = Docker::connect(None).await?;
        let cancel = Cancel::new();
        stop_on_signal(&cancel);
        let mut on = |event| progress.on(&event);
        build(&plan, &docker, &options, &cancel, &mut on).await
    });
    match result {
        Ok(built) => {
            show(common, &plan, &built);
            Ok(())
        }
        Err(e) => Err(failure(common, &session, e)),
    }
}

fn tags(asked: &[String], plan: &Plan) -> Result<Vec<String>, Failure> {
    if asked.is_empty() {
        return Ok(vec![format!("{}:latest", plan.variant)]);
    }
    asked
        .iter()
        .map(|tag| {
            if !crate::spec::image_reference(tag) || tag.contains('@') {
                return Err(Failure::plain(
                    2,
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

/// The first Ctrl-C stops the engine's work and ends in order, the second at once.
pub(super) fn stop_on_signal(cancel: &Cancel) {
    let cancel = cancel.clone();
    tokio::spawn(async move {
        let mut terminate =
            match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
                Ok(signal) => signal,
                Err(_) => return,
            };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        eprintln!("stopping; once more to stop at once");
        cancel.cancel();
        let _ = tokio::signal::ctrl_c().await;
        std::process::exit(130);
    });
}

fn show(common: &Common, plan: &Plan, built: &Built) {
    if common.json {
        json(&serde_json::json!({
            "ok": true,
            "image": {
                "id": built.id, "tags": built.tags, "platform": plan.platform, "size": built.size,
                "key": plan.key(),
            },
            "cached": built.noop,
            "steps": built.steps,
            "validation": built.report,
            "audit": built.audit,
            "log": built.log,
        }));
        return;
    }
    if !built.noop {
        say(common, &steps(&built.steps));
    }
    let tags = built.tags.join(", ");
    let state = if built.noop { "nothing to do" } else { "built" };
    print(&format!(
        "{}audit: {}{}\n{tags}: {state}, {} ({})\n",
        built.report.table(),
        built.audit,
        hint(built),
        mib(built.size),
        built.id.get(..19).unwrap_or(&built.id),
    ));
}

/// Where the findings are, when there are some.
fn hint(built: &Built) -> String {
    match built.audit.warnings {
        0 => String::new(),
        _ => format!(" (in the image: {AUDIT_PATH})"),
    }
}

fn steps(steps: &[StepResult]) -> String {
    let width = steps.iter().map(|s| s.id.len()).max().unwrap_or(0);
    steps
        .iter()
        .map(|s| {
            let state = if s.cached {
                "cached".to_owned()
            } else {
                format!("{:.1} s", s.seconds)
            };
            format!("  {:width$}  {state:>8}", s.id)
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// A failure with the last lines of the step's log, what the whole log tells, and the stack's
/// line that asked for it.
fn failure(common: &Common, session: &Session, e: BuildError) -> Failure {
    let stack = &session.stack;
    let exit = e.exit();
    let mut out = match &e {
        BuildError::Step { failure, log } => {
            let step = stage(&failure.name).and_then(plan_step);
            let name = step
                .clone()
                .unwrap_or_else(|| failure.name.chars().take(72).collect());
            let code = match failure.exit_code {
                Some(code) => format!(" with exit code {code}"),
                None => String::new(),
            };
            let mut d = Diagnostic::error(e.code(), format!("step `{name}` failed{code}"));
            if let Some(help) = e.help() {
                d = d.help(format!("{help}\nwhole log: {}", log.display()));
            }
            let asked = step
                .as_deref()
                .and_then(|s| s.strip_prefix("compile:"))
                .and_then(|library| stack.library(library));
            if let Some(library) = asked {
                d = d.at(library.name.span).label("asked for here");
            }
            let mut before = format!("last lines of `{name}`:\n");
            for line in &failure.tail {
                before.push_str(&format!("  | {line}\n"));
            }
            let mut out = Failure::new(exit, Report::new(stack.source.clone(), vec![d]));
            out.before = Some(before);
            out.json
                .insert("log".into(), log.display().to_string().into());
            out.json.insert("step".into(), name.into());
            out
        }
        BuildError::Validation { report, log } => {
            let table = report.table();
            let document = serde_json::to_value(report).unwrap_or_default();
            let mut d = Diagnostic::error(e.code(), e.to_string());
            if let Some(help) = e.help() {
                d = d.help(format!("{help}\nwhole log: {}", log.display()));
            }
            let mut out = Failure::plain(exit, d);
            out.before = Some(table);
            out.json.insert("validation".into(), document);
            out
        }
        BuildError::Audit { audit, .. } => {
            let mut d = Diagnostic::error(e.code(), e.to_string());
            if let Some(help) = e.help() {
                d = d.help(help);
            }
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
        _ => return e.into(),
    };
    if let BuildError::Step { log, .. } | BuildError::Validation { log, .. } = &e {
        let matches = of_build(log, session.overlay.as_deref());
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        let color = colored(common, std::io::stderr().is_terminal());
        let told = text(&name, &matches, color);
        out.before.get_or_insert_default().push_str(&told);
        out.json
            .insert("matches".into(), serde_json::json!(matches));
    }
    out
}
