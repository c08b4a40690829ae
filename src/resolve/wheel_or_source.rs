//! Chooses wheel or source for libraries that leave it open.

use super::ResolveError;
use super::policy::far_below;
use super::project::{Metadata, Question, UvSettings};
use super::python::Resolver;
use super::requirements::{Need, PackageSource, source};
use futures_util::future::join_all;
use pep440_rs::Version;
use stackforge_stack::lock::PythonFile;
use stackforge_stack::rules::Choice;
use stackforge_types::wheel::WheelName;

/// Decides every open way and fixes the versions that have to be fixed. A published wheel is used if it fits
/// the target by every rule, unless the newest wheel is older than the source by a minor release or more;
/// else the recipe's build.
pub(super) async fn decide(
    needs: &mut [Need<'_>],
    resolver: &Resolver<'_>,
    choice: &Choice<'_>,
) -> Result<(), ResolveError> {
    let open: Vec<usize> = (0..needs.len())
        .filter(|i| needs[*i].source == PackageSource::Open)
        .collect();
    let decisions = join_all(open.iter().map(|i| decision(&needs[*i], resolver, choice))).await;
    for (i, decided) in open.into_iter().zip(decisions) {
        needs[i].source = decided?;
    }
    needs.iter_mut().try_for_each(Need::settle)
}

async fn decision(
    need: &Need<'_>,
    resolver: &Resolver<'_>,
    choice: &Choice<'_>,
) -> Result<PackageSource, ResolveError> {
    let Some(build) = need.build() else {
        return Ok(PackageSource::Wheel);
    };
    let built = source(need.library, build);
    let Some(wheel) = newest(need, resolver, &resolver.settings).await? else {
        // Without a version there is nothing to compile from git, and locking says which wheels there are.
        let git = matches!(built, PackageSource::Git { .. });
        let open = git && need.of_git().is_none();
        return Ok(if open { PackageSource::Wheel } else { built });
    };
    if choice.better_built(&need.distribution, &wheel).is_some() {
        return Ok(built);
    }
    let Some(any) = build
        .metadata
        .get("*")
        .filter(|_| built == PackageSource::Sdist && need.is_open())
    else {
        return Ok(PackageSource::Wheel);
    };
    let mut settings = resolver.settings.clone();
    settings.compiled.push(need.distribution.clone());
    settings.metadata.push(Metadata {
        distribution: need.distribution.clone(),
        version: None,
        content: any.clone(),
    });
    let sdist = newest(need, resolver, &settings).await?;
    let behind = sdist.is_some_and(|sdist| far_below(&wheel, &sdist));
    Ok(if behind { built } else { PackageSource::Wheel })
}

/// Returns the newest release that the requirement allows, without its dependencies.
async fn newest(
    need: &Need<'_>,
    resolver: &Resolver<'_>,
    settings: &UvSettings,
) -> Result<Option<Version>, ResolveError> {
    let resolver = Resolver {
        settings: settings.clone(),
        ..*resolver
    };
    let question = Question {
        requirements: vec![need.line()],
        no_deps: true,
        ..Question::default()
    };
    let pins = resolver.versions(&question).await?.ok();
    Ok(pins.and_then(|p| p.get(&need.distribution).map(|pin| pin.version.clone())))
}

/// Whether the wheel of this distribution was built for the libraries of one system.
pub(super) fn is_for_one_system(wheels: &[PythonFile], name: &str) -> bool {
    wheels
        .iter()
        .find(|w| w.name == name)
        .and_then(|w| w.file.parse().ok())
        .is_some_and(|name: WheelName| name.is_for_one_system())
}
