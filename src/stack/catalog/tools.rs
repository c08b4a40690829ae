//! Programs that stackforge runs itself or puts into builder stages: `catalog/tools.yaml`.

use serde::{Deserialize, Serialize};

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
    /// 64 lower-case hex digits.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
}
