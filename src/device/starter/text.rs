//! The text of a stack that a file asks for.

use super::base::{Candidate, Place};
use super::libraries::Lines;
use super::out::{Out, from, shown};
use super::torch::Torch;
use super::yaml::{comment, quoted, scalar};
use super::{Instead, Question, instead, keys};
use crate::convert::{App, Found, Item, Known, environment};
use stackforge_stack::catalog::numbers;
use stackforge_stack::diag::Diagnostic;
use stackforge_stack::spec::StackName;

/// The index that pip asks by default, and asks beside extra ones.
const PYPI: &str = "https://pypi.org/simple";

pub(super) struct Written {
    pub name: String,
    pub text: String,
    pub libraries: usize,
    pub notes: usize,
    pub instead: Vec<Instead>,
}

/// Writes the stack of a file on a base.
pub(super) fn of_file(
    question: &Question<'_>,
    place: &Place<'_>,
    candidate: &Candidate<'_>,
) -> Written {
    let found = question.found;
    let name = name(found.name.as_deref(), question.name);
    let mut out = Out::default();
    let start = format!(
        "Started from {} by `stackforge init`. A comment says what the stack does not have of it, and why.",
        found.shown
    );
    comment(&mut out.text, 0, &start);
    let gpus = place.gpus.join(", ");
    out.text.push_str(&format!("stack: {name}\n"));
    out.text.push_str(&format!(
        "about: {}\n",
        quoted(&format!("what {} asks for, on {gpus}", found.shown))
    ));
    for why in base_comments(found, candidate) {
        comment(&mut out.text, 0, &why);
    }
    out.text
        .push_str(&format!("base: {}\n", candidate.image.image));
    out.text.push_str(&format!(
        "target:\n  platform: {}\n  gpu: [{gpus}]\n",
        place.platform
    ));
    if let Some(python) = found.python.as_ref().filter(|_| !candidate.fits) {
        let why = format!("no base for this target has the Python of `{}`", python.at);
        out.note(0, &why);
    }
    out.text
        .push_str(&format!("python: \"{}\"\n", candidate.python));
    let lines = Lines {
        question,
        starter: &candidate.image.starter,
        environment: environment(candidate.python, place.platform),
        torch: Torch::of(question, place.platform),
        target: instead::target(place.platform, candidate),
    };
    let libraries = lines.libraries(&mut out);
    packages(found, &mut out);
    lines.requirements("constraints", &found.constraints, &mut out);
    lines.requirements("overrides", &found.overrides, &mut out);
    indexes(found, question.known, &mut out);
    let app = found.app.as_ref().map(|app| App {
        source: from(question.folder, &app.source),
        to: app.to.clone(),
    });
    out.text.push_str(&keys::app(app.as_ref()));
    out.text.push_str(&keys::image(&found.image));
    out.notes += found.image.notes.len();
    if !found.rest.is_empty() {
        comment(
            &mut out.text,
            0,
            "Not in the stack, which has libraries, packages, the project (`app`) and single files (`image.files`), and runs no commands:",
        );
        for note in &found.rest {
            out.note(0, &shown(note));
        }
    }
    Written {
        name,
        text: out.text,
        libraries,
        notes: out.notes,
        instead: out.instead,
    }
}

/// Returns a comment with the errors that `check` finds on every base.
pub(super) fn refused(errors: &[Diagnostic]) -> String {
    let mut out = String::new();
    comment(&mut out, 0, "`stackforge check` refuses this stack so far:");
    for error in errors {
        let help = error
            .help
            .as_deref()
            .map(|h| format!(": {h}"))
            .unwrap_or_default();
        comment(
            &mut out,
            0,
            &format!("{} {}{help}", error.code, error.message),
        );
    }
    out
}

/// Says why it is that base.
fn base_comments(found: &Found, candidate: &Candidate<'_>) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(from) = &found.from {
        out.push(format!("in place of {} ({})", from.value, from.at));
    }
    if let Some(l4t) = &found.l4t {
        let own = candidate.image.l4t.as_deref().unwrap_or("none");
        let series = |l4t: &str| numbers(l4t).first().copied();
        if series(&l4t.value) != series(own) {
            out.push(format!(
                "no base is for L4T {} of {}: the device needs L4T {own} or newer",
                l4t.value, l4t.at
            ));
        }
    }
    if let Some(cuda) = &found.cuda {
        let minor = |text: &str| numbers(text).into_iter().take(2).collect::<Vec<_>>();
        out.push(match &candidate.image.cuda {
            Some(own) if minor(own) == minor(&cuda.value) => {
                format!("CUDA {} as {} asks", cuda.value, cuda.at)
            }
            Some(own) => format!(
                "{} asks for CUDA {}; the nearest base has {own}",
                cuda.at, cuda.value
            ),
            None => format!(
                "{} asks for CUDA {}, which no base has so: here torch's wheels bring theirs",
                cuda.at, cuda.value
            ),
        });
    }
    out
}

fn packages(found: &Found, out: &mut Out) {
    let mut body = Out::default();
    let mut there: Vec<&str> = Vec::new();
    for item in &found.packages {
        match item {
            Item::Take(package) if there.contains(&package.value.as_str()) => {}
            Item::Take(package) => {
                there.push(&package.value);
                body.text
                    .push_str(&format!("  - {}\n", scalar(&package.value)));
            }
            Item::Note(note) => body.note(2, &shown(note)),
        }
    }
    out.section("packages", &body, there.len());
}

fn indexes(found: &Found, known: &Known, out: &mut Out) {
    let mut body = Out::default();
    let mut there: Vec<&str> = Vec::new();
    for item in &found.indexes {
        match item {
            // torch's own are named at the libraries that come from them.
            Item::Take(index) if known.torch_index(&index.value).is_some() => {}
            Item::Take(index) if there.contains(&index.value.as_str()) => {}
            Item::Take(index) => {
                there.push(&index.value);
                body.text
                    .push_str(&format!("  - {}\n", quoted(&index.value)));
            }
            Item::Note(note) => body.note(2, &shown(note)),
        }
    }
    if !there.is_empty() && !found.own_default_index && !there.contains(&PYPI) {
        body.text.push_str(&format!("  - {PYPI}\n"));
    }
    out.section("indexes", &body, there.len());
}

/// Returns the first text that makes a stack's name.
fn name(of_file: Option<&str>, other: &str) -> String {
    let made = |text: &str| {
        let mut out = String::new();
        for c in text.chars().take(64) {
            match c.to_ascii_lowercase() {
                c if c.is_ascii_lowercase() || c.is_ascii_digit() => out.push(c),
                _ if out.ends_with('-') || out.is_empty() => {}
                _ => out.push('-'),
            }
        }
        let out = out.trim_matches('-').to_owned();
        out.parse::<StackName>().is_ok().then_some(out)
    };
    of_file
        .and_then(made)
        .or_else(|| made(other))
        .unwrap_or_else(|| "stack".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn names_are_made_of_what_there_is() {
        assert_eq!(name(Some("My_Project"), "x"), "my-project");
        assert_eq!(name(None, "..Vision Lab!"), "vision-lab");
        assert_eq!(name(Some("视觉"), "/"), "stack");
    }

    #[test]
    fn paths_start_at_the_stacks_folder() {
        for (folder, path, same) in [
            ("", "w/x.whl", "w/x.whl"),
            ("stacks", "w/x.whl", "../w/x.whl"),
            ("./a/b", ".", "../.."),
            ("stacks", "https://h.test/x", "https://h.test/x"),
            ("stacks", "/srv/x.whl", "/srv/x.whl"),
        ] {
            assert_eq!(from(Path::new(folder), path), same);
        }
    }
}
