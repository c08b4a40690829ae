//! The distributions that an image holds, compared with the lock.
//!
//! In: a plan, the report of the validation, the RECORDs that the audit read in the finished image,
//! and the wheels that are here: compiled ones, and locked ones that the store has. Out: nothing, or each
//! difference. The engine is not asked: one that took a layer of another build from its cache does not
//! know. Whoever builds a rendered Dockerfile gets the same from `templates/validate/locked.py`.

use super::{BuildError, chain};
use crate::audit::Audit;
use crate::lock::PythonFile;
use crate::plan::Plan;
use crate::validate::Report;
use pep440_rs::Version;
use stackforge_binary::source::FileSource;
use stackforge_image::layer::Wheel;
use stackforge_image::store::Store;
use stackforge_types::Digest;
use stackforge_types::wheel::normalized;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where images keep their Python packages.
const ENVIRONMENT: &str = "opt/venv/";

/// Begins a line of a step's log that names a difference.
const MARK: &str = "stackforge-difference ";

/// The differences that the Dockerfile's own comparison printed into its log.
pub(super) fn in_log(log: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| line.split_once(MARK));
    lines.map(|(_, difference)| difference.to_owned()).collect()
}

/// The locked wheels that the store has and that can be read, by name.
pub(super) fn wheels_here(plan: &Plan, store: &Store) -> BTreeMap<String, PathBuf> {
    let here = |wheel: &PythonFile| {
        let digest = format!("sha256:{}", wheel.sha256).parse().ok()?;
        let path = store.named(&digest, &wheel.file).ok()?;
        // Installers take wheels that are not read here.
        let readable = FileSource::open(&path).is_ok_and(|s| Wheel::open(&wheel.file, s).is_ok());
        readable.then(|| (wheel.name.clone(), path))
    };
    let wheels = plan.parts.layers.iter().flat_map(|layer| &layer.wheels);
    wheels.filter_map(here).collect()
}

/// Compares the image with the plan's lock, and the report with what the plan promises. `wheels` are by
/// name of the distribution; what the image has of each has to be what the wheel states.
///
/// # Errors
/// [`BuildError::NotTheLocks`] with each difference.
pub(super) fn check(
    plan: &Plan,
    report: &Report,
    audit: &Audit,
    wheels: &BTreeMap<String, PathBuf>,
) -> Result<(), BuildError> {
    let found = found(&audit.records);
    let locked = plan.installed().map(|(n, v)| (n, v.to_owned()));
    let mut differences = versions(&locked.collect(), &found);
    differences.extend(of_report(&plan.parts.validation, report));
    for (library, wheel) in wheels {
        let name = normalized(library);
        for installed in found.iter().filter(|f| f.name == name) {
            let other = other_files(wheel, installed.record);
            differences.extend(
                other
                    .into_iter()
                    .map(|file| format!("`{file}` of {library} is not that of its wheel")),
            );
        }
    }
    match differences.is_empty() {
        true => Ok(()),
        false => Err(BuildError::NotTheLocks { differences }),
    }
}

/// An installed distribution.
#[derive(Debug)]
struct Installed<'a> {
    name: String,
    version: String,
    record: &'a str,
}

fn found(records: &BTreeMap<String, String>) -> Vec<Installed<'_>> {
    let read = |path: &'_ str| {
        let folder = path.strip_suffix(".dist-info/RECORD")?;
        // Packages bring distributions of their own, in folders of theirs.
        let (site, stem) = folder.rsplit_once('/')?;
        let own = site.starts_with(ENVIRONMENT) && site.ends_with("/site-packages");
        let (name, version) = stem.rsplit_once('-').filter(|_| own)?;
        Some((normalized(name), version.to_owned()))
    };
    records
        .iter()
        .filter_map(|(path, record)| {
            let (name, version) = read(path)?;
            Some(Installed {
                name,
                version,
                record,
            })
        })
        .collect()
}

fn versions(locked: &BTreeMap<String, String>, found: &[Installed<'_>]) -> Vec<String> {
    let mut differences = Vec::new();
    for Installed { name, version, .. } in found {
        match locked.get(name) {
            None => differences.push(format!("{name} {version} is installed and not locked")),
            Some(wanted) if !same_version(wanted, version) => {
                differences.push(format!("{name} {version} is installed, {wanted} is locked"))
            }
            Some(_) => {}
        }
    }
    let there: BTreeSet<&str> = found.iter().map(|f| f.name.as_str()).collect();
    let missing = locked.iter().filter(|(n, _)| !there.contains(n.as_str()));
    differences.extend(missing.map(|(name, version)| format!("{name} {version} is not installed")));
    differences
}

/// The difference of a report that was made in the build of the image and is not of what the plan
/// promises: its layer is of another build.
pub(super) fn other_promise(plan: &Plan, report: &Report) -> Option<String> {
    let promised = Digest::of(plan.promise().as_bytes()).to_string();
    (report.spec.as_ref() != Some(&promised))
        .then(|| "the report of the validation is of another spec.json".to_owned())
}

/// The libraries of the report that are not those that were to be validated: the report is of
/// another image.
fn of_report(promised: &serde_json::Value, report: &Report) -> Vec<String> {
    let libraries = promised["libraries"].as_array().into_iter().flatten();
    let results = || report.checks.iter().filter(|c| c.name == "imports");
    let results = || results().flat_map(|c| &c.results);
    let mut differences = Vec::new();
    for library in libraries {
        let (Some(name), Some(wanted)) = (library["name"].as_str(), library["version"].as_str())
        else {
            continue;
        };
        let of_library = results().find(|r| r["name"].as_str() == Some(name));
        let version = of_library.and_then(|r| r["version"].as_str());
        if let Some(version) = version.filter(|v| !same_version(wanted, v)) {
            differences.push(format!(
                "{name} {version} was validated, {wanted} is locked"
            ));
        }
    }
    differences
}

/// Whether they are equal as PEP 440 has it. A local part counts if the lock names one.
fn same_version(locked: &str, found: &str) -> bool {
    let parse = |text: &str| text.replace('_', "-").parse::<Version>();
    match (parse(locked), parse(found)) {
        (Ok(locked), Ok(found)) if locked.local().is_empty() => locked == found.without_local(),
        (Ok(locked), Ok(found)) => locked == found,
        _ => locked == found,
    }
}

/// Files of the wheel for which the installed RECORD states another digest.
fn other_files(wheel: &Path, record: &str) -> Vec<String> {
    let opened = || -> Result<Vec<(String, String)>, Box<dyn std::error::Error>> {
        let name = wheel
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let wheel = Wheel::open(name, FileSource::open(wheel)?)?;
        let stated = wheel.stated();
        Ok(stated.map(|(p, d)| (p.to_owned(), d.to_owned())).collect())
    };
    let stated = match opened() {
        Ok(stated) => stated,
        Err(e) => return vec![format!("{} ({})", wheel.display(), chain(e.as_ref()))],
    };
    let installed: BTreeMap<&str, &str> = record
        .lines()
        .filter_map(|line| {
            let mut fields = line.rsplitn(3, ',').skip(1);
            let digest = fields.next()?;
            Some((fields.next()?.trim_matches('"'), digest))
        })
        .collect();
    let mut other: Vec<String> = stated
        .into_iter()
        .filter(|(path, digest)| {
            let there = installed.get(path.as_str());
            // An installer writes its own RECORD, and leaves out what the image does not need.
            there.is_some_and(|there| !there.is_empty() && there != digest) && !is_installers(path)
        })
        .map(|(path, _)| path)
        .collect();
    other.sort();
    other
}

/// Whether an installer writes the file itself, whatever a wheel brings under its name.
fn is_installers(path: &str) -> bool {
    let file = path.split_once(".dist-info/").map(|(_, file)| file);
    file.is_some_and(|f| ["INSTALLER", "REQUESTED", "RECORD", "direct_url.json"].contains(&f))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "opt/venv/lib/python3.11/site-packages";

    fn records(names: &[&str]) -> BTreeMap<String, String> {
        let path = |name: &&str| format!("{SITE}/{name}.dist-info/RECORD");
        names.iter().map(|n| (path(n), String::new())).collect()
    }

    fn differences(names: &[&str]) -> Vec<String> {
        let locked = BTreeMap::from(
            [
                ("six", "1.16.0"),
                ("torch", "2.9.1+cu130"),
                ("jinja2", "3.1"),
            ]
            .map(|(n, v)| (n.to_owned(), v.to_owned())),
        );
        let mut records = records(names);
        // What a package brings for itself is not installed.
        let vendored = format!("{SITE}/pkg/_vendor/x-1.dist-info/RECORD");
        records.insert(vendored, String::new());
        records.insert("usr/lib/python3/y-1.dist-info/RECORD".into(), String::new());
        versions(&locked, &found(&records))
    }

    #[test]
    fn an_image_holds_what_is_locked() {
        let fine = ["six-1.16.0", "torch-2.9.1+cu130", "Jinja2-3.1.0"];
        assert_eq!(differences(&fine), [""; 0]);
        let other = ["six-1.17.0", "torch-2.9.1+cu129", "extra-1.0"];
        assert_eq!(
            differences(&other),
            [
                "extra 1.0 is installed and not locked",
                "six 1.17.0 is installed, 1.16.0 is locked",
                "torch 2.9.1+cu129 is installed, 2.9.1+cu130 is locked",
                "jinja2 3.1 is not installed",
            ]
        );
    }

    #[test]
    fn a_report_of_another_image_is_known_by_its_versions() {
        let promised = serde_json::json!({ "libraries": [
            { "name": "six", "version": "1.16.0" }, { "name": "x", "version": null },
        ]});
        let report = |version: &str| {
            let results = serde_json::json!([{ "name": "six", "version": version }]);
            let check =
                serde_json::json!({ "name": "imports", "status": "passed", "results": results });
            let report = serde_json::json!({ "schema": 1, "ok": true, "checks": [check] });
            serde_json::from_value::<Report>(report).unwrap()
        };
        assert!(of_report(&promised, &report("1.16.0")).is_empty());
        let other = of_report(&promised, &report("1.17.0"));
        assert_eq!(other, ["six 1.17.0 was validated, 1.16.0 is locked"]);
    }

    #[test]
    fn a_local_part_counts_where_the_lock_names_one() {
        assert!(same_version("2.8.3", "2.8.3+cu13torch2.9"));
        assert!(!same_version("2.9.1+cu130", "2.9.1"));
        assert!(same_version("1.0rc1", "1.0.rc1"));
        assert!(!same_version("odd one", "odd two"));
    }
}
