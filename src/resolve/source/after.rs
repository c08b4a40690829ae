//! What is asked about sources once versions are chosen: whether there are wheels after all, and whether they can be
//! built.

use super::super::ResolveError;
use super::super::answer::{Pin, Pins};
use super::super::offers::with_wheel;
use super::super::python::Resolver;
use super::super::requirements::Need;
use super::super::sdist::{Fetched, Sdist, Sdists};
use super::{Answer, Sources, is_plain};
use stackforge_stack::spec::From;
use std::collections::BTreeSet;

/// Most sources of which the index is asked for releases with wheels.
const MOST_OFFERS: usize = 5;

impl Sources<'_> {
    /// Asks which releases have wheels of what the stack pins to one that has none. Few of those old ones compile.
    pub(super) async fn ask_for_wheels(&self, resolver: &Resolver<'_>, sdists: &mut Sdists) {
        let needs = self.needs.iter().filter(|_| !self.offline);
        let open = |need: &&Need<'_>| is_plain(need) && need.library.from == From::Auto;
        let mut left = MOST_OFFERS;
        for need in needs.filter(open) {
            if let Some(sdist) = sdists.get_mut(&need.distribution).filter(|_| left > 0) {
                sdist.wheels = with_wheel(resolver, &need.line()).await;
                left -= 1;
            }
        }
    }

    /// Refuses what has no wheel and fetches crates or its own wheel when it is built: a build has no network.
    pub(super) fn can_be_built(&self, sdists: &Sdists, pins: &Pins) -> Result<(), ResolveError> {
        let brings_cargo = |name: &str| {
            let named = self.needs.iter().find(|n| n.distribution == name);
            named.is_some_and(|n| n.library.build_packages.iter().any(|p| p == "cargo"))
        };
        let why = |name: &str, sdist: &Sdist| {
            match sdist.metadata.fetches? {
            Fetched::Crates => (!brings_cargo(name)).then_some(
                "it has no wheel here and is compiled with Rust, whose crates its build would fetch; builds have no network",
            ),
            Fetched::Wheel => Some(
                "the index has only a stub, whose build would fetch the wheel from another index; builds have no network, so name that index in `indexes`",
            ),
        }
        };
        let refused = sdists
            .iter()
            .find_map(|(name, sdist)| Some((name, sdist, why(name, sdist)?)));
        let Some((name, sdist, why)) = refused else {
            return Ok(());
        };
        let by = pins.get(name).map(Pin::locked_via).unwrap_or_default();
        let by = match (by.as_slice(), &sdist.wheels) {
            (_, Some(wheels)) => format!("; {wheels}"),
            ([], None) => String::new(),
            (by, None) => format!(" ({} needs it)", by.join(", ")),
        };
        Err(ResolveError::Source {
            name: name.clone(),
            version: sdist.file.version.clone(),
            why: format!("{why}{by}"),
        })
    }

    /// Takes the wheel of what is source only because uv's explanation named it: that may have been about other releases
    /// than the one that was chosen in the end.
    pub(super) async fn prefer_wheels(
        &self,
        answer: &mut Answer,
        resolver: &Resolver<'_>,
        fixed: &BTreeSet<String>,
    ) -> Result<(), ResolveError> {
        let only_found = |name: &String| !fixed.contains(name) && answer.known.contains_key(name);
        let found = answer.pins.iter().filter(|(name, _)| only_found(name));
        let found: Pins = found
            .map(|(name, pin)| (name.clone(), pin.clone()))
            .collect();
        if found.is_empty() || self.offline {
            return Ok(());
        }
        let mut settings = answer.settings.clone();
        settings.compiled.retain(|name| !found.contains_key(name));
        settings.sdists_too = true;
        let files = Resolver {
            settings,
            ..*resolver
        }
        .files(&found)
        .await?;
        let target = &resolver.settings.target;
        let has_wheel =
            |name: &String| found.contains_key(name) && files.wheel(name, target).is_ok();
        answer.known.retain(|name, _| !has_wheel(name));
        answer.settings.compiled.retain(|name| !has_wheel(name));
        answer
            .settings
            .metadata
            .retain(|m| !has_wheel(&m.distribution));
        Ok(())
    }
}
