//! Which OS packages have what wheels take from the system.
//!
//! In: what is taken, the packages that are there, and the archive's indices. Out: the packages to add, each
//! with its reasons.

use crate::system::{SystemFile, SystemNeeds};
use stackforge_debian::contents::Contents;
use stackforge_debian::index::PackageIndex;
use stackforge_debian::relation::{Relation, parse_relations};
use stackforge_debian::soname::likely_package;
use stackforge_stack::lock::{LackingLock, OsPackageLock};
use std::collections::{BTreeMap, BTreeSet};

/// Returns why a file is wanted: `lightgbm needs libgomp.so.1`, a sentence for each distribution.
pub fn reasons<'a>(
    file: &'a SystemFile,
    distributions: &'a BTreeSet<String>,
) -> impl Iterator<Item = String> + use<'a> {
    let verb = match file {
        SystemFile::Library(_) => "needs",
        SystemFile::Program(_) => "runs",
        SystemFile::Module { .. } => "imports",
    };
    let of = move |d: &String| format!("{d} {verb} {}", file.name());
    distributions.iter().map(of)
}

/// Returns what is not in a package of its own name that is `there`. Most needs are in such a package, and then
/// no index of files has to be fetched.
pub fn without_namesake(needs: &SystemNeeds, there: impl Fn(&str) -> bool) -> SystemNeeds {
    let named = |file: &SystemFile| match file {
        SystemFile::Library(soname) => likely_package(soname).is_some_and(|name| there(&name)),
        SystemFile::Program(name) => there(name),
        SystemFile::Module { package, .. } => there(package),
    };
    let left = needs.iter().filter(|(file, _)| !named(file));
    left.map(|(file, by)| (file.clone(), by.clone())).collect()
}

/// Returns the packages that have a file; without an index of files, the one that is named after it.
pub fn packages_with(
    file: &SystemFile,
    contents: Option<&Contents>,
    index: Option<&PackageIndex>,
) -> Vec<String> {
    match (file, contents) {
        (SystemFile::Library(soname), Some(contents)) => contents.library(soname).to_vec(),
        (SystemFile::Program(name), Some(contents)) => contents.program(name).to_vec(),
        (SystemFile::Module { package, .. }, Some(_)) => vec![package.clone()],
        (file, None) => {
            let name = match file {
                SystemFile::Library(soname) => likely_package(soname),
                SystemFile::Program(name) | SystemFile::Module { package: name, .. } => {
                    Some(name.clone())
                }
            };
            let exists = |name: &String| index.is_some_and(|i| i.newest(name).is_some());
            name.filter(exists).into_iter().collect()
        }
    }
}

/// Returns the libraries that no package has, by an index of files.
pub fn in_no_package(needs: &SystemNeeds, contents: Option<&Contents>) -> SystemNeeds {
    let Some(contents) = contents else {
        return SystemNeeds::new();
    };
    let is_nowhere = |file: &SystemFile| match file {
        SystemFile::Library(soname) => contents.library(soname).is_empty(),
        SystemFile::Program(_) | SystemFile::Module { .. } => false,
    };
    let left = needs.iter().filter(|(file, _)| is_nowhere(file));
    left.map(|(file, by)| (file.clone(), by.clone())).collect()
}

/// Returns the libraries that no package had when a lock was made and that are still needed.
pub fn nowhere_before(needs: &SystemNeeds, lacking: &[LackingLock]) -> SystemNeeds {
    let before: BTreeSet<&String> = lacking.iter().flat_map(|lock| &lock.needs).collect();
    let is_before = |file: &SystemFile| match file {
        SystemFile::Library(soname) => before.contains(soname),
        SystemFile::Program(_) | SystemFile::Module { .. } => false,
    };
    let left = needs.iter().filter(|(file, _)| is_before(file));
    left.map(|(file, by)| (file.clone(), by.clone())).collect()
}

/// Returns the packages to add for what no package that is `there` has, each with its reasons. Of several that
/// have a file, the one that is named after it is taken, else the one with the shortest name.
pub fn to_add(
    needs: &SystemNeeds,
    contents: Option<&Contents>,
    index: &PackageIndex,
    there: impl Fn(&str) -> bool,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut added: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, distributions) in needs {
        let packages = packages_with(file, contents, Some(index));
        if packages.iter().any(|name| there(name)) {
            continue;
        }
        let named = |package: &String| match file {
            SystemFile::Library(soname) => likely_package(soname).as_ref() == Some(package),
            SystemFile::Program(name) | SystemFile::Module { package: name, .. } => name == package,
        };
        let known = packages.iter().filter(|name| index.newest(name).is_some());
        let Some(package) = known.min_by_key(|name| (!named(name), name.len(), name.as_str()))
        else {
            continue;
        };
        let of_package = added.entry(package.clone()).or_default();
        of_package.extend(reasons(file, distributions));
    }
    added
}

/// Returns why a development package's runtime library is wanted, a sentence for each library that is built
/// with it.
pub fn built_with<'a>(
    package: &'a str,
    libraries: &'a BTreeSet<String>,
) -> impl Iterator<Item = String> + use<'a> {
    let of = move |library: &String| format!("{library} is built with {package}");
    libraries.iter().map(of)
}

/// Whether a package is a runtime library by its name: `libgomp1`.
pub fn is_runtime(package: &str) -> bool {
    let name = package.split('=').next().unwrap_or(package);
    name.starts_with("lib") && name.ends_with(|last: char| last.is_ascii_digit())
}

/// Returns the runtime libraries of development packages, which depend on them in their own version. A package
/// without one stands for the development packages that it depends on, and so on. A runtime library is one itself.
pub fn linked(
    packages: &BTreeMap<String, BTreeSet<String>>,
    index: &PackageIndex,
    there: impl Fn(&str) -> bool,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut added: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (package, libraries) in packages {
        let mut seen = BTreeSet::new();
        let mut left = vec![package.split('=').next().unwrap_or(package).to_owned()];
        while let Some(name) = left.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            if is_runtime(&name) && index.newest(&name).is_some() && !there(&name) {
                let reasons = added.entry(name.clone()).or_default();
                reasons.extend(built_with(package, libraries));
                continue;
            }
            let own = runtime_of(&name, index);
            left.extend(own.others);
            for name in own.libraries.into_iter().filter(|name| !there(name)) {
                let reasons = added.entry(name).or_default();
                reasons.extend(built_with(package, libraries));
            }
        }
    }
    added
}

/// What a development package depends on.
#[derive(Default)]
struct Runtime {
    libraries: BTreeSet<String>,
    /// Packages that it may stand for: development packages, and what has its version.
    others: Vec<String>,
}

fn runtime_of(name: &str, index: &PackageIndex) -> Runtime {
    let mut out = Runtime::default();
    let Some(package) = index.newest(name) else {
        return out;
    };
    let groups = parse_relations(package.depends(), index.architecture());
    for group in groups.unwrap_or_default() {
        let [on] = group.as_slice() else { continue };
        let of_same_version = on.version == Some((Relation::Equal, package.version()));
        let development = on.name.ends_with("-dev") || on.name.ends_with("-dev-compat");
        if of_same_version && on.name.starts_with("lib") && !development {
            out.libraries.insert(on.name.to_owned());
        } else if of_same_version || development {
            out.others.push(on.name.to_owned());
        }
    }
    if !out.libraries.is_empty() {
        out.others.clear();
    }
    out
}

/// Adds packages and their reasons to others.
pub fn merge(
    into: &mut BTreeMap<String, BTreeSet<String>>,
    from: BTreeMap<String, BTreeSet<String>>,
) {
    for (package, reasons) in from {
        into.entry(package).or_default().extend(reasons);
    }
}

/// Notes why packages were added.
pub fn explain(packages: &mut [OsPackageLock], added: &BTreeMap<String, BTreeSet<String>>) {
    for package in packages {
        if let Some(reasons) = added.get(&package.name) {
            package.reasons = reasons.iter().cloned().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_has_is_added_with_its_reasons() {
        let mut contents = Contents::default();
        let lines = "usr/lib/x86_64-linux-gnu/libgomp.so.1 libs/libgomp1\n\
            usr/lib/x86_64-linux-gnu/libz.so.1 libs/zlib1g\n\
            usr/lib/x86_64-linux-gnu/libjack.so.0 libs/libjack-jackd2-0,libs/libjack0\n\
            usr/bin/ffmpeg video/ffmpeg\n";
        contents.add(lines.as_bytes(), "amd64").unwrap();
        let mut index = stackforge_debian::index::IndexBuilder::new("amd64");
        let stanza = |name: &str| {
            format!(
                "Package: {name}\nVersion: 1\nArchitecture: amd64\nFilename: pool/main/x/{name}_1_amd64.deb\nSize: 1\nSHA256: {}\n\n",
                "ab".repeat(32)
            )
        };
        let packages = [
            "libgomp1",
            "zlib1g",
            "libjack-jackd2-0",
            "libjack0",
            "ffmpeg",
            "python3-tk",
        ]
        .map(stanza);
        index.add("debian", packages.concat().as_bytes()).unwrap();
        let index = index.finish();
        let library = |name: &str| SystemFile::Library(name.to_owned());
        let by = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let needs = SystemNeeds::from([
            (library("libgomp.so.1"), by(&["a", "b"])),
            (library("libz.so.1"), by(&["a"])),
            (library("libjack.so.0"), by(&["c"])),
            (library("libnowhere.so.1"), by(&["c"])),
            (SystemFile::Program("ffmpeg".into()), by(&["d"])),
            (
                SystemFile::Module {
                    name: "tkinter".into(),
                    package: "python3-tk".into(),
                },
                by(&["e"]),
            ),
        ]);
        let by_name = to_add(&needs, None, &index, |name| name == "zlib1g");
        let guessed: Vec<&String> = by_name.keys().collect();
        assert_eq!(guessed, ["ffmpeg", "libgomp1", "libjack0", "python3-tk"]);
        let added = to_add(&needs, Some(&contents), &index, |name| name == "zlib1g");
        let added: Vec<_> = added
            .iter()
            .map(|(name, why)| {
                (
                    name.as_str(),
                    why.iter().map(String::as_str).collect::<Vec<_>>(),
                )
            })
            .collect();
        let expected = [
            ("ffmpeg", vec!["d runs ffmpeg"]),
            (
                "libgomp1",
                vec!["a needs libgomp.so.1", "b needs libgomp.so.1"],
            ),
            ("libjack0", vec!["c needs libjack.so.0"]),
            ("python3-tk", vec!["e imports tkinter"]),
        ];
        assert_eq!(added, expected);
        let nowhere = SystemNeeds::from([(library("libnowhere.so.1"), by(&["c"]))]);
        assert_eq!(in_no_package(&needs, Some(&contents)), nowhere);
        assert!(in_no_package(&needs, None).is_empty());
        let lock = |needs: &[&str]| LackingLock {
            name: "c".to_owned(),
            needs: needs.iter().map(|n| (*n).to_owned()).collect(),
            extras: Vec::new(),
        };
        let before = [lock(&["libnowhere.so.1", "libgone.so.1"])];
        assert_eq!(nowhere_before(&needs, &before), nowhere);
    }

    #[test]
    fn runtime_libraries_of_development_packages_are_added() {
        let mut index = stackforge_debian::index::IndexBuilder::new("amd64");
        let stanza = |(name, depends): (&str, &str)| {
            format!(
                "Package: {name}\nVersion: 2.5\nArchitecture: amd64\nDepends: {depends}\nFilename: pool/main/x/{name}_1_amd64.deb\nSize: 1\nSHA256: {}\n\n",
                "ab".repeat(32)
            )
        };
        let packages = [
            ("libldap-dev", "libldap-2.5-0 (= 2.5), libssl-dev, libc6"),
            ("libldap-2.5-0", "libc6"),
            // As in bookworm; and two that stand for each other end.
            ("default-libmysqlclient-dev", "libmariadb-dev-compat"),
            (
                "libmariadb-dev-compat",
                "libmariadb-dev (= 2.5), default-libmysqlclient-dev",
            ),
            (
                "libmariadb-dev",
                "libmariadb3 (= 2.5), libssl-dev, zlib1g-dev",
            ),
            ("libssl-dev", "libssl3 (= 2.5)"),
            ("libkrb5-dev", "krb5-multidev (= 2.5)"),
            ("krb5-multidev", "libkrb5-3 (= 2.5), comerr-dev"),
            ("cmake", "libcurl4 (= 2.5)"),
            ("libgomp1", "gcc-12-base (= 2.5), libc6"),
        ];
        let packages = packages.map(stanza).concat();
        index.add("debian", packages.as_bytes()).unwrap();
        let index = index.finish();
        let by = |name: &str| BTreeSet::from([name.to_owned()]);
        let dev = BTreeMap::from([
            ("libldap-dev".to_owned(), by("python-ldap")),
            ("default-libmysqlclient-dev".to_owned(), by("mysqlclient")),
            ("libssl-dev".to_owned(), by("pyopenssl")),
            ("libkrb5-dev=2.5".to_owned(), by("gssapi")),
            ("libnone-dev".to_owned(), by("none")),
            ("libgomp1".to_owned(), by("multicoretsne")),
            ("libssl3".to_owned(), by("pyopenssl")),
            ("libnone1".to_owned(), by("none")),
        ]);
        let added = linked(&dev, &index, |name| name == "libssl3");
        let reason = |text: &str| BTreeSet::from([text.to_owned()]);
        let expected = [
            (
                "libgomp1".to_owned(),
                reason("multicoretsne is built with libgomp1"),
            ),
            (
                "libkrb5-3".to_owned(),
                reason("gssapi is built with libkrb5-dev=2.5"),
            ),
            (
                "libldap-2.5-0".to_owned(),
                reason("python-ldap is built with libldap-dev"),
            ),
            (
                "libmariadb3".to_owned(),
                reason("mysqlclient is built with default-libmysqlclient-dev"),
            ),
        ];
        assert_eq!(added, BTreeMap::from(expected));
    }
}
