//! Diagnostics: what stackforge tells a user about their input.
//!
//! In: a [`Code`] from the one table in [`codes`], a message, and where in which text.
//! Out: an underlined report for people ([`render`]) or plain data for `--json`.
//! A diagnostic never carries a secret and never exists without a code.

pub mod codes;
mod libraries;
mod page;
mod render;

use crate::fix::Fix;
use crate::span::At;
pub use crate::span::Span;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

pub use codes::Code;
pub use libraries::of_disk;
pub use page::markdown;
pub use render::{Rendered, render};

/// An error as the command line tells of it. The same cause has the same code in every command: an error
/// that wraps another one returns the other's code.
pub trait Explained: std::error::Error {
    fn code(&self) -> Code;

    /// Returns advice for the user, as a sentence without its full stop.
    fn help(&self) -> String {
        self.code().fix().to_owned()
    }

    /// Returns the exit status of a command that ends with this error.
    fn exit(&self) -> u8 {
        self.code().exit()
    }

    fn diagnostic(&self) -> Diagnostic
    where
        Self: Sized,
    {
        let diagnostic = Diagnostic::error(self.code(), chain(self));
        match self.help() {
            help if help.is_empty() => diagnostic,
            help => diagnostic.help(help),
        }
    }
}

/// Returns an error's text with those of its sources, each text once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing to do; good to know.
    Note,
    Warning,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub code: Code,
    pub severity: Severity,
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
    /// Text beside the underline.
    #[serde(skip)]
    pub label: Option<String>,
    /// The change of the stack file that settles it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Box<Fix>>,
}

impl Diagnostic {
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: message.into(),
            help: None,
            span: None,
            label: None,
            fix: None,
        }
    }

    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, message)
        }
    }

    pub fn note(code: Code, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Note,
            ..Self::error(code, message)
        }
    }

    /// Advises, if nothing did so before.
    pub fn or_help(self, help: impl FnOnce() -> String) -> Self {
        match self.help {
            Some(_) => self,
            None => self.help(help()),
        }
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub fn at(mut self, span: Span) -> Self {
        self.span = (span.line > 0).then_some(span);
        self
    }

    pub fn fix(mut self, fix: Fix) -> Self {
        self.fix = Some(Box::new(fix));
        self
    }

    /// Advises to write the nearest name, as a fix if no other name is as near. Changes nothing if no name is near.
    pub fn suggest<'a>(
        self,
        wrong: &str,
        span: Span,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let near = near(wrong, names);
        let Some((distance, name)) = near.iter().min() else {
            return self;
        };
        let helped = self.help(format!("did you mean `{name}`?"));
        let as_near = near.iter().filter(|(d, _)| d == distance).count();
        if as_near > 1 {
            return helped;
        }
        helped.fix(Fix::Replace {
            span,
            from: wrong.to_owned(),
            to: (*name).to_owned(),
        })
    }

    /// Lets `check --fix` write the one value that is possible in place of the stack's, if it is one.
    pub fn only<T: fmt::Display>(self, written: &At<T>, possible: &[T]) -> Self {
        match possible {
            [one] => self.fix(Fix::Replace {
                span: written.span,
                from: written.value.to_string(),
                to: one.to_string(),
            }),
            _ => self,
        }
    }

    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }
}

/// Text that diagnostics point into: its display name and content.
#[derive(Debug, Clone, Default)]
pub struct Source {
    pub name: String,
    pub text: String,
    /// Lines of the file before `text`, for an excerpt.
    pub above: usize,
}

/// One or more findings that stop a command, with the text they point into.
#[derive(Debug, Clone)]
pub struct Report {
    pub source: Source,
    pub diagnostics: Vec<Diagnostic>,
}

impl Report {
    pub fn new(source: Source, diagnostics: Vec<Diagnostic>) -> Self {
        Self {
            source,
            diagnostics,
        }
    }

    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|d| d.severity == Severity::Error)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in self.diagnostics.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{}: {}", d.code, d.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

/// The candidate nearest to `wrong`, when one is near enough to be what was meant.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = near(wrong, candidates).into_iter().min();
    near.map(|(_, candidate)| candidate)
}

/// Returns the candidates that may have been meant, and how far off they are.
fn near<'a>(
    wrong: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<(usize, &'a str)> {
    let wrong_lower = wrong.to_lowercase();
    let measured = candidates.into_iter().map(|c| {
        let distance = strsim::damerau_levenshtein(&wrong_lower, &c.to_lowercase());
        (distance, c)
    });
    let is_near =
        |(distance, c): &(usize, &str)| *distance <= (c.len().max(wrong.len()) / 3).max(1);
    measured.filter(is_near).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_takes_the_closest_and_refuses_the_far() {
        let names = ["thor", "orin", "h100", "flash-attn"];
        assert_eq!(nearest("thro", names), Some("thor"));
        assert_eq!(nearest("H100", names), Some("h100"));
        assert_eq!(nearest("flash_attn", names), Some("flash-attn"));
        assert_eq!(nearest("tensorflow", names), None);
    }
}
