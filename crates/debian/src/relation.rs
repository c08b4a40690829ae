//! Relations between packages (Debian Policy 7.1): `a (>= 1) [amd64] | b:any <!nocheck>, c`.
//!
//! They are parsed for one architecture with no build profile active; what does not apply is left out.

use std::fmt;

/// A comparison of versions. The obsolete `<` and `>` are read as `<=` and `>=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// `<<`: strictly earlier.
    Earlier,
    /// `<=`: earlier or equal.
    EarlierOrEqual,
    /// `=`: exactly equal.
    Equal,
    /// `>=`: later or equal.
    LaterOrEqual,
    /// `>>`: strictly later.
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
    /// Name of a package or of a virtual package.
    pub name: &'a str,
    /// Text after the colon: `any`, `native` or an architecture.
    pub qualifier: Option<&'a str>,
    /// Constraint on the version. `None` if any version will do.
    pub version: Option<(Relation, &'a str)>,
}

impl fmt::Display for Alternative<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((relation, version)) = self.version else {
            return f.write_str(self.name);
        };
        let sign = match relation {
            Relation::Earlier => "<<",
            Relation::EarlierOrEqual => "<=",
            Relation::Equal => "=",
            Relation::LaterOrEqual => ">=",
            Relation::Later => ">>",
        };
        write!(f, "{} ({sign} {version})", self.name)
    }
}

impl Alternative<'_> {
    /// Whether `version` meets this alternative's constraint.
    pub fn accepts(&self, version: &str) -> bool {
        self.version
            .is_none_or(|(relation, bound)| relation.holds(version, bound))
    }
}

/// Alternatives, at least one of which must hold.
pub type Group<'a> = Vec<Alternative<'a>>;

/// A relation that does not parse.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("relation `{text}` is malformed: {reason}")]
pub struct InvalidRelation {
    text: String,
    reason: &'static str,
}

/// Parses the relations of one field that apply to `architecture` with no build profile active. A group
/// without an applicable alternative is left out.
///
/// # Errors
/// If a relation does not parse.
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
        return Err(refuse("what follows the colon is not an architecture"));
    }
    let mut version = None;
    if let Some(inner) = rest.strip_prefix('(') {
        let (inner, after) = inner
            .split_once(')')
            .ok_or_else(|| refuse("a parenthesis is not closed"))?;
        version = Some(parse_bound(inner.trim()).map_err(refuse)?);
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
    // Restriction formulas are a disjunction of conjunctions. `<!x>` holds, because no profile is
    // active.
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

/// Parses what is in a relation's parentheses, such as `>= 2.36`. An error says what is wrong with it.
fn parse_bound(text: &str) -> Result<(Relation, &str), &'static str> {
    let digits = text.find(|c| !"<>=".contains(c)).unwrap_or(text.len());
    let relation = match &text[..digits] {
        "<<" => Relation::Earlier,
        "<=" | "<" => Relation::EarlierOrEqual,
        "=" => Relation::Equal,
        ">=" | ">" => Relation::LaterOrEqual,
        ">>" => Relation::Later,
        _ => return Err("its relation is none of << <= = >= >>"),
    };
    let bound = text[digits..].trim();
    if bound.is_empty() || bound.contains(|c: char| c.is_whitespace()) {
        return Err("it has no version");
    }
    Ok((relation, bound))
}

/// Whether a list such as `amd64 arm64`, `!s390x`, `any`, `linux-any` or `any-arm64` includes the
/// architecture.
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
        fn never_panics(text in any::<String>(), near in "[ab]{2,3}[:(<>=,|\\[\\]! 1)]{0,12}") {
            let _ = parse_relations(&text, "amd64");
            if let Ok(groups) = parse_relations(&near, "amd64") {
                // The displayed form parses to the same alternative.
                for alternative in groups.iter().flatten().filter(|a| a.qualifier.is_none()) {
                    let shown = alternative.to_string();
                    prop_assert_eq!(&parse_relations(&shown, "amd64").unwrap()[0][0], alternative);
                }
            }
        }
    }
}
