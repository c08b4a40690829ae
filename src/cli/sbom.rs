//! `stackforge sbom`.

use super::Outcome;
use super::args::{Common, SbomArgs, SbomChoice};
use super::native::epoch;
use super::output::{Failure, json, print, print_document, print_status, shown};
use super::session::Session;
use stackforge_distribute::evidence::{Bill, SbomFormat, sbom};
use stackforge_image::store::save;
use stackforge_plan::Plan;
use stackforge_stack::diag::{Diagnostic, codes};
use std::path::Path;

pub fn run(common: &Common, args: &SbomArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?;
    let (_, plan) = session.plan(common, args.variant.as_deref())?;
    let bill = bill(&session, &plan)?;
    let text = sbom(
        &bill,
        match args.format {
            SbomChoice::Spdx => SbomFormat::Spdx,
            SbomChoice::CycloneDx => SbomFormat::CycloneDx,
        },
    );
    print_unknown_licences(common, &bill);
    if let Some(path) = &args.output {
        write(path, &text)?;
    }
    match (&args.output, common.json) {
        (Some(path), true) => json(&serde_json::json!({ "file": path })),
        (Some(path), false) => print(&format!("{}: written\n", shown(path))),
        (None, _) => print_document(&text),
    }
    Ok(())
}

/// Returns the bill of materials of a plan's image.
pub fn bill<'a>(session: &Session, plan: &'a Plan) -> Result<Bill<'a>, Failure> {
    let image = session.project.catalog.images.get(&plan.base().lock.name);
    let os = image.map(|image| &image.os);
    Ok(Bill::of(plan, os, &session.store, epoch()?))
}

/// Says how many licences are unknown because their files are not in the store.
pub fn print_unknown_licences(common: &Common, bill: &Bill<'_>) {
    match bill.without_licence() {
        0 => {}
        n => print_status(
            common,
            &format!("{n} files state no licence that can be read, or are not in the store"),
        ),
    }
}

fn write(path: &Path, text: &str) -> Outcome {
    save(path, text.as_bytes()).map_err(|e| {
        let what = format!("write {}: {e}", path.display());
        Failure::of(Diagnostic::error(codes::STORE_IO, what))
    })
}
