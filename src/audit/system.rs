//! The system that a tree belongs to: its loader's directories, and the files beside the tree.
//!
//! In: `--sysroot`, a directory that is a root file system itself, or an image. Out: [`System`]. Without any
//! of these, the libraries that a base usually provides are assumed.

use super::tree::{Tree, TreeError, TreeKind};
use stackforge_binary::elf::{Machine, Object};
use stackforge_binary::source::{FileSource, array, u16_at};
use stackforge_types::root::Root;
use std::collections::BTreeMap;
use std::path::Path;

const MOST_INCLUDES: usize = 64;

#[derive(Default)]
pub struct System {
    /// Root file system with the files beside the tree.
    root: Option<Root>,
    known: bool,
    /// Path of the tree in the system.
    pub mount: String,
    /// Directories of LD_LIBRARY_PATH, if an image's configuration sets it.
    pub library_path: Vec<String>,
    /// Directories of ld.so.conf, from which the loader's cache is made.
    pub configured: Vec<String>,
}

impl System {
    /// Returns the system of the tree at `target`.
    pub fn of(tree: &Tree, target: &Path, sysroot: Option<&Path>) -> Result<Self, TreeError> {
        let own = tree.kind == TreeKind::Directory && is_root(tree);
        let Some(path) = sysroot.or(own.then_some(target)) else {
            return Ok(Self {
                mount: tree.mount.clone(),
                ..Self::default()
            });
        };
        std::fs::read_dir(path).map_err(|source| TreeError::Read {
            path: path.to_owned(),
            source,
        })?;
        let root = Root::new(path);
        Ok(Self {
            known: true,
            mount: below(path, target).unwrap_or_else(|| tree.mount.clone()),
            library_path: Vec::new(),
            configured: configured(&root),
            root: Some(root),
        })
    }

    /// Returns the system of an image. `texts` are its files below `etc`, by path.
    pub fn of_image(texts: &BTreeMap<String, String>, env: &[String]) -> Self {
        let path = env.iter().find_map(|e| e.strip_prefix("LD_LIBRARY_PATH="));
        let directories = path.unwrap_or_default().split([':', ';']);
        Self {
            root: None,
            known: true,
            mount: String::new(),
            library_path: directories
                .filter(|d| d.starts_with('/'))
                .map(str::to_owned)
                .collect(),
            configured: configured(texts),
        }
    }

    /// Whether the system's files are known.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Whether the system has an object for that machine at an absolute path, outside the tree.
    pub fn has(&self, path: &str, machine: Machine) -> bool {
        let header = self
            .open(path)
            .and_then(|mut s| array::<20>(&mut s, 0).ok());
        header.is_some_and(|h| {
            h[..4] == stackforge_binary::elf::MAGIC && u16_at(&h, 18) == machine.number()
        })
    }

    /// Returns the symbol versions that an object outside the tree defines.
    pub fn defines(&self, path: &str) -> Vec<String> {
        let object = self
            .open(path)
            .and_then(|mut s| Object::read(path, &mut s, &[]).ok());
        object.map(|o| o.defines).unwrap_or_default()
    }

    fn open(&self, path: &str) -> Option<FileSource> {
        let found = self.root.as_ref()?.resolve(path)?;
        found
            .is_file()
            .then(|| FileSource::open(&found).ok())
            .flatten()
    }
}

/// Reads small files of a system.
trait Texts {
    fn text(&self, path: &str) -> Option<String>;
    fn list(&self, directory: &str) -> Vec<String>;
}

impl Texts for Root {
    fn text(&self, path: &str) -> Option<String> {
        Root::text(self, path)
    }

    fn list(&self, directory: &str) -> Vec<String> {
        Root::list(self, directory)
    }
}

impl Texts for BTreeMap<String, String> {
    fn text(&self, path: &str) -> Option<String> {
        self.get(path.trim_start_matches('/')).cloned()
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let start = format!("{}/", directory.trim_matches('/'));
        let below = self
            .range(start.clone()..)
            .take_while(|(p, _)| p.starts_with(&start));
        let names = below.map(|(path, _)| path[start.len()..].to_owned());
        names.filter(|n| !n.contains('/')).collect()
    }
}

fn configured(texts: &impl Texts) -> Vec<String> {
    let (mut found, mut left) = (Vec::new(), MOST_INCLUDES);
    configuration(texts, "/etc/ld.so.conf", &mut found, &mut left);
    found
}

/// Whether a directory is the root of a system with its own loader.
fn is_root(tree: &Tree) -> bool {
    ["etc/ld.so.conf", "etc/ld.so.cache", "etc/os-release"]
        .iter()
        .any(|p| tree.has(p))
}

/// Returns the path of `target` in `root`. `None` if it is outside.
fn below(root: &Path, target: &Path) -> Option<String> {
    let (root, target) = (root.canonicalize().ok()?, target.canonicalize().ok()?);
    let inside = target.strip_prefix(root).ok()?.to_str()?;
    Some(match inside {
        "" => String::new(),
        inside => format!("/{inside}"),
    })
}

/// Adds the directories that a file of ld.so.conf(5)'s format names, in its order.
fn configuration(root: &impl Texts, path: &str, out: &mut Vec<String>, left: &mut usize) {
    let Some(text) = root.text(path).filter(|_| *left > 0) else {
        return;
    };
    *left -= 1;
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        if let Some(pattern) = line.strip_prefix("include ") {
            for included in listed(root, pattern.trim()) {
                configuration(root, &included, out, left);
            }
        } else if !line.starts_with("hwcap ") {
            let directories = line.split([' ', '\t', ':', ',']);
            out.extend(
                directories
                    .filter(|d| d.starts_with('/'))
                    .map(str::to_owned),
            );
        }
    }
}

/// Returns the files that match a pattern with `*` in its last part. A relative pattern is below /etc.
fn listed(root: &impl Texts, pattern: &str) -> Vec<String> {
    let pattern = if pattern.starts_with('/') {
        pattern.to_owned()
    } else {
        format!("/etc/{pattern}")
    };
    let (folder, name) = pattern.rsplit_once('/').unwrap_or(("", &pattern));
    let Some((start, end)) = name.split_once('*') else {
        return vec![pattern];
    };
    let names = root.list(folder).into_iter();
    names
        .filter(|n| n.len() >= name.len() - 1 && n.starts_with(start) && n.ends_with(end))
        .map(|n| format!("{folder}/{n}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_configuration_is_read(text in "(include |/|\\*|[a-z.:,# \n]){0,60}") {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("etc")).unwrap();
            std::fs::write(dir.path().join("etc/ld.so.conf"), text).unwrap();
            let (mut found, mut left) = (Vec::new(), 8);
            configuration(&Root::new(dir.path()), "/etc/ld.so.conf", &mut found, &mut left);
            prop_assert!(found.iter().all(|d| d.starts_with('/')));
        }
    }

    #[test]
    fn configuration_is_read_in_the_loaders_order() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "etc/ld.so.conf",
            "# first\n/opt/a:/opt/b\ninclude ld.so.conf.d/*.conf\ninclude /etc/ld.so.conf\n/opt/z # last\n",
        );
        write("etc/ld.so.conf.d/2.conf", "/opt/d\n");
        write("etc/ld.so.conf.d/1.conf", "/opt/c\nrelative\n");
        write("etc/ld.so.conf.d/3.txt", "/opt/no\n");
        let (mut found, mut left) = (Vec::new(), 4);
        let root = Root::new(dir.path());
        configuration(&root, "/etc/ld.so.conf", &mut found, &mut left);
        found.dedup();
        assert_eq!(found[..4], ["/opt/a", "/opt/b", "/opt/c", "/opt/d"]);
        assert_eq!(left, 0, "it includes itself only so often");
        assert!(found.contains(&"/opt/z".to_owned()));
    }
}
