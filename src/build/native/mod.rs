//! Builds a plan's image without a daemon: assembles its layers from the packages themselves, for any
//! platform.
//!
//! In: a [`Plan`] and the store. Out: [`Built`], whose blobs are in the store, and the outputs. A layer has
//! a key over everything that decides its bytes and is not made again if the store has it, so a rebuild
//! makes what changed and stacks share equal layers. Outputs are written only after the image was audited
//! and, if this machine can run it, validated.

mod base;
mod clone;
mod compile;
mod docker;
mod environment;
mod layers;
mod outputs;
mod push;
mod report;
mod toolchain;
mod trees;
mod wheels;

use super::audit::Meant;
use super::shared::Shared;
use super::{
    AUDIT_PATH, BuildError, BuildEvent, Built, Options, StepResult, document, installed, last,
    reach,
};
use crate::audit::{AtRest, Count, Target};
use crate::labels;
use crate::plan::{Plan, StepId};
use crate::prune;
use crate::render::labels;
use crate::validate::{Report, SPEC_PATH};
use compile::Needs;
pub(super) use compile::source as sdist;
use layers::{Maker, Member};
use stackforge_engine::ImageSize;
use stackforge_image::Layer;
use stackforge_image::assemble::{Assembled, Draft};
use stackforge_image::oci::parse;
use stackforge_image::pack::Compression;
use stackforge_image::store::Action;
use stackforge_types::{Cancel, Digest};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use tokio::task::block_in_place;
pub(super) use wheels::files as locked;

/// Increased when the same inputs make other layers.
const FORMAT: u32 = 2;

/// Options of the native engine beyond [`Options`].
pub struct Native {
    pub compression: Compression,
    /// Latest time of the image's files and documents, in seconds since 1970.
    pub epoch: u32,
}

/// 2024-01-01. Times in images are no later than this, unless SOURCE_DATE_EPOCH is set.
pub const EPOCH: u32 = 1_704_067_200;

/// Assembles the plan's image, or returns an existing one, and writes it to its outputs.
pub async fn assemble(
    plan: &Plan,
    native: &Native,
    options: &Options<'_>,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Built, BuildError> {
    let key = key(plan, native);
    if !options.no_cache
        && let Some(built) = existing(plan, &key, options)
    {
        name(&built.0.digest, options)?;
        outputs::write(&built.0, plan, options, cancel, on).await?;
        return Ok(built.1);
    }
    let meant = Meant::of(plan, options.catalog);
    let shared = Shared::of(plan, options);
    if let Some(shared) = shared.as_ref().filter(|_| !options.no_cache) {
        shared.fetch(&meant).await;
    }
    let missing = match options.no_cache {
        true => plan.parts.compiles.iter().collect(),
        false => compile::missing(plan, options),
    };
    let sources = base::fetch(plan, !missing.is_empty(), options, on).await?;
    let mut wheels = wheels::fetch(plan, options, on).await?;
    let tools = match missing.is_empty() {
        true => Vec::new(),
        false => wheels::wheels(&plan.parts.tools, "installers", options, on).await?,
    };
    let new: BTreeSet<String> = missing.iter().map(|c| c.library.clone()).collect();
    let mut needs = Vec::new();
    for compile in missing {
        let what = format!("what {} is compiled with", compile.library);
        let source: Vec<_> = compile::source(compile).into_iter().collect();
        needs.push(Needs {
            library: compile.library.clone(),
            requires: wheels::wheels(&compile.requires, &what, options, on).await?,
            source: wheels::files(&source, &what, options, on).await?.pop(),
        });
    }
    let mut maker = Maker::new(plan, native, options, cancel, on)?;
    let base = maker.base(&sources).await?;
    let devel = match needs.is_empty() {
        true => None,
        false => maker.devel().await?,
    };
    maker
        .compile((&base, devel.as_ref()), &sources, &tools, &wheels, &needs)
        .await?;
    if let Some(shared) = &shared {
        shared.push(&new).await;
    }
    for compile in &plan.parts.compiles {
        let (library, version) = (&compile.library, &compile.version);
        wheels.push(wheels::compiled(plan, library, version, options)?);
    }
    let mut layers = base.layers.clone();
    let from_base = layers.len();
    layers.extend(block_in_place(|| maker.packages(&base, &sources))?);
    layers.push(block_in_place(|| maker.environment())?);
    layers.extend(block_in_place(|| maker.wheels(&wheels))?);

    let draft = |layers: Vec<Layer>, labels| Draft {
        platform: plan.platform,
        epoch: native.epoch,
        base: base.config.clone(),
        layers,
        from_base,
        env: environment::variables(),
        cmd: vec!["python".to_owned()],
        labels,
    };
    let content = draft(layers.clone(), labels(plan)).assemble()?;
    maker.keep(&content)?;
    let start = Instant::now();
    let report = maker.validate(&content).await?;
    maker.step("validate", false, start);
    let start = Instant::now();
    (maker.on)(BuildEvent::Phase { name: "audit" });
    let at_rest = AtRest::new(&plan.variant, maker.at_rest(&content)?);
    let mut audit = block_in_place(|| meant.image(Target::Image(&at_rest)))?;
    audit.target.clone_from(&plan.variant);
    // No wheels to compare with: layers are made from locked wheels by digest, and pruning changes files.
    installed::check(plan, &report, &audit, &BTreeMap::new())?;
    if !audit.ok {
        return Err(BuildError::Audit {
            what: "the image".to_owned(),
            audit: Box::new(audit),
        });
    }
    maker.step("audit", false, start);

    let start = Instant::now();
    // The report names this machine and this time; inside the image it would change the digest of every
    // build.
    let evidence = [
        Member::file(SPEC_PATH, plan.promise()),
        Member::file(AUDIT_PATH, document(&audit)),
    ];
    layers.push(maker.files("evidence", "what was found of the image", &evidence)?);
    let mut labels = labels(plan);
    labels.extend(reach::labels(plan, &audit, options.catalog));
    labels.insert(labels::AUDIT.into(), audit.count().to_string());
    let image = draft(layers, labels).assemble()?;
    maker.keep(&image)?;
    maker.step("image", false, start);

    let steps = std::mem::take(&mut maker.steps);
    options.store.record(
        &key,
        &Action {
            step: "image".to_owned(),
            outputs: image.blobs(),
            image: Some(image.digest.to_string()),
            seconds: 0.0,
            report: serde_json::to_value(&report).ok(),
            audit: serde_json::to_value(audit.count()).ok(),
            made: serde_json::to_value(&image.layers).ok(),
        },
    )?;
    let known = Action {
        step: "report".to_owned(),
        outputs: [("manifest".to_owned(), image.digest.clone())].into(),
        report: serde_json::to_value(&report).ok(),
        ..Action::default()
    };
    options.store.record(&image.digest, &known)?;
    // Record steps without an action, so that `plan` shows them as cached.
    for step in plan.steps.iter().filter(|s| !options.store.has(&s.key)) {
        let done = Action {
            step: step.id.to_string(),
            ..Action::default()
        };
        options.store.record(&step.key, &done)?;
    }
    name(&image.digest, options)?;
    last::record(options.store, plan)?;
    outputs::write(&image, plan, options, cancel, on).await?;
    Ok(Built {
        id: image.digest.to_string(),
        tags: options.tags.clone(),
        size: size(&image.layers),
        layers: image.layers,
        steps,
        report,
        audit: audit.count(),
        noop: false,
        log: None,
    })
}

/// Returns the size of an image of these layers. A pulled base's unpacked size may be unknown.
fn size(layers: &[Layer]) -> ImageSize {
    let measured = layers.iter().all(|l| l.plain_size > 0);
    ImageSize {
        packed: Some(layers.iter().map(|l| l.size).sum()),
        unpacked: measured.then(|| layers.iter().map(|l| l.plain_size).sum()),
    }
}

/// Tags the image in the store.
fn name(image: &Digest, options: &Options<'_>) -> Result<(), BuildError> {
    let named = |tag: &String| (tag.clone(), image.clone());
    let names: Vec<(String, Digest)> = options.tags.iter().map(named).collect();
    Ok(options.store.tag_all(&names)?)
}

/// Returns the key of an image: of its plan and of the native engine's options.
fn key(plan: &Plan, native: &Native) -> Digest {
    let canonical = serde_json::json!({
        "format": FORMAT,
        "plan": plan.key(),
        "compression": format!("{:?}", native.compression),
        "epoch": native.epoch,
        "prune": plan.parts.prune.then_some(prune::FORMAT),
    });
    Digest::of(canonical.to_string().as_bytes())
}

/// Returns the image of an earlier run, if the store has all of its blobs.
fn existing(plan: &Plan, key: &Digest, options: &Options<'_>) -> Option<(Assembled, Built)> {
    let action = options.store.action(key)?;
    let layers: Vec<Layer> = serde_json::from_value(action.made?).ok()?;
    let report: Report = serde_json::from_value(action.report?).ok()?;
    if options.gpu && !report.has_gpu() {
        return None;
    }
    let audit: Count = serde_json::from_value(action.audit?).ok()?;
    let digest: Digest = action.image?.parse().ok()?;
    // One lease for all is one write to the store.
    if let Err(e) = options.store.lease(layers.iter().map(|l| &l.digest)) {
        tracing::debug!("{e}");
    }
    let there = |layer: &Layer| options.store.blob(&layer.digest).is_some();
    if !layers.iter().all(there) {
        return None;
    }
    let read = |digest: &Digest| {
        let bytes = std::fs::read(options.store.blob_path(digest)).ok()?;
        (Digest::of(&bytes) == *digest).then_some(bytes)
    };
    let manifest = read(&digest)?;
    let parsed = parse::manifest("the manifest", &manifest).ok()?;
    let config_digest = parse::digest(parsed.config()).ok()?;
    let config = read(&config_digest)?;
    let step = |id: &StepId| StepResult {
        id: id.to_string(),
        cached: true,
        seconds: 0.0,
    };
    let built = Built {
        id: digest.to_string(),
        tags: options.tags.clone(),
        size: size(&layers),
        layers: layers.clone(),
        steps: plan.steps.iter().map(|s| step(&s.id)).collect(),
        report,
        audit,
        noop: true,
        log: None,
    };
    let image = Assembled {
        platform: plan.platform,
        manifest,
        config,
        digest,
        config_digest,
        layers,
    };
    Some((image, built))
}
