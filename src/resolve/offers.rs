//! Which releases an index has of what cannot be resolved.
//!
//! In: requirements, and uv's explanation of why nothing satisfies them. Out: for each of them that the explanation
//! names and that nothing meets even without all others, the releases that fit the target, or another name.

use super::ResolveError;
use super::error::words;
use super::offer::{Offer, Releases};
use super::project::Question;
use super::python::Resolver;
use pep440_rs::VersionSpecifiers;
use pep508_rs::{Requirement, VerbatimUrl, VersionOrUrl};
use stackforge_stack::catalog::{Catalog, Misnomer};
use stackforge_types::wheel::{WheelTarget, normalized};
use std::str::FromStr as _;

/// Most requirements that the index is asked about.
const MOST: usize = 3;

/// Asks the index about each requirement that an explanation names. What cannot be asked is left out.
pub(super) async fn offers(
    resolver: &Resolver<'_>,
    catalog: &Catalog,
    requirements: &[String],
    explanation: &str,
) -> Vec<Offer> {
    let words = words(explanation);
    let named = requirements.iter().filter_map(|line| split(line));
    let named = named.filter(|(name, _)| words.contains(name));
    let mut out = Vec::new();
    for (name, asked) in named.take(MOST) {
        if is_unknown(&name, explanation) {
            let known = catalog.misnomers.get(&name);
            out.push(Offer::Unknown {
                known: known.and_then(Misnomer::advice),
                name,
            });
        } else if !asked.is_empty()
            && let Ok(Some(releases)) = releases(resolver, name, asked).await
        {
            out.push(Offer::Releases(releases));
        }
    }
    out
}

/// Returns the releases that have a wheel, in place of one that is asked for and has none. `None` if one that is asked
/// for has a wheel, or no release has.
pub(super) async fn with_wheel(resolver: &Resolver<'_>, requirement: &str) -> Option<Releases> {
    let (name, asked) = split(requirement).filter(|(_, asked)| !asked.is_empty())?;
    let found = releases(resolver, name, asked).await.ok().flatten();
    found.filter(|releases| releases.fitting.is_some())
}

/// Whether uv found no such name, by its words for it.
fn is_unknown(name: &str, explanation: &str) -> bool {
    let words = explanation.split_whitespace().collect::<Vec<_>>().join(" ");
    words.contains(&format!("{name} was not found in the package registry"))
}

/// `None` if a release fits, so that the fault lies between it and others.
async fn releases(
    resolver: &Resolver<'_>,
    name: String,
    asked: VersionSpecifiers,
) -> Result<Option<Releases>, ResolveError> {
    let ask = async |line: String, lowest: bool| {
        let question = Question {
            requirements: vec![line],
            no_deps: true,
            lowest,
            ..Question::default()
        };
        let pins = resolver.versions(&question).await?.ok();
        let pin = pins.and_then(|mut pins| pins.remove(&name));
        Ok::<_, ResolveError>(pin.map(|pin| pin.version))
    };
    if ask(format!("{name}{asked}"), false).await?.is_some() {
        return Ok(None);
    }
    let newest = ask(name.clone(), false).await?;
    let fitting = match newest {
        Some(newest) => {
            let oldest = ask(name.clone(), true).await?;
            Some((oldest.unwrap_or_else(|| newest.clone()), newest))
        }
        None => None,
    };
    // Wheels for a newer Python come with later releases.
    let nearest = match (&fitting, Releases::wanted(&asked)) {
        (Some((oldest, newest)), Some(wanted)) if wanted > oldest => {
            let later = ask(format!("{name}>={wanted}"), true).await?;
            Some(later.unwrap_or_else(|| newest.clone()))
        }
        _ => None,
    };
    Ok(Some(Releases {
        nearest,
        name,
        asked,
        target: text(&resolver.settings.target),
        fitting,
    }))
}

fn text(target: &WheelTarget) -> String {
    format!("Python {} on {}", target.python, target.platform)
}

/// Splits a requirement into its normalized name and its specifiers. `None` for one by an address.
fn split(line: &str) -> Option<(String, VersionSpecifiers)> {
    let requirement = Requirement::<VerbatimUrl>::from_str(line).ok()?;
    let specifiers = match requirement.version_or_url {
        None => VersionSpecifiers::empty(),
        Some(VersionOrUrl::VersionSpecifier(specifiers)) => specifiers,
        Some(VersionOrUrl::Url(_)) => return None,
    };
    Some((normalized(requirement.name.as_ref()), specifiers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_split() {
        for (line, name, asked) in [
            ("torch==1.11.0", "torch", "==1.11.0"),
            ("torch", "torch", ""),
            ("torch[x] ", "torch", ""),
            ("ray[serve,air] >=2 ; python_version > '3'", "ray", ">=2"),
        ] {
            let expected = (name.to_owned(), asked.parse().unwrap());
            assert_eq!(split(line), Some(expected));
        }
        for line in ["x @ https://h.test/x.whl", "==1", "x[", ""] {
            assert_eq!(split(line), None, "{line}");
        }
    }

    #[test]
    fn what_an_index_does_not_have_is_read_from_uvs_words() {
        let text =
            "Because Opencv was not found in\nthe package registry and the stack asks for opencv";
        assert!(!is_unknown("opencv", text) && is_unknown("opencv", &text.to_lowercase()));
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let said = |name: &str| {
            let known = catalog.misnomers.get(name).and_then(Misnomer::advice);
            let name = name.to_owned();
            Offer::Unknown { name, known }.to_string()
        };
        assert_eq!(said("pil"), "the index has no `pil`: write `pillow`");
        assert!(said("cuda").contains("remove it"));
        assert!(said("torhc").contains("correct its name"));
    }
}
