//! What the rules judge, and the facts that follow from it without any package's version.

use super::local_label::Cuda;
use super::shared::Picks;
use crate::catalog::{Catalog, Glibc, Recipe};
use crate::diag::Span;
use crate::lock::PlatformLock;
use crate::spec::{Sm, Stack};
use crate::target::Target;
use stackforge_gpu::DriverVersion;
use stackforge_types::wheel::normalized;

/// The input of the rules.
pub struct Case<'a> {
    pub stack: &'a Stack,
    pub target: Target<'a>,
    pub catalog: &'a Catalog,
    /// If present, the exact files are judged, else the stack's requirements.
    pub lock: Option<&'a PlatformLock>,
    pub machine: Machine,
    /// Shared by the variants of one stack, so that equal questions are answered once.
    pub picks: Picks,
}

/// Known facts about the machines that build and run the image; empty by default.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// SM of the GPU that runs the image, instead of the stack's target.
    pub sm: Option<Sm>,
    /// Name of that GPU, as the user typed it, for messages.
    pub gpu: Option<String>,
    /// Driver of the machine that runs the image.
    pub driver: Option<DriverVersion>,
    /// Memory of the machine that builds the image, in GiB.
    pub memory_gb: Option<f64>,
}

impl Case<'_> {
    /// Returns the SMs that the image is judged for: those of devices that exist on its platform. Code may be
    /// compiled for others too.
    pub fn devices(&self) -> Vec<Sm> {
        let wanted = match self.machine.sm {
            Some(sm) => vec![sm],
            None => self.target.sms.clone(),
        };
        let mut devices: Vec<Sm> = wanted.into_iter().map(Sm::base).collect();
        devices.dedup();
        devices.retain(|sm| self.exists(*sm));
        devices
    }

    /// Whether a machine of the stack's platform may have a GPU with this SM.
    pub(super) fn exists(&self, sm: Sm) -> bool {
        let facts = self.catalog.sm_facts(sm);
        facts.is_none_or(|f| f.platforms.contains(&self.stack.platform.value))
    }

    /// Returns the stack's line that names its GPUs.
    pub(super) fn gpu_span(&self) -> Span {
        self.stack.gpus.first().map(|g| g.span).unwrap_or_default()
    }
}

/// Returns the distribution's name of a library of the stack.
pub(super) fn distribution(case: &Case<'_>, library: &str) -> String {
    normalized(
        case.target
            .recipes
            .get(library)
            .map_or(library, |r| &r.distribution),
    )
}

/// Returns the recipe of a distribution: the stack's own, else the catalog's.
pub(super) fn recipe_of<'a>(case: &Case<'a>, name: &str) -> Option<&'a Recipe> {
    case.target
        .recipes
        .values()
        .find(|r| r.distribution == name)
        .copied()
        .or_else(|| case.catalog.recipe(name))
}

/// Returns the glibc version of the base.
pub(super) fn glibc(case: &Case<'_>) -> Option<Glibc> {
    case.target.base.image()?.libc.parse().ok()
}

/// Returns the CUDA version of the base.
pub(super) fn base_cuda(case: &Case<'_>) -> Option<Cuda> {
    let text = case.target.base.image()?.cuda.as_deref()?;
    let mut parts = text.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next().and_then(Result::ok)))
}

/// Returns a name such as `sm_90`.
pub(super) fn name(sm: Sm) -> String {
    format!("sm_{}", sm.digits())
}

pub(super) fn names(sms: &[Sm]) -> String {
    sms.iter().map(|s| name(*s)).collect::<Vec<_>>().join(", ")
}
