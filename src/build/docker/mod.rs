//! Builds a plan's image in a Docker engine: one rendered Dockerfile, whose stages are the plan's steps.
//!
//! Base, OS packages and sources are fetched and become the context; each round of compiles is a build whose
//! wheels are audited and kept; then the rest is built under a temporary name. Steps that finished before a
//! failure are remembered by the engine and the store, so the next run continues there.

mod image_push;
mod layers;
mod left;
mod project;
pub(super) mod run;
mod service;
mod stages;

use super::audit::{AUDIT_PATH, AuditSpec, audit_image};
use super::context::{by_dockerfile, compiled, entries, fetch_sources, rendered};
use super::finish::{Candidate, Checked, Sealed, document, finish};
use super::shared::Shared;
use super::{
    BuildError, BuildEvent, Built, Options, StepResult, ValidationRequest, base, existing,
    installed, secrets, validate_image,
};
use crate::render::BaseImage;
use crate::validate::{REPORT_PATH, Report};
pub use image_push::push_image;
use layers::Layers;
pub use left::noted;
use run::Run;
use stackforge_audit::Audit;
use stackforge_engine::docker::Docker;
use stackforge_engine::{BuildRequest, ContextEntry, Source, StepSummary};
use stackforge_plan::Plan;
use stackforge_stack::labels;
use stackforge_types::Cancel;
pub use stages::{plan_step, stage};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

/// Longest validation report, in bytes.
const MAX_REPORT: usize = 4 << 20;

/// Builds the plan's image, or returns an existing one.
pub async fn build(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Built, BuildError> {
    if !options.no_cache
        && let Some(built) = existing_image(plan, docker, options).await?
    {
        renamed(options, &built.id)?;
        image_push::push(docker, &built.id, plan, options, cancel).await?;
        return Ok(built);
    }
    if plan.service().is_some() {
        return service::serve(plan, docker, options, cancel, on).await;
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
    let audit_spec = AuditSpec::of(plan, options.catalog);
    let shared = Shared::of(plan, options);
    if let Some(shared) = shared.as_ref().filter(|_| !options.no_cache) {
        shared.fetch(&audit_spec).await;
    }
    let before = if options.no_cache {
        BTreeMap::new()
    } else {
        compiled(plan, options.store)
    };
    fetch_sources(plan, &before, options, on).await?;
    let context = rendered(plan, options, base.clone(), &before)?;
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
    let mut engine = run.compile(&audit_spec, &mut request).await?;
    if let Some(shared) = &shared {
        let new = plan.compiles().map(|c| c.library.clone());
        shared
            .push(&new.filter(|l| !before.contains_key(l)).collect())
            .await;
    }
    (run.on)(BuildEvent::Phase { name: "build" });
    // Use exactly the wheels that were audited, whatever the engine's cache has.
    let wheels = compiled(plan, options.store);
    request.context = entries(rendered(plan, options, base, &wheels)?);
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
    let unnamed = UnnamedImage {
        plan,
        docker,
        options,
        cancel,
        temporary,
        log: log.clone(),
        before: before.into_keys().collect(),
        wheels,
        engine,
        layers,
        on: Mutex::new(run.on),
    };
    finish(plan, options, unnamed).await
}

/// The built image, under a temporary name.
struct UnnamedImage<'a> {
    plan: &'a Plan,
    docker: &'a Docker,
    options: &'a Options<'a>,
    cancel: &'a Cancel,
    temporary: String,
    log: PathBuf,
    /// Libraries whose wheel was compiled by an earlier build.
    before: Vec<String>,
    /// Every compiled wheel, by library.
    wheels: BTreeMap<String, PathBuf>,
    engine: Vec<StepSummary>,
    layers: Option<Layers>,
    on: Mutex<&'a mut (dyn FnMut(BuildEvent) + Send)>,
}

impl UnnamedImage<'_> {
    fn emit(&self, event: BuildEvent) {
        let mut on = self.on.lock().unwrap_or_else(|e| e.into_inner());
        on(event);
    }

    /// Returns the image with labels, and the audit as a file. It has the user's tags.
    async fn labelled(
        &self,
        audit: &Audit,
        labels: BTreeMap<String, String>,
    ) -> Result<Sealed, BuildError> {
        let file = |path: &str, text: String| ContextEntry {
            path: path.into(),
            mode: 0o644,
            source: Source::Bytes(text.into_bytes()),
        };
        let dockerfile = format!("FROM {}\nCOPY audit.json {AUDIT_PATH}\n", self.temporary);
        let request = BuildRequest {
            context: vec![
                file("Dockerfile", dockerfile),
                file("audit.json", document(audit)),
            ],
            dockerfile: "Dockerfile".into(),
            tags: self.options.tags.clone(),
            labels,
            ..BuildRequest::default()
        };
        let label_log = self.log.with_extension("labels.log");
        let mut quiet = |_| {};
        let build = (self.docker).build(request, Some(&label_log), self.cancel, &mut quiet);
        let outcome = build.await;
        let _ = std::fs::remove_file(&label_log);
        let id = outcome?.image_id;
        let image = self.docker.image(&id).await?;
        let image = image.ok_or_else(|| BuildError::NoReport {
            reason: format!("image {id} of plan {} is gone", self.plan.key().short()),
        })?;
        Ok(Sealed {
            id: image.id,
            size: image.size,
            layers: Vec::new(),
            outputs: BTreeMap::new(),
        })
    }
}

impl UnnamedImage<'_> {
    /// The programs ran as a step of the build. Steps have no GPU, so with `gpu` they run again in a container.
    async fn validate(&self) -> Result<Report, BuildError> {
        let report = read_report(self.docker, &self.temporary).await?;
        if let Some(difference) = installed::other_promise(self.plan, &report) {
            return Err(BuildError::NotTheLocks {
                differences: vec![difference],
            });
        }
        if !report.ok {
            return Err(BuildError::Validation {
                report: Box::new(report),
                log: self.log.clone(),
            });
        }
        if self.options.gpu {
            return on_gpu(self.plan, self.docker, &self.temporary, self.cancel).await;
        }
        Ok(report)
    }

    async fn audit(&self, audit_spec: &AuditSpec<'_>) -> Result<Audit, BuildError> {
        self.emit(BuildEvent::Phase { name: "audit" });
        let progress = |done, total| {
            let what = "audit".to_owned();
            self.emit(BuildEvent::Download { what, done, total });
        };
        let (docker, cancel) = (self.docker, self.cancel);
        audit_image(docker, &self.temporary, None, cancel, &progress, |image| {
            audit_spec.image(image)
        })
        .await
    }
}

impl Candidate for UnnamedImage<'_> {
    async fn check(&mut self, audit_spec: &AuditSpec<'_>) -> Result<Checked, BuildError> {
        let report = self.validate().await?;
        let start = Instant::now();
        let audit = self.audit(audit_spec).await?;
        Ok(Checked {
            report,
            audit,
            audit_time: start.elapsed(),
        })
    }

    fn wheels(&self) -> Result<BTreeMap<String, PathBuf>, BuildError> {
        let mut here = installed::wheels_here(self.plan, self.options.store);
        here.extend(self.wheels.clone());
        Ok(here)
    }

    async fn seal(
        &mut self,
        audit: &Audit,
        labels: BTreeMap<String, String>,
    ) -> Result<Sealed, BuildError> {
        self.labelled(audit, labels).await
    }

    async fn close(&mut self, sealed: Option<&Sealed>) -> Result<(), BuildError> {
        let new = sealed.is_some() && !self.engine.iter().all(|s| s.cached);
        if let Some(layers) = self.layers.take().filter(|_| new) {
            self.emit(BuildEvent::Phase { name: "share" });
            layers.push(self.docker, &self.temporary, self.cancel).await;
        }
        Ok(self.docker.remove_temporary(&self.temporary, true).await?)
    }

    fn done(&mut self) -> Vec<StepResult> {
        let mut steps = stages::fold(self.plan, &self.engine);
        for done in &mut steps {
            // The stage only copied a wheel that was compiled before.
            let library = done.id.library();
            done.cached |= library.is_some_and(|l| self.before.iter().any(|b| b == l));
        }
        steps
    }

    async fn publish(&mut self, sealed: &Sealed, _: &Report) -> Result<(), BuildError> {
        renamed(self.options, &sealed.id)?;
        if !self.options.outputs.is_empty() {
            self.emit(BuildEvent::Phase { name: "output" });
        }
        let (plan, options) = (self.plan, self.options);
        image_push::push(self.docker, &sealed.id, plan, options, self.cancel).await
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }
}

/// Removes the image's tags from other images of the store, so that a push by tag sends the image that
/// was tagged last.
fn renamed(options: &Options<'_>, id: &str) -> Result<(), BuildError> {
    Ok(options.store.untag_others(&options.tags, id)?)
}

/// Returns the registry images that the engine pulls during the build.
fn read_from(plan: &Plan, options: &Options<'_>, layers: Option<&Layers>) -> Vec<String> {
    let base = plan.base();
    let bases = [&base.lock.runtime, &base.lock.devel].into_iter().flatten();
    let bases = bases.map(|image| options.config.image(&image.reference));
    let bases = bases.filter(|_| !base.bootstrap);
    bases.chain(layers.and_then(Layers::read)).collect()
}

/// Returns the image of an earlier build of the same plan, after tagging it as requested.
async fn existing_image(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
) -> Result<Option<Built>, BuildError> {
    let Some(known) = existing::lookup(plan, options) else {
        return Ok(None);
    };
    let key = plan.key().to_string();
    let image = docker
        .image(&known.id)
        .await?
        .filter(|i| i.labels.get(labels::KEY) == Some(&key))
        // Older releases did not label the image with the devices that it runs on.
        .filter(|i| i.labels.contains_key(labels::RULES));
    // The image may be in another engine.
    let Some(image) = image else {
        return Ok(None);
    };
    for tag in &options.tags {
        if !image.tags.contains(tag) {
            docker.tag(&image.id, tag).await?;
        }
    }
    docker.expect(&options.tags, &[&image.id]).await?;
    Ok(Some(known.built(plan, options, image.size, Vec::new())))
}

async fn read_report(docker: &Docker, image: &str) -> Result<Report, BuildError> {
    let bytes = docker.read_file(image, REPORT_PATH, MAX_REPORT).await?;
    let bytes = bytes.ok_or_else(|| BuildError::NoReport {
        reason: format!("{REPORT_PATH} is missing"),
    })?;
    Report::from_slice(&bytes).map_err(|e| BuildError::NoReport {
        reason: e.to_string(),
    })
}

async fn on_gpu(
    plan: &Plan,
    docker: &Docker,
    image: &str,
    cancel: &Cancel,
) -> Result<Report, BuildError> {
    let request = ValidationRequest {
        promised: Some(plan.validation().clone()),
        gpu: true,
        start: false,
    };
    let mut on_line = |line: &str| tracing::info!("{line}");
    let report = validate_image(docker, image, request, cancel, &mut on_line).await?;
    if report.ok {
        Ok(report)
    } else {
        Err(BuildError::Invalid {
            report: Box::new(report),
        })
    }
}
