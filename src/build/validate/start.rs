//! How long programs of an image take to start, and whether that is within limits.
//!
//! In: what `templates/start/start.py` measured, and [`Limits`]. Out: lines of a table, and a judgement of each limit.
//! What was not measured is never a number.

use serde::{Deserialize, Serialize};
use stackforge_stack::diag::{Diagnostic, codes, nearest};
use stackforge_stack::limits::{Bounds, Limit, Limits};
use stackforge_stack::spec::At;

/// What the program measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    pub cold: Cold,
    pub kernel: Kernel,
    pub libraries: Vec<LibraryStart>,
}

/// How the image's files left the page cache.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cold {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    /// Number of the files, and their bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Share of the bytes that stayed, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident: Option<f64>,
    /// Why there is no cold run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Kernel {
    /// Why none was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A library's start, in a process that imports nothing else.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LibraryStart {
    pub name: String,
    /// The modules that are imported.
    pub modules: Vec<String>,
    /// Why a time is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Times>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold: Option<Times>,
}

/// Seconds from just before a process is made until something is reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The interpreter's first line.
    pub python: f64,
    /// All modules are imported.
    pub import: f64,
    /// The first kernel has given its result; only for torch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<f64>,
    /// Number of runs, of which these are the medians.
    pub runs: u32,
}

/// A limit and what was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    /// `import torch`, `kernel`.
    pub what: String,
    /// `warm` or `cold`.
    pub state: &'static str,
    /// Seconds.
    pub at_most: f64,
    /// Seconds. `None` if it was not measured.
    pub measured: Option<f64>,
    pub outcome: Outcome,
    #[serde(skip)]
    pub finding: Option<Diagnostic>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Kept,
    Exceeded,
    /// An error unless the limit says `required: false`.
    NotMeasured,
}

/// The two states of the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Warm,
    Cold,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

impl LibraryStart {
    fn times(&self, state: State) -> Option<&Times> {
        match state {
            State::Warm => self.warm.as_ref(),
            State::Cold => self.cold.as_ref(),
        }
    }
}

impl Start {
    /// Returns the table's lines.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut rows = vec![[
            "start of a new process".to_owned(),
            "warm".to_owned(),
            "cold".to_owned(),
        ]];
        let cell = |seconds: Option<f64>| match seconds {
            Some(seconds) => time(seconds),
            None => "not measured".to_owned(),
        };
        for library in &self.libraries {
            let of = |state| library.times(state).map(|times| times.import);
            let name = format!("  import {}", library.name);
            rows.push([name, cell(of(State::Warm)), cell(of(State::Cold))]);
        }
        let kernel = |state| self.kernel(state).ok();
        rows.push([
            "  first kernel".to_owned(),
            cell(kernel(State::Warm)),
            cell(kernel(State::Cold)),
        ]);
        let width = |column: usize| {
            rows.iter()
                .map(|r| r[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let (first, second) = (width(0), width(1));
        let mut lines: Vec<String> = rows
            .iter()
            .map(|[name, warm, cold]| format!("{name:<first$}  {warm:<second$}  {cold}"))
            .collect();
        lines.extend(self.notes().into_iter().map(|note| format!("  {note}")));
        lines
    }

    /// Says what was not measured and why, and how cold was made.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match (&self.cold.reason, self.cold.resident) {
            (Some(reason), _) => notes.push(format!("cold: not measured: {reason}")),
            (None, Some(share)) => notes.push(format!(
                "cold: the page cache let go of the files; {:.0} % of their bytes stayed, and so did directory entries",
                share * 100.0
            )),
            (None, None) => {}
        }
        let kernel = self.kernel.reason.iter();
        notes.extend(kernel.map(|reason| format!("first kernel: not measured: {reason}")));
        let why = |library: &LibraryStart| {
            let reason = library.reason.as_ref()?;
            Some(format!("{}: {reason}", library.name))
        };
        notes.extend(self.libraries.iter().filter_map(why));
        notes
    }

    /// Returns the seconds until a library is imported, or why nobody knows.
    fn import(&self, name: &str, state: State) -> Result<f64, String> {
        let Some(library) = self.libraries.iter().find(|library| library.name == name) else {
            let names = self.libraries.iter().map(|library| library.name.as_str());
            return Err(match nearest(name, names) {
                Some(near) => format!("the image has no library `{name}`, but `{near}`"),
                None => format!("the image has no library `{name}`"),
            });
        };
        self.time(library, state).map(|times| times.import)
    }

    /// Returns the seconds until the first kernel has given its result, or why nobody knows.
    fn kernel(&self, state: State) -> Result<f64, String> {
        if let Some(reason) = &self.kernel.reason {
            return Err(reason.clone());
        }
        let torch = self
            .libraries
            .iter()
            .find(|library| library.name == "torch");
        let torch = torch.ok_or("the image has no torch, which starts the kernel")?;
        let kernel = self.time(torch, state)?.kernel;
        kernel.ok_or_else(|| "torch started no kernel".to_owned())
    }

    fn time<'a>(&'a self, library: &'a LibraryStart, state: State) -> Result<&'a Times, String> {
        let cold = (state == State::Cold)
            .then_some(self.cold.reason.as_ref())
            .flatten();
        library.times(state).ok_or_else(|| {
            let reason = library.reason.as_ref().or(cold);
            reason
                .map_or("it was not measured", String::as_str)
                .to_owned()
        })
    }
}

/// Compares what was measured with limits, in their order. Without a measurement nothing was measured.
pub fn judge(limits: &Limits, start: Option<&Start>) -> Vec<Judged> {
    let nothing = || Err("the start was not measured".to_owned());
    let mut all = Vec::new();
    for (name, bounds) in &limits.import {
        for (state, limit) in states(bounds) {
            let found = start.map_or_else(nothing, |start| start.import(name, state));
            all.push(judge_one(&format!("import {name}"), state, limit, found));
        }
    }
    for (state, limit) in states(&limits.kernel) {
        let found = start.map_or_else(nothing, |start| start.kernel(state));
        all.push(judge_one("kernel", state, limit, found));
    }
    all
}

fn states(bounds: &Bounds) -> impl Iterator<Item = (State, &At<Limit>)> {
    let all = [(State::Warm, &bounds.warm), (State::Cold, &bounds.cold)];
    all.into_iter()
        .filter_map(|(state, limit)| Some((state, limit.as_ref()?)))
}

fn judge_one(what: &str, state: State, limit: &At<Limit>, found: Result<f64, String>) -> Judged {
    let at_most = limit.value.at_most;
    let shown = match what.strip_prefix("import ") {
        Some(name) => format!("importing `{name}`"),
        None => "the first kernel".to_owned(),
    };
    let (outcome, finding) = match &found {
        Ok(seconds) if *seconds <= at_most.as_secs_f64() => (Outcome::Kept, None),
        Ok(seconds) => {
            let message = format!(
                "{shown} takes {} {}, and at most {} is allowed",
                time(*seconds),
                state.name(),
                time(at_most.as_secs_f64())
            );
            let finding = Diagnostic::error(codes::LIMIT_EXCEEDED, message);
            (
                Outcome::Exceeded,
                Some(finding.help(codes::LIMIT_EXCEEDED.fix())),
            )
        }
        Err(why) => {
            let message = format!("{shown} was not measured {}: {why}", state.name());
            let finding = if limit.value.required {
                Diagnostic::error(codes::LIMIT_NOT_MEASURED, message)
                    .help(codes::LIMIT_NOT_MEASURED.fix())
            } else {
                Diagnostic::note(codes::LIMIT_NOT_MEASURED, message)
            };
            (Outcome::NotMeasured, Some(finding))
        }
    };
    Judged {
        what: what.to_owned(),
        state: state.name(),
        at_most: at_most.as_secs_f64(),
        measured: found.ok(),
        outcome,
        finding: finding.map(|d| d.at(limit.span).label("the limit")),
    }
}

/// Returns seconds as people write them.
fn time(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1000.0)
    } else {
        format!("{seconds:.2} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use stackforge_stack::limits;

    fn start(cold: bool, kernel: bool) -> Start {
        let times = |import: f64| {
            let mut times = json!({ "python": 0.1, "import": import, "runs": 3 });
            if kernel {
                times["kernel"] = (import + 1.0).into();
            }
            times
        };
        let mut torch = json!({ "name": "torch", "modules": ["torch"], "warm": times(2.0) });
        if cold {
            torch["cold"] = times(8.0);
        }
        let reason = |known: bool, why: &str| {
            if known {
                json!({ "resident": 0.02 })
            } else {
                json!({ "reason": why })
            }
        };
        let broken = json!({ "name": "vllm", "modules": [], "reason": "it is broken" });
        serde_json::from_value(json!({
            "cold": reason(cold, "92% of the files' bytes stayed in the page cache"),
            "kernel": reason(kernel, "no GPU: a test says so"),
            "libraries": [torch, broken],
        }))
        .unwrap()
    }

    fn judged(text: &str, start: &Start) -> Vec<String> {
        let limits = limits::read("limits.yaml", text).unwrap();
        let shown = |judged: &Judged| {
            let finding = judged.finding.as_ref();
            let finding = finding.map(|d| format!(" {:?} {}", d.severity, d.message));
            format!(
                "{} {} {:?}{}",
                judged.what,
                judged.state,
                judged.outcome,
                finding.unwrap_or_default()
            )
        };
        judge(&limits, Some(start)).iter().map(shown).collect()
    }

    const ALL: &str = "import:\n  torch: { warm: 2s, cold: 7900ms }\n  vllm: { warm: 1m }\n  torhc: { warm: 1s }\nkernel: { warm: 3s, cold: { at_most: 1s, required: false } }\n";

    #[test]
    fn what_was_measured_is_compared() {
        insta::assert_snapshot!(judged(ALL, &start(true, true)).join("\n"));
    }

    #[test]
    fn what_was_not_measured_fails_unless_the_limit_says_otherwise() {
        insta::assert_snapshot!(judged(ALL, &start(false, false)).join("\n"));
    }

    #[test]
    fn nothing_was_measured_at_all() {
        let limits = limits::read("limits.yaml", ALL).unwrap();
        let judged = judge(&limits, None);
        assert!(judged.iter().all(|j| j.outcome == Outcome::NotMeasured));
    }

    #[test]
    fn the_table_says_what_is_missing() {
        let tables = [start(true, true), start(false, false)].map(|start| start.lines().join("\n"));
        insta::assert_snapshot!(tables.join("\n\n"));
    }
}
