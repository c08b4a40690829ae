//! Builds a plan's image in a Docker engine, validates it and tags it.
//!
//! In: a [`Plan`] and a connected engine. Out: [`Built`]. The user's tags are set only after the
//! validation and the audit passed, and a compiled wheel is used only after its own audit. Steps that
//! finished before a failure are remembered by the engine and the store, so the next run continues there.

mod at_rest;
mod audit;
mod base;
mod choice;
mod context;
mod error;
pub mod fleet;
mod image_push;
mod in_place;
mod installed;
pub mod last;
mod layers;
mod left;
pub mod native;
mod output;
mod reach;
mod run;
mod secrets;
mod shared;
mod stages;
mod trusted;
mod unpacked;
mod validation;

use crate::audit::{Audit, Count};
use crate::catalog::Catalog;
use crate::config::Config;
use crate::labels;
use crate::plan::{Plan, StepId};
use crate::render::BaseImage;
use crate::spec::Stack;
use crate::validate::{REPORT_PATH, Report};
pub use at_rest::validate_at_rest;
use audit::Meant;
pub use audit::{AUDIT_PATH, Hear, audit_image};
pub use choice::{Wants, wants};
pub use context::render_context;
use context::{by_dockerfile, compiled, entries, fetch_sources, rendered};
pub use error::BuildError;
pub use image_push::push_image;
pub use in_place::validate_rootfs;
use layers::Layers;
pub use left::noted;
pub use output::Output;
use run::Run;
pub use secrets::{IndexSettings, ca_bundle};
use serde::Serialize;
use shared::Shared;
use stackforge_engine::docker::Docker;
use stackforge_engine::{BuildRequest, ContextEntry, Event, ImageSize, Source};
use stackforge_image::store::{Action, Store};
use stackforge_transfer::registry::PlainHttp;
use stackforge_types::Cancel;
use stages::Done;
pub use stages::{plan_step, stage};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
pub use validation::validate_image;

/// Longest validation report, in bytes.
const MAX_REPORT: usize = 4 << 20;

pub struct Options<'a> {
    pub store: &'a Store,
    pub catalog: &'a Catalog,
    pub overlay: Option<&'a Path>,
    /// References to tag the image with.
    pub tags: Vec<String>,
    /// Further outputs; an engine keeps its image in any case.
    pub outputs: Vec<Output>,
    /// Registries to reach over plain HTTP.
    pub plain_http: PlainHttp,
    /// Upper bound on parallel compilers, besides that of cores and memory.
    pub jobs: Option<u32>,
    pub no_cache: bool,
    pub index: IndexSettings,
    pub config: &'a Config,
    /// The stack whose package indexes are asked for the locked files.
    pub stack: Option<&'a Stack>,
    /// Whether to use no network.
    pub offline: bool,
    /// Whether the validation runs on a GPU, and fails without one.
    pub gpu: bool,
}

impl Options<'_> {
    /// The repository for shared compiled wheels and layers: the configuration's, else the stack's if the
    /// configuration allows it.
    fn shared(&self) -> Option<&str> {
        let own = self.config.cache.registry.as_deref();
        own.or_else(|| self.of_stack().filter(|name| self.allows(name)))
    }

    /// The stack's repository, if it would be used but the configuration does not allow it.
    fn refused(&self) -> Option<&str> {
        let none = self.config.cache.registry.is_none();
        self.of_stack().filter(|name| none && !self.allows(name))
    }

    fn of_stack(&self) -> Option<&str> {
        Some(&self.stack?.cache.as_ref()?.registry)
    }

    fn allows(&self, repository: &str) -> bool {
        self.config
            .cache
            .allow
            .iter()
            .any(|name| name == repository)
    }
}

/// A progress event of a build.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BuildEvent {
    /// A phase begins.
    Phase {
        name: &'static str,
    },
    Download {
        what: String,
        done: u64,
        total: u64,
    },
    /// A compile was killed for lack of memory and starts again.
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
    /// The engine's ID of the image.
    pub id: String,
    pub tags: Vec<String>,
    pub size: ImageSize,
    /// The layers, lowest first; empty if the engine keeps them.
    pub layers: Vec<stackforge_image::Layer>,
    pub steps: Vec<StepResult>,
    pub report: Report,
    pub audit: Count,
    /// Whether everything already existed.
    pub noop: bool,
    pub log: Option<PathBuf>,
}

/// Builds the plan's image, or returns an existing one.
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
        renamed(options, &built.id)?;
        image_push::push(docker, &built.id, plan, options, cancel).await?;
        return Ok(built);
    }
    by_dockerfile(plan)?;
    // Every step that installs wheels mounts the installer from its stage.
    docker.mounts_from_stages()?;
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
    let layers = Layers::of(plan, docker, options).await;
    let meant = Meant::of(plan, options.catalog);
    let shared = Shared::of(plan, options);
    if let Some(shared) = shared.as_ref().filter(|_| !options.no_cache) {
        shared.fetch(&meant).await;
    }
    let wheels = match options.no_cache {
        true => BTreeMap::new(),
        false => compiled(plan, options.store)?,
    };
    fetch_sources(plan, &wheels, options, on).await?;
    let context = rendered(plan, options, base.clone(), &wheels)?;
    let temporary = docker.temporary(&format!("stackforge/build:{}", plan.key().short()));
    let mut request = BuildRequest {
        context: entries(context),
        dockerfile: "Dockerfile".into(),
        tags: vec![temporary.clone()],
        secrets: secrets::secrets(&options.index, options.jobs)?,
        build_args: secrets::proxies(),
        no_cache: options.no_cache,
        logins: image_push::logins(&read_from(plan, options, layers.as_ref())).await,
        ..BuildRequest::default()
    };
    if let Some(layers) = &layers {
        layers.ask(&mut request, !options.no_cache);
    }
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
    if let Some(shared) = &shared {
        let new = plan.parts.compiles.iter().map(|c| c.library.clone());
        shared
            .push(&new.filter(|l| !wheels.contains_key(l)).collect())
            .await;
    }
    (run.on)(BuildEvent::Phase { name: "build" });
    // Use exactly the wheels that were audited, whatever the engine's cache has.
    let made = compiled(plan, options.store)?;
    request.context = entries(rendered(plan, options, base, &made)?);
    request.target = None;
    request.tags = vec![temporary.clone()];
    match run.build(&mut request).await {
        Ok(built) => engine.extend(built.steps),
        Err(e) => {
            // A cancelled engine may have made the image, or may still make it.
            if let Err(error) = docker.remove_temporary(&temporary, false).await {
                tracing::debug!(%error, "{temporary} may stay until the next build");
            }
            return Err(e);
        }
    }
    let on = Mutex::new(run.on);
    let tell = |event| (on.lock().unwrap_or_else(|e| e.into_inner()))(event);
    tell(BuildEvent::Phase { name: "audit" });
    let hear = |done, total| {
        let what = "audit".to_owned();
        tell(BuildEvent::Download { what, done, total });
    };
    let finish = finish(
        &meant,
        docker,
        options,
        (&temporary, &log),
        &made,
        cancel,
        &hear,
    )
    .await;
    if let Some(layers) = layers.filter(|_| finish.is_ok() && !engine.iter().all(|s| s.cached)) {
        tell(BuildEvent::Phase { name: "share" });
        layers.push(docker, &temporary, cancel).await;
    }
    let removed = docker.remove_temporary(&temporary, true).await;
    let finished = finish?;
    removed?;
    renamed(options, &finished.id)?;
    let mut steps = stages::fold(plan, &engine);
    for done in &mut steps {
        let step = done.step;
        // The stage only copied a wheel that was compiled before, so the recorded action stays.
        let library = step.id.library();
        if library.is_some_and(|library| wheels.contains_key(library)) {
            done.cached = true;
            continue;
        }
        let image = (step.id == StepId::Image).then_some(&finished);
        // Keep the outputs and the audit of a wheel that were recorded before.
        let before = options.store.action(&step.key).unwrap_or_default();
        let audit = match image {
            Some(image) => serde_json::to_value(image.audit).ok(),
            None => before.audit,
        };
        options.store.record(
            &step.key,
            &Action {
                step: step.id.to_string(),
                outputs: before.outputs,
                image: image.map(|image| image.id.clone()),
                seconds: done.seconds,
                report: image.and_then(|image| serde_json::to_value(&image.report).ok()),
                audit,
                made: before.made,
            },
        )?;
    }
    last::record(options.store, plan)?;
    if !options.outputs.is_empty() {
        tell(BuildEvent::Phase { name: "output" });
        image_push::push(docker, &finished.id, plan, options, cancel).await?;
    }
    Ok(Built {
        id: finished.id,
        tags: options.tags.clone(),
        size: finished.size,
        layers: Vec::new(),
        steps: steps.iter().map(Done::result).collect(),
        report: finished.report,
        audit: finished.audit,
        noop: false,
        log: Some(log),
    })
}

/// Removes the image's tags from other images of the store, so that a push by tag sends the image that
/// was tagged last.
fn renamed(options: &Options<'_>, id: &str) -> Result<(), BuildError> {
    Ok(options.store.untag_others(&options.tags, id)?)
}

/// Returns the registry images that the engine pulls during the build.
fn read_from(plan: &Plan, options: &Options<'_>, layers: Option<&Layers>) -> Vec<String> {
    let base = &plan.parts.base;
    let bases = [&base.runtime, &base.devel].into_iter().flatten();
    let bases = bases.map(|image| options.config.image(&image.reference));
    let bases = bases.filter(|_| !plan.parts.bootstrap);
    bases.chain(layers.and_then(Layers::read)).collect()
}

/// Returns the image of an earlier build of the same plan, after tagging it as requested.
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
        .filter(|i| i.labels.get(labels::KEY) == Some(&key))
        // Older releases did not label the image with the devices that it runs on.
        .filter(|i| i.labels.contains_key(labels::RULES));
    // The image may be in another engine.
    let Some(image) = image else {
        return Ok(None);
    };
    let (Ok(report), Ok(audit)) = (
        serde_json::from_value::<Report>(report),
        serde_json::from_value::<Count>(audit),
    ) else {
        return Ok(None);
    };
    if options.gpu && !report.has_gpu() {
        return Ok(None);
    }
    for tag in &options.tags {
        if !image.tags.contains(tag) {
            docker.tag(&image.id, tag).await?;
        }
    }
    docker.expect(&options.tags, &[&image.id]).await?;
    Ok(Some(Built {
        id: image.id,
        tags: options.tags.clone(),
        size: image.size,
        layers: Vec::new(),
        steps: plan
            .steps
            .iter()
            .map(|s| StepResult {
                id: s.id.to_string(),
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

/// The finished image and what was found in it.
struct Finished {
    id: String,
    size: ImageSize,
    report: Report,
    audit: Count,
}

/// Reads the report, audits the image, sets its labels and then its tags.
async fn finish(
    meant: &Meant<'_>,
    docker: &Docker,
    options: &Options<'_>,
    (temporary, log): (&str, &Path),
    wheels: &BTreeMap<String, PathBuf>,
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
    if let Some(difference) = installed::other_promise(meant.plan, &report) {
        return Err(BuildError::NotTheLocks {
            differences: vec![difference],
        });
    }
    if !report.ok {
        return Err(BuildError::Validation {
            report: Box::new(report),
            log: log.to_owned(),
        });
    }
    // Build steps have no GPU, so with `gpu` the validation runs again in a container.
    let report = match options.gpu {
        true => on_gpu(meant, docker, temporary, cancel).await?,
        false => report,
    };
    let mut audit = audit_image(docker, temporary, None, cancel, hear, |image| {
        meant.image(image)
    })
    .await?;
    audit.target.clone_from(&meant.plan.variant);
    let mut here = installed::wheels_here(meant.plan, options.store);
    here.extend(wheels.clone());
    installed::check(meant.plan, &report, &audit, &here)?;
    if !audit.ok {
        return Err(BuildError::Audit {
            what: "the image".to_owned(),
            audit: Box::new(audit),
        });
    }
    let mut labels = reach::labels(meant.plan, &audit, options.catalog);
    labels.insert(labels::AUDIT.into(), audit.count().to_string());
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

async fn on_gpu(
    meant: &Meant<'_>,
    docker: &Docker,
    image: &str,
    cancel: &Cancel,
) -> Result<Report, BuildError> {
    let spec = Some(meant.plan.parts.validation.clone());
    let mut say = |line: &str| tracing::info!("{line}");
    let report = validate_image(docker, image, spec, true, cancel, &mut say).await?;
    match report.ok {
        true => Ok(report),
        false => Err(BuildError::Invalid {
            report: Box::new(report),
        }),
    }
}

fn document(audit: &Audit) -> String {
    // Cannot fail: maps with string keys always serialize.
    serde_json::to_string(audit).unwrap_or_default() + "\n"
}
