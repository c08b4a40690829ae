//! The packages that are, or will be, installed together in the image.

use super::case::{Case, base_cuda};
use super::local_label::{Cuda, Label};
use super::shared::Clash;
use crate::catalog::{DistributionKind, Facts, Recipe, Release, ReleaseWheel, WheelCuda};
use crate::diag::Span;
use pep440_rs::Version;
use stackforge_types::wheel::WheelName;
use std::collections::BTreeMap;
use std::str::FromStr;

#[derive(Debug, Clone)]
pub struct Package<'a> {
    /// Normalized distribution name.
    pub name: String,
    /// Version without its local label.
    pub version: Version,
    pub local: String,
    pub label: Label,
    pub kind: DistributionKind,
    pub release: Option<&'a Release>,
    /// The catalog's facts about the wheel that is, or would be, installed.
    pub wheel: Option<&'a ReleaseWheel>,
    /// Whether it comes, or may come, from an index of the stack: then the catalog's facts about wheels do not
    /// apply.
    pub foreign: bool,
    /// The exact file from the lock.
    pub file: Option<WheelName>,
    /// The stack's line that causes it to be installed.
    pub span: Span,
}

/// A library that is compiled.
#[derive(Debug, Clone)]
pub struct Build<'a> {
    pub recipe: &'a Recipe,
    /// `None` if neither the stack nor the catalog has it.
    pub version: Option<Version>,
    pub span: Span,
}

#[derive(Debug, Default)]
pub struct Environment<'a> {
    pub packages: BTreeMap<String, Package<'a>>,
    pub builds: Vec<Build<'a>>,
    /// Libraries that have no compatible releases.
    pub clash: Option<Clash>,
}

impl<'a> Environment<'a> {
    pub fn get(&self, name: &str) -> Option<&Package<'a>> {
        self.packages.get(name)
    }

    pub fn version(&self, name: &str) -> Option<&Version> {
        self.get(name).map(|p| &p.version)
    }

    /// Returns the CUDA version that the image's libraries use: torch's, else the base's.
    pub fn cuda(&self, case: &Case<'_>) -> Option<Cuda> {
        let torch = self
            .get("torch")
            .filter(|t| t.kind == DistributionKind::Wheel);
        torch.and_then(Package::cuda).or_else(|| base_cuda(case))
    }

    /// Returns the CUDA version, with zero for an unknown minor version.
    pub fn cuda_floor(&self, case: &Case<'_>) -> (u32, u32) {
        self.cuda(case)
            .map_or((0, 0), |(major, minor)| (major, minor.unwrap_or(0)))
    }

    /// Calls `ask` with the facts that a recipe's conditions depend on.
    pub fn with_facts<T>(
        &self,
        case: &Case<'_>,
        version: Option<&Version>,
        kind: DistributionKind,
        ask: impl FnOnce(&Facts<'_>) -> T,
    ) -> T {
        // Compiled libraries use the base's toolkit if it has one.
        let toolkit = base_cuda(case).filter(|_| kind == DistributionKind::Source);
        let cuda = toolkit
            .or_else(|| self.cuda(case))
            .and_then(|(major, minor)| {
                Version::from_str(&format!("{major}.{}", minor.unwrap_or(0))).ok()
            });
        let python = Version::from_str(&case.stack.python.value.to_string()).ok();
        let platform = case.stack.platform.value.to_string();
        // Libraries are compiled for the target's SMs, whatever machine runs them.
        let sms = match kind {
            DistributionKind::Source => case.target.sms.clone(),
            DistributionKind::Wheel => case.devices(),
        };
        ask(&Facts {
            torch: self.version("torch"),
            cuda: cuda.as_ref(),
            version,
            python: python.as_ref(),
            platform: Some(&platform),
            from: Some(kind),
            sms: &sms,
        })
    }
}

impl Build<'_> {
    /// For people: `flash-attn 2.8.3`.
    pub fn shown(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.recipe.library),
            None => self.recipe.library.clone(),
        }
    }
}

impl Package<'_> {
    /// Returns the CUDA that it was built with, from its label, else from the catalog's facts.
    pub fn cuda(&self) -> Option<Cuda> {
        let of_wheel = || match self.wheel?.cuda {
            WheelCuda::Version { major, minor } => Some((major, minor)),
            WheelCuda::Cpu | WheelCuda::Unknown => None,
        };
        self.label.cuda.or_else(of_wheel)
    }

    pub fn is_cpu_only(&self) -> bool {
        self.kind == DistributionKind::Wheel
            && (self.label.cpu || self.wheel.is_some_and(|w| w.cuda == WheelCuda::Cpu))
    }

    /// For people: `torch 2.13.0+cu126`.
    pub fn shown(&self) -> String {
        match self.local.as_str() {
            "" => format!("{} {}", self.name, self.version),
            local => format!("{} {}+{local}", self.name, self.version),
        }
    }
}
