//! Reports values of a matrix's axes that the catalog does not know, at their places in the stack.

use crate::catalog::Catalog;
use crate::diag::{Diagnostic, codes, nearest};
use crate::spec::StackFile;

/// Returns a fault for every value that no combination could use.
pub(super) fn faults(file: &StackFile, catalog: &Catalog) -> Vec<Diagnostic> {
    let mut faults = Vec::new();
    sms(file, catalog, &mut faults);
    isas(file, catalog, &mut faults);
    bases(file, catalog, &mut faults);
    faults
}

/// Returns `did you mean …?`, or a list of all names.
fn one_of<'a>(wrong: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(wrong, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("use one of {}", names.collect::<Vec<_>>().join(", ")),
    }
}

fn sms(file: &StackFile, catalog: &Catalog, faults: &mut Vec<Diagnostic>) {
    for sm in &file.matrix.sm {
        if catalog.sm_facts(sm.value).is_some() {
            continue;
        }
        let names: Vec<String> = catalog.sms.iter().map(|f| f.sm.to_string()).collect();
        faults.push(
            Diagnostic::error(codes::UNKNOWN_GPU, format!("unknown SM `{}`", sm.value))
                .at(sm.span)
                .help(format!("use one of {}", names.join(", "))),
        );
    }
}

fn isas(file: &StackFile, catalog: &Catalog, faults: &mut Vec<Diagnostic>) {
    let on_axis = file.matrix.platform.iter().map(|p| p.value);
    let mut platforms: Vec<_> = on_axis.collect();
    if platforms.is_empty() {
        platforms.push(file.pattern.platform.value);
    }
    for isa in &file.matrix.isa {
        let Some(facts) = catalog.isa(&isa.value) else {
            let names = catalog.isas.iter().map(|i| i.name.as_str());
            faults.push(
                Diagnostic::error(
                    codes::UNKNOWN_ISA,
                    format!("unknown instruction set `{}`", isa.value),
                )
                .at(isa.span)
                .help(one_of(isa.value.as_str(), names)),
            );
            continue;
        };
        if !platforms.contains(&facts.platform) {
            faults.push(
                Diagnostic::error(
                    codes::BAD_VALUE,
                    format!(
                        "`{}` is an instruction set of {}",
                        isa.value, facts.platform
                    ),
                )
                .at(isa.span)
                .help(format!(
                    "remove it, or set `matrix.platform` to {} and {}",
                    file.pattern.platform.value, facts.platform
                )),
            );
        }
    }
}

/// Reports bases that result from the placeholders and are not in the catalog.
fn bases(file: &StackFile, catalog: &Catalog, faults: &mut Vec<Diagnostic>) {
    if !file.pattern.base.value.contains("{{") {
        return;
    }
    let mut seen: Vec<String> = Vec::new();
    for (base, span) in super::combine::bases(file) {
        if catalog.images.contains_key(&base) || seen.contains(&base) {
            continue;
        }
        let names = catalog.images.keys().map(String::as_str);
        faults.push(
            Diagnostic::error(codes::UNKNOWN_BASE, format!("unknown base `{base}`"))
                .at(span)
                .help(one_of(&base, names)),
        );
        seen.push(base);
    }
}
