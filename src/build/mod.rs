//! From a plan to a validated, tagged image in a Docker engine.
//!
//! In: a [`Plan`] and a connected engine. Out: [`Built`]. Nothing gets one of the user's tags
//! before its validation and its audit passed, and no compiled wheel is used before its own audit; what finished before a failure is remembered, by the engine
//! and by the store, so the next run goes on from there.

mod audit;
mod base;
mod error;
mod run;
mod secrets;
mod stages;
mod validation;

use crate::audit::{Audit, Count};
use crate::catalog::Catalog;
use crate::config::Config;
use crate::engine::docker::Docker;
use crate::engine::{BuildRequest, Cancel, ContextEntry, Event, Source};
use crate::plan::Plan;
use crate::render::{self, BaseImage, Content, Context};
use crate::store::{Action, Store};
use crate::validate::{REPORT_PATH, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub use audit::{AUDIT_PATH, Hear, audit_image};
pub use error::{BuildError, chain};
pub use secrets::{IndexSettings, ca_bundle};
pub use stages::{plan_step, stage};
pub use validation::validate_image;

use audit::Meant;
use run::Run;

/// Bound of a validation report.
const MAX_REPORT: usize = 4 << 20;

pub struct Options<'a> {
    pub store: &'a Store,
    pub catalog: &'a Catalog,
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
    pub audit: Count,
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
    let meant = Meant::of(plan, options.catalog);
    let mut run = Run {
        plan,
        docker,
        store: options.store,
        log: &log,
        cancel,
        on,
        index: &options.index,
    };
    let mut engine = run.compile(&meant, &mut request).await?;
    (run.on)(BuildEvent::Phase { name: "build" });
    request.target = None;
    request.tags = vec![temporary.clone()];
    engine.extend(run.build(&mut request).await?.steps);
    let on = Mutex::new(run.on);
    let tell = |event| (on.lock().unwrap_or_else(|e| e.into_inner()))(event);
    tell(BuildEvent::Phase { name: "audit" });
    let hear = |done, total| {
        let what = "audit".to_owned();
        tell(BuildEvent::Download { what, done, total });
    };
    let finish = finish(&meant, docker, options, (&temporary, &log), cancel, &hear).await;
    let removed = docker.remove_image(&temporary).await;
    let finished = finish?;
    removed?;
    let steps = stages::fold(plan, &engine);
    for step in &steps {
        let Some(planned) = plan.step(&step.id) else {
            continue;
        };
        let image = (step.id == "image").then_some(&finished);
        // What was read of a wheel stays with it.
        let audit = match image {
            Some(image) => serde_json::to_value(image.audit).ok(),
            None => options.store.action(&planned.key).and_then(|a| a.audit),
        };
        options.store.record(
            &planned.key,
            &Action {
                step: step.id.clone(),
                image: image.map(|image| image.id.clone()),
                seconds: step.seconds,
                report: image.and_then(|image| serde_json::to_value(&image.report).ok()),
                audit,
            },
        )?;
    }
    options.store.record_last(plan)?;
    Ok(Built {
        id: finished.id,
        tags: options.tags.clone(),
        size: finished.size,
        steps,
        report: finished.report,
        audit: finished.audit,
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
    let (Some(id), Some(report), Some(audit)) = (action.image, action.report, action.audit) else {
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
    let (Ok(report), Ok(audit)) = (
        serde_json::from_value::<Report>(report),
        serde_json::from_value::<Count>(audit),
    ) else {
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
        audit,
        noop: true,
        log: None,
    }))
}

/// What became of the image.
struct Finished {
    id: String,
    size: u64,
    report: Report,
    audit: Count,
}

/// Reads the report and the image, gives it both and its summary as labels, and then its tags.
async fn finish(
    meant: &Meant<'_>,
    docker: &Docker,
    options: &Options<'_>,
    (temporary, log): (&str, &Path),
    cancel: &Cancel,
    hear: Hear<'_>,
) -> Result<Finished, BuildError> {
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
    let mut audit = audit_image(docker, temporary, None, cancel, hear, |image| {
        meant.image(image)
    })
    .await?;
    audit.target.clone_from(&meant.plan.variant);
    if !audit.ok {
        return Err(BuildError::Audit {
            what: "the image".to_owned(),
            audit: Box::new(audit),
        });
    }
    let labels = BTreeMap::from([
        ("io.stackforge.validation".to_owned(), report.summary()),
        ("io.stackforge.audit".to_owned(), audit.count().to_string()),
    ]);
    let file = |path: &str, text: String| ContextEntry {
        path: path.into(),
        mode: 0o644,
        source: Source::Bytes(text.into_bytes()),
    };
    let request = BuildRequest {
        context: vec![
            file(
                "Dockerfile",
                format!("FROM {temporary}\nCOPY audit.json {AUDIT_PATH}\n"),
            ),
            file("audit.json", document(&audit)),
        ],
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
            reason: format!("image {id} of plan {} is gone", meant.plan.key().short()),
        })?;
    Ok(Finished {
        id: image.id,
        size: image.size,
        report,
        audit: audit.count(),
    })
}

fn document(audit: &Audit) -> String {
    // Maps and lists of strings and numbers always become JSON.
    serde_json::to_string(audit).unwrap_or_default() + "\n"
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
