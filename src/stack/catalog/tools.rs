//! Programs that stackforge runs itself or puts into builder stages: `catalog/tools.yaml`.

use serde::{Deserialize, Serialize};
use stackforge_types::Digest;

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
