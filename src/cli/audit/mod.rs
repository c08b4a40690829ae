//! `stackforge audit`.

mod remote;
pub(super) mod target;

use super::Outcome;
use super::args::{AuditArgs, Common};
use super::init::sm_of;
use super::output::{Failure, colored, json, print, print_document, print_report};
use super::progress::Amount;
use super::session::runtime;
use super::signals::stop_on_signal;
use stackforge_audit as audit;
use stackforge_audit::{AtRest, Audit, Gpu, Promise, Question, TreeError, sarif, table};
use stackforge_build::{audit_image, noted};
use stackforge_engine::docker::Docker;
use stackforge_image::oci;
use stackforge_image::store::Store;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::{Diagnostic, Report, Source, render};
use stackforge_types::Cancel;
use std::io::IsTerminal as _;
pub(super) use target::Target;

pub fn run(common: &Common, args: &AuditArgs) -> Outcome {
    let catalog = stackforge_stack::catalog::load(common.catalog.as_deref())?;
    let request = Request {
        gpus: gpus(&catalog, &args.gpu)?,
        catalog: &catalog,
        args,
    };
    let answer = match Target::read(&args.target) {
        Target::Path(path) => request.audit(audit::Target::Path(&path))?,
        Target::Image { path, reference } => {
            let image = oci::open(&path, reference.as_deref(), args.platform)?;
            request.audit(audit::Target::Image(&AtRest::new(&args.target, image)))?
        }
        Target::Engine(name) => runtime()?.block_on(async {
            let store = Store::open(common.store.as_deref())?;
            let docker = noted(Docker::connect(None).await?, &store).await;
            let cancel = Cancel::new();
            stop_on_signal(&cancel);
            let ask = |image: audit::Target<'_>| request.audit(image);
            let amount = Amount::new(common, &name);
            let on_progress = |done, size| amount.set(done, Some(size));
            let answer =
                audit_image(&docker, &name, args.platform, &cancel, &on_progress, ask).await;
            amount.end();
            Ok::<_, Failure>(Audit {
                target: args.target.clone(),
                ..answer?
            })
        })?,
        Target::Registry(name) => {
            let image = remote::image(common, args, &name)?;
            request.audit(audit::Target::Image(&AtRest::new(&args.target, image)))?
        }
        Target::Package(pinned) => {
            let package = remote::package(common, args, &catalog, &pinned)?;
            request.audit(audit::Target::Path(&package.path))?
        }
    };
    show(common, args, &answer)
}

struct Request<'a> {
    catalog: &'a Catalog,
    gpus: Vec<Gpu>,
    args: &'a AuditArgs,
}

impl Request<'_> {
    fn audit(&self, target: audit::Target<'_>) -> Result<Audit, TreeError> {
        audit::audit(&Question {
            catalog: self.catalog,
            target,
            gpus: self.gpus.clone(),
            python: self.args.python,
            sysroot: self.args.sysroot.as_deref(),
            promise: Promise::default(),
        })
    }
}

fn show(common: &Common, args: &AuditArgs, answer: &Audit) -> Outcome {
    if args.sarif {
        let text = serde_json::to_string_pretty(&sarif(answer)).unwrap_or_default();
        print_document(&format!("{text}\n"));
    } else if !common.json {
        print_audit(common, answer);
    } else if answer.ok {
        json(answer);
    }
    if answer.ok {
        Ok(())
    } else {
        Err(refused(common, answer))
    }
}

/// Returns the required GPUs; `all` is every SM of the catalog.
fn gpus(catalog: &Catalog, names: &[String]) -> Result<Vec<Gpu>, Failure> {
    let mut gpus = Vec::new();
    for name in names {
        if name == "all" {
            gpus.extend(catalog.sms.iter().map(|facts| Gpu {
                name: format!("sm_{}", facts.sm.digits()),
                sm: facts.sm,
                required: false,
            }));
        } else {
            gpus.push(Gpu {
                sm: sm_of(catalog, name)?.base(),
                name: name.clone(),
                required: true,
            });
        }
    }
    Ok(gpus)
}

fn print_audit(common: &Common, audit: &Audit) {
    print(&table(audit));
    let diagnostics: Vec<Diagnostic> = audit
        .errors_and_warnings()
        .map(|f| f.diagnostic.clone())
        .collect();
    let color = colored(common, std::io::stdout().is_terminal());
    print_report(&render(&Report::new(Source::default(), diagnostics), color));
}

/// Returns a failure without a report, which was already printed. With `--json` it contains the document.
fn refused(common: &Common, audit: &Audit) -> Failure {
    let mut failure = Failure::new(1, Report::new(Source::default(), Vec::new()));
    if common.json
        && let Ok(serde_json::Value::Object(document)) = serde_json::to_value(audit)
    {
        failure.json = document;
    }
    failure
}
