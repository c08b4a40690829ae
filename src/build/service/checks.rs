//! The user's own checks of a finished image: imports, and programs that have to succeed.
//!
//! In: [`AppChecks`] and a way to run a command in the image. Out: a [`Check`] for the image's report.

use crate::validate::{Check, Report, Status};
use serde_json::{Value, json};
use stackforge_stack::spec::AppChecks;
use std::time::{Duration, Instant};

/// When importing the app's modules is ended, and has failed.
const IMPORTS: Duration = Duration::from_secs(300);
/// Lines of a failed program's output that are kept.
const LINES: usize = 20;
/// Name of the check in reports.
pub(super) const NAME: &str = "app";

/// How a command ended.
pub(in super::super) struct Ended {
    /// Exit status; `None` if its time was over.
    pub code: Option<i32>,
    /// What it printed, both streams.
    pub output: String,
}

/// Runs the checks. `run` runs a command in the image and ends it after the given time; `gpu` is whether the image
/// has a GPU there. `is_of_machine` is whether an error of `run` says only that the image cannot run here: what failed
/// before it is a failed check then.
pub(in super::super) async fn check<E>(
    checks: &AppChecks,
    gpu: bool,
    mut run: impl AsyncFnMut(&[String], Duration, bool) -> Result<Ended, E>,
    is_of_machine: impl Fn(&E) -> bool,
) -> Result<Check, E> {
    let mut results = Vec::new();
    let ran = run_all(checks, gpu, &mut run, &mut results).await;
    let of = |status: &str| results.iter().filter(|r| r["status"] == status).count();
    let status = match (of("failed"), of("passed")) {
        (0, 0) => Status::NotRun,
        (0, _) => Status::Passed,
        _ => Status::Failed,
    };
    match ran {
        Err(e) if status != Status::Failed || !is_of_machine(&e) => Err(e),
        _ => Ok(described(status, None, results)),
    }
}

async fn run_all<E>(
    checks: &AppChecks,
    gpu: bool,
    run: &mut impl AsyncFnMut(&[String], Duration, bool) -> Result<Ended, E>,
    results: &mut Vec<Value>,
) -> Result<(), E> {
    for module in &checks.imports {
        let command = ["python", "-c", &format!("import {module}")].map(str::to_owned);
        let ended = timed(&command, IMPORTS, false, run).await?;
        results.push(result(&format!("import {module}"), IMPORTS, ended));
    }
    for test in &checks.run {
        let name = test.cmd.join(" ");
        if test.gpu && !gpu {
            results.push(json!({
                "name": name,
                "status": Status::NotRun,
                "reason": "it needs a GPU: use `--gpu`",
            }));
            continue;
        }
        let ended = timed(&test.cmd, test.timeout, test.gpu, run).await?;
        results.push(result(&name, test.timeout, ended));
    }
    Ok(())
}

/// Returns the check of an image that cannot run here.
pub(in super::super) fn not_run(why: String) -> Check {
    described(Status::NotRun, Some(why), Vec::new())
}

/// Adds the check to the report of the environment.
pub(in super::super) fn added(mut report: Report, check: Check) -> Report {
    report.ok &= check.status != Status::Failed;
    report.checks.retain(|c| c.name != NAME);
    report.checks.push(check);
    report
}

fn described(status: Status, reason: Option<String>, results: Vec<Value>) -> Check {
    Check {
        name: NAME.to_owned(),
        status,
        reason,
        results,
        more: serde_json::Map::new(),
    }
}

async fn timed<E>(
    command: &[String],
    timeout: Duration,
    gpu: bool,
    run: &mut impl AsyncFnMut(&[String], Duration, bool) -> Result<Ended, E>,
) -> Result<(Ended, f64), E> {
    let start = Instant::now();
    let ended = run(command, timeout, gpu).await?;
    Ok((ended, start.elapsed().as_secs_f64()))
}

fn result(name: &str, timeout: Duration, (ended, seconds): (Ended, f64)) -> Value {
    let reason = match ended.code {
        Some(0) => return json!({ "name": name, "status": Status::Passed, "seconds": seconds }),
        Some(code) => format!("exit status {code}"),
        None => format!("it did not end within {} s", timeout.as_secs_f64()),
    };
    let lines: Vec<&str> = ended.output.trim_end().lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    let reason = [reason.as_str()].into_iter().chain(last.iter().copied());
    json!({
        "name": name,
        "status": Status::Failed,
        "seconds": seconds,
        "reason": reason.collect::<Vec<_>>().join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackforge_stack::spec::SmokeTest;

    async fn checked(imports: &[&str], run: Vec<SmokeTest>, gpu: bool) -> Check {
        let checks = AppChecks {
            imports: imports.iter().map(|m| (*m).to_owned()).collect(),
            run,
        };
        let run = async |command: &[String], _: Duration, _: bool| {
            Ok::<_, ()>(Ended {
                code: match command.last().map(String::as_str) {
                    Some("slow") => None,
                    Some("bad" | "import bad") => Some(1),
                    _ => Some(0),
                },
                output: "first\nlast\n".to_owned(),
            })
        };
        check(&checks, gpu, run, |_| false).await.unwrap()
    }

    #[tokio::test]
    async fn what_failed_stays_failed_where_the_next_cannot_run() {
        let checks = |imports: &[&str]| AppChecks {
            imports: imports.iter().map(|m| (*m).to_owned()).collect(),
            run: vec![test("lost", false)],
        };
        let run = async |command: &[String], _: Duration, _: bool| match command.last() {
            Some(last) if last == "lost" => Err("lost"),
            Some(last) => Ok(Ended {
                code: Some(i32::from(last == "import bad")),
                output: String::new(),
            }),
            None => Err("no command"),
        };
        let failed = check(&checks(&["bad"]), false, run, |_| true)
            .await
            .unwrap();
        assert_eq!((failed.status, failed.results.len()), (Status::Failed, 1));
        // An interruption, for instance, is not of the machine.
        let stopped = check(&checks(&["bad"]), false, run, |_| false).await;
        assert_eq!(stopped.map(|check| check.status).unwrap_err(), "lost");
        let lost = check(&checks(&["good"]), false, run, |_| true).await;
        assert_eq!(lost.map(|check| check.status).unwrap_err(), "lost");
    }

    fn test(cmd: &str, gpu: bool) -> SmokeTest {
        SmokeTest {
            cmd: vec![cmd.to_owned()],
            timeout: Duration::from_secs(2),
            gpu,
        }
    }

    #[tokio::test]
    async fn a_failed_check_says_how_it_ended() {
        let check = checked(&["good", "bad"], vec![test("slow", false)], false).await;
        assert_eq!(check.status, Status::Failed);
        let reasons: Vec<_> = check.results.iter().map(|r| r["reason"].as_str()).collect();
        assert_eq!(
            reasons,
            [
                None,
                Some("exit status 1\nfirst\nlast"),
                Some("it did not end within 2 s\nfirst\nlast"),
            ]
        );
    }

    #[tokio::test]
    async fn what_needs_a_gpu_is_not_run_without() {
        let check = checked(&[], vec![test("x", true)], false).await;
        assert_eq!(check.status, Status::NotRun);
        let check = checked(&[], vec![test("x", true)], true).await;
        assert_eq!(check.status, Status::Passed);
    }
}
