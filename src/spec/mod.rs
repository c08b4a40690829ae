//! The stack file: YAML text in, a checked [`Stack`] or diagnostics out.
//!
//! [`raw`] is the shape of the file (and the source of its JSON Schema), [`read`] turns
//! text into it and checks every value at once, [`nouns`] are the types that cannot be
//! wrong. Nothing here touches the network or knows which GPUs and bases exist: names are
//! looked up by the catalog.

mod fault;
pub mod nouns;
pub mod raw;
mod read;
mod reference;

use crate::diag::{Source, Span};
use pep440_rs::VersionSpecifiers;
use serde::Serialize;
use std::collections::BTreeMap;

pub use nouns::{LibraryName, Platform, PythonVersion, Sm, StackName};
pub use raw::{AttentionShape, From, Matrix, Publish};
pub use read::read;
pub(crate) use reference::image_reference;

/// A value and where it stands in the stack file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub value: T,
    pub span: Span,
}

impl<T: Serialize> Serialize for At<T> {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(s)
    }
}

/// A stack as its file says it, every value parsed.
#[derive(Debug, Clone, Serialize)]
pub struct Stack {
    pub stack: At<StackName>,
    pub about: Option<String>,
    pub base: At<String>,
    pub platform: At<Platform>,
    /// Names from the catalog, or `sm_90`.
    pub gpus: Vec<At<String>>,
    pub python: At<PythonVersion>,
    pub libraries: Vec<Library>,
    /// OS packages of the final image.
    pub packages: Vec<At<String>>,
    /// Requirements that win over what packages ask for.
    pub overrides: Vec<At<String>>,
    /// Package indexes, first one first; empty: the user's own configuration.
    pub indexes: Vec<At<String>>,
    /// Whether the image must be able to compile kernels at run time.
    pub jit: bool,
    pub attention: Option<AttentionShape>,
    pub matrix: Matrix,
    pub publish: Option<Publish>,
    #[serde(skip)]
    pub source: Source,
}

/// One entry of `libraries`.
#[derive(Debug, Clone, Serialize)]
pub struct Library {
    pub name: At<LibraryName>,
    pub version: Wanted,
    #[serde(skip)]
    pub version_span: Span,
    pub from: From,
    pub extras: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub jobs: Option<u32>,
    pub patches: Vec<String>,
    pub git: Option<String>,
    #[serde(rename = "ref")]
    pub git_ref: Option<String>,
    pub index: Option<String>,
}

/// The version that a library entry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Whatever the rest of the stack pins; the newest when nothing does.
    Auto,
    Specifier(VersionSpecifiers),
}

impl Serialize for Wanted {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Wanted::Auto => s.serialize_str("auto"),
            Wanted::Specifier(v) => s.collect_str(v),
        }
    }
}

impl Stack {
    pub fn library(&self, name: &str) -> Option<&Library> {
        self.libraries
            .iter()
            .find(|l| l.name.value.as_str() == name)
    }

    /// File name of the stack without its extension's directory, for messages.
    pub fn file(&self) -> &str {
        &self.source.name
    }
}

/// JSON Schema of the stack file, for editors.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(raw::RawStack);
    schema.insert(
        "title".into(),
        serde_json::Value::String("stackforge stack".into()),
    );
    schema.to_value()
}
