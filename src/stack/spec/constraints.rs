//! `constraints`: requirements that hold versions back without asking for anything, and pip's files of them.
//!
//! In: the stack's entries, each a requirement or the path of a file. Out: requirements, each at the stack's
//! line that brings it.

use super::raw::Positioned;
use super::requirement::requirement;
use super::{At, Stack};
use crate::diag::{Diagnostic, Span, codes};
use std::io;
use std::path::{Path, PathBuf};

/// How deep files may name files.
pub(super) const DEEPEST: usize = 8;

/// Whether an entry is the path of a file.
pub(super) fn is_path(entry: &str) -> bool {
    entry.ends_with(".txt") && !entry.contains(char::is_whitespace)
}

/// Puts the requirements of files in the place of their paths. `read` returns the text of a file; a relative
/// path starts at the folder of the file that names it.
///
/// # Errors
/// A finding for each line that cannot be taken.
pub fn expand(
    stack: &mut Stack,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<(), Vec<Diagnostic>> {
    let folder = Path::new(stack.file()).parent().unwrap_or(Path::new(""));
    let mut all = Expanded {
        read,
        found: Vec::new(),
        files: Vec::new(),
        faults: Vec::new(),
    };
    for At { value, span } in &stack.constraints {
        if is_path(value) {
            all.file(&folder.join(value), value, *span, 0);
        } else {
            all.found.push(At {
                value: value.clone(),
                span: *span,
            });
        }
    }
    if all.faults.is_empty() {
        stack.constraints = all.found;
        stack.constraint_files = all.files;
        Ok(())
    } else {
        Err(all.faults)
    }
}

struct Expanded<'a> {
    read: &'a dyn Fn(&Path) -> io::Result<String>,
    found: Vec<At<String>>,
    files: Vec<PathBuf>,
    faults: Vec<Diagnostic>,
}

impl Expanded<'_> {
    fn fault(&mut self, span: Span, message: String, help: &str) {
        let fault = Diagnostic::error(codes::BAD_REQUIREMENT, message);
        self.faults.push(fault.at(span).help(help));
    }

    fn file(&mut self, path: &Path, shown: &str, span: Span, depth: usize) {
        if depth == DEEPEST {
            let message = format!("{shown}: files of constraints name each other too deeply");
            return self.fault(span, message, "write their lines into one file");
        }
        let text = match (self.read)(path) {
            Ok(text) => text,
            Err(e) => {
                let message = format!("`{shown}` cannot be read: {e}");
                return self.fault(span, message, "its path starts at the stack file's folder");
            }
        };
        self.files.push(path.to_owned());
        for (number, line) in lines(&text) {
            let at = format!("{shown}:{number}");
            match Line::of(&line) {
                Line::Nothing => {}
                Line::Requirement(value) => match requirement(&value) {
                    Ok(_) => self.found.push(At { value, span }),
                    Err(why) => {
                        let help = "a line is a name with versions: `numpy<2.3`";
                        self.fault(span, format!("{at} is not a requirement: {why}"), help);
                    }
                },
                Line::Requirements(other) | Line::Constraints(other) => {
                    let folder = path.parent().unwrap_or(Path::new(""));
                    let next: PathBuf = folder.join(&other);
                    let shown = next.display().to_string();
                    self.file(&next, &shown, span, depth + 1);
                }
                Line::Option(option) => {
                    let help = match option.as_str() {
                        "-e" | "--editable" => "an image takes no editable installs",
                        _ => {
                            "indexes are named in the stack's `indexes`, other options have no place here"
                        }
                    };
                    self.fault(span, format!("{at}: `{option}` is not taken"), help);
                }
            }
        }
    }
}

/// A line of a file of requirements or constraints.
pub(super) enum Line {
    Nothing,
    Requirement(String),
    /// Another file of requirements.
    Requirements(String),
    /// Another file of constraints.
    Constraints(String),
    Option(String),
}

impl Line {
    pub(super) fn of(line: &str) -> Self {
        let line = match line.find(" #") {
            _ if line.starts_with('#') => "",
            Some(comment) => &line[..comment],
            None => line,
        };
        // Digests belong to files, and the lock has its own.
        let line = line.split(" --hash").next().unwrap_or(line).trim();
        if line.is_empty() {
            return Self::Nothing;
        }
        if !line.starts_with('-') {
            return Self::Requirement(line.to_owned());
        }
        let (option, value) = line.split_once(['=', ' ']).unwrap_or((line, ""));
        match option {
            "-c" | "--constraint" => Self::Constraints(value.trim().to_owned()),
            "-r" | "--requirement" => Self::Requirements(value.trim().to_owned()),
            _ => Self::Option(option.to_owned()),
        }
    }
}

/// Returns lines with their numbers; those that end in a backslash go on in the next.
pub(super) fn lines(text: &str) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let (part, more) = match line.trim_end().strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line.trim(), false),
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

/// Checks the entries themselves.
pub(super) fn entry(entry: &Positioned<String>) -> Result<(), String> {
    let value = &entry.0.value;
    if is_path(value) {
        return Ok(());
    }
    if ["/", "./", "../"].iter().any(|p| value.starts_with(p)) {
        return Err("the name of a file of constraints ends in `.txt`".to_owned());
    }
    requirement(value).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(files: &[(&str, &str)], entries: &str) -> Result<Vec<String>, Vec<String>> {
        let text = format!(
            "stack: s\nbase: b\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\npython: \"3.12\"\nconstraints: [{entries}]\nlibraries: {{ six: auto }}\n"
        );
        let mut stack = crate::spec::read("d/s.yaml", &text).unwrap().pattern;
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            let missing = || io::Error::from(io::ErrorKind::NotFound);
            found
                .map(|(_, text)| (*text).to_owned())
                .ok_or_else(missing)
        };
        match expand(&mut stack, &read) {
            Ok(()) => Ok(stack.constraints.into_iter().map(|c| c.value).collect()),
            Err(faults) => Err(faults.into_iter().map(|f| f.message).collect()),
        }
    }

    #[test]
    fn files_as_pip_reads_them() {
        let file = "\u{feff}# of the team\nnumpy<2.3  # abi\n\nsix==1.17.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\nPillow >= 10 ; python_version < '3.13'\r\n-c more/other.txt\n";
        let other = "click==8.1\n";
        let files = [("d/c.txt", file), ("d/more/other.txt", other)];
        let found = expanded(&files, "c.txt, \"attrs>=23\"").unwrap();
        assert_eq!(
            found,
            [
                "numpy<2.3",
                "six==1.17.0",
                "Pillow >= 10 ; python_version < '3.13'",
                "click==8.1",
                "attrs>=23"
            ]
        );
    }

    #[test]
    fn what_is_not_taken_is_named_with_its_line() {
        let file = "numpy<2\n--index-url https://i.test\n-e .\n=1\n-c gone.txt\n";
        let faults = expanded(&[("d/c.txt", file)], "c.txt")
            .unwrap_err()
            .join("\n");
        for part in [
            "c.txt:2: `--index-url` is not taken",
            "c.txt:3: `-e` is not taken",
            "c.txt:4 is not a requirement",
            "`d/gone.txt` cannot be read",
        ] {
            assert!(faults.contains(part), "{part}: {faults}");
        }
        let circle = expanded(&[("d/c.txt", "-c c.txt\n")], "c.txt").unwrap_err();
        assert_eq!(circle.len(), 1, "{circle:?}");
    }
}
