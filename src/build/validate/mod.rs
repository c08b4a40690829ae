//! The results of the validation programs, as types and as a table.
//!
//! In: the report that `templates/validate` wrote inside an image. Out: [`Report`], its one-line summary, and
//! a table for people. Nothing here measures or completes anything: only the report's content is shown.

mod start;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stackforge_types::{Digest, printable};
use std::fmt::Write as _;

pub use start::{Judged, LibraryStart, Outcome, Start, Times, judge};

/// Path of the report in an image.
pub const REPORT_PATH: &str = "/usr/share/stackforge/validation.json";
/// Path of the image's own record of what it promises.
pub const SPEC_PATH: &str = "/usr/share/stackforge/spec.json";
/// Prefix of the line with the report in a failed step's log.
pub const REPORT_MARK: &str = "stackforge-report ";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    #[serde(default)]
    pub stack: Option<String>,
    /// Digest of the spec.json that was validated. Reports of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Digest>,
    pub ok: bool,
    #[serde(default)]
    pub device: Value,
    pub checks: Vec<Check>,
    /// How long programs take to start. `None` if that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default)]
    pub results: Vec<Value>,
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Passed,
    Failed,
    NotRun,
}

impl Status {
    fn text(self) -> &'static str {
        match self {
            Status::Passed => "passed",
            Status::Failed => "FAILED",
            Status::NotRun => "not run",
        }
    }
}

impl Report {
    pub fn from_slice(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Whether the validation ran on a GPU.
    pub fn has_gpu(&self) -> bool {
        self.device.get("gpu").is_some_and(Value::is_string)
    }

    /// Whether the validation programs ran, which say where. Each check may still have a reason not to run there.
    pub fn has_run(&self) -> bool {
        !self.device.is_null()
    }

    /// Returns the report that a failed validation printed to its log.
    pub fn from_log(log: &str) -> Option<Self> {
        let line = log
            .lines()
            .rev()
            .find_map(|l| l.split_once(REPORT_MARK).map(|(_, json)| json))?;
        serde_json::from_str(line).ok()
    }

    /// Returns why checks failed, a line for each library or part that did.
    pub fn failures(&self) -> Vec<String> {
        let failed = self.checks.iter().filter(|c| c.status == Status::Failed);
        let mut out = Vec::new();
        for check in failed {
            let before = out.len();
            for result in check.results.iter().filter(|r| r["status"] == "failed") {
                out.extend(result["reason"].as_str().map(str::to_owned));
            }
            if out.len() == before {
                out.extend(check.reason.clone());
            }
        }
        out
    }

    /// Returns a summary such as `passed: imports, cuda; not run: triton`.
    pub fn summary(&self) -> String {
        let with = |status| {
            self.checks
                .iter()
                .filter(|c| c.status == status)
                .map(|c| c.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        [
            ("passed", Status::Passed),
            ("failed", Status::Failed),
            ("not run", Status::NotRun),
        ]
        .into_iter()
        .map(|(word, status)| (word, with(status)))
        .filter(|(_, names)| !names.is_empty())
        .map(|(word, names)| format!("{word}: {names}"))
        .collect::<Vec<_>>()
        .join("; ")
    }

    /// Returns the whole report for people, ending with a line break.
    pub fn table(&self) -> String {
        let device = |key: &str| self.device.get(key).and_then(Value::as_str);
        let validated = match (device("gpu"), device("sm")) {
            (Some(gpu), sm) => format!("validated on {gpu} (SM {})", sm.unwrap_or("unknown")),
            _ if self.checks.iter().all(|c| c.status == Status::NotRun) => {
                "not validated here".to_owned()
            }
            _ => format!(
                "validated without a GPU on {}",
                device("cpu").unwrap_or("an unnamed processor")
            ),
        };
        let mut out = format!("{}\n", printable::line(&validated));
        let mut rows = Vec::new();
        for check in &self.checks {
            let note = check.reason.clone().unwrap_or_default();
            rows.push([
                check.name.clone(),
                check.status.text().into(),
                String::new(),
                note,
            ]);
            for result in &check.results {
                rows.push(result_row(result));
            }
        }
        let width = |column: usize| {
            rows.iter()
                .map(|r| r[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2)];
        for [name, status, measured, note] in &rows {
            // Indent further lines of a reason, so that they do not look like checks.
            let (note, more) = note.split_once('\n').unwrap_or((note, ""));
            let line = format!(
                "  {name:<w0$}  {status:<w1$}  {measured:<w2$}  {note}",
                w0 = widths[0],
                w1 = widths[1],
                w2 = widths[2],
            );
            let _ = writeln!(out, "{}", printable::line(line.trim_end()));
            for line in more.lines() {
                let line = format!("        {line}");
                let _ = writeln!(out, "{}", printable::line(line.trim_end()));
            }
        }
        for line in self.start.iter().flat_map(Start::lines) {
            let _ = writeln!(out, "{}", printable::line(line.trim_end()));
        }
        out
    }
}

fn result_row(result: &Value) -> [String; 4] {
    let text = |key: &str| result.get(key).and_then(Value::as_str);
    let status = match text("status") {
        Some("passed") => Status::Passed.text(),
        Some("failed") => Status::Failed.text(),
        Some("not-run") => Status::NotRun.text(),
        Some(other) => other,
        None => "",
    };
    let name = text("name").unwrap_or("?");
    let mut note = Vec::new();
    if let Some(version) = text("version").or_else(|| text("installed")) {
        note.push(version.to_owned());
    }
    if let Some(reason) = text("reason") {
        note.push(clip(reason));
    }
    if let Some(refused) = text("refused") {
        note.push(format!("left out: {}", clip(refused)));
    }
    [
        format!("  {name}"),
        status.to_owned(),
        measured(result),
        note.join(", "),
    ]
}

/// Returns the numbers of a result that people compare.
fn measured(result: &Value) -> String {
    let mut parts = Vec::new();
    let groups = [result.get("timing"), result.get("accuracy"), Some(result)];
    let number = |key: &str| {
        groups
            .iter()
            .flatten()
            .find_map(|g| g.get(key).and_then(Value::as_f64))
    };
    if let Some(ms) = number("median_ms") {
        parts.push(format!("{ms:.3} ms"));
    }
    if let Some(tflops) = number("tflops") {
        parts.push(format!("{tflops:.1} TFLOP/s"));
    }
    if let Some(ratio) = number("speedup").or_else(|| number("ratio")) {
        parts.push(format!("{ratio:.2}× eager"));
    }
    if let Some(rate) = number("tokens_per_second") {
        parts.push(format!("{rate:.0} tokens/s"));
    }
    if let Some(diff) = number("max_abs_error") {
        parts.push(format!("max diff {diff:.1e}"));
    }
    parts.join(", ")
}

fn clip(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(160) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measured on one NVIDIA H200; its own note says with what.
    const H200: &[u8] = include_bytes!("../../../tests/fixtures/validation-h200.json");

    #[test]
    fn a_real_report_reads_as_a_table() {
        let report = Report::from_slice(H200).unwrap();
        assert!(report.ok);
        insta::assert_snapshot!(report.table());
        insta::assert_snapshot!(report.summary());
    }

    #[test]
    fn what_was_left_out_of_a_library_is_shown_with_its_error() {
        // Measured on one NVIDIA H200: flash-attn 2.8.3.post2 with head dimensions 64 and 128, forward alone.
        let report = include_bytes!("../../../tests/fixtures/validation-h200-flash-attn.json");
        let report = Report::from_slice(report).unwrap();
        assert!(report.ok);
        insta::assert_snapshot!(report.table());
    }

    #[test]
    fn a_failed_steps_log_carries_its_report() {
        let json = String::from_utf8_lossy(H200).replace('\n', "");
        let log = format!(
            "#7 [validate 1/1] RUN | noise\n#7 [validate 1/1] RUN | {REPORT_MARK}{json}\n#8 more\n"
        );
        assert_eq!(
            Report::from_log(&log).unwrap().checks.len(),
            Report::from_slice(H200).unwrap().checks.len()
        );
        assert!(Report::from_log("#7 | stackforge-report {torn").is_none());
        assert!(Report::from_log("nothing").is_none());
    }
}
