//! Rules about options of compiled libraries: what a stack leaves out of their builds.

use super::case::{Case, distribution};
use super::environment::Environment;
use crate::catalog::{Build, DistributionKind, OptionFault};
use crate::diag::{Diagnostic, codes, nearest};
use crate::spec::{From, Library, LibraryOption};

/// Returns the libraries that have options, with the build of their recipes.
fn with_options<'c>(case: &'c Case<'_>) -> impl Iterator<Item = (&'c Library, Option<&'c Build>)> {
    let libraries = case.stack.libraries.iter();
    libraries.filter(|l| !l.options.is_empty()).map(|library| {
        let recipe = case.target.recipes.get(library.name.value.as_str());
        (library, recipe.and_then(|r| r.build.as_ref()))
    })
}

/// Refuses options and parts that the recipe does not have.
pub fn are_known(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    for (library, build) in with_options(case) {
        for option in &library.options {
            let parts = match build {
                Some(build) => build.option_parts(&option.name.value, &option.value.value),
                None => Err(OptionFault::Unknown),
            };
            if let Err(fault) = parts {
                findings.push(unknown(library, build, option, &fault));
            }
        }
    }
}

fn unknown(
    library: &Library,
    build: Option<&Build>,
    option: &LibraryOption,
    fault: &OptionFault,
) -> Diagnostic {
    let name = &option.name.value;
    let error = |message| Diagnostic::error(codes::BUILD_OPTION, message);
    let whole = |text: String| error(text).at(option.value.span);
    let list = |parts: &[String]| parts.join(", ");
    match fault {
        OptionFault::Unknown => {
            let options = build.map_or(&[][..], |b| &b.options);
            let known: Vec<&str> = options.iter().map(|o| o.id.as_str()).collect();
            let library = &library.name.value;
            let help = match nearest(name, known.iter().copied()) {
                Some(near) => format!("write `{near}`"),
                None if known.is_empty() => format!("remove `options`: `{library}` has none"),
                None => format!("`{library}` has these options: {}", known.join(", ")),
            };
            let message = format!("the build of `{library}` has no option `{name}`");
            error(message).at(option.name.span).help(help)
        }
        OptionFault::NotASwitch => {
            whole(format!("`{name}` is on or off")).help("write `true` or `false`")
        }
        OptionFault::NotAList(parts) => whole(format!("`{name}` is a list of what stays"))
            .help(format!("list some of {}", list(parts))),
        OptionFault::NothingKept(parts) => whole(format!("`{name}` keeps nothing"))
            .help(format!("list at least one of {}", list(parts))),
        OptionFault::UnknownPart { part, parts } => {
            let what = option_text(build, name);
            whole(format!("`{name}` has no part `{part}`{what}"))
                .help(format!("list some of {}", list(parts)))
        }
    }
}

/// Returns what an option is, as a part of a sentence.
fn option_text(build: Option<&Build>, name: &str) -> String {
    let option = build.and_then(|b| b.option(name));
    option.map_or_else(String::new, |o| format!(": {}", o.about))
}

/// Refuses options of a library that is installed from a wheel, and options whose conditions do not hold for the
/// library's release or the target.
pub fn apply(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    for (library, build) in with_options(case) {
        let name = distribution(case, library.name.value.as_str());
        let (Some(package), Some(build)) = (env.get(&name), build) else {
            continue;
        };
        let known = |o: &LibraryOption| build.option(&o.name.value).is_some();
        if !library.options.iter().any(known) {
            continue;
        }
        // Without a lock, a wheel is a guess unless the stack asks for one.
        let is_decided = case.lock.is_some() || library.from == From::Wheel;
        if package.kind == DistributionKind::Wheel && is_decided {
            let message = format!(
                "`{}` is installed from a wheel, so its options change nothing",
                library.name.value
            );
            findings.push(
                Diagnostic::error(codes::BUILD_OPTION, message)
                    .at(library.options[0].name.span)
                    .help("let it be compiled with `from: source`, or remove `options`"),
            );
            continue;
        }
        let version = Some(&package.version);
        env.with_facts(case, version, DistributionKind::Source, |facts| {
            for option in &library.options {
                let known = build.option(&option.name.value);
                if known.is_some_and(|known| !known.when.hold(facts)) {
                    let message = format!(
                        "{} has no option `{}`: the recipe has it for other releases or targets",
                        package.shown(),
                        option.name.value
                    );
                    findings.push(
                        Diagnostic::error(codes::BUILD_OPTION, message)
                            .at(option.name.span)
                            .help("remove the line, or use another release"),
                    );
                }
            }
        });
    }
}

/// Refuses a variable of the stack that would give the wheel another local version than its options.
pub fn label_is_theirs(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    for (library, build) in with_options(case) {
        let variable = build.and_then(|b| b.local_version.as_ref());
        if let Some(variable) = variable.filter(|v| library.env.contains_key(*v)) {
            let message = format!(
                "`{variable}` in `env` of `{}` gives its wheel another version than its options do",
                library.name.value
            );
            findings.push(
                Diagnostic::error(codes::BUILD_OPTION, message)
                    .at(library.options[0].name.span)
                    .help("remove the variable"),
            );
        }
    }
}

/// Warns if another package of the environment uses what is left out.
pub fn are_not_needed(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    for (library, build) in with_options(case) {
        for option in &library.options {
            let known = build.and_then(|b| b.option(&option.name.value));
            let parts = build.and_then(|b| {
                let value = &option.value.value;
                b.option_parts(&option.name.value, value).ok()
            });
            let (Some(known), Some(parts)) = (known, parts.filter(|p| !p.is_whole())) else {
                continue;
            };
            let needing = env.packages.keys().filter(|p| known.needed_by.contains(p));
            let needing: Vec<String> = needing.map(|p| format!("`{p}`")).collect();
            let [first, others @ ..] = needing.as_slice() else {
                continue;
            };
            let (who, verb) = match others {
                [] => (first.clone(), "uses"),
                _ => (needing.join(", "), "use"),
            };
            let message = format!(
                "{who} {verb} {}, and `{}` is compiled with {parts}",
                known.loses, library.name.value
            );
            findings.push(
                Diagnostic::warning(codes::OPTION_NEEDED, message)
                    .at(option.name.span)
                    .help(format!(
                        "remove `{}`, unless you do without {}",
                        option.name.value, known.loses
                    )),
            );
        }
    }
}
