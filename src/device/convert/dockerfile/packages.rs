//! OS packages that `apt-get install` names.

use super::super::item::{Item, Note, Why};
use super::super::shell::Word;
use super::{Role, Walk};
use pep440_rs::VersionSpecifiers;
use stackforge_stack::spec::PythonVersion;
use std::str::FromStr as _;

impl Walk<'_, '_> {
    pub(super) fn packages_note(&mut self, text: &str, at: &str, why: &str) {
        self.found
            .packages
            .push(Item::Note(Note::new(at, text, why)));
    }

    /// Takes names behind `apt-get install`.
    pub(super) fn packages(&mut self, words: &[Word], at: &str) {
        if self.role == Role::Copied {
            let names: Vec<&str> = words.iter().map(|w| w.text.as_str()).collect();
            let names: Vec<&str> = names.into_iter().filter(|n| !n.starts_with('-')).collect();
            let why = "of a stage that builds: name in `build_packages` of a library what its build needs";
            return self.packages_note(&names.join(" "), at, why);
        }
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.text.as_str();
            match text {
                "-t" | "-o" | "-c" | "--target-release" | "--option" => {
                    words.next();
                }
                _ if text.starts_with('-') => {}
                _ if word.opaque => {
                    let why = "what it stands for is known only when the image is built: write the name out";
                    self.packages_note(text, at, why);
                }
                _ => self.package(text, at),
            }
        }
    }

    fn package(&mut self, text: &str, at: &str) {
        let name = text.split(['=', '/', ':']).next().unwrap_or(text);
        let name = name.trim_end_matches('-');
        let python = name
            .strip_prefix("python")
            .filter(|v| v.parse::<PythonVersion>().is_ok());
        if let Some(Ok(value)) = python.map(|v| VersionSpecifiers::from_str(&format!("=={v}.*"))) {
            let at = format!("{name} ({at})");
            self.found.python.get_or_insert(Why { value, at });
        }
        if let Some(rule) = self.known.os_package(name) {
            let (now, left, silent) = (rule.now.clone(), rule.left.clone(), rule.silent);
            if let Some(why) = left.filter(|_| !silent) {
                self.packages_note(text, at, &why);
            }
            for value in now {
                self.found.packages.push(Item::Take(Why {
                    value,
                    at: at.to_owned(),
                }));
            }
            return;
        }
        if text.starts_with(['.', '/']) || name.parse::<stackforge_types::OsPackage>().is_err() {
            let why = "not the name of a package of Debian or Ubuntu";
            return self.packages_note(text, at, why);
        }
        self.found.packages.push(Item::Take(Why {
            value: name.to_owned(),
            at: at.to_owned(),
        }));
    }
}
