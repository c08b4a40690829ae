//! Converts Podman's build output into BuildKit's status messages.
//!
//! Podman answers `/build` with the text that `podman build` prints: `[2/3] STEP 2/4: RUN …`, the
//! output of the step, `--> Using cache …`, `--> 0123abcd` or `COMMIT …`. The input is that text, and
//! the output is the [`StatusResponse`]s that BuildKit would send, so [`super::progress`] handles both
//! engines. Stages nest: a stage that another one copies from begins while that other's COPY waits. A
//! stage may also be announced before the failure of the one before it is reported. This text cannot be
//! told from a step's own output with certainty: such a line printed by a step is taken for Podman's.

use std::collections::HashMap;

use bollard_buildkit_proto::google::protobuf::Timestamp;
use bollard_buildkit_proto::moby::buildkit::v1::{StatusResponse, Vertex, VertexLog};

use super::build_log::Lines;

/// BuildKit's error for a step that ends because another one failed.
const CANCELED: &str = "context canceled";

#[derive(Default)]
pub(super) struct PodmanOutput {
    lines: Lines,
    /// Names of stages by number.
    stages: HashMap<u32, String>,
    /// Steps that have begun and not ended, the latest last.
    open: Vec<Open>,
    /// Whether the next `--> ID` repeats the end of a step: it follows `--> Using cache` and `COMMIT`.
    end_reported: bool,
}

struct Open {
    stage: u32,
    instruction: String,
    vertex: Vertex,
}

impl Open {
    fn is_from(&self) -> bool {
        self.instruction.starts_with("FROM ")
    }
}

impl PodmanOutput {
    /// Converts `text`, which arrived at `now`.
    pub(super) fn feed(&mut self, text: &str, now: Timestamp) -> StatusResponse {
        let mut status = StatusResponse::default();
        for line in self.lines.push(text.as_bytes()) {
            self.line(&line, now, &mut status);
        }
        status
    }

    /// Ends the build: the last open step is done, or the one that `error` quotes has failed.
    pub(super) fn close(&mut self, error: Option<&str>, now: Timestamp) -> StatusResponse {
        let mut status = StatusResponse::default();
        if let Some(line) = self.lines.rest() {
            self.line(&line, now, &mut status);
        }
        let to_blame = error.and_then(|error| self.to_blame(error));
        for (place, open) in std::mem::take(&mut self.open).into_iter().enumerate() {
            let error = match error {
                Some(error) if to_blame == Some(place) => error,
                Some(_) if !open.is_from() => CANCELED,
                _ => "",
            };
            end(open, now, false, error, &mut status);
        }
        status
    }

    /// Returns the index of the open step that `error` quotes, else of the latest one that is not a
    /// FROM. The quote of an instruction of several lines has one space where the output has several.
    fn to_blame(&self, error: &str) -> Option<usize> {
        let error = single_spaced(error);
        let quoted = |open: &Open| {
            let instruction = single_spaced(&open.instruction);
            error.contains(&format!("building at STEP \"{instruction}\""))
        };
        let by_quote = self.open.iter().rposition(quoted);
        let works = || self.open.iter().rposition(|open| !open.is_from());
        by_quote.or_else(works).or(self.open.len().checked_sub(1))
    }

    fn line(&mut self, line: &str, now: Timestamp, status: &mut StatusResponse) {
        let (stage, rest) = of_stage(line);
        if let Some((count, instruction)) = step(rest) {
            self.begin(stage, count, instruction, now, status);
        } else if rest.starts_with("COMMIT ") {
            self.end_stage(stage, now, status);
            self.end_reported = true;
        } else if let Some(id) = line.strip_prefix("--> Using cache ").filter(|id| is_id(id)) {
            tracing::trace!("from the cache: {id}");
            self.end_latest(now, true, status);
            self.end_reported = true;
        } else if line.strip_prefix("--> ").is_some_and(is_id) {
            if !std::mem::take(&mut self.end_reported) {
                self.end_latest(now, false, status);
            }
        } else if let Some(open) = self.open.iter().rfind(|open| !open.is_from()) {
            status.logs.push(VertexLog {
                vertex: open.vertex.digest.clone(),
                timestamp: Some(now),
                stream: 1,
                msg: format!("{line}\n").into_bytes(),
            });
        }
    }

    fn begin(
        &mut self,
        stage: u32,
        count: &str,
        instruction: &str,
        now: Timestamp,
        status: &mut StatusResponse,
    ) {
        // No line of the output ends a FROM.
        self.end_stage(stage, now, status);
        self.end_reported = false;
        if let Some(name) = stage_name(instruction) {
            self.stages.insert(stage, name.to_ascii_lowercase());
        }
        let name = match (self.stages.get(&stage), stage.checked_sub(1)) {
            (Some(name), _) => format!("{name} "),
            (None, Some(place)) => format!("stage-{place} "),
            (None, None) => String::new(),
        };
        let name = format!("[{name}{count}] {instruction}");
        let vertex = Vertex {
            digest: name.clone(),
            name,
            started: Some(now),
            ..Vertex::default()
        };
        status.vertexes.push(vertex.clone());
        self.open.push(Open {
            stage,
            instruction: instruction.to_owned(),
            vertex,
        });
    }

    fn end_stage(&mut self, stage: u32, now: Timestamp, status: &mut StatusResponse) {
        while let Some(place) = self.open.iter().rposition(|open| open.stage == stage) {
            end(self.open.remove(place), now, false, "", status);
        }
    }

    fn end_latest(&mut self, now: Timestamp, cached: bool, status: &mut StatusResponse) {
        if let Some(open) = self.open.pop() {
            end(open, now, cached, "", status);
        }
    }
}

fn end(open: Open, now: Timestamp, cached: bool, error: &str, status: &mut StatusResponse) {
    status.vertexes.push(Vertex {
        completed: Some(now),
        cached,
        error: error.to_owned(),
        ..open.vertex
    });
}

/// Splits `[2/3] REST` into 2 and the rest. The number is 0 for a build of one stage, which prints
/// none.
fn of_stage(line: &str) -> (u32, &str) {
    let numbered = || {
        let (stage, rest) = line.strip_prefix('[')?.split_once("] ")?;
        let (number, total) = stage.split_once('/')?;
        total.parse::<u32>().ok()?;
        Some((number.parse().ok()?, rest))
    };
    numbered().unwrap_or((0, line))
}

/// Splits `STEP 2/4: RUN x` into `2/4` and `RUN x`.
fn step(text: &str) -> Option<(&str, &str)> {
    let (count, instruction) = text.strip_prefix("STEP ")?.split_once(": ")?;
    let (number, total) = count.split_once('/')?;
    let counts = number.parse::<u32>().is_ok() && total.parse::<u32>().is_ok();
    counts.then_some((count, instruction))
}

/// Returns the name that a FROM gives to its stage.
fn stage_name(instruction: &str) -> Option<&str> {
    let mut words = instruction.strip_prefix("FROM ")?.split_whitespace();
    words.find(|word| word.eq_ignore_ascii_case("as"))?;
    words.next()
}

/// Returns the text with one space in place of each run of white space.
fn single_spaced(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// Whether a text can be the ID of an image, short or full.
fn is_id(text: &str) -> bool {
    (8..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::build_log::{LogFile, Redaction};
    use crate::docker::progress::Progress;
    use crate::{EngineError, StepFailure, StepSummary};
    use bollard::models::BuildInfo;
    use std::collections::BTreeMap;

    /// Podman's output for the Dockerfile, one JSON line per message. In `compile-fails` builder-x
    /// fails with 3, in `announces-the-next` tools fails with 7, and in `validation-fails` validate
    /// fails with 5.
    const DOCKERFILE: &str = include_str!("../../../../tests/fixtures/podman/Dockerfile");
    const FRESH: &str = include_str!("../../../../tests/fixtures/podman/5.4-fresh.jsonl");
    const CACHED: &str = include_str!("../../../../tests/fixtures/podman/5.4-cached.jsonl");
    const COMPILE: &str = include_str!("../../../../tests/fixtures/podman/5.4-compile-fails.jsonl");
    const NEXT: &str =
        include_str!("../../../../tests/fixtures/podman/5.4-announces-the-next.jsonl");
    const VALIDATION: &str =
        include_str!("../../../../tests/fixtures/podman/4.3-validation-fails.jsonl");

    fn folded(recorded: &str) -> (Progress, Option<String>) {
        let log = LogFile::create(None).unwrap();
        let redaction = Redaction::of(&BTreeMap::new());
        let mut progress = Progress::new(DOCKERFILE.to_owned(), redaction, log);
        let mut podman = PodmanOutput::default();
        let mut error = None;
        for (seconds, line) in (0..).zip(recorded.lines()) {
            let now = Timestamp { seconds, nanos: 0 };
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            error = message["error"].as_str().map(str::to_owned).or(error);
            if let Ok(BuildInfo {
                stream: Some(text), ..
            }) = serde_json::from_str(line)
            {
                progress.feed(&podman.feed(&text, now)).unwrap();
            }
        }
        let end = podman.close(error.as_deref(), Timestamp::default());
        progress.feed(&end).unwrap();
        progress
            .close(error.as_ref().map(|_| "interrupted"))
            .unwrap();
        (progress, error)
    }

    fn summary(recorded: &str) -> Vec<StepSummary> {
        let (progress, error) = folded(recorded);
        assert_eq!(error, None);
        progress.summary()
    }

    fn failure(recorded: &str) -> StepFailure {
        let (progress, error) = folded(recorded);
        match progress.failure(&error.unwrap()) {
            EngineError::StepFailed(step) => *step,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn steps_have_the_names_of_their_stages() {
        let names = |steps: &[StepSummary]| -> Vec<String> {
            let short = |s: &StepSummary| s.name.chars().take(24).collect();
            steps.iter().map(short).collect()
        };
        let fresh = summary(FRESH);
        assert_eq!(
            names(&fresh),
            [
                "[base 1/3] FROM scratch ",
                "[base 2/3] ADD busybox /",
                "[base 3/3] RUN [\"/bin/bu",
                "[tools 1/3] FROM a9d428e",
                "[tools 3/3] RUN echo mak",
                "[wheels 1/2] FROM a9d428",
                "[wheels 2/2] RUN --mount",
                "[builder-x 1/2] FROM 72a",
                "[builder-x 2/2] RUN --mo",
                "[runtime 1/2] FROM 72aa0",
                "[runtime 2/2] RUN --moun",
                "[final 1/4] FROM fae60e3",
                "[final 2/4] COPY --from=",
                "[validate 1/2] FROM fae6",
                "[validate 2/2] RUN echo ",
            ]
        );
        let cached = |steps: &[StepSummary]| steps.iter().filter(|s| s.cached).count();
        // Only the ADD was cached in the first build; in the second, everything but the seven FROMs.
        assert_eq!(cached(&fresh), 1);
        assert_eq!(names(&summary(CACHED)), names(&fresh));
        assert_eq!(cached(&summary(CACHED)), 8);
    }

    #[test]
    fn the_step_that_the_error_quotes_is_to_blame() {
        for (recorded, name, code, line, last) in [
            (COMPILE, "[builder-x 2/2] RUN", 3, Some(13), "compiling"),
            // The next stage was announced before the error.
            (NEXT, "[tools 3/3] RUN", 7, Some(7), "making TOOLS"),
            (VALIDATION, "[validate 2/2] RUN", 5, Some(19), "validating"),
        ] {
            let failed = failure(recorded);
            assert!(failed.name.starts_with(name), "{}", failed.name);
            assert_eq!(failed.exit_code, Some(code));
            assert_eq!(failed.line, line, "{name}");
            assert_eq!(failed.tail.last().map(String::as_str), Some(last));
        }
    }

    #[test]
    fn a_step_of_several_lines_is_quoted_with_single_spaces() {
        let mut podman = PodmanOutput::default();
        let now = Timestamp::default();
        let text = "[2/3] STEP 1/2: FROM e3f62af66ab6 AS validate\n\
                    [2/3] STEP 2/2: RUN --mount=type=tmpfs,target=/tmp     echo hi && exit 5\nhi\n\
                    [3/3] STEP 1/2: FROM e3f62af66ab6 AS final\n\
                    [3/3] STEP 2/2: COPY --from=validate /x     /y\n";
        podman.feed(text, now);
        let error = "building at STEP \"RUN --mount=type=tmpfs,target=/tmp echo hi && exit 5\": \
                     while running runtime: exit status 5";
        let status = podman.close(Some(error), now);
        let failed = status.vertexes.iter().filter(|v| v.error == error);
        let names: Vec<&str> = failed.map(|v| v.name.as_str()).collect();
        assert_eq!(
            names,
            ["[validate 2/2] RUN --mount=type=tmpfs,target=/tmp     echo hi && exit 5"]
        );
    }

    #[test]
    fn text_is_read_however_it_is_cut() {
        let text = "[1/2] STEP 1/1: FROM a AS x\n[2/2] STEP 1/2: FROM x\n\
                    [2/2] STEP 2/2: RUN b\none\n--> no id\nCOMMIT c\n--> 0123456789ab\n";
        for size in 1..text.len() {
            let mut podman = PodmanOutput::default();
            let now = Timestamp::default();
            let mut logs = Vec::new();
            let mut ended = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                let status = podman.feed(std::str::from_utf8(chunk).unwrap(), now);
                logs.extend(status.logs.into_iter().map(|l| l.msg));
                ended.extend(
                    status
                        .vertexes
                        .into_iter()
                        .filter(|v| v.completed.is_some()),
                );
            }
            ended.extend(podman.close(None, now).vertexes);
            let names: Vec<&str> = ended.iter().map(|v| v.name.as_str()).collect();
            let expected = [
                "[stage-1 1/2] FROM x",
                "[x 1/1] FROM a AS x",
                "[stage-1 2/2] RUN b",
            ];
            assert_eq!(names, expected, "{size}");
            assert_eq!(logs, [&b"one\n"[..], b"--> no id\n"], "{size}");
        }
    }

    #[test]
    fn a_lone_stage_has_no_number() {
        let mut podman = PodmanOutput::default();
        let now = Timestamp::default();
        podman.feed("STEP 1/2: FROM a\nSTEP 2/2: RUN exit 3\n", now);
        // An error without a quote belongs to the step that ran.
        let status = podman.close(Some("exit status 3"), now);
        assert_eq!(status.vertexes.len(), 1);
        assert_eq!(status.vertexes[0].name, "[2/2] RUN exit 3");
        assert_eq!(status.vertexes[0].error, "exit status 3");
    }
}
