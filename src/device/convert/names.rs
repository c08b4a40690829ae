//! Wrong names that people write for libraries, and names of OS packages that archives no longer have.

use super::asked::{Asked, Wants};
use super::found::Found;
use super::item::{Item, Note, Why};
use pep440_rs::VersionSpecifiers;
use stackforge_stack::catalog::{FormerPackage, Misnomer};
use std::collections::BTreeMap;

impl Found {
    /// Puts libraries' own names in place of wrong ones, where they come from PyPI. What PyPI does not have by any name,
    /// and what Python has itself, becomes a note.
    pub fn rename(&mut self, misnomers: &BTreeMap<String, Misnomer>) {
        if self.own_default_index {
            return;
        }
        for item in &mut self.libraries {
            let Item::Take(asked) = item else { continue };
            let of_pypi = asked.index.is_none() && matches!(asked.wants, Wants::Versions(_));
            let Some(misnomer) = misnomers.get(&asked.name).filter(|_| of_pypi) else {
                continue;
            };
            match (&misnomer.instead, misnomer.advice()) {
                (Some(instead), _) => rename(asked, instead),
                (None, Some(advice)) if misnomer.has.is_none() || misnomer.in_python => {
                    *item = Item::Note(Note::new(&asked.at, asked.name.clone(), advice));
                }
                _ => {}
            }
        }
    }

    /// Puts the packages of today in place of those that newer archives no longer have, or a note.
    pub fn rename_packages(&mut self, former: &BTreeMap<String, FormerPackage>) {
        let packages = std::mem::take(&mut self.packages).into_iter();
        self.packages = packages
            .flat_map(|item| match item {
                Item::Take(package) => match former.get(&package.value) {
                    Some(known) => renamed(package, known),
                    None => vec![Item::Take(package)],
                },
                note @ Item::Note(_) => vec![note],
            })
            .collect();
    }
}

fn renamed(package: Why<String>, known: &FormerPackage) -> Vec<Item<Why<String>>> {
    if known.write.is_empty() {
        let note = Note::new(&package.at, package.value, known.advice());
        return vec![Item::Note(note)];
    }
    let at = format!("`{}` in {}", package.value, package.at);
    let named = known.write.iter().map(|name| Why {
        value: name.clone(),
        at: at.clone(),
    });
    named.map(Item::Take).collect()
}

fn rename(asked: &mut Asked, to: &str) {
    let name = std::mem::replace(&mut asked.name, to.to_owned());
    let said = format!("`{name}` in {}", asked.at);
    asked.remark = Some(match asked.remark.take() {
        Some(remark) => format!("{remark}; {said}"),
        None => said,
    });
    // Of a placeholder, 0.0 is all that there is.
    if let Wants::Versions(versions) = &mut asked.wants
        && versions
            .iter()
            .any(|v| v.version().release().iter().all(|part| *part == 0))
    {
        *versions = VersionSpecifiers::empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_pypi_has_not_become_those_of_libraries() {
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let asked = |name: &str, versions: &str| {
            Item::Take(Asked::versions("r.txt:1", name, versions.parse().unwrap()))
        };
        let mut found = Found {
            libraries: vec![
                asked("pytorch", ">=1.1"),
                asked("sklearn", "==0.0"),
                asked("cudatoolkit", ""),
                asked("argparse", ">=1.4"),
                asked("apex", ""),
                asked("six", ""),
            ],
            ..Found::default()
        };
        let mut own = found.clone();
        found.rename(&catalog.misnomers);
        let shown = found.libraries.iter().map(|item| match item {
            Item::Take(asked) => {
                let Wants::Versions(versions) = &asked.wants else {
                    panic!("{asked:?}")
                };
                let remark = asked.remark.clone().unwrap_or_default();
                format!("{}{versions} # {remark}", asked.name)
            }
            Item::Note(note) => format!("{}: {}", note.text, note.why),
        });
        let shown: Vec<String> = shown.collect();
        assert_eq!(shown[0], "torch>=1.1 # `pytorch` in r.txt:1");
        assert_eq!(shown[1], "scikit-learn # `sklearn` in r.txt:1");
        assert!(
            shown[2].starts_with("cudatoolkit: remove it"),
            "{}",
            shown[2]
        );
        assert_eq!(
            shown[3],
            "argparse: remove it: the module is part of Python"
        );
        assert_eq!(shown[4..], ["apex # ", "six # "]);
        // Another index may have its own library of that name.
        own.own_default_index = true;
        own.rename(&catalog.misnomers);
        assert!(matches!(&own.libraries[0], Item::Take(asked) if asked.name == "pytorch"));
    }

    #[test]
    fn packages_of_old_archives_become_those_of_today() {
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let take = |name: &str| {
            Item::Take(Why {
                value: name.to_owned(),
                at: "Dockerfile:3".to_owned(),
            })
        };
        let mut found = Found {
            packages: ["libgl1-mesa-glx", "git", "policykit-1", "libnccl2"]
                .map(take)
                .into(),
            ..Found::default()
        };
        found.rename_packages(&catalog.former_packages);
        let shown = found.packages.iter().map(|item| match item {
            Item::Take(package) => format!("{} # {}", package.value, package.at),
            Item::Note(note) => format!("{}: {}", note.text, note.why),
        });
        let shown: Vec<String> = shown.collect();
        assert_eq!(
            shown[..4],
            [
                "libgl1 # `libgl1-mesa-glx` in Dockerfile:3",
                "git # Dockerfile:3",
                "polkitd # `policykit-1` in Dockerfile:3",
                "pkexec # `policykit-1` in Dockerfile:3",
            ]
        );
        assert!(shown[4].starts_with("libnccl2: remove it"), "{}", shown[4]);
    }
}
