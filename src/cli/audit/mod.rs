//! `stackforge audit`.

use super::Outcome;
use super::args::{AuditArgs, Common};
use super::init::sm_of;
use super::output::{Failure, chain, colored, json, print};
use crate::audit::{Audit, Gpu, Question, TreeError, audit, sarif, table};
use crate::catalog::Catalog;
use crate::diag::{Diagnostic, Report, Source, codes, render};
use std::io::IsTerminal as _;

pub fn run(common: &Common, args: &AuditArgs) -> Outcome {
    let catalog = Catalog::load(common.catalog.as_deref())?;
    let answer = audit(&Question {
        catalog: &catalog,
        target: &args.target,
        gpus: gpus(&catalog, &args.gpu)?,
        python: args.python,
        sysroot: args.sysroot.as_deref(),
    })?;
    if args.sarif {
        let text = serde_json::to_string_pretty(&sarif(&answer)).unwrap_or_default();
        print(&format!("{text}\n"));
    } else if !common.json {
        tell(common, &answer);
    } else if answer.ok {
        json(&answer);
    }
    match answer.ok {
        true => Ok(()),
        false => Err(refused(common, &answer)),
    }
}

/// The devices that are meant; `all` is every SM of the catalog.
fn gpus(catalog: &Catalog, names: &[String]) -> Result<Vec<Gpu>, Failure> {
    let mut gpus = Vec::new();
    for name in names {
        if name == "all" {
            gpus.extend(catalog.sms.iter().map(|facts| Gpu {
                name: format!("sm_{}", facts.sm.digits()),
                sm: facts.sm,
                meant: false,
            }));
        } else {
            gpus.push(Gpu {
                sm: sm_of(catalog, name)?.base(),
                name: name.clone(),
                meant: true,
            });
        }
    }
    Ok(gpus)
}

fn tell(common: &Common, audit: &Audit) {
    print(&table(audit));
    let told: Vec<Diagnostic> = audit.told().map(|f| f.diagnostic.clone()).collect();
    let color = colored(common, std::io::stdout().is_terminal());
    print(&render(&Report::new(Source::default(), told), color));
}

/// What was found has been printed, but for JSON, whose document is the failure's.
fn refused(common: &Common, audit: &Audit) -> Failure {
    let mut failure = Failure::new(1, Report::new(Source::default(), Vec::new()));
    if common.json
        && let Ok(serde_json::Value::Object(document)) = serde_json::to_value(audit)
    {
        failure.json = document;
    }
    failure
}

impl From<TreeError> for Failure {
    fn from(e: TreeError) -> Self {
        let (exit, code) = match &e {
            TreeError::Read { .. } => (2, codes::UNREADABLE),
            TreeError::Unknown(_) | TreeError::Wheel(_) => (2, codes::NOTHING_TO_AUDIT),
            TreeError::Archive(_) => (1, codes::OBJECT_DAMAGED),
        };
        Self::plain(exit, Diagnostic::error(code, chain(&e)))
    }
}
