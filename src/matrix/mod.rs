//! The variants of a stack: one ordinary stack for each combination of its axes that can work.
//!
//! In: a [`Stack`] and the [`Catalog`]. Out: an [`Expansion`]: variants with everything in
//! them concrete, so that nothing below has to know of matrices, and the combinations that
//! were refused, each with code and reason. Needs neither network nor engine, and a lock only
//! to judge by the exact files.

mod axes;
mod combine;
mod section;
mod variant;

use crate::catalog::Catalog;
use crate::diag::{Code, Diagnostic, Report, Severity, codes};
use crate::lock::{Lock, PlatformLock};
use crate::rules::{Case, Machine, Picks};
use crate::spec::Stack;
use crate::target::Target;
use serde::Serialize;

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

/// Every combination of the stack's axes, judged. A stack without a matrix is its own single
/// variant. The error is about the stack itself: an axis value that the catalog does not
/// know, or, without a matrix, what refuses it.
pub fn expand(stack: &Stack, catalog: &Catalog) -> Result<Expansion, Report> {
    let faults = axes::faults(stack, catalog);
    if !faults.is_empty() {
        return Err(Report::new(stack.source.clone(), faults));
    }
    let mut expansion = Expansion {
        variants: Vec::new(),
        rejected: Vec::new(),
    };
    let judge = Judge::new(catalog, &Machine::default());
    for stack in combine::combinations(stack, catalog) {
        match judge.refusal(&stack, None) {
            None => expansion.variants.push(Variant::of(stack, catalog)),
            Some(d) if stack.variant.is_none() => return Err(Report::new(stack.source, vec![d])),
            Some(d) => expansion.rejected.push(Rejected::new(stack.name(), d)),
        }
    }
    Ok(expansion)
}

impl Expansion {
    /// Judges the variants once more, by the files that are locked for them and the machine
    /// that is meant.
    pub fn judge(self, catalog: &Catalog, lock: Option<&Lock>, machine: &Machine) -> Self {
        let judge = Judge::new(catalog, machine);
        let mut judged = Self {
            variants: Vec::new(),
            rejected: self.rejected,
        };
        for variant in self.variants {
            let section = lock.and_then(|l| l.section(&variant.stack));
            match judge.refusal(&variant.stack, section) {
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

/// What combinations are judged by.
struct Judge<'a> {
    catalog: &'a Catalog,
    machine: Machine,
    picks: Picks,
}

impl<'a> Judge<'a> {
    fn new(catalog: &'a Catalog, machine: &Machine) -> Self {
        Self {
            catalog,
            machine: machine.clone(),
            picks: Picks::default(),
        }
    }

    /// Why a combination cannot work, by the first rule that says so.
    fn refusal(&self, stack: &Stack, lock: Option<&PlatformLock>) -> Option<Diagnostic> {
        isa_not_with_sm(stack, self.catalog).or_else(|| {
            let findings = match Target::of(stack, self.catalog) {
                Err(report) => report.diagnostics,
                Ok(target) => crate::rules::check(&Case {
                    stack,
                    target: &target,
                    catalog: self.catalog,
                    lock,
                    machine: self.machine.clone(),
                    picks: self.picks.clone(),
                }),
            };
            let mut findings = findings.into_iter();
            findings.find(|d| d.severity == Severity::Error)
        })
    }
}

/// An SM whose machines are known, and known not to have the instruction set.
fn isa_not_with_sm(stack: &Stack, catalog: &Catalog) -> Option<Diagnostic> {
    let isa = stack.isa.as_ref()?;
    let mut facts = stack
        .gpus
        .iter()
        .filter_map(|gpu| catalog.sm_facts(catalog.sm(&gpu.value)?));
    let without = facts.find(|f| !f.isas.is_empty() && !f.isas.contains(&isa.value))?;
    let known: Vec<String> = without.isas.iter().map(|i| format!("`{i}`")).collect();
    Some(
        Diagnostic::error(
            codes::ISA_NOT_WITH_SM,
            format!(
                "machines with sm_{} are known only with {}",
                without.sm.digits(),
                known.join(", ")
            ),
        )
        .at(isa.span),
    )
}
