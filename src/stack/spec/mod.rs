//! The stack file: YAML text in, a checked [`StackFile`] or diagnostics out.
//!
//! [`raw`] is the shape of the file (and the source of its JSON Schema), [`read`] turns
//! text into it and checks every value at once, [`stackforge_types`] has the types that cannot be
//! wrong. Nothing here touches the network or knows which GPUs and bases exist: names are
//! looked up by the catalog.

mod axis;
pub mod constraints;
mod direct;
pub(crate) mod fault;
mod index;
pub mod raw;
pub(crate) mod read;
mod requirement;
pub mod service;

use crate::diag::{Source, Span};
pub use crate::span::At;
use pep440_rs::VersionSpecifiers;
use serde::Serialize;
use stackforge_catalog::OptionValue;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use axis::fill;
pub use axis::{CudaVersion, Matrix};
pub use direct::{DirectFile, DirectFileError, FileKind, Place};
pub use index::is_index;
pub use raw::{AttentionShape, From, Publish, SharedCache};
pub use read::read;
pub use requirement::requirement;
pub use service::{App, AppChecks, ImageConfig, SmokeTest};
pub use stackforge_types::{IsaName, LibraryName, Platform, PythonVersion, Sm, StackName};

/// What a stack file says: a stack, or the pattern of a matrix's variants.
#[derive(Debug, Clone, Serialize)]
pub struct StackFile {
    /// The stack if there is no matrix. Otherwise a pattern, which is never built: its base has placeholders,
    /// its platform and Python are the first of their axes, its GPUs may be missing.
    #[serde(flatten)]
    pub pattern: Stack,
    /// The axes; the `matrix` module makes a stack of each combination.
    pub matrix: Matrix,
}

/// A stack with every value parsed: the whole of a file without a matrix, or one variant.
#[derive(Debug, Clone, Serialize)]
pub struct Stack {
    pub stack: At<StackName>,
    /// Name of the variant that this stack is; None for a stack without a matrix.
    pub variant: Option<String>,
    pub about: Option<String>,
    pub base: At<String>,
    pub platform: At<Platform>,
    /// Names from the catalog, or `sm_90`.
    pub gpus: Vec<At<String>>,
    pub python: At<PythonVersion>,
    /// Instruction set that compiled libraries are tuned for.
    pub isa: Option<At<IsaName>>,
    pub libraries: Vec<Library>,
    /// OS packages of the final image.
    pub packages: Vec<At<String>>,
    /// Requirements that win over what packages ask for.
    pub overrides: Vec<At<String>>,
    /// Requirements that hold versions back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<At<String>>,
    /// Files that constraints were read from.
    #[serde(skip)]
    pub constraint_files: Vec<PathBuf>,
    /// Package indexes, first one first; empty: the user's own configuration.
    pub indexes: Vec<At<String>>,
    /// Whether the image must be able to compile kernels at run time.
    pub jit: bool,
    /// Whether the OS packages of libraries that wheels take from the system are added to `packages`.
    pub os_libraries: bool,
    /// Whether device code that none of the GPUs runs, symbols and debug information are left out of
    /// wheels.
    pub prune: bool,
    /// Whether the image has byte code of its installed Python files.
    pub bytecode: bool,
    pub attention: Option<AttentionShape>,
    /// The user's own project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<App>,
    /// What the image starts, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageConfig>,
    /// Checks of the user's own.
    #[serde(skip_serializing_if = "AppChecks::is_empty")]
    pub checks: AppChecks,
    pub publish: Option<Publish>,
    pub cache: Option<SharedCache>,
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
    /// What its build leaves out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<LibraryOption>,
    /// OS packages of its build.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub build_packages: Vec<String>,
    /// Requirements of its build.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub build_requires: Vec<String>,
    pub git: Option<String>,
    #[serde(rename = "ref")]
    pub git_ref: Option<String>,
    pub index: Option<String>,
    /// The file that it is taken from. Then `version` and `from` are the file's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<DirectFile>,
}

/// A value of one option of a library's build, as the stack says it.
#[derive(Debug, Clone, Serialize)]
pub struct LibraryOption {
    pub name: At<String>,
    pub value: At<OptionValue>,
}

impl Library {
    /// Returns the values of its options by name.
    pub fn option_values(&self) -> BTreeMap<&str, &OptionValue> {
        let values = self.options.iter();
        values
            .map(|option| (option.name.value.as_str(), &option.value.value))
            .collect()
    }
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

impl StackFile {
    /// Returns the stack of a file without a matrix.
    pub fn single(&self) -> Option<&Stack> {
        self.matrix.is_empty().then_some(&self.pattern)
    }
}

impl Stack {
    pub fn library(&self, name: &str) -> Option<&Library> {
        self.libraries
            .iter()
            .find(|l| l.name.value.as_str() == name)
    }

    /// What its image is called: the variant's name, else the stack's.
    pub fn name(&self) -> &str {
        self.variant.as_deref().unwrap_or(self.stack.value.as_str())
    }

    /// Returns the files beside it that it is not complete without: of libraries and of constraints.
    pub fn local_files(&self) -> Vec<String> {
        let of_libraries = self.libraries.iter().filter_map(|l| l.file.as_ref());
        let paths = of_libraries.filter(|f| matches!(f.place, Place::Path(_)));
        let constraints = self
            .constraint_files
            .iter()
            .map(|f| f.display().to_string());
        let app = self.app.iter().flat_map(|app| &app.files);
        let requirements = app.map(|f| f.display().to_string());
        paths
            .map(DirectFile::shown)
            .chain(constraints)
            .chain(requirements)
            .collect()
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
