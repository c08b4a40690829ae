//! A pyproject.toml as tables.

use super::file::File;
use std::path::Path;
use toml::{Table, Value};

/// A file's tables, and where their values stand.
pub(super) struct Document<'a> {
    pub file: &'a File,
    pub table: Table,
}

impl Document<'_> {
    /// Returns a table by its keys.
    pub fn table(&self, keys: &[&str]) -> Option<&Table> {
        let mut table = &self.table;
        for key in keys {
            table = table.get(*key)?.as_table()?;
        }
        Some(table)
    }

    /// Returns the place of a text of the file.
    pub fn at(&self, text: &str) -> String {
        let line = self.file.text.lines().position(|l| l.contains(text));
        match line {
            Some(line) => format!("{}:{}", self.file.shown, line + 1),
            None => self.file.shown.clone(),
        }
    }

    pub fn folder(&self) -> &Path {
        self.file.path.parent().unwrap_or(Path::new(""))
    }
}

/// Returns the texts of a list.
pub(super) fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str)
}
