//! The system that a tree lies in: its default directories, C runtime, and files beside the tree.
//!
//! In: `--sysroot`, or a directory that is a root file system itself. Out: [`System`]. Without
//! either, what a base provides is taken as given.

use super::Question;
use super::tree::{Kind, Tree, TreeError};
use crate::device::{Root, libc_version};
use crate::elf::{Machine, Version};
use crate::source::{FileSource, array, u16_at};
use std::path::Path;

const MOST_INCLUDES: usize = 64;
/// Far more than any glibc has.
const LONGEST_LIBC: u64 = 16 << 20;

pub struct System {
    root: Option<Root>,
    /// Where the tree lies in it.
    pub mount: String,
    /// Directories of ld.so.conf, as the loader's cache has them.
    configured: Vec<String>,
}

impl System {
    pub fn of(question: &Question<'_>, tree: &Tree) -> Result<Self, TreeError> {
        let own = tree.kind == Kind::Directory && is_root(tree);
        let sysroot = question.sysroot.or(own.then_some(question.target));
        let Some(path) = sysroot else {
            return Ok(Self {
                root: None,
                mount: tree.mount.clone(),
                configured: Vec::new(),
            });
        };
        std::fs::read_dir(path).map_err(|source| TreeError::Read {
            path: path.to_owned(),
            source,
        })?;
        let root = Root::new(path);
        let mut configured = Vec::new();
        let mut left = MOST_INCLUDES;
        configuration(&root, "/etc/ld.so.conf", &mut configured, &mut left);
        Ok(Self {
            mount: below(path, question.target).unwrap_or_else(|| tree.mount.clone()),
            root: Some(root),
            configured,
        })
    }

    /// Whether its files are known.
    pub fn is_known(&self) -> bool {
        self.root.is_some()
    }

    pub fn configured(&self) -> &[String] {
        &self.configured
    }

    /// Whether the system has an object for that machine at an absolute path.
    pub fn has(&self, path: &str, machine: Machine) -> bool {
        let found = self.root.as_ref().and_then(|r| r.resolve(path));
        let header = found
            .filter(|p| p.is_file())
            .and_then(|p| FileSource::open(&p).ok())
            .and_then(|mut s| array::<20>(&mut s, 0).ok());
        header.is_some_and(|h| h[..4] == crate::elf::MAGIC && u16_at(&h, 18) == machine.number())
    }

    /// glibc's version, by the banner in its library.
    pub fn glibc(&self, directories: &[String]) -> Option<Version> {
        let root = self.root.as_ref()?;
        let mut libraries = directories.iter().map(|d| format!("{d}/libc.so.6"));
        let bytes = libraries.find_map(|p| root.bytes(&p, LONGEST_LIBC))?;
        Version::parse(&libc_version(&bytes)?)
    }

    /// The newest GLIBCXX version, by the name of the file that libstdc++.so.6 is: of
    /// `libstdc++.so.6.0.30` it is 3.4.30.
    pub fn glibcxx(&self, directories: &[String]) -> Option<Version> {
        let root = self.root.as_ref()?;
        directories.iter().find_map(|d| {
            let real = root.real(&format!("{d}/libstdc++.so.6"))?;
            let name = real.file_name()?.to_str()?;
            let patch = name.strip_prefix("libstdc++.so.6.0.")?;
            Version::parse(&format!("3.4.{patch}"))
        })
    }
}

/// Whether a directory is the root of a system with a loader of its own.
fn is_root(tree: &Tree) -> bool {
    ["etc/ld.so.conf", "etc/ld.so.cache", "etc/os-release"]
        .iter()
        .any(|p| tree.has(p))
}

/// Where `target` lies in `root`, if it does.
fn below(root: &Path, target: &Path) -> Option<String> {
    let (root, target) = (root.canonicalize().ok()?, target.canonicalize().ok()?);
    let inside = target.strip_prefix(root).ok()?.to_str()?;
    Some(match inside {
        "" => String::new(),
        inside => format!("/{inside}"),
    })
}

/// Directories that a file of ld.so.conf(5)'s format names, in its order.
fn configuration(root: &Root, path: &str, out: &mut Vec<String>, left: &mut usize) {
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

/// Files that a pattern with `*` in its last part means; relative ones lie in /etc.
fn listed(root: &Root, pattern: &str) -> Vec<String> {
    let pattern = match pattern.starts_with('/') {
        true => pattern.to_owned(),
        false => format!("/etc/{pattern}"),
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
