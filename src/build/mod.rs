//! From a plan to a validated, tagged image in a Docker engine.
//!
//! In: a [`Plan`] and a connected engine. Out: [`Built`]. Nothing gets one of the user's tags
//! before its validation passed; what finished before a failure is remembered, by the engine
//! and by the store, so the next run goes on from there.

mod base;
mod error;
mod secrets;
mod stages;
mod validation;

use crate::config::Config;
use crate::engine::docker::Docker;
use crate::engine::{BuildRequest, Cancel, ContextEntry, EngineError, Event, Source, StepFailure};
use crate::plan::Plan;
use crate::render::{self, BaseImage, Content, Context};
use crate::store::{Action, Store};
use crate::validate::{REPORT_PATH, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use error::{BuildError, chain};
pub use secrets::{IndexSettings, ca_bundle};
pub use stages::{plan_step, stage};
pub use validation::validate_image;

/// Bound of a validation report.
const MAX_REPORT: usize = 4 << 20;

pub struct Options<'a> {
    pub store: &'a Store,
    pub overlay: Option<&'a Path>,
    /// References that the image gets.
    pub tags: Vec<String>,
    /// Most compilers at once, below what cores and memory allow.
    pub jobs: Option<u32>,
    pub no_cache: bool,
    pub index: IndexSettings,
    pub config: &'a Config,
}

/// What happens during a build, for whoever shows it.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BuildEvent {
    /// A phase of the build begins.
    Phase {
        name: &'static str,
    },
    Download {
        what: String,
        done: u64,
        total: u64,
    },
    /// A compile was killed for memory and starts again.
    Retry {
        step: String,
        jobs: u32,
    },
    #[serde(untagged)]
    Engine(Event),
}

#[derive(Debug, Clone, Serialize)]
pub struct StepResult {
    pub id: String,
    pub cached: bool,
    pub seconds: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Built {
    /// The engine's id of the image.
    pub id: String,
    pub tags: Vec<String>,
    pub size: u64,
    pub steps: Vec<StepResult>,
    pub report: Report,
    /// Whether everything was there already.
    pub noop: bool,
    pub log: Option<PathBuf>,
}

/// Builds the plan's image, or finds it built.
pub async fn build(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Built, BuildError> {
    if !options.no_cache
        && let Some(built) = existing(plan, docker, options).await?
    {
        return Ok(built);
    }
    let info = docker.info().await?;
    if info.architecture != plan.platform.machine() && info.architecture != plan.platform.arch() {
        return Err(BuildError::WrongArchitecture {
            engine: info.architecture,
            platform: plan.platform,
        });
    }
    let log = options.store.new_log(&plan.variant)?;
    let base = base::ensure(plan, docker, options, &log, cancel, on).await?;
    base::fetch_packages(plan, options, on).await?;
    let base = BaseImage::Named(base.unwrap_or_default());
    let context = rendered(plan, options, base)?;
    let temporary = format!("stackforge/build:{}", plan.key().short());
    let mut request = BuildRequest {
        context: entries(context),
        dockerfile: "Dockerfile".into(),
        tags: vec![temporary.clone()],
        secrets: secrets::secrets(&options.index, options.jobs)?,
        build_args: secrets::proxies(),
        no_cache: options.no_cache,
        ..BuildRequest::default()
    };
    on(BuildEvent::Phase { name: "build" });
    let outcome = match run(docker, &request, &log, cancel, on).await {
        Err(BuildError::Step { failure, log: path }) => {
            let Some(jobs) = retry_jobs(&failure, &path) else {
                remember_finished(plan, options.store, &failure);
                return Err(fail(failure, path));
            };
            on(BuildEvent::Retry {
                step: failure.name.clone(),
                jobs,
            });
            request.secrets = secrets::secrets(&options.index, Some(jobs))?;
            request.no_cache = false;
            match run(docker, &request, &log, cancel, on).await {
                Err(BuildError::Step { failure, log }) => {
                    remember_finished(plan, options.store, &failure);
                    return Err(fail(failure, log));
                }
                other => other?,
            }
        }
        other => other?,
    };
    let finish = finish(plan, docker, options, &temporary, &log, cancel).await;
    let removed = docker.remove_image(&temporary).await;
    let (id, size, report) = finish?;
    removed?;
    let steps = stages::fold(plan, &outcome.steps);
    for step in &steps {
        let Some(planned) = plan.step(&step.id) else {
            continue;
        };
        options.store.record(
            &planned.key,
            &Action {
                step: step.id.clone(),
                image: (step.id == "image").then(|| id.clone()),
                seconds: step.seconds,
                report: (step.id == "image")
                    .then(|| serde_json::to_value(&report).ok())
                    .flatten(),
            },
        )?;
    }
    options.store.record_last(plan)?;
    Ok(Built {
        id,
        tags: options.tags.clone(),
        size,
        steps,
        report,
        noop: false,
        log: Some(log),
    })
}

/// The context for use anywhere: Dockerfile, scripts, OS packages and, for a bootstrapped
/// base, its root file system, which the returned guard keeps until it is dropped.
pub async fn render_context(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<(Context, Option<base::Scratch>), BuildError> {
    base::fetch_packages(plan, options, on).await?;
    if !plan.parts.bootstrap {
        return Ok((
            rendered(plan, options, BaseImage::Named(String::new()))?,
            None,
        ));
    }
    let tar = base::rootfs_tar(plan, options, on).await?;
    let context = rendered(plan, options, BaseImage::Tar(tar.path.clone()))?;
    Ok((context, Some(tar)))
}

fn rendered(plan: &Plan, options: &Options<'_>, base: BaseImage) -> Result<Context, BuildError> {
    Ok(render::render(
        plan,
        &render::Options {
            overlay: options.overlay,
            base,
            config: options.config,
            debs: &options.store.dir("debs")?,
        },
    )?)
}

/// The image of an earlier build of the very same plan, with each tag that was asked for.
async fn existing(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
) -> Result<Option<Built>, BuildError> {
    let Some(action) = options.store.action(plan.key()) else {
        return Ok(None);
    };
    let (Some(id), Some(report)) = (action.image, action.report) else {
        return Ok(None);
    };
    let key = plan.key().to_string();
    let image = docker
        .image(&id)
        .await?
        .filter(|i| i.labels.get("io.stackforge.key") == Some(&key));
    let Some(image) = image else {
        options.store.forget(plan.key());
        return Ok(None);
    };
    let Ok(report) = serde_json::from_value::<Report>(report) else {
        return Ok(None);
    };
    for tag in &options.tags {
        if !image.tags.contains(tag) {
            docker.tag(&image.id, tag).await?;
        }
    }
    Ok(Some(Built {
        id: image.id,
        tags: options.tags.clone(),
        size: image.size,
        steps: plan
            .steps
            .iter()
            .map(|s| StepResult {
                id: s.id.clone(),
                cached: true,
                seconds: 0.0,
            })
            .collect(),
        report,
        noop: true,
        log: None,
    }))
}

async fn run(
    docker: &Docker,
    request: &BuildRequest,
    log: &Path,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<crate::engine::BuildOutcome, BuildError> {
    let mut forward = |event| on(BuildEvent::Engine(event));
    docker
        .build(request.clone(), Some(log), cancel, &mut forward)
        .await
        .map_err(|e| match e {
            EngineError::StepFailed(failure) => BuildError::Step {
                failure,
                log: log.to_owned(),
            },
            other => other.into(),
        })
}

fn fail(failure: Box<StepFailure>, log: PathBuf) -> BuildError {
    let stage = stages::stage(&failure.name).unwrap_or_default();
    if stage == "validate" {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if let Some(report) = Report::from_log(&text) {
            return BuildError::Validation {
                report: Box::new(report),
                log,
            };
        }
    }
    BuildError::Step { failure, log }
}

/// Half the jobs that a compile killed for memory ran with; None when that was one already
/// or nothing was killed.
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

/// Steps that ended well before another failed.
fn remember_finished(plan: &Plan, store: &Store, failure: &StepFailure) {
    let failed = stages::stage(&failure.name).and_then(plan_step);
    for step in stages::fold(plan, &failure.finished) {
        let single = step.id.starts_with("wheels:") || step.id.starts_with("compile:");
        if !single || Some(&step.id) == failed.as_ref() {
            continue;
        }
        if let Some(planned) = plan.step(&step.id) {
            let action = Action {
                step: step.id.clone(),
                image: None,
                seconds: step.seconds,
                report: None,
            };
            // Only a memory of the engine's own cache: losing it costs nothing.
            let _ = store.record(&planned.key, &action);
        }
    }
}

/// Reads the report, gives the image its summary as labels, and then its tags.
async fn finish(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
    temporary: &str,
    log: &Path,
    cancel: &Cancel,
) -> Result<(String, u64, Report), BuildError> {
    let bytes = docker.read_file(temporary, REPORT_PATH, MAX_REPORT).await?;
    let bytes = bytes.ok_or_else(|| BuildError::NoReport {
        reason: format!("{REPORT_PATH} is missing"),
    })?;
    let report = Report::from_slice(&bytes).map_err(|e| BuildError::NoReport {
        reason: e.to_string(),
    })?;
    if !report.ok {
        return Err(BuildError::Validation {
            report: Box::new(report),
            log: log.to_owned(),
        });
    }
    let labels = BTreeMap::from([("io.stackforge.validation".to_owned(), report.summary())]);
    let request = BuildRequest {
        context: vec![ContextEntry {
            path: "Dockerfile".into(),
            mode: 0o644,
            source: Source::Bytes(format!("FROM {temporary}\n").into_bytes()),
        }],
        dockerfile: "Dockerfile".into(),
        tags: options.tags.clone(),
        labels,
        ..BuildRequest::default()
    };
    let label_log = log.with_extension("labels.log");
    let outcome = docker
        .build(request, Some(&label_log), cancel, &mut |_| {})
        .await;
    let _ = std::fs::remove_file(&label_log);
    let id = outcome?.image_id;
    let image = docker
        .image(&id)
        .await?
        .ok_or_else(|| BuildError::NoReport {
            reason: format!("image {id} of plan {} is gone", plan.key().short()),
        })?;
    Ok((image.id, image.size, report))
}

fn entries(context: Context) -> Vec<ContextEntry> {
    context
        .into_iter()
        .map(|(path, content)| ContextEntry {
            path,
            mode: 0o644,
            source: match content {
                Content::Text(text) => Source::Bytes(text.into_bytes()),
                Content::File(path) => Source::File(path),
            },
        })
        .collect()
}
