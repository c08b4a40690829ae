//! Places in a stack file.

use serde::Serialize;

/// Place in a source text. Lines and columns count from one; offset and length are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Span {
    pub line: u32,
    pub column: u32,
    #[serde(skip)]
    pub offset: usize,
    #[serde(skip)]
    pub len: usize,
}

impl Span {
    /// Returns the place of a byte range of `text`, up to the end of its first line. The column counts
    /// characters. The end of the text if the range does not begin within it.
    pub fn of(text: &str, range: std::ops::Range<usize>) -> Self {
        let (before, rest) = text.split_at_checked(range.start).unwrap_or((text, ""));
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let line = before.rsplit('\n').next().unwrap_or_default();
        let left = rest.lines().next().unwrap_or_default();
        Self {
            line: count(before.matches('\n').count() + 1),
            column: count(line.chars().count() + 1),
            offset: before.len(),
            len: range.len().min(left.len()),
        }
    }
}

/// A value and where it stands in the stack file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub value: T,
    pub span: Span,
}

impl<T: Serialize> Serialize for At<T> {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_within_one_line_of_the_text() {
        let text = "a = 1\nä = \"x\"\nb = 2\n";
        let at = text.find('"').unwrap();
        let span = Span::of(text, at..at + 3);
        assert_eq!((span.line, span.column, span.len), (2, 5, 3));
        assert_eq!(Span::of(text, at..text.len()).len, 3, "to the line's end");
        let end = Span::of(text, text.len()..text.len());
        assert_eq!((end.line, end.column, end.len), (4, 1, 0));
        assert_eq!(Span::of(text, 99..100), end);
    }
}
