//! Does a plan's steps without a daemon: assembles the image's layers from the packages themselves, for any
//! platform.
//!
//! In: a [`Plan`] and the store. Out: [`Built`], whose blobs are in the store, and the outputs. Everything that
//! steps read is fetched first; then the steps are done in the plan's order, each only if the store does not have
//! what it makes, so a rebuild makes what changed and stacks share equal layers. Outputs are written only after
//! the image was audited and, if this machine can run it, validated.

mod ahead;
mod base;
mod bytecode;
mod clone;
mod compile;
mod docker;
mod emulator;
pub(super) mod environment;
mod image;
mod inputs;
mod layers;
mod outputs;
mod project;
mod push;
mod report;
mod scripts;
mod service;
mod toolchain;
mod trees;
mod wheels;

use super::finish::finish;
use super::shared::Shared;
use super::{BuildError, BuildEvent, Built, Options, existing, recorded};
use base::Base;
pub(super) use compile::source as sdist;
use emulator::Runner;
use image::UnnamedImage;
use inputs::{Inputs, Needs};
use layers::NativeBuilder;
use stackforge_audit::prune;
use stackforge_binary::pyc;
use stackforge_engine::ImageSize;
use stackforge_image::Layer;
use stackforge_image::pack::Compression;
use stackforge_image::store::Store;
use stackforge_image::unpack;
use stackforge_plan::{Compile, Native, Op, Plan, Step};
use stackforge_stack::lock::PythonFile;
use stackforge_types::{Cancel, Digest};
use std::collections::BTreeSet;
use tokio::task::block_in_place;
use toolchain::Toolchain;
pub(super) use wheels::files as locked;

/// 2024-01-01. Times in images are no later than this, unless SOURCE_DATE_EPOCH is set.
pub const EPOCH: u32 = 1_704_067_200;

/// Returns what native layers depend on besides the stack: how layers that are not made of wheels are
/// compressed, and the latest time in the image, in seconds since 1970.
pub fn native(compression: Compression, epoch: u32) -> Native {
    Native {
        compression,
        epoch,
        pruner: prune::FORMAT,
        bytecode: pyc::FORMAT,
    }
}

/// Returns the size of a locked wheel in bytes: the lock's, else that of the store's copy.
pub fn size_of(store: &Store, file: &PythonFile) -> Option<u64> {
    if file.size > 0 {
        return Some(file.size);
    }
    let found = std::fs::metadata(store.blob_path(&file.sha256)).ok()?;
    Some(found.len())
}

/// Turns a plan into the native engine's, with the sizes of wheels that the lock or the store knows.
pub fn planned(plan: &Plan, native: &Native, store: &Store) -> Plan {
    let runs = Runner::of(plan.platform).is_some();
    plan.native(native, runs, &|file| size_of(store, file))
}

/// Assembles a plan's image, or returns an existing one, and writes it to its outputs.
pub async fn assemble(
    plan: &Plan,
    native: &Native,
    options: &Options<'_>,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Built, BuildError> {
    let mut own = planned(plan, native, options.store);
    if !options.no_cache
        && existing::lookup(&own, options).is_some()
        && let Some((image, known)) = existing::recorded(options.store, &own)
        && !recorded::is_due(&known.report, &own)
    {
        name(&image.digest, options)?;
        outputs::write(&image, &own, options, cancel, on).await?;
        let size = size(&image.layers);
        return Ok(known.built(&own, options, size, image.layers));
    }
    if own.service().is_some() {
        return service::serve(plan, &own, native, options, cancel, on).await;
    }
    if plan
        .wheels()
        .any(|file| size_of(options.store, file).is_none())
    {
        // Not every index states sizes, and a large wheel gets a layer of its own.
        let locked: Vec<PythonFile> = plan.wheels().cloned().collect();
        wheels::files(&locked, "wheels", options, on).await?;
        own = planned(plan, native, options.store);
    }
    let plan = &own;
    laid_over(plan, options)?;
    let shared = Shared::of(plan, options);
    if let Some(shared) = shared.as_ref().filter(|_| !options.no_cache) {
        let audit_spec = super::audit::AuditSpec::of(plan, options.catalog);
        shared.fetch(&audit_spec).await;
    }
    let inputs = Inputs::fetch(plan, options, on).await?;
    let mut builder = NativeBuilder::new(plan, native, options, cancel, on);
    let (base, layers) = walk(&mut builder, &inputs, shared.as_ref()).await?;
    finish(plan, options, UnnamedImage::new(builder, base, layers)).await
}

/// Fails before anything is fetched if OS packages have to be laid over a base, whose files are unpacked for that, on a
/// system that unpacks nothing.
fn laid_over(plan: &Plan, options: &Options<'_>) -> Result<(), BuildError> {
    let Err(refusal) = unpack::supported() else {
        return Ok(());
    };
    let is_left = |step: &Step| {
        let made = || recorded::layers(options.store, plan, step).filter(|_| !options.no_cache);
        matches!(step.op, Op::Packages(_)) && made().is_none()
    };
    if plan.steps.iter().any(is_left) {
        return Err(BuildError::Unpack(refusal));
    }
    Ok(())
}

/// Compiles a library and pushes its wheel and objects, unless another process compiles it with the same key.
async fn compile_alone(
    builder: &mut NativeBuilder<'_, '_>,
    (step, compile): (&Step, &Compile),
    need: &Needs,
    toolchain: Option<&Toolchain>,
    inputs: &Inputs,
    shared: Option<&Shared<'_>>,
) -> Result<(), BuildError> {
    let Some(alone) = builder.alone(step).await? else {
        builder.found(step);
        return Ok(());
    };
    let objects = shared.filter(|_| inputs.compile_cache.is_some());
    if let Some(shared) = objects {
        shared.fetch_objects(&compile.library).await;
    }
    builder
        .compile(step, compile, need, toolchain, inputs)
        .await?;
    // Whoever waits can go on: the wheel is recorded.
    drop(alone);
    if let Some(shared) = shared {
        shared
            .push(&BTreeSet::from([compile.library.clone()]))
            .await;
    }
    if let Some(shared) = objects {
        shared.push_objects(&compile.library).await;
    }
    Ok(())
}

/// Does the plan's steps up to the validation. Returns the base, and all layers of the image, lowest first.
async fn walk(
    builder: &mut NativeBuilder<'_, '_>,
    inputs: &Inputs,
    shared: Option<&Shared<'_>>,
) -> Result<(Base, Vec<Layer>), BuildError> {
    let (mut base, mut toolchain, mut disjoint) = (Base::default(), None, false);
    let mut layers = Vec::new();
    // The layers of the base and of OS packages: they have the interpreter.
    let mut system = 0;
    for step in &builder.plan.steps {
        match &step.op {
            Op::Base(what) => {
                base = builder.base(step, what, inputs).await?;
                layers.extend(base.layers.clone());
                system = layers.len();
            }
            Op::Tools(tools) => toolchain = builder.tools(step, tools, &base, inputs).await?,
            Op::Compile(compile) => match inputs.compile(&compile.library) {
                Some(need) => {
                    let toolchain = toolchain.as_ref();
                    compile_alone(builder, (step, compile), need, toolchain, inputs, shared)
                        .await?;
                }
                None => builder.found(step),
            },
            Op::Packages(packages) => {
                layers.push(block_in_place(|| {
                    builder.packages(step, &base, packages, inputs)
                })?);
                system = layers.len();
            }
            Op::Environment(environment) => {
                layers.push(block_in_place(|| builder.environment(step, environment))?);
            }
            Op::Layer(layer) => {
                if !disjoint {
                    block_in_place(|| builder.disjoint(inputs))?;
                    disjoint = true;
                }
                layers.push(block_in_place(|| builder.wheels(step, layer, inputs))?);
            }
            Op::Bytecode(bytecode) => layers.extend(block_in_place(|| {
                builder.bytecode(step, bytecode, &layers[..system], inputs)
            })?),
            // The common end of every build does these.
            Op::Validate(_) | Op::Image(_) => {}
            // They are done over the image that this walk makes.
            Op::Project(_) | Op::App(_) | Op::Service(_) => {}
            // A Docker engine's own steps are in none of its plans.
            Op::Wheels(_) | Op::Runtime(_) => {}
        }
    }
    Ok((base, layers))
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
