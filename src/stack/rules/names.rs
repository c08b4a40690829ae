//! Rules about the names of libraries, and about two names for the same modules.

use super::case::Case;
use crate::catalog::Misnomer;
use crate::diag::{Diagnostic, codes};
use crate::fix::Fix;
use crate::span::Span;
use crate::spec::{Library, Stack, Wanted};
use pep440_rs::Operator;
use stackforge_types::wheel::normalized;
use std::collections::BTreeMap;

/// Finds wrong names of libraries that come from PyPI. Another index may have its own library of that name.
pub fn name_libraries(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    if !case.stack.indexes.is_empty() {
        return;
    }
    for library in &case.stack.libraries {
        let own = library.index.is_some() || library.git.is_some() || library.file.is_some();
        let name = normalized(library.name.value.as_str());
        if let Some(misnomer) = case.catalog.misnomers.get(&name).filter(|_| !own) {
            findings.push(misnamed(case.stack, library, &name, misnomer));
        }
    }
}

/// Finds libraries that have the same modules: of two, the files of the one lie over those of the other.
pub fn same_modules(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    let libraries = case.stack.libraries.iter();
    let libraries: BTreeMap<String, &Library> = libraries
        .map(|library| (normalized(library.name.value.as_str()), library))
        .collect();
    for same in &case.catalog.same_modules {
        let is_named = |name: &str| libraries.contains_key(name);
        let Some((kept, others)) = same.choose(is_named, is_named) else {
            continue;
        };
        for name in others {
            let message = format!(
                "`{name}` and `{kept}` have the same modules, and an environment holds one of them"
            );
            findings.push(
                Diagnostic::error(codes::PACKAGES_CLASH, message)
                    .at(libraries[name].name.span)
                    .help(format!("remove `{name}`, and keep `{kept}`")),
            );
        }
    }
}

fn misnamed(stack: &Stack, library: &Library, name: &str, misnomer: &Misnomer) -> Diagnostic {
    let message = match &misnomer.has {
        Some(has) => format!("PyPI's `{name}` is {has}"),
        None => format!("PyPI has no `{name}`"),
    };
    let finding = if fails(library, misnomer) {
        Diagnostic::error(codes::LIBRARY_MISNAMED, message)
    } else {
        Diagnostic::warning(codes::LIBRARY_MISNAMED, message)
    };
    let mut finding = finding.at(library.name.span);
    if let Some(advice) = misnomer.advice() {
        finding = finding.help(advice);
    }
    match (&misnomer.instead, written(stack, library.name.span)) {
        (Some(instead), Some(from)) => finding.fix(Fix::Replace {
            span: library.name.span,
            from: from.to_owned(),
            to: instead.clone(),
        }),
        _ => finding,
    }
}

/// Whether the release that the stack takes installs nowhere.
fn fails(library: &Library, misnomer: &Misnomer) -> bool {
    let Some(fails) = &misnomer.fails else {
        return false;
    };
    let Wanted::Specifier(asked) = &library.version else {
        return true;
    };
    let is = |wanted: &[Operator]| asked.iter().find(|s| wanted.contains(s.operator()));
    match is(&[Operator::Equal, Operator::ExactEqual]) {
        Some(exact) => fails.contains(exact.version()),
        // The newest one fails.
        None => is(&[
            Operator::LessThan,
            Operator::LessThanEqual,
            Operator::TildeEqual,
            Operator::EqualStar,
        ])
        .is_none(),
    }
}

/// The name as the stack file has it, without quotes and extras.
fn written(stack: &Stack, span: Span) -> Option<&str> {
    let text = stack.source.text.get(span.offset..)?.get(..span.len)?;
    let text = text.trim_matches(['"', '\'']);
    Some(text.split('[').next().unwrap_or(text))
}
