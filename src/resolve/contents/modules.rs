//! Which modules a distribution imports that are not its own.
//!
//! In: the Python files of a distribution. Out: its top modules, and those of others without which these do not import:
//! what is imported at once is followed from file to file.

use super::imports::{Import, imports};
use serde::{Deserialize, Serialize};
use stackforge_types::wheel::normalized;
use std::collections::{BTreeMap, BTreeSet};

/// Folders of those who pack more than they mean to, which nobody imports.
const ASIDE: [&str; 11] = [
    "test",
    "tests",
    "testing",
    "doc",
    "docs",
    "example",
    "examples",
    "benchmark",
    "benchmarks",
    "scripts",
    "setup",
];

/// Folders of other people's modules, which are put where Python looks for modules, or imported from there.
const VENDORED: [&str; 8] = [
    "_vendor",
    "vendor",
    "_vendored",
    "vendored",
    "extern",
    "externals",
    "third_party",
    "thirdparty",
];

/// What is known of a distribution's modules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Modules {
    /// Its own top modules.
    pub own: BTreeSet<String>,
    /// Top modules of others that its own import at once.
    pub wanted: BTreeSet<String>,
}

/// The Python files of a distribution, by the names of their modules.
#[derive(Debug, Default)]
pub(super) struct Files {
    modules: BTreeMap<String, File>,
    /// All top names, also those without a file of Python.
    tops: BTreeSet<String>,
    /// Modules of others that it has.
    vendored: BTreeSet<String>,
}

#[derive(Debug)]
struct File {
    is_package: bool,
    imports: Vec<Import>,
}

impl Files {
    /// Takes note of a file by its path below the folder of modules.
    pub fn name(&mut self, path: &str) {
        let (top, is_alone) = match path.split_once('/') {
            Some((top, _)) => (top, false),
            None => (path.split('.').next().unwrap_or(path), true),
        };
        let mut folders = path.split('/');
        if folders.any(|folder| VENDORED.contains(&folder))
            && let Some(vendored) = folders.next()
        {
            let name = vendored.split('.').next().unwrap_or(vendored);
            self.vendored.insert(name.to_owned());
        }
        let is_module = !is_alone || path.ends_with(".py") || path.ends_with(".so");
        if is_module && is_identifier(top) {
            self.tops.insert(top.to_owned());
        }
    }

    /// Reads a Python file.
    pub fn add(&mut self, path: &str, text: &str) {
        let Some(stem) = path.strip_suffix(".py") else {
            return;
        };
        let (name, is_package) = match stem.strip_suffix("/__init__") {
            Some(package) => (package, true),
            None => (stem, false),
        };
        if name.split('/').all(is_identifier) {
            let imports = imports(text);
            let file = File {
                is_package,
                imports,
            };
            self.modules.insert(name.replace('/', "."), file);
        }
    }

    /// Follows what the distribution's modules import.
    pub fn modules(self, distribution: &str) -> Modules {
        let mut wanted = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut left = self.roots(distribution);
        while let Some(module) = left.pop() {
            let Some(file) = self.modules.get(&module) else {
                continue;
            };
            if !seen.insert(module.clone()) {
                continue;
            }
            for import in &file.imports {
                let Some(base) = base(&module, file.is_package, import) else {
                    continue;
                };
                let top = base.split('.').next().unwrap_or_default();
                if !self.tops.contains(top) {
                    if !self.vendored.contains(top) {
                        wanted.insert(top.to_owned());
                    }
                    continue;
                }
                left.extend(base.match_indices('.').map(|(at, _)| base[..at].to_owned()));
                left.extend(import.names.iter().map(|name| format!("{base}.{name}")));
                left.push(base);
            }
        }
        Modules {
            own: self.tops,
            wanted,
        }
    }

    /// The modules that users import: the one with the distribution's name if there is one, else all that are public.
    fn roots(&self, distribution: &str) -> Vec<String> {
        let tops = self.modules.keys().filter(|name| !name.contains('.'));
        let own = tops.clone().find(|top| normalized(top) == distribution);
        if let Some(own) = own {
            return vec![own.clone()];
        }
        let is_public = |top: &&String| !top.starts_with('_') && !ASIDE.contains(&top.as_str());
        tops.filter(is_public).cloned().collect()
    }
}

/// Returns the absolute name of the module that a statement imports or imports from.
fn base(module: &str, is_package: bool, import: &Import) -> Option<String> {
    if import.level == 0 {
        return Some(import.module.clone());
    }
    let mut folder = module;
    for _ in usize::from(is_package)..import.level {
        folder = folder.rsplit_once('.')?.0;
    }
    Some(match import.module.as_str() {
        "" => folder.to_owned(),
        below => format!("{folder}.{below}"),
    })
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_alphabetic() || c == '_');
    first && chars.all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(distribution: &str, files: &[(&str, &str)]) -> Modules {
        let mut all = Files::default();
        for (path, text) in files {
            all.name(path);
            all.add(path, text);
        }
        all.modules(distribution)
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn imports_are_followed_from_file_to_file() {
        let files = [
            (
                "thing/__init__.py",
                "from . import sub\nfrom .names import x\nimport os\nimport thing.deep.er",
            ),
            ("thing/sub.py", "import six"),
            ("thing/names.py", "from .deep import y"),
            ("thing/deep/__init__.py", "from .. import up\nimport numpy"),
            (
                "thing/deep/er.py",
                "from ..up import z\nfrom ... import beyond",
            ),
            ("thing/up.py", "import yaml"),
            ("thing/aside.py", "import never"),
            ("other/__init__.py", "import requests"),
            ("thing-1.0.dist-info/METADATA", ""),
            ("_core.cpython-311-x86_64-linux-gnu.so", ""),
        ];
        let found = modules("thing", &files);
        assert_eq!(found.wanted, set(&["numpy", "os", "six", "yaml"]));
        assert_eq!(found.own, set(&["_core", "other", "thing"]));
        // Without a module of that name, all public ones are what it is for.
        let found = modules("elsewhere", &files);
        assert!(found.wanted.contains("requests"));
    }

    #[test]
    fn what_a_distribution_has_itself_is_not_lacking() {
        let files = [
            ("thing/__init__.py", "import six\nimport more\nimport yaml"),
            ("thing/_vendor/six.py", ""),
            ("thing/_vendor/more/__init__.py", ""),
        ];
        assert_eq!(modules("thing", &files).wanted, set(&["yaml"]));
    }

    #[test]
    fn tests_and_tools_beside_it_are_not_what_it_is_for() {
        let files = [
            ("setup.py", "import setuptools"),
            ("tests/__init__.py", "import pytest"),
            ("one.py", "import two\nimport tests"),
            ("_hidden.py", "import hidden"),
        ];
        let found = modules("thing", &files);
        assert_eq!(found.wanted, set(&["pytest", "two"]));
    }
}
