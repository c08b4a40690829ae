//! Diagnostics as underlined text, through miette.

use super::{Diagnostic, Report, Severity, Source};
use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents,
    SourceCode, SourceSpan, SpanContents,
};
use std::fmt;

/// Longest line that is shown, in bytes.
const MAX_LINE: usize = 400;

/// The whole report, one block per diagnostic; `color` turns ANSI styles on.
pub fn render(report: &Report, color: bool) -> String {
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
        let shown = Shown {
            diagnostic,
            source: &report.source,
        };
        // Writing to a String cannot fail; an error here would be miette's own.
        if handler.render_report(&mut out, &shown).is_err() {
            out.push_str(&format!("{}: {}\n", diagnostic.code, diagnostic.message));
        }
    }
    out
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

struct Shown<'a> {
    diagnostic: &'a Diagnostic,
    source: &'a Source,
}

impl Shown<'_> {
    /// The place to underline; none where its line is too long to be shown.
    fn span(&self) -> Option<super::Span> {
        let span = self.diagnostic.span?;
        let text = &self.source.text;
        let before = text.get(..span.offset)?.rsplit('\n').next()?.len();
        let after = text.get(span.offset..)?.split('\n').next()?.len();
        (before + after <= MAX_LINE).then_some(span)
    }
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostic.fmt(f)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostic.message)?;
        match (self.diagnostic.span, self.span()) {
            (Some(s), None) => write!(f, " (line {}, column {})", s.line, s.column),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Shown<'_> {}

impl miette::Diagnostic for Shown<'_> {
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
        self.span().map(|_| self.source as &dyn SourceCode)
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
