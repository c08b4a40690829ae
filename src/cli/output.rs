//! Decides what goes where: text and JSON to stdout, diagnostics and logs to stderr, and exit statuses.
//!
//! Nothing else in the program writes to stdout or stderr (`tests/offline/output.rs`). All text is made
//! printable here, so that no file, registry or argument can control the user's terminal.

use super::args::{Cli, Color, Common};
use super::screen;
use serde::Serialize;
use stackforge_image::store::stdout_has_output;
pub use stackforge_stack::diag::chain;
use stackforge_stack::diag::{Diagnostic, Rendered, Report, Severity, Source, codes, render};
use stackforge_types::printable;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Key in the JSON document of a failed build if only its engine is at fault.
pub const ENGINE_FAULT: &str = "engine_fault";

/// Why a command failed.
#[derive(Debug)]
pub struct Failure(Box<FailureReport>);

/// The content of a failure.
#[derive(Debug)]
pub struct FailureReport {
    pub report: Report,
    pub exit: u8,
    /// Text for people, printed before the diagnostics.
    pub before: Option<String>,
    /// Diagnoses of a log, printed after that text.
    pub log: Rendered,
    /// Parts of the JSON document besides `diagnostics`.
    pub json: serde_json::Map<String, serde_json::Value>,
}

impl Failure {
    pub fn new(exit: u8, report: Report) -> Self {
        Self(Box::new(FailureReport {
            report,
            exit,
            before: None,
            log: Rendered::default(),
            json: serde_json::Map::new(),
        }))
    }

    /// Makes a failure that refers to no file, with the exit status of the diagnostic's code.
    pub fn of(diagnostic: Diagnostic) -> Self {
        Self::ending(diagnostic.code.exit(), diagnostic)
    }

    /// As [`Failure::of`], with another exit status.
    pub fn ending(exit: u8, diagnostic: Diagnostic) -> Self {
        Self::new(exit, Report::new(Source::default(), vec![diagnostic]))
    }

    /// Adds a part to the JSON document.
    pub fn with(mut self, key: &str, value: serde_json::Value) -> Self {
        self.0.json.insert(key.to_owned(), value);
        self
    }

    /// Adds parts to the JSON document.
    pub fn with_all(mut self, parts: serde_json::Map<String, serde_json::Value>) -> Self {
        self.0.json.extend(parts);
        self
    }

    pub(super) fn report(self, common: &Common) -> ExitCode {
        let failure = *self.0;
        if common.json {
            let mut document = failure.json;
            document.insert("ok".into(), false.into());
            let diagnostics = serde_json::to_value(&failure.report.diagnostics);
            document.insert("diagnostics".into(), diagnostics.unwrap_or_default());
            json(&document);
        }
        print_message(&failure.before.unwrap_or_default());
        on_stderr(failure.log.as_str());
        let color = colored(common, std::io::stderr().is_terminal());
        on_stderr(render(&failure.report, color).as_str());
        let Report {
            source,
            diagnostics,
        } = &failure.report;
        if let Some(d) = diagnostics.iter().find(|d| d.severity == Severity::Error) {
            print_message(&format!("`stackforge explain {}` says more.\n", d.code));
        }
        // A build's findings have no place in the stack, and `check` does not find them.
        let can_fix = |d: &&Diagnostic| d.fix.is_some() && d.span.is_some();
        match diagnostics.iter().filter(can_fix).count() {
            0 => {}
            n => print_message(&format!(
                "`stackforge check --fix {}` writes {} into the stack.\n",
                printable::word(&source.name),
                if n == 1 { "it" } else { "them" }
            )),
        }
        ExitCode::from(failure.exit)
    }
}

pub fn colored(common: &Common, terminal: bool) -> bool {
    match common.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    }
}

/// Prints one JSON document: `{"schema": 1, "ok": true, …}`. A value that has an `ok` keeps it.
pub fn json(value: &impl Serialize) {
    let mut document = serde_json::Map::from_iter([
        ("schema".to_owned(), 1.into()),
        ("ok".to_owned(), true.into()),
    ]);
    match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(map)) => document.extend(map),
        Ok(other) => {
            document.insert("value".into(), other);
        }
        Err(e) => {
            document.insert("error".into(), e.to_string().into());
        }
    }
    json_as_is(&document);
}

/// Prints one JSON document that has its `schema` already, in the order of its fields.
pub fn json_as_is(document: &impl Serialize) {
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    print_document(&text);
}

/// Prints a text that is already JSON.
pub fn print_document(json: &str) {
    on_stdout(&printable::json(json));
}

/// Prints text for people to stdout.
pub fn print(text: &str) {
    on_stdout(&printable::text(text));
}

/// Prints reports to stdout, in colour.
pub fn print_report(report: &Rendered) {
    on_stdout(report.as_str());
}

/// Returns a path as printable text for a line.
pub fn shown(path: &Path) -> String {
    printable::line(&path.to_string_lossy()).into_owned()
}

/// Prints text for people to stderr.
pub fn print_message(text: &str) {
    on_stderr(&printable::text(text));
}

/// Prints one event of a run to stderr, as a line of JSON.
pub fn print_event(event: &impl Serialize) {
    if let Ok(line) = serde_json::to_string(event) {
        on_stderr(&format!("{}\n", printable::json(&line)));
    }
}

/// Prints clap's error or help. Clap repeats arguments and variables between its own colour codes, so this
/// prints the error of the printable form of the arguments, or, if there is none, the error without colours.
pub fn print_usage(error: clap::Error) {
    let line = |argument: OsString| printable::line(&argument.to_string_lossy()).into_owned();
    let again = Cli::read(std::env::args_os().map(line)).err();
    let ours = |name: &OsString| name.to_string_lossy().starts_with("STACKFORGE_");
    let variables = std::env::vars_os().filter(|(name, _)| ours(name));
    let is_plain = |text: &OsString| text.to_string_lossy().chars().all(printable::is_plain);
    let are_plain = variables.into_iter().all(|(_, value)| is_plain(&value));
    match again {
        Some(again) if are_plain => note_lost(again.print()),
        again => {
            let error = again.unwrap_or(error);
            let text = error.render().to_string();
            if error.use_stderr() {
                print_message(&text)
            } else {
                print(&text)
            }
        }
    }
}

/// The first error of writing to stdout.
static LOST: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Writes to stdout, or to stderr if the command's output goes to stdout.
fn on_stdout(text: &str) {
    if stdout_has_output() {
        return on_stderr(text);
    }
    let write = || {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    };
    note_lost(screen::over(write));
}

/// Records a failed write. A closed pipe is not an error: its reader has enough.
fn note_lost(written: std::io::Result<()>) {
    if let Err(e) = written
        && e.kind() != std::io::ErrorKind::BrokenPipe
    {
        let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
        lost.get_or_insert(e);
    }
}

/// Returns a failure if a part of the output was lost, since its reader would take the rest for the whole.
pub(super) fn output_lost() -> Option<Failure> {
    let lost = LOST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let e = lost?;
    Some(Failure::of(
        Diagnostic::error(codes::OUTPUT_LOST, format!("cannot write to stdout: {e}"))
            .help("what was asked for is done, but not all of it was told"),
    ))
}

fn on_stderr(text: &str) {
    let _ = screen::over(|| std::io::stderr().lock().write_all(text.as_bytes()));
}

/// Prints findings that stop nothing to stderr.
pub fn warn(common: &Common, report: &Report) {
    if !common.quiet && !common.json && !report.diagnostics.is_empty() {
        let color = colored(common, std::io::stderr().is_terminal());
        on_stderr(render(report, color).as_str());
    }
}

/// Prints one line of progress for people to stderr.
pub fn print_status(common: &Common, line: &str) {
    if !common.quiet {
        print_message(&format!("{}\n", printable::line(line)));
    }
}

pub(super) fn start_logging(common: &Common) {
    let level = match (common.quiet, common.verbose) {
        (true, _) => "error",
        (_, 0) => "warn",
        (_, 1) => "stackforge=debug,warn",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("STACKFORGE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    // In tests a subscriber may already be set; that is not an error.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| AboveBars)
        .with_ansi(colored(common, std::io::stderr().is_terminal()))
        .event_format(PrintableEvents(Format::default().without_time()))
        .try_init();
}

/// Writes log events to stderr, above the bars of a terminal.
struct AboveBars;

impl std::io::Write for AboveBars {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        screen::over(|| std::io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Formats log events, one line each. The text is made printable first, so the level is coloured only
/// after that.
struct PrintableEvents<F>(F);

impl<S, N, F> FormatEvent<S, N> for PrintableEvents<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut line = String::new();
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
        let line = printable::line(line.trim_end_matches('\n'));
        let level = event.metadata().level();
        match line.split_once(level.as_str()) {
            Some((before, after)) if writer.has_ansi_escapes() => {
                let color = match *level {
                    Level::ERROR => 31,
                    Level::WARN => 33,
                    Level::INFO => 32,
                    Level::DEBUG => 34,
                    Level::TRACE => 35,
                };
                writeln!(writer, "{before}\u{1b}[{color}m{level}\u{1b}[0m{after}")
            }
            _ => writeln!(writer, "{line}"),
        }
    }
}

impl std::ops::Deref for Failure {
    type Target = FailureReport;

    fn deref(&self) -> &FailureReport {
        &self.0
    }
}

impl std::ops::DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut FailureReport {
        &mut self.0
    }
}
