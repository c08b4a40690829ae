//! Releases that a stack names in place of those that have no wheel for its Python.

use super::Question;
use super::base::Candidate;
use crate::convert::{Asked, Item, Wants, environment};
use pep440_rs::{Version, VersionSpecifiers};
use serde::Serialize;
use stackforge_stack::catalog::{Undeclared, WheelSource};
use stackforge_stack::spec::{From, Platform};
use stackforge_types::wheel::{WheelName, WheelTarget};

/// glibc 2's minor version where the base's is not known: newer than any, so that every wheel counts.
const ANY_GLIBC: u16 = 999;

/// A requirement that the stack has with another version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Instead {
    /// Name of the distribution.
    pub library: String,
    /// What the file asks for: `==1.21.0`.
    pub asked: String,
    /// The release that the stack names.
    pub version: String,
}

/// Returns the release in place of what is asked for, if an index was asked and says that none of that has a wheel there.
pub(super) fn instead(
    question: &Question<'_>,
    target: &Target,
    asked: &Asked,
    versions: &VersionSpecifiers,
) -> Option<Version> {
    let mut recipes = question.catalog.recipes.values();
    let recipe = recipes.find(|r| r.distribution == asked.name);
    let compiled = recipe.is_some_and(|r| r.wheels == WheelSource::None);
    if compiled
        || asked.index.is_some()
        || asked.from != From::Auto
        || of_other_index(question, asked)
    {
        return None;
    }
    let runs = |version: &Version| excluded(question, target, &asked.name, version).is_none();
    question
        .published
        .instead_of(&asked.name, versions, &target.wheels, runs)
}

/// Returns what the catalog knows of a release that does not run on the base.
pub(super) fn excluded<'a>(
    question: &Question<'a>,
    target: &Target,
    name: &str,
    version: &Version,
) -> Option<&'a Undeclared> {
    let mut known = question.catalog.undeclared.get(name).into_iter().flatten();
    known.find(|known| {
        known.excludes(name, version, target.wheels.python) && known.is_of_base(target.cuda)
    })
}

/// Whether the file names indexes that may have the library: the user's own were asked.
fn of_other_index(question: &Question<'_>, asked: &Asked) -> bool {
    let found = question.found.indexes.iter();
    let mut indexes = found.filter_map(|item| match item {
        Item::Take(index) => Some(question.known.torch_index(&index.value).is_some()),
        Item::Note(_) => None,
    });
    let of_torch = question.known.of_torch(&asked.name);
    indexes.any(|only_torch| of_torch || !only_torch)
}

/// Returns the number of requirements of which a base has no wheel that the file asks for.
pub(super) fn count(
    question: &Question<'_>,
    platform: Platform,
    candidate: &Candidate<'_>,
) -> usize {
    let target = target(platform, candidate);
    let environment = environment(candidate.python, platform);
    let holds = |asked: &Asked| environment.as_ref().is_none_or(|e| asked.holds(e));
    let libraries = question.found.libraries.iter();
    let moved = libraries.filter(|item| match item {
        Item::Take(asked) => match &asked.wants {
            Wants::Versions(versions) => {
                holds(asked) && instead(question, &target, asked, versions).is_some()
            }
            Wants::File(file) => holds(asked) && !may_fit(file, &target.wheels),
            Wants::Git { .. } => false,
        },
        Item::Note(_) => false,
    });
    moved.count()
}

/// Whether a file can be installed on the target, as far as its name says: a source distribution can, and a wheel with
/// fitting tags.
pub(super) fn may_fit(file: &str, target: &WheelTarget) -> bool {
    let path = file.split(['#', '?']).next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let wheel = name.replace("%2B", "+").replace("%2b", "+");
    let wheel = wheel.parse::<WheelName>().ok();
    wheel.is_none_or(|wheel| wheel.rank(target).is_some())
}

/// What a base is to the libraries of a stack.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// What wheels have to fit.
    pub wheels: WheelTarget,
    /// Whether the base has CUDA.
    pub cuda: bool,
}

/// Returns what a base is to the libraries.
pub(super) fn target(platform: Platform, candidate: &Candidate<'_>) -> Target {
    Target {
        wheels: WheelTarget {
            python: candidate.python,
            platform,
            glibc: candidate.image.glibc().unwrap_or(ANY_GLIBC),
        },
        cuda: candidate.image.cuda.is_some(),
    }
}
