//! Finds libraries of a stack that exclude each other.
//!
//! In: the choices of a search that found no solution. Out: a [`Clash`], described by the newest release
//! of each library, and its finding.

use super::Case;
use super::environment::Environment;
use super::pick::{Candidate, Choice, Search, distribution};
use crate::catalog::Pin;
use crate::diag::{Diagnostic, codes};
use pep440_rs::{Version, VersionSpecifiers};

/// Two libraries (or a library and the stack) that require incompatible versions of `about`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    pub about: String,
    pub one: (String, Version, VersionSpecifiers),
    pub other: Option<(String, Version, VersionSpecifiers)>,
    /// The stack's own requirement for `about`, if the stack is the other side.
    pub stack: Option<VersionSpecifiers>,
}

impl Clash {
    /// Whether it is about the version of `about` that `library` requires.
    pub fn is_of(&self, library: &str, about: &str) -> bool {
        let other = self.other.as_ref().is_some_and(|o| o.0 == library);
        self.about == about && (self.one.0 == library || other)
    }
}

impl<'a> Search<'_, 'a> {
    /// Returns the pair that excludes each other, by the newest release of each.
    pub fn clash(&self, choices: &[Choice<'a>]) -> Option<Clash> {
        let alone = choices.iter().find_map(|c| self.with_stack(c));
        alone.or_else(|| self.with_another(choices))
    }

    /// Returns a clash if every release of a library contradicts the stack's requirement for another one.
    fn with_stack(&self, choice: &Choice<'a>) -> Option<Clash> {
        let refused = |pin: &Pin| {
            let own = self.own.get(&pin.name)?;
            (!self.some_version(&pin.name, &[own, &pin.versions])).then_some(own)
        };
        let refused = |c: &Candidate<'a>| self.asks(c).find_map(|p| Some((p, refused(p)?.clone())));
        let mut of_each = choice.candidates.iter().map(refused);
        let (pin, own) = of_each.next()??;
        of_each.all(|r| r.is_some()).then(|| Clash {
            about: pin.name.clone(),
            one: one(choice, &choice.candidates[0], pin.versions.clone()),
            other: None,
            stack: Some(own),
        })
    }

    fn with_another(&self, choices: &[Choice<'a>]) -> Option<Clash> {
        let pairs = choices
            .iter()
            .enumerate()
            .flat_map(|(i, one)| choices[i + 1..].iter().map(move |other| (one, other)));
        pairs
            .filter(|(a, b)| !self.together(a, b))
            .find_map(|(a, b)| {
                let (v, w) = (self.newest(a)?, self.newest(b)?);
                self.asks(v).find_map(|pin| {
                    let theirs = self.asks_for(w, &pin.name)?;
                    (!self.some_version(&pin.name, &[&pin.versions, theirs])).then(|| Clash {
                        about: pin.name.clone(),
                        one: one(a, v, pin.versions.clone()),
                        other: Some(one(b, w, theirs.clone())),
                        stack: None,
                    })
                })
            })
    }

    /// Returns the newest release that agrees with the stack's requirements.
    fn newest<'c>(&self, choice: &'c Choice<'a>) -> Option<&'c Candidate<'a>> {
        let mut candidates = choice.candidates.iter();
        let alone = candidates.find(|c| self.agree_on_others(&[], c));
        alone.or(choice.candidates.first())
    }

    /// Whether some releases of the two libraries are compatible.
    fn together(&self, a: &Choice<'a>, b: &Choice<'a>) -> bool {
        a.candidates.iter().any(|v| {
            b.candidates.iter().any(|w| {
                self.accepts(v, &b.name, &w.version)
                    && self.accepts(w, &a.name, &v.version)
                    && self.agree_on_others(&[(&a.name, v)], w)
            })
        })
    }
}

fn one(
    choice: &Choice<'_>,
    candidate: &Candidate<'_>,
    wants: VersionSpecifiers,
) -> (String, Version, VersionSpecifiers) {
    (choice.name.clone(), candidate.version.clone(), wants)
}

/// Reports two libraries of a stack without a lock that have no compatible releases.
pub fn pins_exclude(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(clash) = &env.clash else { return };
    let span_of = |name: &str| {
        case.stack
            .libraries
            .iter()
            .find(|l| distribution(case, l.name.value.as_str()) == name)
            .map(|l| l.name.span)
            .unwrap_or_default()
    };
    let (name, version, wanted) = &clash.one;
    let about = &clash.about;
    let (message, help) = match (&clash.other, &clash.stack) {
        (Some((other, other_version, theirs)), _) => (
            format!(
                "`{name}` and `{other}` exclude each other: {name} {version} wants {about} {wanted}, {other} {other_version} wants {about} {theirs}"
            ),
            format!("choose releases that want the same {about}, or build two images"),
        ),
        (None, Some(own)) => (
            format!(
                "no known `{name}` that the stack takes accepts its {about} {own}: {name} {version} wants {about} {wanted}"
            ),
            format!("set `{about}` to what {name} wants, or choose another {name}"),
        ),
        (None, None) => (
            format!(
                "no known `{name}` goes with the rest of the stack: {version} wants {about} {wanted}"
            ),
            format!("choose another {name}"),
        ),
    };
    findings.push(
        Diagnostic::error(codes::PINS_EXCLUDE, message)
            .at(span_of(name))
            .help(help),
    );
}
