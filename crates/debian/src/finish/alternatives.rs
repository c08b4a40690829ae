//! Alternatives: which of several programs answers to a common name (update-alternatives(1)).
//!
//! The input is `update-alternatives --install` commands, parsed strictly, and the system's database.
//! The output is the database's files and the links. The choice with the highest priority wins, as in
//! automatic mode. A group that a person set to manual keeps its choice. A slave is linked only if its
//! target exists.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::FinishError;
use super::system::System;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Alternative {
    pub link: String,
    pub name: String,
    pub path: String,
    pub priority: i32,
    pub slaves: Vec<Slave>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slave {
    pub link: String,
    pub name: String,
    pub path: String,
}

impl Alternative {
    /// Parses the commands of a script. `None` if one of them is not in the plain form. Lines without
    /// update-alternatives are ignored.
    pub(super) fn commands(text: &str) -> Option<Vec<Self>> {
        let joined = text.replace("\\\n", " ");
        let mut found = Vec::new();
        for line in joined.lines().map(str::trim) {
            let Some(rest) = line.strip_prefix("update-alternatives ") else {
                continue;
            };
            // A comment may follow on a continued line.
            let rest = rest.split(" #").next().unwrap_or_default().trim();
            if rest.starts_with("--remove ") || rest.starts_with("--auto ") {
                continue;
            }
            let rest = rest.trim_end_matches("|| true");
            found.push(Self::parse(rest)?);
        }
        Some(found)
    }

    fn parse(arguments: &str) -> Option<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._+-[".contains(c);
        let mut words = arguments.split_ascii_whitespace().peekable();
        if words.peek() == Some(&"--quiet") {
            words.next();
        }
        let mut path = || {
            words
                .next()
                .filter(|word| word.chars().all(plain))
                .map(str::to_owned)
        };
        if path()? != "--install" {
            return None;
        }
        let (link, name, target) = (path()?, path()?, path()?);
        let priority = path()?.parse().ok()?;
        let mut slaves = Vec::new();
        while let Some(option) = path() {
            if option != "--slave" {
                return None;
            }
            slaves.push(Slave {
                link: path()?,
                name: path()?,
                path: path()?,
            });
        }
        let absolute = |path: &str| path.starts_with('/') && !path.contains("..");
        let file_name = |name: &str| !name.contains('/') && !name.starts_with('.');
        let ok = absolute(&link)
            && absolute(&target)
            && file_name(&name)
            && words.next().is_none()
            && slaves
                .iter()
                .all(|s| absolute(&s.link) && absolute(&s.path) && file_name(&s.name));
        ok.then_some(Alternative {
            link,
            name,
            path: target,
            priority,
            slaves,
        })
    }
}

/// The database file of one name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Group {
    manual: bool,
    link: String,
    /// Slave links by name, in the order of names.
    slaves: BTreeMap<String, String>,
    /// Priority and the slaves' paths of each choice, by the choice's path.
    choices: BTreeMap<String, (i32, BTreeMap<String, String>)>,
}

impl Group {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let manual = lines.next()? == "manual";
        let mut group = Group {
            manual,
            link: lines.next()?.to_owned(),
            ..Group::default()
        };
        loop {
            match lines.next()? {
                "" => break,
                name => group
                    .slaves
                    .insert(name.to_owned(), lines.next()?.to_owned()),
            };
        }
        while let Some(path) = lines.next().filter(|line| !line.is_empty()) {
            let priority = lines.next()?.parse().ok()?;
            let mut paths = BTreeMap::new();
            for name in group.slaves.keys() {
                paths.insert(name.clone(), lines.next()?.to_owned());
            }
            group.choices.insert(path.to_owned(), (priority, paths));
        }
        Some(group)
    }

    fn install(&mut self, alternative: &Alternative) {
        self.link.clone_from(&alternative.link);
        for slave in &alternative.slaves {
            self.slaves.insert(slave.name.clone(), slave.link.clone());
        }
        let paths = alternative
            .slaves
            .iter()
            .map(|slave| (slave.name.clone(), slave.path.clone()))
            .collect();
        self.choices
            .insert(alternative.path.clone(), (alternative.priority, paths));
    }

    fn text(&self) -> String {
        let mode = if self.manual { "manual" } else { "auto" };
        let mut text = format!("{mode}\n{}\n", self.link);
        for (name, link) in &self.slaves {
            let _ = writeln!(text, "{name}\n{link}");
        }
        text.push('\n');
        for (path, (priority, paths)) in &self.choices {
            let _ = writeln!(text, "{path}\n{priority}");
            for name in self.slaves.keys() {
                let _ = writeln!(text, "{}", paths.get(name).map_or("", String::as_str));
            }
        }
        text.push('\n');
        text
    }

    fn best(&self) -> Option<(&String, &BTreeMap<String, String>)> {
        self.choices
            .iter()
            .rev()
            .max_by_key(|(_, (priority, _))| *priority)
            .map(|(path, (_, paths))| (path, paths))
    }
}

/// Adds alternatives to those of the system.
pub(super) fn install(system: &mut System<'_>, all: &[Alternative]) -> Result<(), FinishError> {
    for alternative in all {
        let file = format!("/var/lib/dpkg/alternatives/{}", alternative.name);
        let mut group = match system.read(&file)? {
            Some(bytes) => Group::parse(&String::from_utf8_lossy(&bytes))
                .ok_or_else(|| FinishError::Damaged { path: file.clone() })?,
            None => Group::default(),
        };
        // Like update-alternatives, this leaves out a choice that does not exist.
        if !system.exists(&alternative.path) {
            continue;
        }
        group.install(alternative);
        system.file(&file, 0o644, 0, group.text().into_bytes())?;
        if group.manual {
            continue;
        }
        let Some((path, slaves)) = group.best() else {
            continue;
        };
        let mut links = vec![(&group.link, &alternative.name, path)];
        for (name, link) in &group.slaves {
            if let Some(path) = slaves.get(name).filter(|path| !path.is_empty()) {
                links.push((link, name, path));
            }
        }
        for (link, name, path) in links {
            let directory = link.rsplit_once('/').map_or("", |(directory, _)| directory);
            if !system.exists(path) {
                continue;
            }
            if name != &alternative.name && !system.exists(directory) {
                continue;
            }
            let chosen = format!("/etc/alternatives/{name}");
            system.link(&chosen, path)?;
            system.link(link, &chosen)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_plain_commands_only() {
        let text = "update-alternatives --quiet \\\n  --install /usr/bin/cc cc /usr/bin/gcc 20 \\\n  #--slave $x\n\nx=1\n\
                    update-alternatives --install /a/b b /a/c -5 \\\n --slave /m/b.1 b.1 /m/c.1 || true\n";
        let all = Alternative::commands(text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].name.as_str(), all[0].priority), ("cc", 20));
        assert_eq!(all[1].slaves[0].path, "/m/c.1");
        for wrong in [
            "update-alternatives --install /a b /c $X",
            "update-alternatives --install /a ../b /c 1",
            "update-alternatives --install /a b /c 1 --slave /x y",
            "update-alternatives --set a b",
        ] {
            assert!(Alternative::commands(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_database_file_survives() {
        let text = "auto\n/usr/bin/awk\nnawk\n/usr/bin/nawk\n\n/usr/bin/gawk\n10\n\n/usr/bin/mawk\n5\n/usr/bin/mawk\n\n";
        let group = Group::parse(text).unwrap();
        assert_eq!(group.text(), text);
        assert_eq!(group.best().unwrap().0, "/usr/bin/gawk");
        assert!(Group::parse("auto\n").is_none());
    }
}
