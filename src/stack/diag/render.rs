//! Diagnostics as underlined text, through miette.
//!
//! Every text of a report is made printable before it is coloured: the escape sequences in what
//! comes out are those of the colours, and no other.

use super::{Diagnostic, Report, Severity, Source, Span};
use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents,
    SourceCode, SourceSpan, SpanContents,
};
use stackforge_types::printable;
use std::fmt;

/// Longest line that is shown, in bytes.
const MAX_LINE: usize = 400;

/// Reports as they are printed. Only [`render`] makes one, so the output layer may print it with
/// the escape sequences that it has.
#[derive(Debug, Default)]
pub struct Rendered(String);

impl Rendered {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromIterator<Rendered> for Rendered {
    fn from_iter<I: IntoIterator<Item = Self>>(all: I) -> Self {
        Self(all.into_iter().map(|one| one.0).collect())
    }
}

/// The whole report, one block per diagnostic; `color` turns ANSI styles on.
pub fn render(report: &Report, color: bool) -> Rendered {
    let theme = if color {
        GraphicalTheme::unicode()
    } else {
        GraphicalTheme::unicode_nocolor()
    };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(100)
        .with_links(false);
    let mut out = String::new();
    for diagnostic in &report.diagnostics {
        let (diagnostic, source) = printable(diagnostic, &report.source);
        let shown = Shown { diagnostic, source };
        // Writing to a String cannot fail; an error here would be miette's own.
        if handler.render_report(&mut out, &shown).is_err() {
            let d = &shown.diagnostic;
            out.push_str(&format!("{}: {}\n", d.code, d.message));
        }
    }
    Rendered(out)
}

/// The same diagnostic, pointing to the same place of the same text.
fn printable(diagnostic: &Diagnostic, source: &Source) -> (Diagnostic, Source) {
    let text = |text: &String| printable::text(text).into_owned();
    let shown = Source {
        name: printable::line(&source.name).into_owned(),
        text: text(&source.text),
        above: source.above,
    };
    let span = diagnostic.span.map(|span| {
        if shown.text == source.text {
            span
        } else {
            moved(span, &source.text)
        }
    });
    let shown_diagnostic = Diagnostic {
        message: text(&diagnostic.message),
        help: diagnostic.help.as_ref().map(text),
        label: diagnostic.label.as_ref().map(text),
        span,
        fix: None,
        ..*diagnostic
    };
    (shown_diagnostic, shown)
}

/// Where a span of `text` is once the text is printable. A span that is not in the text, or begins
/// within a character, stays: nothing is underlined there.
fn moved(span: Span, text: &str) -> Span {
    let length = |part: &str| printable::text(part).len();
    let end = span.offset + span.len;
    match (text.get(..span.offset), text.get(span.offset..end)) {
        (Some(before), Some(part)) => Span {
            offset: length(before),
            len: length(part),
            ..span
        },
        _ => span,
    }
}

/// Names the file, and counts the lines that stand before an excerpt.
impl SourceCode for Source {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let inner = self.text.read_span(span, before, after)?;
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.clone(),
            inner.data(),
            *inner.span(),
            self.above + inner.line(),
            inner.column(),
            inner.line_count(),
        )))
    }
}

struct Shown {
    diagnostic: Diagnostic,
    source: Source,
}

impl Shown {
    /// The place to underline; none where its line is too long to be shown.
    fn span(&self) -> Option<Span> {
        let span = self.diagnostic.span?;
        let text = &self.source.text;
        let before = text.get(..span.offset)?.rsplit('\n').next()?.len();
        let after = text.get(span.offset..)?.split('\n').next()?.len();
        (before + after <= MAX_LINE).then_some(span)
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostic.fmt(f)
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostic.message)?;
        match (self.diagnostic.span, self.span()) {
            (Some(s), None) => write!(f, " (line {}, column {})", s.line, s.column),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Shown {}

impl miette::Diagnostic for Shown {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.diagnostic.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
            Severity::Note => miette::Severity::Advice,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let fix = || self.diagnostic.code.explanation().map(|e| e.fix);
        let help = self.diagnostic.help.as_deref().or_else(fix)?;
        Some(Box::new(help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.span().map(|_| &self.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.span()?;
        Some(Box::new(std::iter::once(LabeledSpan::new(
            Some(
                self.diagnostic
                    .label
                    .clone()
                    .unwrap_or_else(|| "here".into()),
            ),
            span.offset,
            span.len.max(1),
        ))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::codes;

    #[test]
    fn a_foreign_text_brings_no_escape_sequence_and_is_underlined_where_it_is() {
        let text = "# \u{1b}]0;x\u{7}\r\na: \u{1b}[31mred\u{202e}\r\nb: 1\r\n";
        let offset = text.find("red").unwrap();
        let span = Span {
            line: 2,
            column: 9,
            offset,
            len: 3,
        };
        let diagnostic = Diagnostic::error(codes::BAD_VALUE, "no \u{1b}[2J")
            .help("\u{9b}2J")
            .label("\u{8}\u{8}")
            .at(span);
        let source = Source {
            name: "a\nb\u{1b}".to_owned(),
            text: text.to_owned(),
            above: 0,
        };
        let report = Report::new(source, vec![diagnostic]);
        let shown = render(&report, false);
        let shown = shown.as_str();
        assert_eq!(printable::text(shown), shown);
        let lines: Vec<&str> = shown.lines().collect();
        let at = lines.iter().position(|l| l.contains("[31mred")).unwrap();
        let column = |line: &str, what| line[..line.find(what).unwrap()].chars().count();
        assert_eq!(
            column(lines[at], "red"),
            column(lines[at + 1], "─"),
            "{shown}"
        );

        // In colour each sequence is a colour.
        let colours = |report| {
            let shown = render(report, true);
            let parts = shown.as_str().split('\u{1b}').skip(1);
            parts
                .map(|p| p.split_inclusive('m').next().unwrap().to_owned())
                .collect::<std::collections::BTreeSet<_>>()
        };
        for colour in colours(&report) {
            let digits = |c: char| c.is_ascii_digit() || c == ';';
            let inside = colour.strip_prefix('[').and_then(|c| c.strip_suffix('m'));
            assert!(inside.is_some_and(|c| c.chars().all(digits)), "{colour:?}");
        }
        assert!(!colours(&report).is_empty());
    }
}
