//! `stackforge doctor`.

use super::Outcome;
use super::args::{Common, DoctorArgs};
use super::output::{colored, json, print, print_report};
use super::session::runtime;
use stackforge_device::doctor::{Question, examine, next, table};
use stackforge_image::store::Store;
use stackforge_stack::config::Config;
use stackforge_stack::diag::{Report, Source, render};
use std::io::IsTerminal as _;

pub fn run(common: &Common, args: &DoctorArgs) -> Outcome {
    let catalog = stackforge_stack::catalog::load(common.catalog.as_deref())?;
    let config = Config::load()?;
    let store = Store::open(common.store.as_deref())?;
    let report = runtime()?.block_on(examine(&Question {
        catalog: &catalog,
        root: args.root.as_deref(),
        offline: common.offline,
        store: store.root(),
        mirrors: &config.debian,
    }));
    if common.json {
        json(&report);
        return Ok(());
    }
    print(&table(&report));
    let (command, purpose) = next(&report, &catalog, args.root.as_deref());
    let findings = Report::new(Source::default(), report.findings);
    let color = colored(common, std::io::stdout().is_terminal());
    print_report(&render(&findings, color));
    print(&format!("next: {command}   ({purpose})\n"));
    Ok(())
}
