//! Writes text as YAML that parsers of YAML 1.1 and 1.2 read back as the same text.

use stackforge_types::printable::is_plain;
use std::fmt::Write as _;

/// Whether a character is written as it is. YAML allows more, but people would not see them.
fn printable(c: char) -> bool {
    is_plain(c) && !matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Returns a double-quoted scalar on one line.
pub fn scalar(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if printable(c) => out.push(c),
            // Writing to a String cannot fail.
            c => {
                let _ = match u32::from(c) {
                    code @ 0..0x10000 => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push('"');
    out
}

/// Returns a literal block for people to read, as the value of a key that is indented by `indent` spaces,
/// or a double-quoted scalar if the text does not fit a block. The last line break is left out: the
/// template writes it.
pub fn block(text: &str, indent: usize) -> String {
    let fits = |c: char| c == '\n' || c == '\t' || printable(c);
    let last = text.trim_end_matches('\n');
    if last.is_empty() || !text.chars().all(fits) {
        return scalar(text);
    }
    let (chomping, body) = match text.len() - last.len() {
        0 => ("-", text),
        1 => ("", last),
        // `+` keeps every line break; the template writes the last one.
        _ => ("+", &text[..text.len() - 1]),
    };
    // State the indentation: a parser cannot guess it if the first line begins with spaces.
    let mut out = format!("|2{chomping}");
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(&" ".repeat(indent + 2));
            out.push_str(line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn parsed(yaml: &str) -> BTreeMap<String, BTreeMap<String, String>> {
        serde_saphyr::from_str(yaml).unwrap_or_else(|e| panic!("{e}: {yaml:?}"))
    }

    #[test]
    fn blocks_read_well() {
        assert_eq!(block("a: 1\n\nb: 2\n", 2), "|2\n    a: 1\n\n    b: 2");
        assert_eq!(block("a", 2), "|2-\n    a");
        assert_eq!(block("a\r\n", 2), "\"a\\u000d\\n\"");
        assert_eq!(block("", 2), "\"\"");
    }

    proptest! {
        #[test]
        fn a_parser_reads_the_very_text(text in "(\\PC|\\p{Cc}|[\n\t \"'\\\\:#{}$]|\u{feff}|\u{85}|\u{2028}|\u{202e}|\u{e0041}){0,40}") {
            let yaml = format!("top:\n  block: {}\n  scalar: {}\n", block(&text, 2), scalar(&text));
            let top = &parsed(&yaml)["top"];
            prop_assert_eq!(&top["scalar"], &text, "{}", yaml);
            prop_assert_eq!(&top["block"], &text, "{}", yaml);
        }
    }
}
