//! Compares the distributions in an image with the lock.
//!
//! In: a plan, the validation's report, the RECORD files that the audit read in the finished image, and
//! the wheels on this machine (compiled ones, and locked ones in the store). Out: nothing, or each
//! difference. The engine cannot answer this: it does not know that it took a layer of another build from
//! its cache. In a rendered Dockerfile `templates/validate/locked.py` does the same comparison.

use super::BuildError;
use crate::validate::Report;
use pep440_rs::Version;
use stackforge_audit::Audit;
use stackforge_binary::source::FileSource;
use stackforge_image::layer::Wheel;
use stackforge_image::store::Store;
use stackforge_plan::Plan;
use stackforge_stack::diag::chain;
use stackforge_stack::lock::PythonFile;
use stackforge_types::Digest;
use stackforge_types::wheel::normalized;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Path of the Python environment in images.
const ENVIRONMENT: &str = "opt/venv/";

/// Starts a line of a step's log that describes a difference.
const MARK: &str = "stackforge-difference ";

/// Returns the differences that the Dockerfile's own comparison printed to its log.
pub(super) fn in_log(log: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| line.split_once(MARK));
    lines.map(|(_, difference)| difference.to_owned()).collect()
}

/// Returns the readable locked wheels in the store, by distribution name.
pub(super) fn wheels_here(plan: &Plan, store: &Store) -> BTreeMap<String, PathBuf> {
    let here = |wheel: &PythonFile| {
        let path = store.named(&wheel.sha256, &wheel.file).ok()?;
        // pip installs some wheels that our stricter reader refuses.
        let readable = FileSource::open(&path).is_ok_and(|s| Wheel::open(&wheel.file, s).is_ok());
        readable.then(|| (wheel.name.clone(), path))
    };
    plan.wheels().filter_map(here).collect()
}

/// Compares the image with the plan's lock, and the report with what the plan promises. `wheels` is by
/// distribution name; installed files have to match the digests in their wheel's RECORD.
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
    differences.extend(of_report(plan.validation(), report));
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
    if differences.is_empty() {
        Ok(())
    } else {
        Err(BuildError::NotTheLocks { differences })
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
        // Vendored distributions lie deeper than site-packages: skip them.
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
    let present: BTreeSet<&str> = found.iter().map(|f| f.name.as_str()).collect();
    let missing = locked.iter().filter(|(n, _)| !present.contains(n.as_str()));
    differences.extend(missing.map(|(name, version)| format!("{name} {version} is not installed")));
    differences
}

/// Returns a difference if the report was made for another spec than the plan's: then its layer came
/// from another build.
pub(super) fn other_promise(plan: &Plan, report: &Report) -> Option<String> {
    let promised = Digest::of(plan.promise().as_bytes());
    (report.spec.as_ref() != Some(&promised))
        .then(|| "the report of the validation is of another spec.json".to_owned())
}

/// Returns the libraries that the report lists with another version than the promised one: then the
/// report is of another image.
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

/// Whether two versions are equal by PEP 440. A local part counts only if `locked` has one.
fn same_version(locked: &str, found: &str) -> bool {
    let parse = |text: &str| text.replace('_', "-").parse::<Version>();
    match (parse(locked), parse(found)) {
        (Ok(locked), Ok(found)) if locked.local().is_empty() => locked == found.without_local(),
        (Ok(locked), Ok(found)) => locked == found,
        _ => locked == found,
    }
}

/// Returns the files whose digest in the installed RECORD differs from that in the wheel's.
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
            let recorded = installed.get(path.as_str());
            // The installer rewrites RECORD and skips files that the image does not need.
            recorded.is_some_and(|recorded| !recorded.is_empty() && recorded != digest)
                && !is_installers(path)
        })
        .map(|(path, _)| path)
        .collect();
    other.sort();
    other
}

/// Whether installers write this file themselves, so that the wheel's copy does not matter.
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
        // A vendored distribution does not count as installed.
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
