//! Reads licences as packages state them.
//!
//! In: a wheel or a Debian package in the store. Out: an SPDX expression if the statement is one beyond
//! doubt, else the package's own words, else nothing. Nothing is guessed from texts: "BSD" is not one
//! licence.

use stackforge_binary::tar::Reader;
use stackforge_debian::deb::Deb;
use stackforge_image::layer::metadata;
use std::collections::BTreeSet;
use std::io::{BufReader, Read as _};
use std::path::Path;

/// Most bytes of metadata or of a copyright file that are read.
const LARGEST: u64 = 4 << 20;
/// Longest licence in a package's own words, in characters.
const LONGEST: usize = 200;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Licence {
    /// An SPDX expression.
    Spdx(String),
    /// The package's own words, which are not an SPDX expression.
    Named(String),
    #[default]
    Unknown,
}

/// Unambiguous names of licences in lower case, and their SPDX identifiers.
const WORDS: &[(&str, &str)] = &[
    ("apache 2.0", "Apache-2.0"),
    ("apache license 2.0", "Apache-2.0"),
    ("apache license, version 2.0", "Apache-2.0"),
    ("apache 2.0 license", "Apache-2.0"),
    ("apache-2", "Apache-2.0"),
    ("artistic", "Artistic-1.0-Perl"),
    ("bsd 3-clause", "BSD-3-Clause"),
    ("bsd 3-clause license", "BSD-3-Clause"),
    ("bsd 2-clause", "BSD-2-Clause"),
    ("expat", "MIT"),
    ("isc license (iscl)", "ISC"),
    ("mit license", "MIT"),
    ("mozilla public license 2.0 (mpl 2.0)", "MPL-2.0"),
    ("python software foundation license", "PSF-2.0"),
    ("the unlicense (unlicense)", "Unlicense"),
];

/// Reads the licence of a wheel.
pub fn of_wheel(path: &Path) -> Licence {
    metadata(path).map_or(Licence::Unknown, |text| of_metadata(&text))
}

/// Reads `License-Expression` (PEP 639), else `License`, else the classifiers.
fn of_metadata(text: &str) -> Licence {
    let head = text.split("\n\n").next().unwrap_or_default();
    let field = |name: &str| {
        let mut values = head.lines().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        values.next().filter(|v| !v.is_empty() && *v != "UNKNOWN")
    };
    if let Some(stated) = field("License-Expression").or_else(|| field("License")) {
        return of_words(stated);
    }
    let mut classified: BTreeSet<&str> = BTreeSet::new();
    for line in head.lines() {
        if let Some(rest) = line.strip_prefix("Classifier: License ::") {
            classified.extend(rest.rsplit("::").next().map(str::trim));
        }
    }
    joined(classified.into_iter())
}

/// Reads the licence of a Debian package from its copyright file, if that is machine-readable.
pub fn of_deb(path: &Path) -> Licence {
    copyright(path).map_or(Licence::Unknown, |text| of_copyright(&text))
}

fn copyright(path: &Path) -> Option<String> {
    let deb = Deb::open(path).ok()?;
    let wanted = format!("usr/share/doc/{}/copyright", deb.name());
    let mut reader = Reader::new(BufReader::new(deb.data().ok()?));
    while let Some(entry) = reader.next().ok()? {
        if entry.header.path.trim_start_matches("./") != wanted {
            continue;
        }
        let mut text = Vec::new();
        entry.take(LARGEST).read_to_end(&mut text).ok()?;
        return Some(String::from_utf8_lossy(&text).into_owned());
    }
    None
}

/// Returns every licence in a copyright file of Debian's machine-readable form ("copyright-format 1.0").
fn of_copyright(text: &str) -> Licence {
    let first = text.lines().next().unwrap_or_default();
    if !first.starts_with("Format:") || !first.contains("copyright-format") {
        return Licence::Unknown;
    }
    let stated = text
        .lines()
        .filter_map(|line| line.strip_prefix("License:"))
        .map(str::trim)
        .filter(|name| !name.is_empty());
    joined(stated.collect::<BTreeSet<_>>().into_iter())
}

/// Joins several licences that all apply.
fn joined<'a>(names: impl Iterator<Item = &'a str>) -> Licence {
    let names: Vec<&str> = names.collect();
    let mut known = BTreeSet::new();
    for name in &names {
        match of_words(name) {
            Licence::Spdx(expression) => known.insert(expression),
            _ => return of_own_words(&names.join(", ")),
        };
    }
    let several = known.len() > 1;
    let each = known.into_iter().map(|e| {
        if several && e.contains(' ') {
            format!("({e})")
        } else {
            e
        }
    });
    let all: Vec<String> = each.collect();
    if all.is_empty() {
        Licence::Unknown
    } else {
        Licence::Spdx(all.join(" AND "))
    }
}

fn of_words(text: &str) -> Licence {
    expression(text).map_or_else(|| of_own_words(text), Licence::Spdx)
}

fn of_own_words(text: &str) -> Licence {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    match plain.trim() {
        "" => Licence::Unknown,
        plain => Licence::Named(plain.chars().take(LONGEST).collect()),
    }
}

/// Converts a text that is an SPDX expression, or one in Debian's spelling.
fn expression(text: &str) -> Option<String> {
    if let Ok(parsed) = spdx::Expression::parse(text) {
        // Refuse `LicenseRef-…`: it has to be defined in the document that uses it.
        let defined = |r: &spdx::expression::ExpressionReq| r.req.license.id().is_some();
        return parsed
            .requirements()
            .all(defined)
            .then(|| parsed.to_string());
    }
    for (word, joint) in [(" or ", " OR "), (" and ", " AND ")] {
        if text.contains(word) {
            let parts: Option<Vec<String>> = text.split(word).map(identifier).collect();
            return parts.map(|parts| parts.join(joint));
        }
    }
    identifier(text)
}

/// Converts one licence from its identifier or an unambiguous name.
fn identifier(text: &str) -> Option<String> {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    let known = |(word, _): &&(&str, &str)| *word == lower;
    if let Some((_, id)) = WORDS.iter().find(known) {
        return Some((*id).to_owned());
    }
    if let Some(gnu) = gnu(&lower) {
        return Some(gnu);
    }
    let id = spdx::identifiers::LICENSES.iter();
    let mut id = id.filter(|l| l.name.eq_ignore_ascii_case(text));
    id.next().map(|l| l.name.to_owned())
}

/// Converts Debian's `GPL-2+`, `LGPL-2.1`, `GFDL-1.3+`: a version, and whether later ones are allowed.
fn gnu(lower: &str) -> Option<String> {
    let (base, later) = match lower.strip_suffix('+') {
        Some(base) => (base, true),
        None => (lower, false),
    };
    let (family, version) = base.split_once('-')?;
    if !["gpl", "lgpl", "agpl", "gfdl"].contains(&family) {
        return None;
    }
    let version = if version.contains('.') {
        version.to_owned()
    } else {
        format!("{version}.0")
    };
    let end = if later { "or-later" } else { "only" };
    let id = format!("{}-{version}-{end}", family.to_ascii_uppercase());
    spdx::license_id(&id).map(|found| found.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spdx_of(text: &str) -> Licence {
        Licence::Spdx(text.into())
    }

    #[test]
    fn metadata_state_licences_in_three_ways() {
        let of = |fields: &str| of_metadata(&format!("Name: x\n{fields}\n\nLicense: MIT\n"));
        let expression = of("License-Expression: Apache-2.0 OR BSD-2-Clause\nLicense: x");
        assert_eq!(expression, spdx_of("Apache-2.0 OR BSD-2-Clause"));
        assert_eq!(of("License: MIT"), spdx_of("MIT"));
        assert_eq!(of("License: MIT License"), spdx_of("MIT"));
        assert_eq!(of("License: BSD"), Licence::Named("BSD".into()));
        let reference = of("License-Expression: LicenseRef-NVIDIA-Proprietary");
        assert_eq!(
            reference,
            Licence::Named("LicenseRef-NVIDIA-Proprietary".into())
        );
        let classified = of("Classifier: License :: OSI Approved :: MIT License");
        assert_eq!(classified, spdx_of("MIT"));
        assert_eq!(of("License: UNKNOWN"), Licence::Unknown);
        assert_eq!(of("Summary: x"), Licence::Unknown, "not of the description");
    }

    #[test]
    fn debian_names_licences_in_its_own_way() {
        let of = |names: &[&str]| {
            let format = "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/";
            let lines = names.iter().map(|n| format!("License: {n}\n text\n"));
            of_copyright(&format!(
                "Format: {format}\n\n{}",
                lines.collect::<String>()
            ))
        };
        assert_eq!(of(&["GPL-2+"]), spdx_of("GPL-2.0-or-later"));
        assert_eq!(
            of(&["GPL-3", "Expat", "Expat", "LGPL-2.1+"]),
            spdx_of("GPL-3.0-only AND LGPL-2.1-or-later AND MIT")
        );
        assert_eq!(
            of(&["GPL-2+ or Artistic", "BSD-3-clause"]),
            spdx_of("BSD-3-Clause AND (GPL-2.0-or-later OR Artistic-1.0-Perl)")
        );
        assert_eq!(
            of(&["public-domain", "ISC"]),
            Licence::Named("ISC, public-domain".into())
        );
        assert_eq!(of(&["GPL-7"]), Licence::Named("GPL-7".into()));
        assert_eq!(
            of_copyright("This is GPL-2.\nLicense: MIT"),
            Licence::Unknown
        );
    }

    proptest! {
        #[test]
        fn what_is_called_an_expression_is_one(text in "[A-Za-z0-9.+() -]{0,40}|\\PC{0,60}") {
            for licence in [of_words(&text), of_metadata(&text), of_copyright(&text)] {
                if let Licence::Spdx(expression) = licence {
                    prop_assert!(spdx::Expression::parse(&expression).is_ok(), "{}", expression);
                }
            }
        }
    }
}
