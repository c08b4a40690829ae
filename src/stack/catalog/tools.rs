//! Programs that stackforge runs itself or puts into builder stages: `catalog/tools.yaml`.

use serde::{Deserialize, Serialize};
use stackforge_types::Digest;
use stackforge_types::wheel::{WheelTarget, best};

/// One release of a program, by the digests of its wheels.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    pub name: String,
    pub version: String,
    pub files: Vec<ToolFile>,
    pub source: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ToolFile {
    pub file: String,
    #[serde(with = "stackforge_types::digest::hex")]
    pub sha256: Digest,
    /// Bytes.
    pub size: u64,
}

impl Tool {
    /// Returns the wheel that fits a target best.
    pub fn wheel(&self, target: &WheelTarget) -> Option<&ToolFile> {
        let named = self.files.iter();
        let named: Vec<_> = named
            .filter_map(|f| Some((f.file.parse().ok()?, f)))
            .collect();
        best(named.iter().map(|(name, file)| (name, *file)), target)
    }
}
