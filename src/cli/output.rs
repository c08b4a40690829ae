//! What goes where: text and JSON on stdout, diagnostics and logs on stderr, exit codes.

use super::args::{Color, Common};
use crate::build::BuildError;
pub use crate::build::chain;
use crate::catalog::CatalogError;
use crate::config::ConfigError;
use crate::diag::{Diagnostic, Report, Severity, Source, codes, render};
use crate::engine::EngineError;
use crate::store::{StoreError, stdout_is_taken};
use serde::Serialize;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

/// In the JSON of a failed build whose engine, and nothing else, is at fault.
pub const ENGINE_FAULT: &str = "engine_fault";

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub struct Failure(Box<Told>);

/// What a failure tells.
#[derive(Debug)]
pub struct Told {
    pub report: Report,
    pub exit: u8,
    /// Lines for people, printed before the diagnostics.
    pub before: Option<String>,
    /// Part of the JSON document beside `diagnostics`.
    pub json: serde_json::Map<String, serde_json::Value>,
}

impl Failure {
    pub fn new(exit: u8, report: Report) -> Self {
        Self(Box::new(Told {
            report,
            exit,
            before: None,
            json: serde_json::Map::new(),
        }))
    }

    /// A failure that points into no file.
    pub fn plain(exit: u8, diagnostic: Diagnostic) -> Self {
        Self::new(exit, Report::new(Source::default(), vec![diagnostic]))
    }

    /// Adds a part to the JSON document.
    pub fn with(mut self, key: &str, value: serde_json::Value) -> Self {
        self.0.json.insert(key.to_owned(), value);
        self
    }

    pub(super) fn report(self, common: &Common) -> ExitCode {
        let told = *self.0;
        if common.json {
            let mut document = told.json;
            document.insert("ok".into(), false.into());
            let diagnostics = serde_json::to_value(&told.report.diagnostics);
            document.insert("diagnostics".into(), diagnostics.unwrap_or_default());
            json(&document);
        }
        if let Some(before) = told.before {
            eprint!("{before}");
        }
        let color = colored(common, std::io::stderr().is_terminal());
        eprint!("{}", render(&told.report, color));
        if let Some(d) = told
            .report
            .diagnostics
            .iter()
            .find(|d| d.severity == Severity::Error)
        {
            eprintln!("`stackforge explain {}` says more.", d.code);
        }
        ExitCode::from(told.exit)
    }
}

pub fn colored(common: &Common, terminal: bool) -> bool {
    match common.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    }
}

/// Prints one JSON document: `{"schema": 1, …}`.
pub fn json(value: &impl Serialize) {
    let mut document = serde_json::Map::from_iter([("schema".to_owned(), 1.into())]);
    match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(map)) => document.extend(map),
        Ok(other) => {
            document.insert("value".into(), other);
        }
        Err(e) => {
            document.insert("error".into(), e.to_string().into());
        }
    }
    let text = serde_json::to_string_pretty(&document).unwrap_or_default();
    print(&format!("{text}\n"));
}

/// Prints to stdout, or to stderr if an output went to stdout; a reader that went away is no error.
pub fn print(text: &str) {
    if stdout_is_taken() {
        eprint!("{text}");
        return;
    }
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = std::io::stdout().flush();
}

/// Findings that stop nothing, on stderr.
pub fn warn(common: &Common, report: &Report) {
    if !common.quiet && !common.json && !report.diagnostics.is_empty() {
        let color = colored(common, std::io::stderr().is_terminal());
        eprint!("{}", render(report, color));
    }
}

/// One line of progress for people, on stderr.
pub fn say(common: &Common, line: &str) {
    if !common.quiet {
        eprintln!("{line}");
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
    // A second subscriber (in a test's process) is no reason to stop.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colored(common, std::io::stderr().is_terminal()))
        .without_time()
        .try_init();
}

impl std::ops::Deref for Failure {
    type Target = Told;

    fn deref(&self) -> &Told {
        &self.0
    }
}

impl std::ops::DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Told {
        &mut self.0
    }
}

impl From<CatalogError> for Failure {
    fn from(e: CatalogError) -> Self {
        Self::plain(
            2,
            Diagnostic::error(codes::CATALOG_INVALID, chain(&e))
                .help("catalog/README.md in stackforge's source describes every key"),
        )
    }
}

impl From<ConfigError> for Failure {
    fn from(e: ConfigError) -> Self {
        Self::plain(
            2,
            Diagnostic::error(codes::CONFIG_INVALID, chain(&e))
                .help("it may hold `registries` and `builders` (maps), `debian` (a list) and `cache: { max_size: 50GB, registry: HOST/NAME }`"),
        )
    }
}

impl From<StoreError> for Failure {
    fn from(e: StoreError) -> Self {
        Self::plain(
            e.exit(),
            Diagnostic::error(e.code(), chain(&e)).help(e.help()),
        )
    }
}

impl From<EngineError> for Failure {
    fn from(e: EngineError) -> Self {
        BuildError::from(e).into()
    }
}

impl From<BuildError> for Failure {
    fn from(e: BuildError) -> Self {
        let mut d = Diagnostic::error(e.code(), chain(&e));
        if let Some(help) = e.help() {
            d = d.help(help);
        }
        let failure = Self::plain(e.exit(), d);
        match &e {
            BuildError::Engine(
                EngineError::NotReachable { .. }
                | EngineError::Gone { .. }
                | EngineError::NoSpace { .. },
            ) => failure.with(ENGINE_FAULT, true.into()),
            _ => failure,
        }
    }
}
