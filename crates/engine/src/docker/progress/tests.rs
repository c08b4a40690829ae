//! Tests the fold with streams that Docker 20.10.24 sent, one JSON line per message.
//!
//! `fresh` and `cached` are two consecutive builds of three stages (COPY and RUN; RUN; two COPY from
//! those). In `fail` the second RUN prints a line and exits with 37. Each is the body of the response
//! to `POST /build?version=2`.

use std::collections::BTreeMap;

use bollard::models::{BuildInfo, BuildInfoAux};

use super::*;
use crate::Secret;
use crate::docker::step::TAIL;

const FRESH: &str = include_str!("../../../../../tests/fixtures/buildkit/fresh.jsonl");
const CACHED: &str = include_str!("../../../../../tests/fixtures/buildkit/cached.jsonl");
const FAILED: &str = include_str!("../../../../../tests/fixtures/buildkit/fail.jsonl");

fn statuses(recorded: &str) -> Vec<StatusResponse> {
    recorded
        .lines()
        .filter_map(|line| match serde_json::from_str(line).unwrap() {
            BuildInfo {
                aux: Some(BuildInfoAux::BuildKit(status)),
                ..
            } => Some(status),
            _ => None,
        })
        .collect()
}

fn folded(recorded: &str, dockerfile: &str) -> (Progress, Vec<Event>) {
    let mut progress = of_dockerfile(dockerfile, &[]);
    let mut events = Vec::new();
    for status in statuses(recorded) {
        events.extend(progress.feed(&status).unwrap());
    }
    events.extend(progress.close(None).unwrap());
    (progress, events)
}

fn quiet(secrets: &[&str]) -> Progress {
    of_dockerfile("", secrets)
}

fn of_dockerfile(dockerfile: &str, secrets: &[&str]) -> Progress {
    let secrets = secrets
        .iter()
        .map(|secret| ((*secret).to_owned(), Secret::new(*secret)));
    let redaction = Redaction::of(&BTreeMap::from_iter(secrets));
    Progress::new(
        dockerfile.to_owned(),
        redaction,
        LogFile::create(None).unwrap(),
    )
}

/// Formats each event as a short line.
fn summaries(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::StepStarted { id, .. } => Some(format!("{id} starts")),
            Event::StepLog { id, stream, line } => Some(format!("{id} {stream:?} {line}")),
            Event::StepFinished {
                id, cached, error, ..
            } => Some(match (cached, error) {
                (_, Some(_)) => format!("{id} fails"),
                (true, None) => format!("{id} cached"),
                (false, None) => format!("{id} done"),
            }),
            _ => None,
        })
        .collect()
}

#[test]
fn a_fresh_build_starts_and_finishes_each_step_once() {
    let (progress, events) = folded(FRESH, "");
    assert_eq!(
        summaries(&events),
        [
            "1 starts",
            "1 done",
            "5 starts",
            "2 starts",
            "2 done",
            "3 starts",
            "3 Stdout one",
            "3 Stderr two",
            "3 done",
            "4 starts",
            "4 done",
            "5 done",
            "6 starts",
            "6 done",
            "7 starts",
            "7 done",
        ]
        .map(str::to_owned)
    );
    let summary = progress.summary();
    assert_eq!(summary.len(), 7);
    assert_eq!(
        summary[2].name,
        "[build 3/3] RUN echo one; sleep 1; echo two >&2"
    );
    assert_eq!(summary[2].kind, StepKind::Run);
    assert!((1.8..1.9).contains(&summary[2].seconds));
    assert_eq!(summary[6].kind, StepKind::Export);
}

#[test]
fn a_second_build_reports_hits() {
    let (progress, _) = folded(CACHED, "");
    let runs: Vec<bool> = progress
        .summary()
        .iter()
        .filter(|step| matches!(step.kind, StepKind::Run | StepKind::Copy))
        .map(|step| step.cached)
        .collect();
    assert_eq!(runs, [true; 5]);
}

#[test]
fn a_failing_step_is_named_with_its_code_line_and_log() {
    let dockerfile = "FROM x AS build\nRUN echo before\nRUN echo about\nFROM x\nCOPY a b\n";
    let (progress, events) = folded(FAILED, dockerfile);
    assert_eq!(summaries(&events).last().unwrap(), "3 fails");
    match progress.failure("whatever the engine said last") {
        EngineError::StepFailed(step) => {
            assert_eq!(step.exit_code, Some(37));
            assert_eq!(step.line, Some(3));
            assert_eq!(step.tail, ["about to fail"]);
            assert!(!step.killed_for_memory);
            assert_eq!(step.finished.len(), 2);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn steps_are_numbered_as_the_dockerfile_has_them() {
    let dockerfile = "FROM x AS build\nCOPY f /f\nRUN a\nFROM x AS side\nRUN b\nFROM x\n\
                      COPY --from=build /f /g\nCOPY --from=side /side /side\n";
    let names = |statuses: &[StatusResponse]| {
        let mut progress = of_dockerfile(dockerfile, &[]);
        for status in statuses {
            progress.feed(status).unwrap();
        }
        progress.close(None).unwrap();
        let summary = progress.summary();
        let names = summary
            .iter()
            .map(|step| step.name.chars().take(15).collect());
        names.collect::<Vec<String>>()
    };
    let mut statuses = statuses(FRESH);
    let expected = [
        "[build 2/3] COP",
        "[build 3/3] RUN",
        "[side 1/2] FROM",
        "[side 2/2] RUN ",
        "[stage-2 2/3] C",
        "[stage-2 3/3] C",
        "exporting to im",
    ];
    assert_eq!(names(&statuses), expected);
    for status in &mut statuses {
        status.vertexes.reverse();
    }
    assert_eq!(names(&statuses), expected);
}

fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

fn vertex(digest: &str, began: i64, ended: Option<i64>) -> Vertex {
    Vertex {
        digest: digest.to_owned(),
        name: format!("[2/2] RUN {digest}"),
        started: at(began),
        completed: ended.and_then(at),
        ..Vertex::default()
    }
}

fn of_vertex(vertex: Vertex) -> StatusResponse {
    StatusResponse {
        vertexes: vec![vertex],
        ..StatusResponse::default()
    }
}

fn log(digest: &str, text: &str) -> StatusResponse {
    StatusResponse {
        logs: vec![VertexLog {
            vertex: digest.to_owned(),
            stream: 1,
            msg: text.as_bytes().to_vec(),
            ..VertexLog::default()
        }],
        ..StatusResponse::default()
    }
}

#[test]
fn a_completion_for_the_cache_key_is_not_the_end() {
    let mut progress = quiet(&[]);
    let mut feed = |vertex| summaries(&progress.feed(&of_vertex(vertex)).unwrap());
    assert_eq!(feed(vertex("a", 1, None)), ["1 starts"]);
    assert_eq!(feed(vertex("a", 1, Some(2))), [""; 0]);
    let hit = Vertex {
        cached: true,
        ..vertex("a", 3, Some(3))
    };
    assert_eq!(feed(hit.clone()), ["1 cached"]);
    assert_eq!(feed(hit), [""; 0], "a repeated message says nothing new");
}

#[test]
fn a_completion_that_nothing_follows_is_the_end_after_a_while() {
    let mut progress = quiet(&[]);
    progress.feed(&of_vertex(vertex("a", 1, Some(4)))).unwrap();
    assert_eq!(summaries(&progress.tick()), [""; 0]);
    assert_eq!(summaries(&progress.tick()), ["1 done"]);
    assert_eq!(summaries(&progress.tick()), [""; 0]);
    assert_eq!(progress.summary()[0].seconds, 3.0);
}

#[test]
fn a_step_that_prints_a_secret_does_not_show_it() {
    let mut progress = quiet(&["hunter2-hunter2"]);
    progress.feed(&of_vertex(vertex("a", 1, None))).unwrap();
    progress.feed(&log("a", "token=hunter2-")).unwrap();
    let events = progress.feed(&log("a", "hunter2;\n")).unwrap();
    assert_eq!(summaries(&events), ["1 Stdout token=***;"]);
}

#[test]
fn memory_trouble_anywhere_in_the_log_counts_and_the_tail_is_bounded() {
    let mut progress = quiet(&[]);
    progress.feed(&of_vertex(vertex("a", 1, None))).unwrap();
    let text = "g++: fatal error: Killed signal terminated program cc1plus\n";
    let mut from_compiler = log("a", text);
    from_compiler.logs[0].stream = 2;
    progress.feed(&from_compiler).unwrap();
    progress.feed(&log("a", &"noise\n".repeat(100))).unwrap();
    let failed = Vertex {
        error: "executor failed running [make]: exit code: 2".to_owned(),
        ..vertex("a", 1, Some(9))
    };
    progress.feed(&of_vertex(failed)).unwrap();
    match progress.failure("") {
        EngineError::StepFailed(step) => {
            assert!(step.killed_for_memory);
            assert_eq!(step.tail.len(), TAIL);
            assert_eq!(step.tail[0], text.trim_end(), "stderr is kept longer");
            assert!(step.tail[1..].iter().all(|line| line == "noise"));
            assert_eq!(step.line, None);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_step_cancelled_beside_the_failing_one_is_not_to_blame() {
    let mut progress = quiet(&[]);
    for (digest, error) in [("a", "context canceled"), ("b", "exit code: 3")] {
        let failed = Vertex {
            error: error.to_owned(),
            ..vertex(digest, 1, Some(2))
        };
        progress.feed(&of_vertex(failed)).unwrap();
    }
    match progress.failure("") {
        EngineError::StepFailed(step) => assert_eq!(step.id, 2),
        other => panic!("{other:?}"),
    }
}
