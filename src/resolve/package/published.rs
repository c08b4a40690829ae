//! What the indexes list of distributions, and what there is of one in place of releases that cannot be installed.
//!
//! In: names of distributions, and the user's own index settings. Out: [`Published`], which says for a Python and a
//! platform whether a requirement can be met, and if not, which release is nearest to it. Only names are sent. A page that
//! cannot be read is no failure: of its distribution nothing is known, and [`Published::unread`] has its name.
//! Never: fetches a file, or chooses for what is source only, which may well be built.

use super::super::indexes::Indexes;
use super::super::offer::Releases;
use super::super::simple::{Listed, PackageFile};
use super::PackageError;
use super::choose::accepts;
use super::places::{self, Places};
use futures_util::stream::{self, StreamExt as _};
use pep440_rs::{Version, VersionSpecifiers};
use stackforge_stack::catalog::Catalog;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::Fetcher;
use stackforge_types::wheel::{WheelName, WheelTarget};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Pages that are fetched at once.
const PAGES: usize = 16;
/// Whoever has no network is told so soon, and goes on without.
const RETRIES: RetryPolicy = RetryPolicy {
    attempts: 2,
    first_pause: Duration::from_millis(200),
    longest_pause: Duration::from_secs(2),
    stall: Duration::from_secs(10),
};

/// The files of distributions by name.
#[derive(Default)]
pub struct Published {
    files: BTreeMap<String, Vec<Listed>>,
    /// Where pages are fetched from; found out when the first is needed.
    index: Option<Index>,
    unread: Option<Unread>,
}

/// Distributions whose pages could not be read from any index.
#[derive(Debug)]
pub struct Unread {
    /// Normalized names.
    pub names: BTreeSet<String>,
    /// The error of the first of them.
    pub error: PackageError,
}

struct Index {
    places: Places,
    fetcher: Fetcher,
}

impl Published {
    /// Asks the user's indexes. `names` are normalized; what no index has is left out. `store` is a store's root.
    pub async fn ask(names: BTreeSet<String>, catalog: &Catalog, store: &Path) -> Self {
        let mut published = Self::default();
        published.add(names, catalog, store).await;
        published
    }

    /// Asks the indexes for more distributions. It stops if the first 16 answers are all errors, since then there is no
    /// network, or no such index.
    pub async fn add(&mut self, mut names: BTreeSet<String>, catalog: &Catalog, store: &Path) {
        names.retain(|name| !self.files.contains_key(name));
        if names.is_empty() {
            return;
        }
        let index = match self.index.take() {
            Some(index) => index,
            None => match Index::of_user(catalog, store).await {
                Ok(index) => index,
                Err(error) => return self.fail(names, error),
            },
        };
        let mut pages = stream::iter(names.clone())
            .map(|name| async {
                let files = index.places.all(&name, &index.fetcher).await;
                (name, files)
            })
            .buffer_unordered(PAGES);
        let mut failed = 0;
        while let Some((name, files)) = pages.next().await {
            names.remove(&name);
            match files {
                Ok(files) => {
                    if let Some(unread) = &mut self.unread {
                        unread.names.remove(&name);
                    }
                    self.files.insert(name, files);
                }
                Err(error) => {
                    failed += 1;
                    self.fail(BTreeSet::from([name]), error);
                    if failed == PAGES && self.files.is_empty() {
                        break;
                    }
                }
            }
        }
        drop(pages);
        if let Some(unread) = &mut self.unread {
            unread.names.append(&mut names);
        }
        self.index = Some(index);
    }

    fn fail(&mut self, names: BTreeSet<String>, error: PackageError) {
        match &mut self.unread {
            Some(unread) => unread.names.extend(names),
            none => *none = Some(Unread { names, error }),
        }
    }

    /// Returns the distributions whose pages could not be read, if there are any.
    pub fn unread(&self) -> Option<&Unread> {
        self.unread
            .as_ref()
            .filter(|unread| !unread.names.is_empty())
    }

    /// Whether nothing is known of any distribution.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether a release has no wheel for anyone.
    pub fn is_source_only(&self, name: &str, version: &Version) -> bool {
        let mut files = self.of(name, version).peekable();
        files.peek().is_some() && files.all(|f| matches!(f.kind, PackageFile::Source(_)))
    }

    /// Whether a distribution has a release without a wheel for anyone.
    pub fn has_source_only(&self, name: &str) -> bool {
        let files = self.files.get(name).into_iter().flatten();
        let mut versions = files.map(|file| file.kind.version());
        versions.any(|version| self.is_source_only(name, version))
    }

    /// Narrows distributions that may have to be built down to those whose newest final release has no wheel for any
    /// platform, and those that are `pinned` to a release without one. If none is such, all are returned.
    pub fn surest(&self, names: BTreeSet<String>, pinned: &BTreeSet<String>) -> BTreeSet<String> {
        let is_sure = |name: &&String| {
            let newest = self.newest_of(name, &VersionSpecifiers::empty());
            let ends = newest.is_some_and(|newest| self.is_source_only(name, newest));
            ends || pinned.contains(*name)
        };
        let sure: BTreeSet<String> = names.iter().filter(is_sure).cloned().collect();
        if sure.is_empty() { names } else { sure }
    }

    /// Whether a release has wheels, and none for the target, where another release has one.
    pub fn is_for_others(&self, name: &str, version: &Version, target: &WheelTarget) -> bool {
        let wheels = |file: &&Listed| matches!(file.kind, PackageFile::Wheel(_));
        let fits = |file: &Listed| match &file.kind {
            PackageFile::Wheel(wheel) => fits(file, wheel, target),
            PackageFile::Source(_) => false,
        };
        let mut files = self.files.get(name).into_iter().flatten();
        let mut of_release = self.of(name, version).filter(wheels).peekable();
        of_release.peek().is_some() && !of_release.any(fits) && files.any(fits)
    }

    fn of(&self, name: &str, version: &Version) -> impl Iterator<Item = &Listed> {
        let files = self.files.get(name).into_iter().flatten();
        files.filter(move |file| file.kind.version() == version)
    }

    /// Returns the newest final release of what is asked for.
    pub fn newest_of(&self, name: &str, asked: &VersionSpecifiers) -> Option<&Version> {
        let versions = self.files.get(name)?.iter().map(|file| file.kind.version());
        versions
            .filter(|v| !v.any_prerelease() && asked.contains(v))
            .max()
    }

    /// Whether the index was asked for a distribution and has no release of what is asked for.
    pub fn has_none_of(&self, name: &str, asked: &VersionSpecifiers) -> bool {
        let files = self.files.get(name);
        files.is_some_and(|files| !files.iter().any(|f| asked.contains(f.kind.version())))
    }

    /// Returns the release with a wheel that is nearest to what is asked for, where nothing of that can be installed: it
    /// has wheels, and none for this Python and platform, or it excludes this Python, or does not run on it (`runs`).
    /// `None` if some of it can be installed, if the newest of it has no wheel for anyone, so that it is built, and if
    /// there is no other release. Where the releases before and after such a one have compiled wheels, its own were
    /// removed, and it counts as without. Where the index has nothing of what is asked for, the next release up.
    pub fn instead_of(
        &self,
        name: &str,
        asked: &VersionSpecifiers,
        target: &WheelTarget,
        runs: impl Fn(&Version) -> bool,
    ) -> Option<Version> {
        let files = self.files.get(name)?;
        let mut releases: BTreeMap<&Version, Release> = BTreeMap::new();
        for file in files {
            let release = releases.entry(file.kind.version()).or_default();
            match &file.kind {
                PackageFile::Wheel(wheel) => {
                    let fits = fits(file, wheel, target) && runs(file.kind.version());
                    release.has_wheels = true;
                    release.fits |= fits;
                    release.kept |= fits && file.yanked.is_none();
                    release.is_compiled |= fits && !wheel.is_for_any_platform();
                }
                PackageFile::Source(_) => {
                    let python = accepts(file.requires_python.as_deref(), target.python);
                    release.source |= python && runs(file.kind.version());
                }
            }
        }
        let wanted = || releases.iter().filter(|(v, _)| asked.contains(v));
        let Some((first, _)) = wanted().next() else {
            // It was removed from the index; a number that nothing follows is a mistake.
            let least = Releases::wanted(asked)?;
            let can_be_had = |r: &Release| r.kept || r.source && !r.has_wheels;
            let mut later = releases.iter().filter(|(v, _)| **v > least);
            let next = later.find(|(v, r)| !v.any_prerelease() && can_be_had(r));
            return next.map(|(version, _)| (*version).clone());
        };
        // The newest that can be had is what an installer takes.
        let newest = wanted().rfind(|(_, release)| release.fits || release.source);
        let lost_wheels = |version: &Version| {
            let is_final = |(v, _): &(&&Version, &Release)| !v.any_prerelease();
            let before = releases
                .iter()
                .rev()
                .filter(is_final)
                .find(|(v, _)| **v < version);
            let after = releases
                .iter()
                .filter(is_final)
                .find(|(v, _)| **v > version);
            [before, after]
                .iter()
                .all(|other| other.is_some_and(|(_, release)| release.is_compiled))
        };
        let built = newest.is_some_and(|(v, release)| !release.has_wheels && !lost_wheels(v));
        if built || wanted().any(|(_, release)| release.fits) {
            return None;
        }
        let wanted = Releases::wanted(asked).unwrap_or(first);
        let fitting = || {
            let fitting = releases
                .iter()
                .filter(|(v, r)| r.kept && !v.any_prerelease());
            fitting.map(|(version, _)| *version)
        };
        // Wheels for a newer Python come with later releases.
        let nearest = fitting()
            .find(|v| *v > wanted)
            .or_else(|| fitting().next_back());
        nearest.cloned()
    }
}

impl Index {
    async fn of_user(catalog: &Catalog, store: &Path) -> Result<Self, PackageError> {
        Ok(Self {
            places: places::from_settings(&Indexes::of_user(), catalog, store).await?,
            fetcher: Fetcher::new(RETRIES)?,
        })
    }
}

fn fits(file: &Listed, wheel: &WheelName, target: &WheelTarget) -> bool {
    accepts(file.requires_python.as_deref(), target.python) && wheel.rank(target).is_some()
}

/// What there is of a release.
#[derive(Default)]
struct Release {
    has_wheels: bool,
    /// Whether one of its wheels is for the target.
    fits: bool,
    /// Whether such a wheel is not yanked.
    kept: bool,
    /// Whether one of the wheels for the target is for one platform.
    is_compiled: bool,
    /// Whether it has a source distribution that takes the Python.
    source: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "cp311-cp311-manylinux_2_17_x86_64";

    fn published(files: &[(&str, Option<&str>)]) -> Published {
        let listed = |(file, python): &(&str, Option<&str>)| Listed {
            file: (*file).to_owned(),
            kind: PackageFile::parse(file, "foo").unwrap(),
            url: reqwest::Url::parse("https://h.test/f").unwrap(),
            sha256: None,
            size: None,
            requires_python: python.map(str::to_owned),
            yanked: None,
        };
        let files = files.iter().map(listed).collect();
        Published {
            files: BTreeMap::from([("foo".to_owned(), files)]),
            ..Published::default()
        }
    }

    fn instead(published: &Published, asked: &str) -> Option<String> {
        let target = WheelTarget {
            python: "3.11".parse().unwrap(),
            platform: "linux/amd64".parse().unwrap(),
            glibc: 36,
        };
        let runs = |version: &Version| *version != Version::new([0, 8]);
        let version = published.instead_of("foo", &asked.parse().unwrap(), &target, runs);
        version.map(|v| v.to_string())
    }

    #[test]
    fn the_next_release_with_a_wheel_stands_in_for_one_without() {
        let old = "cp39-cp39-manylinux_2_17_x86_64";
        let names = [
            "foo-0.8-py3-none-any.whl".to_owned(),
            "foo-0.9-py3-none-any.whl".to_owned(),
            format!("foo-1.0-{old}.whl"),
            "foo-1.0.tar.gz".to_owned(),
            format!("foo-1.1-{old}.whl"),
            format!("foo-1.2rc1-{TARGET}.whl"),
            format!("foo-1.2-{TARGET}.whl"),
            format!("foo-1.3-{TARGET}.whl"),
            "foo-2.0-cp313-cp313-manylinux_2_17_x86_64.whl".to_owned(),
        ];
        let files: Vec<(&str, Option<&str>)> = names.iter().map(|n| (n.as_str(), None)).collect();
        let all = published(&files);
        assert_eq!(instead(&all, "==1.0").as_deref(), Some("1.2"));
        assert_eq!(instead(&all, "==0.8").as_deref(), Some("0.9"));
        assert_eq!(instead(&all, "~=1.0.0").as_deref(), Some("1.2"));
        assert_eq!(instead(&all, ">=1.0,<1.2").as_deref(), Some("1.2"));
        assert_eq!(instead(&all, "==2.0").as_deref(), Some("1.3"));
        for met in ["==0.9", ">=1.0", "==1.3", "", "<1.0", "==7"] {
            assert_eq!(instead(&all, met), None, "{met}");
        }
        assert_eq!(instead(&Published::default(), "==1.0"), None);
        // Removed from the index.
        assert_eq!(instead(&all, "==0.8.5").as_deref(), Some("0.9"));
        assert_eq!(instead(&all, "==1.1.1").as_deref(), Some("1.2"));
        let none_of = |asked: &str| all.has_none_of("foo", &asked.parse().unwrap());
        assert!(
            none_of("==1.1.1")
                && !none_of("==1.1")
                && !all.has_none_of("bar", &"==1".parse().unwrap())
        );
    }

    #[test]
    fn what_is_source_for_everyone_is_built() {
        let wheel = format!("foo-3.0-{TARGET}.whl");
        let files = published(&[
            ("foo-1.0.tar.gz", None),
            ("foo-2.0.tar.gz", Some("<3.10")),
            (&wheel, None),
        ]);
        assert_eq!(instead(&files, "==1.0"), None);
        assert_eq!(instead(&files, "==2.0").as_deref(), Some("3.0"));
        // An installer takes the newest of a range, which has wheels.
        let old = "foo-2.5-cp39-cp39-manylinux_2_17_x86_64.whl";
        let range = [
            ("foo-1.0.tar.gz", None),
            (old, None),
            ("foo-2.5.tar.gz", None),
            (&wheel, None),
        ];
        assert_eq!(instead(&published(&range), "<3").as_deref(), Some("3.0"));
        let gone = published(&[("foo-2.0.tar.gz", Some("<3.10"))]);
        assert_eq!(instead(&gone, "==2.0"), None);
    }

    #[test]
    fn a_source_between_compiled_wheels_has_lost_its_own() {
        let before = format!("foo-1.0-{TARGET}.whl");
        let after = format!("foo-3.0-{TARGET}.whl");
        let source = ("foo-2.0.tar.gz", None);
        let early = ("foo-2.1rc1.tar.gz", None);
        let lost = published(&[(&before, None), source, early, (&after, None)]);
        assert_eq!(instead(&lost, "==2.0").as_deref(), Some("3.0"));
        assert_eq!(instead(&lost, ">=2.0"), None);
        // Nothing says that one without a neighbour, or beside pure wheels, had wheels.
        let last = published(&[(&before, None), source]);
        assert_eq!(instead(&last, "==2.0"), None);
        let pure = ("foo-1.0-py3-none-any.whl", None);
        let beside = published(&[pure, source, (&after, None)]);
        assert_eq!(instead(&beside, "==2.0"), None);
    }

    #[test]
    fn a_release_is_for_others_where_another_one_fits() {
        let target = WheelTarget {
            python: "3.11".parse().unwrap(),
            platform: "linux/amd64".parse().unwrap(),
            glibc: 36,
        };
        let old = [
            ("foo-1.0-cp38-cp38-win32.whl", None),
            ("foo-1.0.tar.gz", None),
        ];
        let new = ("foo-2.0-py3-none-any.whl", None);
        let both = [&old[..], &[new]].concat();
        let version = Version::new([1, 0]);
        assert!(published(&both).is_for_others("foo", &version, &target));
        // It is built: nothing else can stand in for it.
        assert!(!published(&old).is_for_others("foo", &version, &target));
        assert!(!published(&both[1..]).is_for_others("foo", &version, &target));
        assert!(!published(&both).is_for_others("foo", &Version::new([2, 0]), &target));
        assert_eq!(
            published(&both).newest_of("foo", &"<2".parse().unwrap()),
            Some(&version)
        );
    }

    #[test]
    fn what_is_source_for_everyone_to_the_last_is_surest() {
        let one = |file: &str| published(&[(file, None)]).files.remove("foo").unwrap();
        let published = Published {
            files: BTreeMap::from([
                ("built".to_owned(), one("foo-1.0.tar.gz")),
                ("wheel".to_owned(), one("foo-1.0-py3-none-any.whl")),
            ]),
            ..Published::default()
        };
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        for (of, sure) in [
            (&["built", "wheel", "unknown"][..], &["built"][..]),
            (&["wheel", "unknown"], &["wheel", "unknown"]),
            (&["built"], &["built"]),
        ] {
            let sure: BTreeSet<String> = names(sure);
            assert_eq!(published.surest(names(of), &BTreeSet::new()), sure);
        }
    }

    #[test]
    fn a_wheel_for_another_python_by_its_metadata_is_none() {
        let one = format!("foo-1.0-{}", "py3-none-any.whl");
        let two = format!("foo-1.1-{TARGET}.whl");
        let files = published(&[(&one, Some("<3.11")), (&two, Some(">=3.8"))]);
        assert_eq!(instead(&files, "==1.0").as_deref(), Some("1.1"));
    }
}
