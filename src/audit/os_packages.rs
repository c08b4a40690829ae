//! The distribution's packages in a tree, by dpkg's database.
//!
//! In: the texts of a tree, by path. Out: which package a file belongs to, and whether everything that the package depends
//! on is installed. A library that such a package lacks all the same is one that its distribution only recommends
//! or suggests: for a plugin, an example, an alternative.

use stackforge_debian::control::StanzaReader;
use stackforge_debian::relation::{Alternative, parse_relations};
use std::collections::{BTreeMap, BTreeSet};

const FOLDER: &str = "var/lib/dpkg";

/// Whether a file is one of dpkg's database that is read here.
pub fn is_of_database(path: &str) -> bool {
    let inside = path.strip_prefix(FOLDER).and_then(|p| p.strip_prefix('/'));
    inside.is_some_and(|p| p == "status" || p.starts_with("info/") && p.ends_with(".list"))
}

#[derive(Debug, Default)]
pub struct OsPackages<'a> {
    /// Lists of files by package.
    lists: Vec<(&'a str, &'a str)>,
    /// Packages that lack something that they depend on.
    incomplete: BTreeSet<String>,
}

impl<'a> OsPackages<'a> {
    pub fn of(texts: &'a BTreeMap<String, String>) -> Self {
        let status = texts.get(&format!("{FOLDER}/status"));
        let Some(incomplete) = status.and_then(|text| incomplete(text)) else {
            return Self::default();
        };
        let list = |(path, text): (&'a String, &'a String)| {
            let name = path.strip_prefix(FOLDER)?.strip_prefix("/info/")?;
            let name = name.strip_suffix(".list")?;
            // A package of which several architectures may be installed: `libc6:amd64`.
            let name = name.split_once(':').map_or(name, |(name, _)| name);
            Some((name, text.as_str()))
        };
        Self {
            lists: texts.iter().filter_map(list).collect(),
            incomplete,
        }
    }

    /// Returns the package that a file belongs to, if all that the package depends on is installed.
    pub fn complete(&self, path: &str) -> Option<&'a str> {
        // With merged /usr, lists have either of two paths.
        let short = path.strip_prefix("usr/").unwrap_or(path);
        let has = |list: &str| {
            let listed = list.lines().filter_map(|line| line.strip_prefix('/'));
            let mut same = listed.filter(|l| l.strip_prefix("usr/").unwrap_or(l) == short);
            same.next().is_some()
        };
        let (name, _) = self.lists.iter().find(|(_, list)| has(list))?;
        (!self.incomplete.contains(*name)).then_some(*name)
    }
}

/// Returns the installed packages that lack something that they depend on. `None` if the database cannot be
/// read.
fn incomplete(status: &str) -> Option<BTreeSet<String>> {
    let mut installed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut wanted = Vec::new();
    let mut stanzas = StanzaReader::new(status.as_bytes());
    while let Some(stanza) = stanzas.next_stanza().ok()? {
        let state = stanza.get("Status").unwrap_or_default();
        let (Some(name), Some(version)) = (stanza.get("Package"), stanza.get("Version")) else {
            continue;
        };
        if !state.ends_with(" installed") {
            continue;
        }
        let versions = installed.entry(name.to_owned()).or_default();
        versions.push(version.to_owned());
        let architecture = stanza.get("Architecture").unwrap_or("amd64");
        let groups = |field: &str| {
            let text = stanza.get(field).unwrap_or_default();
            parse_relations(text, architecture).unwrap_or_default()
        };
        for provided in groups("Provides").into_iter().flatten() {
            let version = provided.version.map_or("", |(_, version)| version);
            let versions = installed.entry(provided.name.to_owned()).or_default();
            versions.push(version.to_owned());
        }
        let depends = [stanza.get("Pre-Depends"), stanza.get("Depends")];
        let depends = depends.into_iter().flatten().map(str::to_owned);
        wanted.push((
            name.to_owned(),
            architecture.to_owned(),
            depends.collect::<Vec<_>>(),
        ));
    }
    let is_there = |one: &Alternative<'_>| {
        let versions = installed.get(one.name);
        versions.is_some_and(|all| all.iter().any(|version| one.accepts(version)))
    };
    let lacks = |architecture: &str, field: &str| match parse_relations(field, architecture) {
        Ok(groups) => groups.iter().any(|group| !group.iter().any(is_there)),
        Err(_) => true,
    };
    let lacking = wanted
        .iter()
        .filter(|(_, architecture, fields)| fields.iter().any(|field| lacks(architecture, field)));
    Some(lacking.map(|(name, _, _)| name.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
        let texts = texts.iter();
        texts
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect()
    }

    const STATUS: &str = "\
Package: libcaca0
Status: install ok installed
Architecture: amd64
Version: 0.99
Depends: libc6 (>= 2.34), libncursesw6 | libncurses6
Suggests: libglu1-mesa

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9

Package: libtinfo-all
Status: install ok installed
Architecture: all
Version: 1
Provides: libncurses6 (= 6.4)

Package: broken
Status: install ok installed
Architecture: amd64
Version: 1
Depends: libc6 (>= 3)

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
";

    #[test]
    fn a_file_belongs_to_a_package_whose_dependencies_are_installed() {
        let texts = texts(&[
            ("var/lib/dpkg/status", STATUS),
            (
                "var/lib/dpkg/info/libcaca0:amd64.list",
                "/.\n/usr\n/usr/lib/libcaca.so.0\n",
            ),
            ("var/lib/dpkg/info/libc6:amd64.list", "/.\n/lib/libc.so.6\n"),
            ("var/lib/dpkg/info/broken.list", "/usr/lib/libbroken.so\n"),
        ]);
        let packages = OsPackages::of(&texts);
        assert_eq!(packages.complete("usr/lib/libcaca.so.0"), Some("libcaca0"));
        assert_eq!(packages.complete("usr/lib/libc.so.6"), Some("libc6"));
        assert_eq!(packages.complete("usr/lib/libbroken.so"), None);
        assert_eq!(packages.complete("opt/venv/lib/x.so"), None);
    }

    #[test]
    fn without_a_database_no_file_belongs_to_a_package() {
        let list = ("var/lib/dpkg/info/a.list", "/usr/lib/a.so\n");
        assert_eq!(
            OsPackages::of(&texts(&[list])).complete("usr/lib/a.so"),
            None
        );
        let damaged = ("var/lib/dpkg/status", "no field\n");
        let texts = texts(&[list, damaged]);
        assert_eq!(OsPackages::of(&texts).complete("usr/lib/a.so"), None);
    }
}
