//! Control stanzas (Debian Policy 5.1) and the relations between packages (Policy 7.1).
//!
//! Stanzas are read one at a time from a stream into one buffer, so an index of any length costs
//! the memory of its longest stanza. Bounded: a stanza of more than [`MAX_STANZA`] bytes, a field
//! that occurs twice or a line that is no field is an error.

use std::io::BufRead;

/// The longest stanza in the archive of 2026 is below 200 KiB.
pub const MAX_STANZA: usize = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("reading control data")]
    Read(#[from] std::io::Error),
    #[error("stanza ending at line {line} is longer than {MAX_STANZA} bytes")]
    TooLong { line: usize },
    #[error("line {line} is neither a field nor a continuation: `{text}`")]
    Malformed { line: usize, text: String },
    #[error("line {line} is not UTF-8")]
    NotText { line: usize },
    #[error("line {line}: field `{field}` occurs twice in one stanza")]
    Duplicate { line: usize, field: String },
}

/// One stanza, borrowed from the reader's buffer.
#[derive(Debug)]
pub struct Stanza<'a> {
    text: &'a str,
    fields: &'a [Field],
}

/// Where a field's name and value stand in the text.
#[derive(Debug, Clone, Copy)]
struct Field {
    name: (usize, usize),
    value: (usize, usize),
}

impl<'a> Stanza<'a> {
    /// The value as it stands, continuation lines included, without surrounding white space.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.fields.iter().map(|field| {
            (
                &self.text[field.name.0..field.name.1],
                &self.text[field.value.0..field.value.1],
            )
        })
    }

    /// The stanza as it was written, each line with its newline.
    pub fn text(&self) -> &'a str {
        self.text
    }
}

/// Reads stanzas separated by blank lines.
pub struct StanzaReader<R> {
    input: R,
    buffer: Vec<u8>,
    fields: Vec<Field>,
    line: usize,
}

impl<R: BufRead> StanzaReader<R> {
    pub fn new(input: R) -> Self {
        StanzaReader {
            input,
            buffer: Vec::new(),
            fields: Vec::new(),
            line: 0,
        }
    }

    /// The next stanza, until the end of the input.
    pub fn next_stanza(&mut self) -> Result<Option<Stanza<'_>>, ControlError> {
        self.buffer.clear();
        self.fields.clear();
        let first_line = self.line + 1;
        loop {
            let start = self.buffer.len();
            let room = (MAX_STANZA + 1 - start) as u64;
            let read =
                std::io::Read::take(&mut self.input, room).read_until(b'\n', &mut self.buffer)?;
            if self.buffer.len() > MAX_STANZA {
                return Err(ControlError::TooLong {
                    line: self.line + 1,
                });
            }
            if read == 0 {
                break;
            }
            self.line += 1;
            if self.buffer[start..].trim_ascii().is_empty() {
                self.buffer.truncate(start);
                if start == 0 {
                    continue;
                }
                break;
            }
        }
        if self.buffer.is_empty() {
            return Ok(None);
        }
        if self.buffer.last() != Some(&b'\n') {
            self.buffer.push(b'\n');
        }
        let text = std::str::from_utf8(&self.buffer).map_err(|error| ControlError::NotText {
            line: first_line + newlines(&self.buffer[..error.valid_up_to()]),
        })?;
        index_fields(text, first_line, &mut self.fields)?;
        Ok(Some(Stanza {
            text,
            fields: &self.fields,
        }))
    }
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

fn index_fields(
    text: &str,
    first_line: usize,
    fields: &mut Vec<Field>,
) -> Result<(), ControlError> {
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let here = start;
        start += line.len();
        let malformed = || ControlError::Malformed {
            line: first_line + number,
            text: line
                .trim_end()
                .chars()
                .take(80)
                .flat_map(char::escape_debug)
                .collect(),
        };
        if line.starts_with([' ', '\t']) {
            let field = fields.last_mut().ok_or_else(malformed)?;
            field.value.1 = here + line.trim_end().len();
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let colon = line.find(':').ok_or_else(malformed)?;
        let name = &line[..colon];
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(malformed());
        }
        if fields
            .iter()
            .any(|field| text[field.name.0..field.name.1].eq_ignore_ascii_case(name))
        {
            return Err(ControlError::Duplicate {
                line: first_line + number,
                field: name.to_owned(),
            });
        }
        let value = line[colon + 1..].trim_end();
        let skipped = value.len() - value.trim_start().len();
        let begin = here + colon + 1 + skipped;
        fields.push(Field {
            name: (here, here + colon),
            value: (begin, here + colon + 1 + value.len()),
        });
    }
    Ok(())
}

/// `<<`, `<=`, `=`, `>=`, `>>`; the obsolete `<` and `>` mean `<=` and `>=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Earlier,
    EarlierOrEqual,
    Equal,
    LaterOrEqual,
    Later,
}

impl Relation {
    /// Whether `version` stands in this relation to `bound`.
    pub fn holds(self, version: &str, bound: &str) -> bool {
        let order = super::version::compare(version, bound);
        match self {
            Relation::Earlier => order.is_lt(),
            Relation::EarlierOrEqual => order.is_le(),
            Relation::Equal => order.is_eq(),
            Relation::LaterOrEqual => order.is_ge(),
            Relation::Later => order.is_gt(),
        }
    }
}

/// One alternative: `name:qualifier (relation version)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alternative<'a> {
    pub name: &'a str,
    /// `any`, `native` or an architecture.
    pub qualifier: Option<&'a str>,
    pub version: Option<(Relation, &'a str)>,
}

impl Alternative<'_> {
    pub fn accepts(&self, version: &str) -> bool {
        self.version
            .is_none_or(|(relation, bound)| relation.holds(version, bound))
    }
}

/// Alternatives of which one must hold.
pub type Group<'a> = Vec<Alternative<'a>>;

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("relation `{text}` is malformed: {reason}")]
pub struct InvalidRelation {
    text: String,
    reason: &'static str,
}

/// The relations of one field that apply to `architecture` with no build profile active. A group
/// of which no alternative applies is left out.
pub fn parse_relations<'a>(
    field: &'a str,
    architecture: &str,
) -> Result<Vec<Group<'a>>, InvalidRelation> {
    let mut groups = Vec::new();
    for group in field
        .split(',')
        .map(str::trim)
        .filter(|group| !group.is_empty())
    {
        let mut alternatives = Group::new();
        for text in group.split('|') {
            if let Some(alternative) = parse_alternative(text.trim(), architecture)? {
                alternatives.push(alternative);
            }
        }
        if !alternatives.is_empty() {
            groups.push(alternatives);
        }
    }
    Ok(groups)
}

fn parse_alternative<'a>(
    text: &'a str,
    architecture: &str,
) -> Result<Option<Alternative<'a>>, InvalidRelation> {
    let refuse = |reason| InvalidRelation {
        text: text
            .chars()
            .take(120)
            .flat_map(char::escape_debug)
            .collect(),
        reason,
    };
    let end = text
        .find(|c: char| c.is_ascii_whitespace() || "([<".contains(c))
        .unwrap_or(text.len());
    let (name, mut rest) = (&text[..end], text[end..].trim_start());
    let (name, qualifier) = match name.split_once(':') {
        Some((name, qualifier)) => (name, Some(qualifier)),
        None => (name, None),
    };
    if !super::package::is_package_name(name) {
        return Err(refuse("it does not start with a package name"));
    }
    if qualifier.is_some_and(|qualifier| !super::package::is_word(qualifier)) {
        return Err(refuse("what follows the colon is no architecture"));
    }
    let mut version = None;
    if let Some(inner) = rest.strip_prefix('(') {
        let (inner, after) = inner
            .split_once(')')
            .ok_or_else(|| refuse("a parenthesis is not closed"))?;
        let inner = inner.trim();
        let digits = inner.find(|c| !"<>=".contains(c)).unwrap_or(inner.len());
        let relation = match &inner[..digits] {
            "<<" => Relation::Earlier,
            "<=" | "<" => Relation::EarlierOrEqual,
            "=" => Relation::Equal,
            ">=" | ">" => Relation::LaterOrEqual,
            ">>" => Relation::Later,
            _ => return Err(refuse("its relation is none of << <= = >= >>")),
        };
        let bound = inner[digits..].trim();
        if bound.is_empty() || bound.contains(|c: char| c.is_whitespace()) {
            return Err(refuse("it has no version"));
        }
        version = Some((relation, bound));
        rest = after.trim_start();
    }
    let mut applies = true;
    if let Some(inner) = rest.strip_prefix('[') {
        let (inner, after) = inner
            .split_once(']')
            .ok_or_else(|| refuse("a bracket is not closed"))?;
        applies = applies_to(inner, architecture);
        rest = after.trim_start();
    }
    // Restriction formulas: a disjunction of conjunctions; `<!x>` holds as no profile is active.
    let (mut formulas, mut any_holds) = (false, false);
    while let Some(inner) = rest.strip_prefix('<') {
        let (inner, after) = inner
            .split_once('>')
            .ok_or_else(|| refuse("a restriction is not closed"))?;
        formulas = true;
        any_holds |= inner
            .split_ascii_whitespace()
            .all(|profile| profile.starts_with('!'));
        rest = after.trim_start();
    }
    if !rest.is_empty() {
        return Err(refuse("it goes on after its end"));
    }
    Ok(
        (applies && (any_holds || !formulas)).then_some(Alternative {
            name,
            qualifier,
            version,
        }),
    )
}

/// `amd64 arm64`, `!s390x`, `any`, `linux-any`, `any-arm64`.
fn applies_to(list: &str, architecture: &str) -> bool {
    let matches = |name: &str| {
        name == architecture
            || name == "any"
            || name == "linux-any"
            || name.strip_prefix("linux-").or(name.strip_prefix("any-")) == Some(architecture)
    };
    let mut names = list.split_ascii_whitespace().peekable();
    match names.peek() {
        Some(first) if first.starts_with('!') => {
            !names.any(|name| matches(name.trim_start_matches('!')))
        }
        _ => names.any(matches),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_all(bytes: &[u8]) -> Result<Vec<Vec<(String, String)>>, ControlError> {
        let mut reader = StanzaReader::new(bytes);
        let mut stanzas = Vec::new();
        while let Some(stanza) = reader.next_stanza()? {
            stanzas.push(
                stanza
                    .iter()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
            );
        }
        Ok(stanzas)
    }

    #[test]
    fn reads_stanzas_with_continuations() {
        let text = b"\n\nPackage: a\nDescription: short\n long\n .\n end\nEmpty:\n\n \t\nPackage:b\nFiles:\n 1 x\n 2 y";
        let stanzas = read_all(text).unwrap();
        assert_eq!(stanzas.len(), 2);
        assert_eq!(stanzas[0][1].1, "short\n long\n .\n end");
        assert_eq!(stanzas[0][2], ("Empty".into(), String::new()));
        assert_eq!(stanzas[1][0].1, "b");
        assert_eq!(
            stanzas[1][1].1.lines().map(str::trim).collect::<Vec<_>>(),
            ["", "1 x", "2 y"]
        );
        let mut reader = StanzaReader::new(&text[..]);
        assert_eq!(
            reader.next_stanza().unwrap().unwrap().get("package"),
            Some("a")
        );
    }

    #[test]
    fn names_the_line_that_is_wrong() {
        let message = |bytes: &[u8]| read_all(bytes).unwrap_err().to_string();
        assert_eq!(
            message(b"A: 1\n\nB: 2\nnonsense\n"),
            "line 4 is neither a field nor a continuation: `nonsense`"
        );
        assert_eq!(
            message(b" first\n"),
            "line 1 is neither a field nor a continuation: ` first`"
        );
        assert_eq!(
            message(b"A: 1\na: 2\n"),
            "line 2: field `a` occurs twice in one stanza"
        );
        assert_eq!(message(b"A: 1\nB: \xff\n"), "line 2 is not UTF-8");
        let long = [b"A: ".as_slice(), &vec![b'x'; MAX_STANZA]].concat();
        assert!(matches!(
            read_all(&long),
            Err(ControlError::TooLong { line: 1 })
        ));
    }

    #[test]
    fn reads_relations() {
        let text =
            "aa (>= 1) [amd64] | bb:any <!nocheck>, cc(<<2) <cross>, dd [!amd64], ee [linux-any]";
        assert_eq!(
            parse_relations(text, "amd64").unwrap(),
            [
                vec![
                    Alternative {
                        name: "aa",
                        qualifier: None,
                        version: Some((Relation::LaterOrEqual, "1"))
                    },
                    Alternative {
                        name: "bb",
                        qualifier: Some("any"),
                        version: None
                    }
                ],
                vec![Alternative {
                    name: "ee",
                    qualifier: None,
                    version: None
                }]
            ]
        );
        assert_eq!(
            parse_relations("cc(<<2) <cross> <!nocheck !doc>", "amd64")
                .unwrap()
                .len(),
            1
        );
        assert!(parse_relations("dd [!amd64]", "arm64").unwrap()[0][0].accepts("9"));
        assert!(!parse_relations("dd (<< 2~)", "arm64").unwrap()[0][0].accepts("2~"));
        for bad in [
            "aa (1)",
            "aa (>= 1",
            "aa (>=)",
            "aa [amd64",
            "aa <x",
            "aa bb",
            "|",
            "AA",
            "aa (>= 1 2)",
            "aa:",
        ] {
            assert!(parse_relations(bad, "amd64").is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), text in any::<String>()) {
            let _ = read_all(&bytes);
            let _ = read_all(text.as_bytes());
            let _ = parse_relations(&text, "amd64");
        }

        #[test]
        fn never_panics_near_the_grammar(
            stanza in "([A-C#]?:? ?[ab]?[\n ]){0,12}",
            relation in "[ab]{2,3}[:(<>=,|\\[\\]! 1)]{0,12}",
        ) {
            let _ = read_all(stanza.as_bytes());
            let _ = parse_relations(&relation, "amd64");
        }

        #[test]
        fn gives_back_what_was_written(values in proptest::collection::vec("[a-z]{1,8}(\n [a-z]{1,8}){0,3}", 1..6)) {
            let text: String = values.iter().enumerate().map(|(i, value)| format!("F{i}: {value}\n")).collect();
            let stanzas = read_all(text.as_bytes()).unwrap();
            prop_assert_eq!(stanzas[0].iter().map(|(_, value)| value.clone()).collect::<Vec<_>>(), values);
        }
    }
}
