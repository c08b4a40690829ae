//! Finds libraries of a stack that exclude each other.
//!
//! In: the choices of a search that found no solution. Out: a [`Clash`], described by the newest release
//! of each library.

use super::pick::{Candidate, Choice, Search};
use super::shared::Clash;
use crate::catalog::Pin;
use pep440_rs::{Version, VersionSpecifiers};

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
