//! Requirements files, as pip reads them.

use super::asked::Asked;
use super::file::File;
use super::files::Files;
use super::found::Found;
use super::item::{Item, Note};
use super::known::Known;
use super::pip::{self, Place};
use super::{ConvertError, shell};
use stackforge_stack::spec::From;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads a requirements file that the user names.
///
/// # Errors
/// If a file that it includes cannot be read, or includes it.
pub fn read(
    file: &File,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
) -> Result<(), ConvertError> {
    files.enter(file);
    lines(file, files, known, found, false)
}

/// Reads a file's lines; `constrains`: as constraints.
///
/// # Errors
/// If a file that it includes cannot be read.
pub fn lines(
    file: &File,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
    constrains: bool,
) -> Result<(), ConvertError> {
    let folder = file.path.parent().unwrap_or(Path::new("")).to_owned();
    let first = found.libraries.len();
    let mut sources = Vec::new();
    for (number, line) in logical(&file.text) {
        let at = format!("{}:{number}", file.shown);
        let place = Place {
            at: &at,
            folder: &folder,
            find: &|_, name| Some(folder.join(name)),
            read: lines,
            constrains,
        };
        let (line, remark) = without_comment(&line);
        if line.is_empty() {
            continue;
        }
        if line.starts_with('-') {
            let words = shell::words(line, &BTreeMap::new());
            sources.extend(pip::arguments(&words, &place, files, known, found)?.from);
            continue;
        }
        let (requirement, options) = split_options(line);
        let mut item = Asked::parse(&at, requirement, &folder);
        if let Item::Take(asked) = &mut item {
            asked.remark = remark.map(str::to_owned);
        }
        if options.contains("--global-option") || options.contains("--config-setting") {
            let why = "give a build its settings by `env` of the library";
            found
                .libraries
                .push(Item::Note(Note::new(&at, options, why)));
        }
        pip::add(item, &place, found);
    }
    for (name, from) in sources {
        built(&mut found.libraries[first..], &name, from);
    }
    Ok(())
}

/// Says of libraries whether they are built or come as wheels.
pub(super) fn built(items: &mut [Item<Asked>], name: &str, from: From) {
    for item in items {
        match item {
            Item::Take(asked) if asked.name == name || name == ":all:" => asked.from = from,
            _ => {}
        }
    }
}

/// Splits per-requirement options from a requirement: ` --hash=…`.
fn split_options(line: &str) -> (&str, &str) {
    match line.find(" --") {
        Some(at) => (line[..at].trim_end(), line[at..].trim()),
        None => (line, ""),
    }
}

/// Splits a line's comment off: a `#` at the start or behind white space.
fn without_comment(line: &str) -> (&str, Option<&str>) {
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        if c == '#' && before.is_whitespace() {
            let remark = line[at..].trim_start_matches('#').trim();
            return (line[..at].trim(), Some(remark).filter(|r| !r.is_empty()));
        }
        before = c;
    }
    (line.trim(), None)
}

/// Returns lines with their numbers; those that end in a backslash go on in the next.
fn logical(text: &str) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.lines().enumerate() {
        let comment = line.trim_start().starts_with('#');
        let (part, more) = match line.trim_end().strip_suffix('\\') {
            Some(part) if !comment => (part, true),
            _ => (line, false),
        };
        match out.last_mut().filter(|_| goes_on) {
            Some((_, before)) => {
                before.push(' ');
                before.push_str(part.trim());
            }
            None => out.push((number + 1, part.trim().to_owned())),
        }
        goes_on = more;
    }
    out
}
