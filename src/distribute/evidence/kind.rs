//! The kinds of evidence, and their names in a registry.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvidenceKind {
    Spdx,
    CycloneDx,
    Provenance,
    Audit,
    Validation,
}

impl EvidenceKind {
    pub const ALL: [Self; 5] = [
        Self::Spdx,
        Self::CycloneDx,
        Self::Provenance,
        Self::Audit,
        Self::Validation,
    ];

    /// Returns the media type of the artifact and of its only layer.
    pub fn artifact_type(self) -> &'static str {
        match self {
            Self::Spdx => "application/spdx+json",
            Self::CycloneDx => "application/vnd.cyclonedx+json",
            Self::Provenance => "application/vnd.in-toto+json",
            Self::Audit => "application/vnd.stackforge.audit.v1+json",
            Self::Validation => "application/vnd.stackforge.validation.v1+json",
        }
    }

    /// Returns the ending of a file's name.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Spdx => "spdx.json",
            Self::CycloneDx => "cdx.json",
            Self::Provenance => "intoto.json",
            Self::Audit => "audit.json",
            Self::Validation => "validation.json",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Spdx => "spdx",
            Self::CycloneDx => "cyclonedx",
            Self::Provenance => "provenance",
            Self::Audit => "audit",
            Self::Validation => "validation",
        }
    }

    /// Describes the kind for people.
    pub fn about(self) -> &'static str {
        match self {
            Self::Spdx => "SBOM, SPDX 2.3",
            Self::CycloneDx => "SBOM, CycloneDX 1.6",
            Self::Provenance => "provenance, SLSA v1",
            Self::Audit => "audit report",
            Self::Validation => "validation report",
        }
    }

    pub fn of_artifact_type(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.artifact_type() == text)
    }
}

impl fmt::Display for EvidenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EvidenceKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|k| k.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("evidence is one of {names}")
        })
    }
}

impl Serialize for EvidenceKind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
