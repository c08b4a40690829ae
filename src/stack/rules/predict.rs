//! Reads the packages of a case from its lock, else predicts them.

use super::case::{Case, base_cuda, distribution, recipe_of};
use super::environment::{Build, Environment, Package};
use super::fit::{Fit, WheelContext, wheel_fit};
use super::local_label::Label;
use super::pick::{Choice, Search};
use super::shared::{LockedFile, Picked};
use crate::catalog::{DistributionKind, Recipe, Release, ReleaseWheel, WheelSource, split_local};
use crate::diag::Span;
use crate::spec::{From, Library};
use pep440_rs::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

impl<'a> Environment<'a> {
    /// Reads the environment from the lock, else predicts it.
    pub fn of(case: &Case<'a>) -> Self {
        match case.lock {
            Some(_) => Self::locked(case),
            None => {
                let Picked { versions, clash } = case.picks.picked(case.stack, || versions(case));
                Self {
                    clash,
                    ..Self::picked(case, versions)
                }
            }
        }
    }

    fn locked(case: &Case<'a>) -> Self {
        let mut env = Self::default();
        for file in case.picks.locked(case.stack, || locked_files(case)).iter() {
            let LockedFile { name, version, .. } = file;
            if let Some(recipe) =
                recipe_of(case, name).filter(|_| file.kind == DistributionKind::Source)
            {
                env.builds.push(Build {
                    recipe,
                    version: Some(version.clone()),
                    span: file.span,
                });
            }
            let mut package = package(case, name, version.clone(), file.kind, file.span);
            package.file = file.file.clone();
            env.packages.insert(name.clone(), package);
        }
        env
    }

    fn picked(case: &Case<'a>, versions: BTreeMap<String, Version>) -> Self {
        let spans = Spans::of(case);
        let mut env = Self::default();
        let platform = case.stack.platform.value;
        let asked_by = |name: &str| -> Vec<String> {
            versions
                .iter()
                .filter(|(n, v)| {
                    case.catalog
                        .releases(n)
                        .and_then(|r| r.get(*v))
                        .is_some_and(|r| r.asks_on(platform, name).is_some())
                })
                .map(|(n, _)| n.clone())
                .collect()
        };
        for (name, version) in &versions {
            let span = spans.find(name, &asked_by);
            let package = package(case, name, version.clone(), DistributionKind::Wheel, span);
            env.packages.insert(name.clone(), package);
        }
        // torch first, because wheels of the others have to fit it.
        let mut libraries: Vec<&Library> = case.stack.libraries.iter().collect();
        libraries.sort_by_key(|l| l.name.value.as_str() != "torch");
        for library in libraries {
            let name = distribution(case, library.name.value.as_str());
            if kind_of(case, &env, library, &name) == DistributionKind::Wheel {
                continue;
            }
            if let Some(package) = env.packages.get_mut(&name) {
                package.kind = DistributionKind::Source;
                package.wheel = None;
            }
            if let Some(recipe) = recipe_of(case, &name) {
                env.builds.push(Build {
                    recipe,
                    version: versions.get(&name).cloned(),
                    span: library.name.span,
                });
            }
        }
        env
    }

    /// Returns why a release should be compiled rather than installed from its wheel. `None` if nothing is
    /// known against the wheel, or the library cannot be compiled here.
    pub fn better_built(&self, case: &Case<'a>, name: &str, version: &Version) -> Option<String> {
        let recipe = recipe_of(case, name)?;
        let why = self.unfit(case, name, version)?;
        has_toolkit(case, recipe).then_some(why)
    }

    /// Returns why a release's wheel does not fit the stack. `None` if nothing is known against it.
    pub fn unfit(&self, case: &Case<'a>, name: &str, version: &Version) -> Option<String> {
        let package = package(
            case,
            name,
            version.clone(),
            DistributionKind::Wheel,
            Span::default(),
        );
        match wheel_fit(&package, &WheelContext::of(case, self)) {
            Fit::Unfit(why) => Some(why),
            Fit::Fits(_) | Fit::Unknown => None,
        }
    }
}

/// Returns the newest versions that are compatible, or what excludes each other.
fn versions(case: &Case<'_>) -> Picked {
    let mut search = Search::new(case);
    let all = search.choices();
    if let Some(versions) = search.solve(&all) {
        return Picked {
            versions,
            clash: None,
        };
    }
    if search.gave_up() {
        return Picked::default();
    }
    let clash = search.clash(&all);
    // Without the clashing libraries the others can still be predicted.
    let rest: Vec<Choice<'_>> = match &clash {
        Some(c) => all
            .into_iter()
            .filter(|a| a.name != c.one.0 && c.other.as_ref().is_none_or(|o| o.0 != a.name))
            .collect(),
        None => Vec::new(),
    };
    Picked {
        versions: Search::new(case).solve(&rest).unwrap_or_default(),
        clash,
    }
}

fn package<'a>(
    case: &Case<'a>,
    name: &str,
    version: Version,
    kind: DistributionKind,
    span: Span,
) -> Package<'a> {
    let (version, local) = split_local(&version);
    let release = case.catalog.releases(name).and_then(|r| r.get(&version));
    let own_place = |l: &Library| {
        let own = l.index.is_some() || l.file.is_some();
        own && distribution(case, l.name.value.as_str()) == name
    };
    let foreign = !case.stack.indexes.is_empty() || case.stack.libraries.iter().any(own_place);
    let wheel = release
        .filter(|_| kind == DistributionKind::Wheel && !foreign)
        .and_then(|r| wheel_of(case, r, &local));
    Package {
        name: name.to_owned(),
        label: Label::of(&local),
        wheel,
        version,
        local,
        kind,
        release,
        foreign,
        file: None,
        span,
    }
}

/// Returns the wheel for the stack's Python, else any for the platform.
fn wheel_of<'a>(case: &Case<'_>, release: &'a Release, local: &str) -> Option<&'a ReleaseWheel> {
    let wheels = || release.wheels_for(case.stack.platform.value, local);
    wheels()
        .find(|w| w.loads_in(case.stack.python.value))
        .or_else(|| wheels().next())
}

fn locked_files(case: &Case<'_>) -> Vec<LockedFile> {
    let Some(lock) = case.lock else {
        return Vec::new();
    };
    let spans = Spans::of(case);
    let via = |n: &str| lock.wheel(n).map(|w| w.via.clone()).unwrap_or_default();
    let wheels = lock.wheels.iter().filter_map(|wheel| {
        Some(LockedFile {
            name: wheel.name.clone(),
            version: Version::from_str(&wheel.version).ok()?,
            kind: DistributionKind::Wheel,
            file: wheel.file.parse().ok(),
            span: spans.find(&wheel.name, &via),
        })
    });
    let builds = lock.builds.iter().filter_map(|build| {
        Some(LockedFile {
            name: build.name.clone(),
            version: Version::from_str(&build.version).ok()?,
            kind: DistributionKind::Source,
            file: None,
            span: spans.find(&build.name, &|_| Vec::new()),
        })
    });
    wheels.chain(builds).collect()
}

/// Predicts whether a library without a lock is compiled.
fn kind_of(
    case: &Case<'_>,
    env: &Environment<'_>,
    library: &Library,
    name: &str,
) -> DistributionKind {
    let buildable = recipe_of(case, name).filter(|r| r.build.is_some());
    let foreign = library.index.is_some() || !case.stack.indexes.is_empty();
    match library.from {
        From::Source => DistributionKind::Source,
        From::Wheel => DistributionKind::Wheel,
        From::Auto if buildable.is_none() => DistributionKind::Wheel,
        From::Auto if !foreign && buildable.is_some_and(|r| r.wheels == WheelSource::None) => {
            DistributionKind::Source
        }
        From::Auto if library.git.is_some() || library.git_ref.is_some() => {
            DistributionKind::Source
        }
        From::Auto => match env
            .get(name)
            .map(|p| wheel_fit(p, &WheelContext::of(case, env)))
        {
            Some(Fit::Unfit(_)) if buildable.is_some_and(|r| has_toolkit(case, r)) => {
                DistributionKind::Source
            }
            _ => DistributionKind::Wheel,
        },
    }
}

/// Whether a build has a CUDA toolkit: the base's, or that of torch's wheels.
fn has_toolkit(case: &Case<'_>, recipe: &Recipe) -> bool {
    let build = recipe.build.as_ref();
    build.is_some_and(|b| {
        b.toolkit.is_empty() || b.needs.iter().any(|n| n == "torch") || base_cuda(case).is_some()
    })
}

/// The stack's lines, by distribution.
struct Spans {
    own: BTreeMap<String, Span>,
}

impl Spans {
    fn of(case: &Case<'_>) -> Self {
        let own = case
            .stack
            .libraries
            .iter()
            .map(|l| (distribution(case, l.name.value.as_str()), l.name.span));
        Self { own: own.collect() }
    }

    /// Returns the line of the distribution, else of the nearest one that requires it.
    fn find(&self, name: &str, via: &dyn Fn(&str) -> Vec<String>) -> Span {
        let mut seen = BTreeSet::new();
        let mut level = vec![name.to_owned()];
        while !level.is_empty() {
            if let Some(span) = level.iter().find_map(|n| self.own.get(n)) {
                return *span;
            }
            let next: Vec<String> = level.iter().flat_map(|n| via(n)).collect();
            level = next
                .into_iter()
                .filter(|n| seen.insert(n.clone()))
                .collect();
        }
        Span::default()
    }
}
