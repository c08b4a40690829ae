//! `stackforge diagnose`, and the same for the log of a failed build.

use super::Outcome;
use super::args::{Common, DiagnoseArgs};
use super::output::{Failure, chain, colored, json, print_report};
use stackforge_build::validate;
use stackforge_stack::diag::{Diagnostic, Rendered, Report, Source, Span, codes, render};
use stackforge_stack::diagnose::Diagnoses;
use stackforge_stack::diagnose::{Diagnoser, Match};
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

pub fn run(common: &Common, args: &DiagnoseArgs) -> Outcome {
    let (name, log) = open(args.log.as_deref())?;
    let beside = PathBuf::from(".stackforge");
    let overlay = common
        .catalog
        .clone()
        .or_else(|| beside.is_dir().then_some(beside));
    let diagnoses = Diagnoses::load(overlay.as_deref())?;
    let matches = Diagnoser::new(&diagnoses)
        .read(log)
        .map_err(|e| unreadable(&name, &e))?;
    if matches.is_empty() {
        return Err(nothing(&name));
    }
    if common.json {
        json(&serde_json::json!({ "matches": matches }));
    } else {
        print_report(&text(
            &name,
            &matches,
            colored(common, io::stdout().is_terminal()),
        ));
    }
    Ok(())
}

fn open(path: Option<&Path>) -> Result<(String, Box<dyn io::Read>), Failure> {
    match path {
        Some(path) if path != Path::new("-") => {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|e| unreadable(&name, &e))?;
            Ok((name, Box::new(file)))
        }
        None if io::stdin().is_terminal() => Err(Failure::of(
            Diagnostic::error(codes::UNREADABLE, "there is no log to read")
                .help("name one, or pipe it in: `docker build . 2>&1 | stackforge diagnose`"),
        )),
        _ => Ok(("stdin".to_owned(), Box::new(io::stdin().lock()))),
    }
}

fn unreadable(name: &str, e: &io::Error) -> Failure {
    Failure::of(
        Diagnostic::error(codes::UNREADABLE, format!("cannot read {name}: {e}"))
            .help("check the path and its permissions"),
    )
}

fn nothing(name: &str) -> Failure {
    let mut failure = Failure::of(
        Diagnostic::error(
            codes::NOT_RECOGNISED,
            format!("nothing in {name} is recognised"),
        )
        .help(
            "look for the first line with `error`, and build with one job and `-v` if there is \
             none; a pattern for it in `.stackforge/diagnoses.yaml` recognises it next time \
             (catalog/README.md in stackforge's source describes the file)",
        ),
    );
    failure.json.insert("matches".into(), serde_json::json!([]));
    failure
}

/// Formats each match as a diagnostic at its line of the log.
pub(super) fn text(name: &str, matches: &[Match], color: bool) -> Rendered {
    matches
        .iter()
        .map(|found| render(&report(name, found), color))
        .collect()
}

fn report(name: &str, found: &Match) -> Report {
    let before = &found.text[..found.matched.start];
    let span = Span {
        line: u32::try_from(found.line).unwrap_or(u32::MAX),
        column: u32::try_from(before.chars().count() + 1).unwrap_or(u32::MAX),
        offset: found.matched.start,
        len: found.matched.len(),
    };
    let times = match found.count {
        1 => "here".to_owned(),
        n => format!("{n} times, first here"),
    };
    let source = Source {
        name: name.to_owned(),
        text: found.text.clone(),
        above: usize::try_from(found.line - 1).unwrap_or(usize::MAX),
    };
    let diagnostic = Diagnostic::error(found.code, &found.cause)
        .help(&found.fix)
        .at(span)
        .label(times);
    Report::new(source, vec![diagnostic])
}

/// Returns the known failures in the log of a failed build.
pub(super) fn of_build(log: &Path, overlay: Option<&Path>) -> Vec<Match> {
    let read = |diagnoser: Diagnoser<'_>| diagnoser.read(File::open(log)?);
    known(overlay, read)
}

/// Returns the known failures in a validation's report, which says in a line why each check failed.
pub(super) fn of_report(report: &validate::Report, overlay: Option<&Path>) -> Vec<Match> {
    let lines = report.failures().join("\n");
    known(overlay, |diagnoser| diagnoser.read(lines.as_bytes()))
}

/// A catalog that cannot be read is only a warning: it must not hide why the build failed.
fn known(
    overlay: Option<&Path>,
    read: impl FnOnce(Diagnoser<'_>) -> std::io::Result<Vec<Match>>,
) -> Vec<Match> {
    match Diagnoses::load(overlay) {
        Ok(diagnoses) => read(Diagnoser::new(&diagnoses)).unwrap_or_default(),
        Err(e) => {
            tracing::warn!("{}", chain(&e));
            Vec::new()
        }
    }
}
