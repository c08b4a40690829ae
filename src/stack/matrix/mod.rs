//! The variants of a stack: one ordinary stack for each combination of its axes that can work.
//!
//! In: a [`StackFile`] and the [`Catalog`]. Out: an [`Expansion`]: concrete variants, so that no later module has
//! to know matrices, and the refused combinations, each with code and reason. Needs neither network nor
//! engine, and needs a lock only to judge the exact files.

mod axes;
mod combine;
mod judge;
mod order;
mod section;
mod variant;

use crate::catalog::Catalog;
use crate::diag::{Code, Diagnostic, Report};
use crate::lock::Lock;
use crate::rules::Machine;
use crate::spec::StackFile;
use serde::Serialize;

use judge::Judge;

pub use order::{BuildOrder, build_order};
pub use section::Section;
pub use variant::{Compiled, JobNeeds, Variant};

#[derive(Debug, Clone, Serialize)]
pub struct Expansion {
    pub variants: Vec<Variant>,
    pub rejected: Vec<Rejected>,
}

/// A combination that cannot work.
#[derive(Debug, Clone, Serialize)]
pub struct Rejected {
    pub name: String,
    pub code: Code,
    pub message: String,
    #[serde(skip)]
    pub help: Option<String>,
}

/// Judges every combination of the file's axes. A stack without a matrix is its own single variant. An error
/// is about the file itself: an axis value that the catalog does not know, or, without a matrix, the reason
/// why the stack is refused.
pub fn expand(file: &StackFile, catalog: &Catalog) -> Result<Expansion, Report> {
    let faults = axes::faults(file, catalog);
    if !faults.is_empty() {
        return Err(Report::new(file.pattern.source.clone(), faults));
    }
    let mut expansion = Expansion {
        variants: Vec::new(),
        rejected: Vec::new(),
    };
    let machine = Machine::default();
    let mut judge = Judge::new(catalog, None, &machine);
    for stack in combine::combinations(file, catalog) {
        match judge.refusal(&stack) {
            None => expansion.variants.push(Variant::of(stack, catalog)),
            Some(d) if stack.variant.is_none() => return Err(Report::new(stack.source, vec![d])),
            Some(d) => expansion.rejected.push(Rejected::new(stack.name(), d)),
        }
    }
    Ok(expansion)
}

impl Expansion {
    /// Judges the variants again by their locked files and by the machine.
    pub fn judge(self, catalog: &Catalog, lock: Option<&Lock>, machine: &Machine) -> Self {
        let mut judge = Judge::new(catalog, lock, machine);
        let mut judged = Self {
            variants: Vec::new(),
            rejected: self.rejected,
        };
        for variant in self.variants {
            match judge.refusal(&variant.stack) {
                None => judged.variants.push(variant),
                Some(d) => judged.rejected.push(Rejected::new(&variant.name, d)),
            }
        }
        judged
    }
}

impl Rejected {
    fn new(name: &str, d: Diagnostic) -> Self {
        Self {
            name: name.to_owned(),
            code: d.code,
            message: d.message,
            help: d.help,
        }
    }
}
