//! A YAML document with comments, whose values every reader takes for what they are.
//!
//! Plain is what begins with a letter and can be nothing but text; all else is in double quotes, where everything
//! that is not printable is escaped. YAML 1.1, which Compose's and Kubernetes' readers speak, knows more words that
//! are not text than 1.2: `yes`, `on`, `1e3`, `1:30`.

use std::fmt::Write as _;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Yaml {
    Text(String),
    Number(u64),
    Bool(bool),
    List(Vec<Yaml>),
    Map(Map),
}

/// A mapping in the order of its keys' insertion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Map(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    key: String,
    value: Yaml,
    why: Option<String>,
}

/// Longest line of a comment.
const WIDTH: usize = 110;

/// Words that are not text in YAML 1.1 or 1.2.
const WORDS: [&str; 11] = [
    "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf",
];

impl Map {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Yaml>) -> Self {
        self.0.push(Entry {
            key: key.to_owned(),
            value: value.into(),
            why: None,
        });
        self
    }

    /// Adds an entry if there is a value.
    pub(crate) fn maybe(self, key: &str, value: Option<impl Into<Yaml>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Puts a comment above the last entry.
    pub(crate) fn why(mut self, why: impl Into<String>) -> Self {
        if let Some(entry) = self.0.last_mut() {
            entry.why = Some(why.into());
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the document, which ends with a line break.
    pub(crate) fn document(&self) -> String {
        let mut out = String::new();
        write_map(&mut out, self, 0);
        out
    }
}

impl From<&str> for Yaml {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Yaml {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Yaml {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Yaml {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<Map> for Yaml {
    fn from(map: Map) -> Self {
        Self::Map(map)
    }
}

impl<T: Into<Yaml>> From<Vec<T>> for Yaml {
    fn from(list: Vec<T>) -> Self {
        Self::List(list.into_iter().map(Into::into).collect())
    }
}

fn write_map(out: &mut String, map: &Map, indent: usize) {
    for (number, entry) in map.0.iter().enumerate() {
        // The first entry of a list's item stands after its dash, where no comment can be.
        if number > 0 || !out.ends_with("- ") {
            comment(out, entry.why.as_deref(), indent);
            pad(out, indent);
        }
        out.push_str(&text(&entry.key));
        out.push(':');
        match &entry.value {
            Yaml::Map(map) if !map.is_empty() => {
                out.push('\n');
                write_map(out, map, indent + 2);
            }
            Yaml::List(list) if list.iter().any(|item| matches!(item, Yaml::Map(_))) => {
                out.push('\n');
                write_items(out, list, indent + 2);
            }
            value => {
                out.push(' ');
                inline(out, value);
                out.push('\n');
            }
        }
    }
}

fn write_items(out: &mut String, list: &[Yaml], indent: usize) {
    for item in list {
        pad(out, indent);
        out.push_str("- ");
        match item {
            Yaml::Map(map) if !map.is_empty() => write_map(out, map, indent + 2),
            value => {
                inline(out, value);
                out.push('\n');
            }
        }
    }
}

/// Writes a value on the line that was begun. Mappings with entries never come here.
fn inline(out: &mut String, value: &Yaml) {
    match value {
        Yaml::Text(value) => out.push_str(&text(value)),
        Yaml::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Yaml::Bool(value) => {
            let _ = write!(out, "{value}");
        }
        Yaml::Map(_) => out.push_str("{}"),
        Yaml::List(list) => {
            out.push('[');
            for (number, item) in list.iter().enumerate() {
                if number > 0 {
                    out.push_str(", ");
                }
                inline(out, item);
            }
            out.push(']');
        }
    }
}

fn comment(out: &mut String, why: Option<&str>, indent: usize) {
    let mut line = String::new();
    for word in why.into_iter().flat_map(str::split_whitespace) {
        if !line.is_empty() && indent + 3 + line.len() + word.len() > WIDTH {
            pad(out, indent);
            let _ = writeln!(out, "#{line}");
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    if !line.is_empty() {
        pad(out, indent);
        let _ = writeln!(out, "#{line}");
    }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Returns a text as a scalar.
fn text(text: &str) -> String {
    let mut chars = text.chars();
    let begins = chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '/');
    let goes_on = chars.all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let is_word = WORDS.contains(&text.to_ascii_lowercase().as_str());
    if begins && goes_on && !is_word {
        return text.to_owned();
    }
    quoted(text)
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            ' ' => out.push(c),
            c if c.is_ascii_graphic() || c.is_alphanumeric() => out.push(c),
            c if u32::from(c) <= 0xff => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if u32::from(c) <= 0xffff => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn a_document_with_reasons() {
        let list = vec![Yaml::from(Map::new().with("a", 1).with("b", "yes"))];
        let map = Map::new()
            .with("image", "x@sha256:1")
            .why("by digest")
            .with("command", vec!["python", "-m", "1e3"])
            .with("list", list)
            .with("empty", Map::new())
            .with("deep", Map::new().with("x", true).why("so"));
        assert_eq!(
            map.document(),
            "# by digest\nimage: \"x@sha256:1\"\ncommand: [python, \"-m\", \"1e3\"]\nlist:\n  - a: 1\n    b: \"yes\"\nempty: {}\ndeep:\n  # so\n  x: true\n"
        );
    }

    impl From<i32> for Yaml {
        fn from(number: i32) -> Self {
            Self::Number(number.unsigned_abs().into())
        }
    }

    #[test]
    fn what_could_be_something_else_is_quoted() {
        for text in [
            "",
            "yes",
            "No",
            "1e3",
            "0x10",
            "1:30",
            "null",
            "~",
            "- a",
            "a: b",
            "a #b",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a`",
            "{a}",
            "[a]",
            "a,b",
            "true",
            ".5",
            "2026-01-01",
            "=",
            "<<",
            " a",
            "a ",
            "-",
            "?",
            "|",
            ">",
            "'a'",
        ] {
            assert!(super::text(text).starts_with('"'), "{text}");
        }
        for text in ["python", "/data", "linux/amd64", "unless-stopped", "v1.2"] {
            assert_eq!(super::text(text), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_it_was(key in "(?s).{0,20}", value in "(?s).{0,40}") {
            let written = Map::new().with("top", Map::new().with(&key, value.as_str())).document();
            let read: Value = serde_saphyr::from_str(&written).unwrap();
            prop_assert_eq!(read, json!({ "top": { (key): value } }));
        }
    }
}
