//! dpkg's database of the finished system, or the stanzas that scanners read on a system without dpkg.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::super::control::StanzaReader;
use super::super::deb::Deb;
use super::super::dpkg::{self, Installed, State, installed_stanza};
use super::error::FinishError;
use super::system::{Root, System};

const FOLDER: &str = "var/lib/dpkg";

fn root_error(path: &str, source: std::io::Error) -> FinishError {
    FinishError::Root {
        path: path.to_owned(),
        source,
    }
}

fn damaged(path: &str) -> FinishError {
    FinishError::Damaged {
        path: path.to_owned(),
    }
}

/// Returns the versions of a system's installed packages by name, read from dpkg's status or from
/// `status.d`.
///
/// # Errors
/// If the database cannot be read or is malformed.
pub fn installed(root: &dyn Root) -> Result<BTreeMap<String, String>, FinishError> {
    let mut files = vec![format!("{FOLDER}/status")];
    let parts = root.names(&format!("{FOLDER}/status.d"));
    files.extend(
        parts
            .iter()
            .filter(|name| !name.ends_with(".md5sums"))
            .map(|name| format!("{FOLDER}/status.d/{name}")),
    );
    let mut versions = BTreeMap::new();
    for file in files {
        let Some(bytes) = root.read(&file).map_err(|e| root_error(&file, e))? else {
            continue;
        };
        let mut stanzas = StanzaReader::new(bytes.as_slice());
        while let Some(stanza) = stanzas.next_stanza().map_err(|_| damaged(&file))? {
            let state = stanza.get("Status").unwrap_or("install ok installed");
            if let (Some(name), Some(version)) = (stanza.get("Package"), stanza.get("Version"))
                && state.ends_with(" installed")
            {
                versions.insert(name.to_owned(), version.to_owned());
            }
        }
    }
    Ok(versions)
}

/// Returns the real paths of the files that a system's packages own, for a system with merged /usr.
pub(super) fn owned(root: &dyn Root) -> Result<HashSet<String>, FinishError> {
    let folder = format!("{FOLDER}/info");
    let mut owned = HashSet::new();
    for name in root.names(&folder) {
        if !name.ends_with(".list") {
            continue;
        }
        let path = format!("{folder}/{name}");
        let list = root.read(&path).map_err(|e| root_error(&path, e))?;
        for line in String::from_utf8_lossy(&list.unwrap_or_default()).lines() {
            let path = line.trim_start_matches('/');
            let first = path.split('/').next().unwrap_or_default();
            let moved = ["bin", "sbin", "lib", "lib64", "lib32", "libx32", "libo32"];
            owned.insert(if moved.contains(&first) {
                format!("usr/{path}")
            } else {
                path.to_owned()
            });
        }
    }
    Ok(owned)
}

/// Writes the database's files on top of those that exist.
pub(super) fn write(
    system: &mut System<'_>,
    packages: &[Deb],
    laid: &[Installed],
    architecture: &str,
    dpkg: bool,
) -> Result<(), FinishError> {
    if !dpkg {
        for (deb, laid) in packages.iter().zip(laid) {
            let stem = format!("/{FOLDER}/status.d/{}", deb.name());
            let stanza = installed_stanza(deb, laid).into_bytes();
            system.file(&stem, 0o644, 0, stanza)?;
            if let Some(sums) = deb.control_files.get("md5sums") {
                let content = sums.content.clone();
                system.file(&format!("{stem}.md5sums"), 0o644, 0, content)?;
            }
        }
        return Ok(());
    }
    for (name, content, executable) in
        dpkg::database(packages, laid, architecture, State::Installed)
    {
        let path = format!("/{FOLDER}/{name}");
        let existing = system.text(&path)?;
        let content = match (name.as_str(), existing) {
            (_, None) => content,
            ("status", Some(existing)) => merged_status(&existing, packages, laid).into_bytes(),
            ("triggers/Unincorp" | "available" | "arch" | "info/format", Some(_)) => continue,
            (name, Some(existing)) if name.starts_with("triggers/") => {
                let mut lines: BTreeSet<&str> = existing.lines().collect();
                let new = String::from_utf8_lossy(&content).into_owned();
                lines.extend(new.lines());
                lines
                    .iter()
                    .map(|l| format!("{l}\n"))
                    .collect::<String>()
                    .into_bytes()
            }
            (_, Some(_)) => content,
        };
        system.file(&path, if executable { 0o755 } else { 0o644 }, 0, content)?;
    }
    Ok(())
}

/// Returns dpkg's `status` with the added packages in name order. A package that was removed but still has
/// its configuration has a stanza already, which the new one replaces.
fn merged_status(existing: &str, packages: &[Deb], laid: &[Installed]) -> String {
    let stanzas = packages.iter().zip(laid).map(|(deb, laid)| {
        let key = (deb.name(), deb.architecture());
        (key, installed_stanza(deb, laid))
    });
    merged(existing, stanzas)
}

fn merged<'a>(existing: &str, new: impl Iterator<Item = ((&'a str, &'a str), String)>) -> String {
    let new: BTreeMap<(&str, &str), String> = new.collect();
    let field = |stanza: &str, name: &str| {
        let value = stanza.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or_default().trim().to_owned()
    };
    let mut stanzas: BTreeMap<(String, usize), String> = BTreeMap::new();
    for (at, stanza) in existing
        .split("\n\n")
        .filter(|s| !s.trim().is_empty())
        .enumerate()
    {
        let (name, architecture) = (field(stanza, "Package:"), field(stanza, "Architecture:"));
        if !new.contains_key(&(name.as_str(), architecture.as_str())) {
            let text = format!("{}\n\n", stanza.trim_matches('\n'));
            stanzas.insert((name, at), text);
        }
    }
    for (at, ((name, _), stanza)) in new.into_iter().enumerate() {
        stanzas.insert((name.to_owned(), usize::MAX - at), stanza);
    }
    stanzas.into_values().collect()
}

/// Records a diversion as dpkg-divert(1) does, in the order of dpkg's table of file names.
pub(super) fn divert(
    system: &mut System<'_>,
    path: &str,
    to: &str,
    package: &str,
) -> Result<(), FinishError> {
    let file = format!("/{FOLDER}/diversions");
    let text = system.text(&file)?.unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let mut all: Vec<[&str; 3]> = lines
        .chunks(3)
        .map(|chunk| <[&str; 3]>::try_from(chunk).map_err(|_| damaged(&file)))
        .collect::<Result<_, _>>()?;
    all.retain(|[from, _, _]| *from != path);
    all.push([path, to, package]);
    all.sort_by_key(|[from, _, _]| bin(from));
    let text: String = all
        .iter()
        .flatten()
        .map(|line| format!("{line}\n"))
        .collect();
    system.file(&file, 0o644, 0, text.into_bytes())
}

/// Returns the position of a path in dpkg's table of file names: FNV-1a modulo its bins (dpkg's
/// `lib/dpkg/fsys-hash.c`).
fn bin(path: &str) -> u32 {
    let hash = path
        .trim_start_matches('/')
        .bytes()
        .fold(2_166_136_261u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
        });
    hash % 262_139
}

#[cfg(test)]
mod tests {
    use super::super::super::tree::Tree;
    use super::super::system::Nothing;
    use super::*;

    #[test]
    fn a_package_that_left_its_configuration_has_one_stanza() {
        let existing = "Package: a\nStatus: install ok installed\nArchitecture: amd64\n\n\
                     Package: b\nStatus: deinstall ok config-files\nArchitecture: amd64\n\n\
                     Package: b\nStatus: install ok installed\nArchitecture: i386\n\n";
        let stanza = "Package: b\nStatus: install ok installed\nArchitecture: amd64\n\n";
        let text = merged(existing, [(("b", "amd64"), stanza.to_owned())].into_iter());
        assert_eq!(text.matches("Package: b\n").count(), 2);
        assert_eq!(text.matches("Package: a\n").count(), 1);
        assert!(!text.contains("deinstall"));
        assert!(text.contains("Architecture: i386"));
    }

    #[test]
    fn diversions_stand_in_dpkgs_order() {
        let mut system = System::new(&Nothing, Tree::new().0);
        for path in [
            "/lib32",
            "/libo32",
            "/libx32",
            "/lib64/ld-linux-x86-64.so.2",
        ] {
            divert(&mut system, path, "/to", "p").unwrap();
            divert(&mut system, path, "/to", "p").unwrap();
        }
        let text = system.text("/var/lib/dpkg/diversions").unwrap().unwrap();
        let paths: Vec<&str> = text.lines().step_by(3).collect();
        // dpkg 1.22 wrote them in this order.
        assert_eq!(
            paths,
            [
                "/lib64/ld-linux-x86-64.so.2",
                "/libx32",
                "/lib32",
                "/libo32"
            ]
        );
    }
}
