//! The stack's text as it is written, with comments for what it does not have.

use super::Instead;
use super::yaml::comment;
use crate::convert::Note;
use std::path::{Component, Path};

/// Text that grows, and how many comments of it stand for something.
#[derive(Default)]
pub(super) struct Out {
    pub text: String,
    pub notes: usize,
    /// Requirements that have another version.
    pub instead: Vec<Instead>,
}

impl Out {
    /// Adds a comment for what the stack does not have.
    pub fn note(&mut self, indent: usize, text: &str) {
        comment(&mut self.text, indent, text);
        self.notes += 1;
    }

    /// Adds a key with its lines; without any that counts, only its comments.
    pub fn section(&mut self, key: &str, body: &Out, count: usize) {
        if count > 0 {
            self.text.push_str(&format!("{key}:\n"));
        } else if body.notes > 0 {
            self.text.push_str(&format!("# {key}:\n"));
        }
        self.text.push_str(&body.text);
        self.notes += body.notes;
        self.instead.extend(body.instead.iter().cloned());
    }
}

/// Returns the text of a comment.
pub(super) fn shown(note: &Note) -> String {
    let Note { at, text, why } = note;
    if why.is_empty() {
        format!("`{text}` ({at})")
    } else {
        format!("`{text}` ({at}): {why}")
    }
}

/// Returns a path that starts at the current folder as one that starts at the stack's.
pub(super) fn from(folder: &Path, path: &str) -> String {
    if path.contains("://") || Path::new(path).is_absolute() || path.starts_with('~') {
        return path.to_owned();
    }
    let plain = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
    if !folder.components().all(plain) {
        let absolute = std::path::absolute(path);
        return absolute.map_or_else(|_| path.to_owned(), |p| p.display().to_string());
    }
    let path = path.strip_prefix("./").unwrap_or(path);
    let up = folder
        .components()
        .filter(|c| matches!(c, Component::Normal(_)))
        .count();
    match up {
        0 => path.to_owned(),
        _ if path == "." => vec![".."; up].join("/"),
        _ => format!("{}{path}", "../".repeat(up)),
    }
}
