//! Finds out what binaries need and whether they get it, without running them.
//!
//! In: a [`Question`]: a shared object, a wheel, a directory or an image, and the required GPUs, Python and
//! base. Out: an [`Audit`]: every object with its needs and its device code, the provider of each library, a
//! verdict for each GPU, and all findings at once. An adapter turns each kind of target into a tree with its
//! objects; nothing after that depends on the kind. Never runs, maps or unpacks what it reads. A damaged
//! file never stops the audit: it is a finding.

mod closure;
mod code;
mod copies;
mod finding;
mod gpu;
mod image;
mod inventory;
mod layout;
mod missing;
mod object;
mod os_packages;
mod packages;
mod packed;
mod promise;
pub mod prune;
mod python;
mod runtime;
mod sarif;
mod stream;
mod system;
mod table;
mod ties;
mod torch;
mod tree;
mod world;

use serde::{Deserialize, Serialize};
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::Severity;
use stackforge_stack::spec::PythonVersion;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

pub use code::Code;
pub use finding::Finding;
pub use gpu::verdicts_for_sm;
pub use gpu::{Gpu, Reach, RunMode, Verdict};
pub use image::{Fault, Image, LayerReading};
pub use layout::AtRest;
pub use promise::Promise;
pub use sarif::sarif;
pub use stream::{KeepRanges, object};
pub use table::table;
pub use tree::{Tree, TreeError};

use closure::Closure;
use inventory::Inventory;
use system::System;
use world::World;

/// The input of an audit.
pub struct Question<'a> {
    pub catalog: &'a Catalog,
    pub target: Target<'a>,
    /// GPUs that device code is judged for.
    pub gpus: Vec<Gpu>,
    /// The Python that imports the target. If `None`, the one that the target itself names.
    pub python: Option<PythonVersion>,
    /// Root file system of the base.
    pub sysroot: Option<&'a Path>,
    /// The promise of the stack that the target is part of.
    pub promise: Promise,
}

pub enum Target<'a> {
    /// A shared object, a wheel or a directory.
    Path(&'a Path),
    Image(&'a dyn Image),
}

#[derive(Debug, Serialize)]
pub struct Audit {
    /// Whether no finding is an error.
    pub ok: bool,
    pub target: String,
    pub kind: tree::TreeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonVersion>,
    /// Objects in the order of their paths.
    pub objects: Vec<table::Row>,
    /// Objects of wheels that are files of the target and not installed; their paths begin with the wheel's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packed: Vec<table::Row>,
    /// `None` for a target without device code, or if no GPU was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// RECORD of each installed distribution, by its path.
    #[serde(skip)]
    pub records: BTreeMap<String, String>,
}

/// Number of findings by severity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub errors: usize,
    pub warnings: usize,
    pub notes: usize,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = |n: usize, what: &str| match n {
            0 => format!("no {what}"),
            1 => format!("1 {what}"),
            n => format!("{n} {what}s"),
        };
        let (errors, warnings) = (some(self.errors, "error"), some(self.warnings, "warning"));
        write!(f, "{errors}, {warnings}")
    }
}

impl Audit {
    pub fn count(&self) -> Count {
        let of = |severity| {
            let findings = self.findings.iter();
            findings
                .filter(|f| f.diagnostic.severity == severity)
                .count()
        };
        Count {
            errors: of(Severity::Error),
            warnings: of(Severity::Warning),
            notes: of(Severity::Note),
        }
    }
}

pub fn audit(question: &Question<'_>) -> Result<Audit, TreeError> {
    let (tree, system, inventory) = match question.target {
        Target::Path(path) => {
            let (tree, contents) = Tree::open(path)?;
            let system = System::of(&tree, path, question.sysroot)?;
            let inventory = Inventory::of(&tree, &contents);
            (tree, system, inventory)
        }
        Target::Image(image) => image::read(image)?,
    };
    let world = World::new(question.catalog, &tree, &inventory, &system);
    let closure = Closure::of(&world);
    let python = question.python.or_else(|| python::version_of(&tree));

    let mut findings = inventory.findings();
    missing::check(&world, &closure, &mut findings);
    copies::check(&world, &mut findings);
    torch::check(&world, &mut findings);
    python::check(&world, python, &mut findings);
    runtime::check(&world, &mut findings);
    promise::check(&world, &question.promise, &mut findings);
    let verdicts = gpu::verdicts(&world, world.items, &question.gpus);
    gpu::check(&world, &verdicts, &question.gpus, &mut findings);
    finding::order(&mut findings);
    Ok(Audit {
        ok: findings.iter().all(|f| !f.is_error()),
        target: tree.name.clone(),
        kind: tree.kind,
        python,
        objects: table::rows(&world, &closure, &verdicts),
        reach: Reach::of(&world, &verdicts, &question.gpus),
        packed: table::packed(&world, &inventory.packed.items, &question.gpus),
        findings,
        records: (tree.texts.iter())
            .filter(|(path, _)| path.ends_with(".dist-info/RECORD"))
            .map(|(path, text)| (path.clone(), text.clone()))
            .collect(),
    })
}
