//! What a Dockerfile says of the container: the stack's `image`.

use super::super::found::{Health, User};
use super::super::item::Note;
use super::super::shell::{Word, script, words};
use super::{Role, Walk};
use parse_dockerfile::{Command as Form, HealthcheckArguments, Instruction, JsonOrStringArray};
use std::collections::BTreeMap;

/// Most ports of a range that are written one by one.
const PORTS: u16 = 32;

impl Walk<'_, '_> {
    pub(super) fn setting(&mut self, instruction: &Instruction<'_>, at: &str) {
        match instruction {
            Instruction::Entrypoint(entry) => {
                let list = self.form(&entry.arguments);
                // A new entry point takes the command of the stage before away.
                self.found.image.cmd = None;
                self.found.image.entrypoint = Some(list).filter(|l| !l.is_empty());
            }
            Instruction::Cmd(cmd) => {
                let list = self.form(&cmd.arguments);
                self.found.image.cmd = Some(list).filter(|l| !l.is_empty());
            }
            Instruction::User(user) => self.user(&user.arguments.value, at),
            Instruction::Expose(expose) => {
                let all: Vec<String> = expose
                    .arguments
                    .iter()
                    .map(|a| a.value.to_string())
                    .collect();
                all.iter().for_each(|port| self.port(port, at));
            }
            Instruction::Volume(volume) => {
                let list: Vec<String> = match &volume.arguments {
                    JsonOrStringArray::Json(list) => {
                        list.value.iter().map(|v| v.value.to_string()).collect()
                    }
                    JsonOrStringArray::String(list) => {
                        list.iter().map(|v| v.value.to_string()).collect()
                    }
                };
                for path in list {
                    let path = self.absolute(&path);
                    if !self.found.image.volumes.contains(&path) {
                        self.found.image.volumes.push(path);
                    }
                }
            }
            Instruction::Label(label) => {
                for (name, value) in pairs(&label.arguments.value, &self.variables) {
                    self.found.image.labels.insert(name, value);
                }
            }
            Instruction::Maintainer(maintainer) => {
                let value = maintainer.name.value.to_string();
                self.found
                    .image
                    .labels
                    .insert("maintainer".to_owned(), value);
            }
            Instruction::Stopsignal(signal) => {
                let signal = self.fill(&signal.arguments.value).text;
                self.found.image.stop_signal = Some(signal);
            }
            Instruction::Healthcheck(check) => {
                self.found.image.health = match &check.arguments {
                    HealthcheckArguments::Cmd { arguments, .. } => {
                        let mut health = Health {
                            cmd: self.form(arguments),
                            ..Health::default()
                        };
                        for option in &check.options {
                            let value = option.value.as_ref().map(|v| v.value.to_string());
                            match option.name.value.as_ref() {
                                "interval" => health.interval = value,
                                "timeout" => health.timeout = value,
                                "start-period" => health.start_period = value,
                                "retries" => health.retries = value.and_then(|v| v.parse().ok()),
                                _ => {}
                            }
                        }
                        Some(health)
                    }
                    _ => None,
                };
            }
            Instruction::Onbuild(_) => {
                let why = "a stack has no instructions for images that start from it";
                self.found.rest.push(Note::new(at, "ONBUILD", why));
            }
            _ => {}
        }
    }

    /// Takes variables: of the image, and for what follows.
    pub(super) fn environment(&mut self, text: &str, at: &str) {
        for (name, value) in pairs(text, &self.variables) {
            if name == "TORCH_CUDA_ARCH_LIST" {
                self.architectures(&value);
            }
            self.variables.insert(name.clone(), value.clone());
            if self.role == Role::Copied {
                continue;
            }
            let shown = format!("ENV {name}={value}");
            let image = &mut self.found.image;
            image.variable(self.known, at, &name, value, shown);
        }
    }

    pub(super) fn change(&mut self, text: &str) {
        let to = self.absolute(text.trim_matches('"'));
        self.workdir.clone_from(&to);
        if self.role == Role::Final {
            self.found.image.workdir = Some(to);
        }
    }

    fn user(&mut self, text: &str, at: &str) {
        let word = self.fill(text);
        let (user, group) = match word.text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (word.text.as_str(), None),
        };
        if ["root", "0"].contains(&user) || word.opaque {
            self.found.image.user = None;
            let why = "a service needs no root, so the user is `app`: name another here if it does";
            self.found
                .image
                .notes
                .push(Note::new(at, format!("USER {}", word.text), why));
            return;
        }
        self.found
            .image
            .notes
            .retain(|n| !n.text.starts_with("USER "));
        let id = |text: &str| text.parse::<u32>().ok();
        let (name, uid) = match id(user) {
            Some(uid) => (
                self.users
                    .iter()
                    .find(|u| u.1 == Some(uid))
                    .map(|u| u.0.clone()),
                Some(uid),
            ),
            None => {
                let made = self.users.iter().find(|u| u.0 == user);
                (Some(user.to_owned()), made.and_then(|u| u.1))
            }
        };
        if let Some(group) = group.filter(|g| *g != user && id(g).is_none()) {
            let why = "the user's group is the one of its own number";
            let note = Note::new(at, format!("USER {user}:{group}"), why);
            self.found.image.notes.push(note);
        }
        self.found.image.user = Some(User {
            name,
            uid,
            gid: group.and_then(id),
        });
    }

    /// Notes the user that `useradd` or `adduser` makes, for `USER`.
    pub(super) fn made(&mut self, words: &[Word]) {
        let mut name = None;
        let mut uid = None;
        let mut words = words.iter().map(|w| w.text.as_str());
        while let Some(word) = words.next() {
            match word {
                "-u" | "--uid" => uid = words.next().and_then(|w| w.parse().ok()),
                "-g" | "--gid" | "-G" | "--groups" | "-s" | "--shell" | "-d" | "--home"
                | "--home-dir" | "-c" | "--comment" | "--gecos" | "--ingroup" => {
                    words.next();
                }
                _ if word.starts_with("-u") && !word.starts_with("--") => {
                    uid = word[2..].parse().ok()
                }
                _ if word.starts_with("--uid=") => uid = word["--uid=".len()..].parse().ok(),
                _ if word.starts_with('-') => {}
                _ => name = Some(word.to_owned()),
            }
        }
        if let Some(name) = name {
            self.users.push((name, uid));
        }
    }

    fn port(&mut self, text: &str, at: &str) {
        let word = self.fill(text);
        let (range, protocol) = match word.text.split_once('/') {
            Some((range, protocol)) => (range, protocol.to_ascii_lowercase()),
            None => (word.text.as_str(), "tcp".to_owned()),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let ends = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
        match ends {
            Some((first, last)) if first <= last && last - first < PORTS && first > 0 => {
                for port in first..=last {
                    let port = match protocol.as_str() {
                        "tcp" => port.to_string(),
                        other => format!("{port}/{other}"),
                    };
                    if !self.found.image.ports.contains(&port) {
                        self.found.image.ports.push(port);
                    }
                }
            }
            _ => {
                let why =
                    "not a port that is known before the image is built: write it into `ports`";
                self.found
                    .image
                    .notes
                    .push(Note::new(at, format!("EXPOSE {}", word.text), why));
            }
        }
    }

    /// Returns the words of a command. One that needs its shell gets it.
    fn form(&self, form: &Form<'_>) -> Vec<String> {
        let text = match form {
            Form::Exec(list) => return list.value.iter().map(|w| w.value.to_string()).collect(),
            Form::Shell(text) => text.value,
            _ => return Vec::new(),
        };
        // Variables of a command are those of the container.
        let none = BTreeMap::new();
        let found = script(text, &none, self.escape);
        let simple = |c: char| !"$`*?[]~{}|&;<>()=\\'\"#".contains(c);
        match found.commands.as_slice() {
            [one] if !found.conditional && !one.redirected && one.text.chars().all(simple) => {
                one.words.iter().map(|w| w.text.clone()).collect()
            }
            [] => Vec::new(),
            _ => {
                let line = crate::convert::shell::joined(text, self.escape);
                let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
                self.shell.iter().cloned().chain([line]).collect()
            }
        }
    }
}

/// Splits `A=b C="d e"`, or the old `A b c`. A variable that is not set is empty.
fn pairs(text: &str, variables: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let first = text.split_whitespace().next().unwrap_or_default();
    if !first.contains('=') {
        let (name, value) = text
            .trim()
            .split_once(char::is_whitespace)
            .unwrap_or((text, ""));
        let value = words(
            &format!("\"{}\"", value.trim().trim_matches('"')),
            variables,
        );
        let value = value.first().map(|w| emptied(&w.text)).unwrap_or_default();
        return vec![(name.to_owned(), value)];
    }
    let split = |word: Word| {
        let (name, value) = word.text.split_once('=')?;
        let valid = !name.is_empty();
        let value = if word.opaque {
            emptied(value)
        } else {
            value.to_owned()
        };
        valid.then(|| (name.to_owned(), value))
    };
    words(text, variables)
        .into_iter()
        .filter_map(split)
        .collect()
}

/// Removes variables that are not set, with the `:` that joins them to others.
fn emptied(value: &str) -> String {
    let mut out = value.to_owned();
    while let Some(start) = out.find("${") {
        let Some(end) = out[start..].find('}') else {
            break;
        };
        out.replace_range(start..=start + end, "");
    }
    out.trim_matches(':').to_owned()
}
