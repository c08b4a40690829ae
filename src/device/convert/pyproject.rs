//! `pyproject.toml`: the project's table (PEP 621), dependency groups (PEP 735), the tables of uv and Poetry.
//!
//! What a project always needs becomes libraries. Extras and groups are a choice that the file does not make, so they
//! become comments, each line as the stack would have it.

use super::asked::Asked;
use super::document::{Document, texts};
use super::file::File;
use super::files::Files;
use super::found::{App, Found};
use super::item::{Item, Note, Why};
use super::known::Known;
use super::{ConvertError, poetry, requirements, uv};
use pep440_rs::VersionSpecifiers;
use stackforge_types::wheel::normalized;
use std::path::Path;
use std::str::FromStr as _;
use toml::{Table, Value};

/// Reads a pyproject.toml.
///
/// # Errors
/// If it is not valid TOML, or a file that it names cannot be read.
pub fn read(
    file: &File,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
) -> Result<(), ConvertError> {
    files.enter(file);
    tables(file, &Chosen::default(), files, known, found)
}

/// Extras and groups that somebody installs.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub names: Vec<String>,
    pub all: bool,
}

impl Chosen {
    fn has(&self, name: &str) -> bool {
        let name = normalized(name);
        self.all || self.names.iter().any(|chosen| normalized(chosen) == name)
    }
}

/// Reads its tables, also where a Dockerfile installs the project.
///
/// # Errors
/// As [`read`].
pub(super) fn tables(
    file: &File,
    chosen: &Chosen,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
) -> Result<(), ConvertError> {
    let table = file.text.parse::<Table>().map_err(|e| {
        let line = e.span().map(|s| {
            file.text[..s.start.min(file.text.len())]
                .matches('\n')
                .count()
        });
        ConvertError::Invalid {
            at: format!("{}:{}", file.shown, line.unwrap_or(0) + 1),
            message: e.message().to_owned(),
            what: "TOML",
        }
    })?;
    let document = Document { file, table };
    let project = document.table(&["project"]);
    let poetry = document.table(&["tool", "poetry"]);
    found.name = [project, poetry].into_iter().flatten().find_map(|t| {
        let name = t.get("name")?.as_str()?;
        Some(name.to_owned())
    });
    if let Some(wanted) = project.and_then(|p| p.get("requires-python")?.as_str()) {
        match VersionSpecifiers::from_str(wanted) {
            Ok(value) => {
                let at = format!("requires-python {wanted}");
                found.python = Some(Why { value, at });
            }
            Err(_) => found.rest.push(Note::new(
                &document.at("requires-python"),
                format!("requires-python = \"{wanted}\""),
                "not versions (PEP 440): set `python` yourself",
            )),
        }
    }
    if let Some(project) = project {
        of_project(project, &document, chosen, files, known, found)?;
    }
    if let Some(poetry) = poetry {
        poetry::read(poetry, &document, known, found);
    }
    groups(&document, chosen, found);
    uv::read(&document, known, found);
    pdm(&document, known, found);
    if project.is_some() || poetry.is_some() {
        let source = if document.folder() == Path::new("") {
            ".".to_owned()
        } else {
            document.folder().display().to_string()
        };
        found.app = Some(App {
            source,
            to: "/app".to_owned(),
        });
    }
    Ok(())
}

fn of_project(
    project: &Table,
    document: &Document<'_>,
    chosen: &Chosen,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
) -> Result<(), ConvertError> {
    for text in texts(project.get("dependencies")) {
        let item = Asked::parse(&document.at(text), text, document.folder());
        found.libraries.push(item);
    }
    let extras = project
        .get("optional-dependencies")
        .and_then(Value::as_table);
    for (name, list) in extras.into_iter().flatten() {
        choice(name, list, "extra", document, chosen, found);
    }
    let dynamic = texts(project.get("dynamic")).any(|d| d == "dependencies");
    let of_setuptools = document.table(&["tool", "setuptools", "dynamic"]);
    let listed = of_setuptools
        .and_then(|t| t.get("dependencies")?.as_table()?.get("file"))
        .filter(|_| dynamic);
    let named = match listed {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(list) => texts(Some(list)).collect(),
        None => Vec::new(),
    };
    for name in &named {
        let path = document.folder().join(name);
        files.within(&path, &document.at(name), |files, file| {
            requirements::lines(file, files, known, found, false)
        })?;
    }
    if dynamic && named.is_empty() {
        let why = "a program finds them when the project is built: write them here as libraries";
        let note = Note::new(&document.at("dynamic"), "dynamic = [\"dependencies\"]", why);
        found.libraries.push(Item::Note(note));
    }
    Ok(())
}

/// Dependency groups: for developers by convention, so comments. A group's own lines say what others include.
fn groups(document: &Document<'_>, chosen: &Chosen, found: &mut Found) {
    for (name, list) in document.table(&["dependency-groups"]).into_iter().flatten() {
        choice(name, list, "group", document, chosen, found);
    }
}

/// Takes the requirements of an extra or a group if it is chosen.
fn choice(
    name: &str,
    list: &Value,
    what: &str,
    document: &Document<'_>,
    chosen: &Chosen,
    found: &mut Found,
) {
    for text in texts(Some(list)) {
        let at = document.at(text);
        found.libraries.push(if chosen.has(name) {
            Asked::parse(&at, text, document.folder())
        } else {
            let why =
                format!("of the {what} `{name}`: write it as a library if the image needs it");
            Item::Note(Note::new(&at, text, why))
        });
    }
}

fn pdm(document: &Document<'_>, known: &Known, found: &mut Found) {
    let sources = document
        .table(&["tool", "pdm"])
        .and_then(|t| t.get("source"));
    for source in sources.and_then(Value::as_array).into_iter().flatten() {
        if let Some(url) = source.get("url").and_then(Value::as_str) {
            let default = source.get("name").and_then(Value::as_str) == Some("pypi");
            uv::index(document, url, default, known, found);
        }
    }
}
