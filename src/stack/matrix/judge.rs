//! Decides why a combination cannot work: by the first rule that refuses it.
//!
//! Rules do not depend on instruction sets, so combinations that differ only in them are judged once: a fifth
//! of 140.

use crate::catalog::Catalog;
use crate::diag::{Diagnostic, Severity, codes};
use crate::lock::Lock;
use crate::rules::{Case, Machine, Picks};
use crate::spec::{Platform, PythonVersion, Stack};
use crate::target::Target;
use std::collections::BTreeMap;

pub(super) struct Judge<'a> {
    catalog: &'a Catalog,
    lock: Option<&'a Lock>,
    machine: &'a Machine,
    known: BTreeMap<Judged, Option<Diagnostic>>,
    picks: Picks,
}

/// Everything that an axis can change and that a rule depends on.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Judged {
    platform: Platform,
    base: String,
    python: PythonVersion,
    gpus: Vec<String>,
}

impl<'a> Judge<'a> {
    pub fn new(catalog: &'a Catalog, lock: Option<&'a Lock>, machine: &'a Machine) -> Self {
        Self {
            catalog,
            lock,
            machine,
            known: BTreeMap::new(),
            picks: Picks::default(),
        }
    }

    pub fn refusal(&mut self, stack: &Stack) -> Option<Diagnostic> {
        if let Some(d) = isa_not_with_sm(stack, self.catalog) {
            return Some(d);
        }
        let judged = Judged {
            platform: stack.platform.value,
            base: stack.base.value.clone(),
            python: stack.python.value,
            gpus: stack.gpus.iter().map(|g| g.value.clone()).collect(),
        };
        if let Some(known) = self.known.get(&judged) {
            return known.clone();
        }
        let refusal = self.by_rules(stack);
        self.known.insert(judged, refusal.clone());
        refusal
    }

    fn by_rules(&self, stack: &Stack) -> Option<Diagnostic> {
        let findings = match Target::of(stack, self.catalog) {
            Err(report) => report.diagnostics,
            Ok(target) => {
                let case = Case {
                    stack,
                    target,
                    catalog: self.catalog,
                    lock: self.lock.and_then(|l| l.section(stack)),
                    machine: self.machine.clone(),
                    picks: self.picks.clone(),
                };
                crate::rules::check(case).findings
            }
        };
        let mut findings = findings.into_iter();
        findings.find(|d| d.severity == Severity::Error)
    }
}

/// Refuses an SM if all of its machines are known to lack the instruction set.
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
