//! Builds one plan's Dockerfile: first the compiled wheels, round by round, then the rest.
//!
//! A compile that was killed for lack of memory starts again with half the jobs. Steps that finished
//! before a failure are remembered. A compiled wheel is audited before the next round, or the image, may
//! use it.

use super::super::audit::{AuditSpec, CompiledWheel, wheels};
use super::super::{
    BuildError, BuildEvent, IndexSettings, Objects, installed, recorded, secrets, unmet,
};
use super::stages;
use crate::validate::Report;
use stackforge_engine::docker::Docker;
use stackforge_engine::{BuildOutcome, BuildRequest, EngineError, Event, StepFailure, StepSummary};
use stackforge_image::store::{Action, Store};
use stackforge_plan::{Plan, StepId};
use stackforge_types::Cancel;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tokio::task::block_in_place;

pub(super) struct Run<'a> {
    pub plan: &'a Plan,
    pub docker: &'a Docker,
    pub store: &'a Store,
    pub log: &'a Path,
    pub cancel: &'a Cancel,
    pub on: &'a mut (dyn FnMut(BuildEvent) + Send),
    pub index: &'a IndexSettings,
}

impl Run<'_> {
    /// Compiles and audits every wheel that the store does not have. Returns the engine's steps.
    pub async fn compile(
        &mut self,
        audit_spec: &AuditSpec<'_>,
        request: &mut BuildRequest,
    ) -> Result<Vec<StepSummary>, BuildError> {
        let mut steps = Vec::new();
        for (round, libraries) in self.plan.rounds().into_iter().enumerate() {
            let read = |library: &&str| {
                let step = self.plan.compile(library);
                step.is_some_and(|s| recorded::wheel(self.store, s).is_some())
            };
            if !request.no_cache && libraries.iter().all(read) {
                continue;
            }
            if round == 0 {
                (self.on)(BuildEvent::Phase { name: "compile" });
            }
            let start = format!("stackforge/wheels:{}-{round}", self.plan.key().short());
            let image = self.docker.temporary(&start);
            request.target = Some(format!("compiled-{round}"));
            request.tags = vec![image.clone()];
            let outcome = match self.build(request).await {
                Ok(outcome) => outcome,
                Err(e) => {
                    // A cancelled engine may have made the image, or may still make it.
                    if let Err(error) = self.docker.remove_temporary(&image, false).await {
                        tracing::debug!(%error, "{image} may stay until the next build");
                    }
                    return Err(e);
                }
            };
            let made = wheels(self.docker, &image, self.store, self.cancel).await;
            self.docker.remove_temporary(&image, true).await?;
            for made in made? {
                let audit = block_in_place(|| audit_spec.wheel(&made.wheel))?;
                if !audit.ok {
                    return Err(BuildError::Audit {
                        what: format!("the compiled wheel of {}", made.library),
                        audit: Box::new(audit),
                    });
                }
                unmet::check(self.plan, audit_spec.catalog, &made.library, &made.wheel)?;
                self.remember(&made, &outcome, serde_json::to_value(audit.count()).ok())?;
            }
            steps.extend(outcome.steps);
            // `--no-cache` holds for this round only: later rounds must reuse what it compiled.
            request.no_cache = false;
        }
        Ok(steps)
    }

    fn remember(
        &self,
        made: &CompiledWheel,
        outcome: &BuildOutcome,
        audit: Option<serde_json::Value>,
    ) -> Result<(), BuildError> {
        let Some(step) = self.plan.compile(&made.library) else {
            return Ok(());
        };
        let done = stages::fold(self.plan, &outcome.steps);
        let mine = done.iter().find(|done| done.id == step.id);
        let seconds = mine.map_or(0.0, |done| done.seconds);
        let action = Action {
            step: step.id.to_string(),
            outputs: [("wheel".to_owned(), made.digest.clone())].into(),
            seconds,
            audit,
            ..Action::default()
        };
        Ok(self.store.record(&step.key, &action)?)
    }

    /// Runs the request, and repeats it with fewer jobs if a compile ran out of memory.
    pub async fn build(&mut self, request: &mut BuildRequest) -> Result<BuildOutcome, BuildError> {
        match self.once(request).await {
            Err(BuildError::Step { failure, log }) => {
                let Some(jobs) = retry_jobs(&failure, &log) else {
                    return Err(self.failed(failure, log));
                };
                (self.on)(BuildEvent::Retry {
                    step: failure.name.clone(),
                    jobs,
                });
                request.secrets = secrets::secrets(self.index, Some(jobs))?;
                request.no_cache = false;
                match self.once(request).await {
                    Err(BuildError::Step { failure, log }) => Err(self.failed(failure, log)),
                    other => other,
                }
            }
            other => other,
        }
    }

    fn failed(&self, failure: Box<StepFailure>, log: PathBuf) -> BuildError {
        remember_finished(self.plan, self.store, &failure);
        fail(failure, log)
    }

    async fn once(&mut self, request: &BuildRequest) -> Result<BuildOutcome, BuildError> {
        once(self.docker, request, self.log, self.cancel, self.on).await
    }
}

pub(in super::super) async fn once(
    docker: &Docker,
    request: &BuildRequest,
    log: &Path,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<BuildOutcome, BuildError> {
    let mut compiles = HashMap::new();
    let mut forward = |event: Event| {
        let ended = objects_in(&mut compiles, &event);
        on(BuildEvent::Engine(event));
        if let Some((library, objects)) = ended {
            on(BuildEvent::Objects { library, objects });
        }
    };
    let build = docker.build(request.clone(), Some(log), cancel, &mut forward);
    build.await.map_err(|e| match e {
        EngineError::StepFailed(failure) => BuildError::Step {
            failure,
            log: log.to_owned(),
        },
        other => other.into(),
    })
}

/// Returns what the script of a compile says of its objects. `compiles` holds the libraries of the steps that
/// run.
fn objects_in(compiles: &mut HashMap<u32, String>, event: &Event) -> Option<(String, Objects)> {
    match event {
        Event::StepStarted { id, name, .. } => {
            let library = stages::stage(name)?.strip_prefix("builder-")?;
            compiles.insert(*id, library.to_owned());
            None
        }
        Event::StepLog { id, line, .. } => {
            let objects = Objects::of_line(line)?;
            Some((compiles.get(id)?.clone(), objects))
        }
        _ => None,
    }
}

fn fail(failure: Box<StepFailure>, log: PathBuf) -> BuildError {
    let stage = stages::stage(&failure.name).unwrap_or_default();
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    match stage {
        "validate" => {
            if let Some(report) = Report::from_log(&text()) {
                let report = Box::new(report);
                return BuildError::Validation { report, log };
            }
        }
        "validated" => {
            let differences = installed::in_log(&text());
            if !differences.is_empty() {
                return BuildError::NotTheLocks { differences };
            }
        }
        _ => {}
    }
    BuildError::Step { failure, log }
}

/// Returns half the jobs of a compile that was killed for lack of memory. `None` if it ran one job or was
/// not killed.
fn retry_jobs(failure: &StepFailure, log: &Path) -> Option<u32> {
    if !failure.killed_for_memory || !stages::stage(&failure.name)?.starts_with("builder-") {
        return None;
    }
    let text = std::fs::read_to_string(log).ok()?;
    let number = format!("#{} ", failure.id);
    let jobs: u32 = text
        .lines()
        .filter(|l| l.starts_with(&number) || l.contains("stackforge: jobs="))
        .filter_map(|l| l.split_once("stackforge: jobs="))
        .filter_map(|(_, rest)| rest.split(' ').next()?.parse().ok())
        .next_back()?;
    (jobs > 1).then_some(jobs / 2)
}

/// Records the steps that succeeded before another failed.
fn remember_finished(plan: &Plan, store: &Store, failure: &StepFailure) {
    let failed = stages::stage(&failure.name).and_then(stages::plan_step);
    for done in stages::fold(plan, &failure.finished) {
        let wheels = matches!(done.id, StepId::Wheels(_));
        let Some(step) = plan
            .step(&done.id)
            .filter(|_| wheels && Some(&done.id) != failed.as_ref())
        else {
            continue;
        };
        let action = Action {
            step: step.id.to_string(),
            seconds: done.seconds,
            ..Action::default()
        };
        // The action only mirrors the engine's own cache, so losing it is harmless.
        let _ = store.record(&step.key, &action);
    }
}
