//! Chooses among a project's files, or describes the alternatives if none fits.

use super::super::simple::{Listed, PackageFile};
use super::{PackageError, Pin};
use pep440_rs::{Version, VersionSpecifier, VersionSpecifiers};
use stackforge_stack::spec::PythonVersion;
use stackforge_types::wheel::{Rank, WheelName, WheelTarget};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Newer than any glibc: without a base, any wheel may be used.
const ANY_GLIBC: u16 = 999;
const LOWER: usize = 3;
const HIGHER: usize = 2;

/// Returns the wheel that fits best. A version without a local part stands for all its local versions, of
/// which the highest is taken; yanked files come last.
pub(super) fn choose<'a>(
    files: &'a [Listed],
    wanted: &Pin,
) -> Result<(&'a Listed, &'a WheelName), PackageError> {
    let specifier = VersionSpecifier::equals_version(wanted.version.clone());
    let of_version = || {
        files
            .iter()
            .filter(|f| specifier.contains(f.kind.version()))
    };
    let target = WheelTarget {
        python: wanted.python,
        platform: wanted.platform,
        glibc: wanted.glibc.unwrap_or(ANY_GLIBC),
    };
    let fit = of_version().filter_map(|file| {
        let PackageFile::Wheel(name) = &file.kind else {
            return None;
        };
        let python = accepts(file.requires_python.as_deref(), wanted.python);
        let rank = name.rank(&target).filter(|_| python)?;
        Some((order(file, name, rank), file, name))
    });
    if let Some((_, file, name)) = fit.min_by(|(a, ..), (b, ..)| a.cmp(b)) {
        return Ok((file, name));
    }
    let (name, version) = (wanted.name.clone(), wanted.version.to_string());
    if of_version().next().is_none() {
        let near = near(files, &wanted.version);
        return Err(PackageError::NoVersion {
            name,
            version,
            near,
        });
    }
    let wheels = of_version().filter(|f| matches!(f.kind, PackageFile::Wheel(_)));
    let wheels: BTreeSet<&str> = wheels.map(|f| f.file.as_str()).collect();
    Err(PackageError::NoWheel {
        name,
        version,
        python: wanted.python.to_string(),
        platform: wanted.platform.to_string(),
        available: wheels.into_iter().map(str::to_owned).collect(),
    })
}

/// Sort key of a wheel. The lowest is the best.
type Order<'a> = (
    bool,
    Reverse<&'a Version>,
    Rank,
    Reverse<Option<&'a (u64, String)>>,
);

fn order<'a>(file: &Listed, name: &'a WheelName, rank: Rank) -> Order<'a> {
    (
        file.yanked.is_some(),
        Reverse(&name.version),
        rank,
        Reverse(name.build()),
    )
}

/// Whether some release of that Python satisfies `requires`. As in pip, an unreadable requirement excludes
/// nothing.
pub(super) fn accepts(requires: Option<&str>, python: PythonVersion) -> bool {
    let specifiers = requires.and_then(|r| r.parse::<VersionSpecifiers>().ok());
    let release = |patch| Version::new([u64::from(python.major), u64::from(python.minor), patch]);
    specifiers.is_none_or(|s| (0..40).any(|patch| s.contains(&release(patch))))
}

/// Returns the versions around a missing one, newest first.
fn near(files: &[Listed], version: &Version) -> Vec<String> {
    let all: BTreeSet<&Version> = files.iter().map(|f| f.kind.version()).collect();
    let higher = all.iter().filter(|v| **v > version).take(HIGHER);
    let lower = all.iter().rev().filter(|v| **v < version).take(LOWER);
    let mut near: Vec<&&Version> = higher.chain(lower).collect();
    near.sort_by(|a, b| b.cmp(a));
    near.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(names: &[&str]) -> Vec<Listed> {
        let file = |name: &&str| Listed {
            file: (*name).to_owned(),
            kind: PackageFile::parse(name, "foo").unwrap(),
            url: reqwest::Url::parse("https://h.test/f").unwrap(),
            sha256: None,
            size: None,
            requires_python: None,
            yanked: None,
        };
        names.iter().map(file).collect()
    }

    fn wanted(version: &str) -> Pin {
        Pin {
            name: "foo".into(),
            version: version.parse().unwrap(),
            python: "3.12".parse().unwrap(),
            platform: "linux/arm64".parse().unwrap(),
            glibc: None,
        }
    }

    #[test]
    fn the_best_wheel_of_the_version_is_taken() {
        let mut files = listed(&[
            "foo-1.0-py3-none-any.whl",
            "foo-1.0-cp312-cp312-manylinux_2_17_aarch64.whl",
            "foo-1.0-cp312-cp312-manylinux_2_39_aarch64.whl",
            "foo-1.0-cp312-cp312-manylinux_2_39_x86_64.whl",
            "foo-1.1-cp312-cp312-manylinux_2_39_aarch64.whl",
            "foo-1.0.tar.gz",
        ]);
        let name = |files: &[Listed], w: &Pin| choose(files, w).unwrap().0.file.clone();
        assert_eq!(name(&files, &wanted("1")), files[2].file);
        let old = Pin {
            glibc: Some(28),
            ..wanted("1.0")
        };
        assert_eq!(name(&files, &old), files[1].file);
        files[1].requires_python = Some(">=3.13".into());
        assert_eq!(name(&files, &old), files[0].file);
        files[0].yanked = Some("bad".into());
        files[1].requires_python = Some(">=3.12.4".into());
        files[1].yanked = Some("bad".into());
        assert_eq!(name(&files, &old), files[1].file, "exactly pinned");
    }

    #[test]
    fn a_public_version_stands_for_its_local_ones() {
        let files = listed(&[
            "foo-1.0+cu129-py3-none-any.whl",
            "foo-1.0+cu130-py3-none-any.whl",
        ]);
        assert_eq!(
            choose(&files, &wanted("1.0")).unwrap().0.file,
            files[1].file
        );
        let exact = choose(&files, &wanted("1.0+cu129")).unwrap();
        assert_eq!(exact.0.file, files[0].file);
        assert!(choose(&files, &wanted("1.0+cpu")).is_err());
    }

    #[test]
    fn what_there_is_is_told() {
        let files = listed(&[
            "foo-0.1.tar.gz",
            "foo-0.9-py3-none-any.whl",
            "foo-1.0-cp313-cp313-manylinux_2_28_aarch64.whl",
            "foo-1.0-cp312-cp312-win_amd64.whl",
            "foo-1.2-py3-none-any.whl",
        ]);
        let error = |version: &str| choose(&files, &wanted(version)).unwrap_err().to_string();
        assert_eq!(
            error("1.1"),
            "`foo` has no version 1.1; the nearest are 1.2, 1.0, 0.9, 0.1"
        );
        assert_eq!(
            error("1.0"),
            "`foo` 1.0 has no wheel for Python 3.12 on linux/arm64: there is foo-1.0-cp312-cp312-win_amd64.whl, foo-1.0-cp313-cp313-manylinux_2_28_aarch64.whl"
        );
        assert!(error("0.1").ends_with("only its source is published"));
    }

    proptest! {
        #[test]
        fn a_choice_does_not_depend_on_order(glibc in proptest::collection::vec(5u16..50, 1..6)) {
            let names: Vec<String> = glibc
                .iter()
                .map(|g| format!("foo-1-cp312-cp312-manylinux_2_{g}_aarch64.whl"))
                .collect();
            let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
            let one = choose(&listed(&names), &wanted("1")).unwrap().0.file.clone();
            names.reverse();
            prop_assert_eq!(choose(&listed(&names), &wanted("1")).unwrap().0.file.clone(), one);
        }
    }
}
