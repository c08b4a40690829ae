//! When a part of a recipe holds: by versions, platform, SMs, and whether the library is compiled.

use pep440_rs::{Version, VersionSpecifiers};
use serde::{Deserialize, Serialize};
use stackforge_types::Sm;

/// All that are given must hold.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    #[serde(default)]
    pub torch: Option<VersionSpecifiers>,
    #[serde(default)]
    pub cuda: Option<VersionSpecifiers>,
    #[serde(default)]
    pub version: Option<VersionSpecifiers>,
    #[serde(default)]
    pub python: Option<VersionSpecifiers>,
    #[serde(default)]
    pub platform: Option<String>,
    /// Holds if the library is installed in this way.
    #[serde(default)]
    pub from: Option<DistributionKind>,
    /// Holds when any target SM is in the list.
    #[serde(default)]
    pub sm: Vec<Sm>,
}

/// Whether a library is installed from a published wheel or compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DistributionKind {
    Wheel,
    Source,
}

/// The facts about one build that decide conditions. A condition on an unknown fact does not hold.
#[derive(Debug, Clone, Default)]
pub struct Facts<'a> {
    pub torch: Option<&'a Version>,
    pub cuda: Option<&'a Version>,
    pub version: Option<&'a Version>,
    pub python: Option<&'a Version>,
    pub platform: Option<&'a str>,
    pub from: Option<DistributionKind>,
    pub sms: &'a [Sm],
}

impl Conditions {
    pub fn hold(&self, facts: &Facts<'_>) -> bool {
        let version = |wanted: &Option<VersionSpecifiers>, known: Option<&Version>| match wanted {
            None => true,
            Some(w) => known.is_some_and(|v| w.contains(v)),
        };
        version(&self.torch, facts.torch)
            && version(&self.cuda, facts.cuda)
            && version(&self.version, facts.version)
            && version(&self.python, facts.python)
            && self
                .platform
                .as_deref()
                .is_none_or(|p| facts.platform == Some(p))
            && self.from.is_none_or(|f| facts.from == Some(f))
            && (self.sm.is_empty() || facts.sms.iter().any(|sm| self.sm.contains(&sm.base())))
    }
}
