//! `RUN`: packages that a command installs; every other command is a comment.

use super::super::item::{Item, Note};
use super::super::shell::{Command, Script, Word, script};
use super::super::{ConvertError, conda, pip, pyproject, requirements};
use super::find::beside;
use super::{Role, Walk};
use crate::convert::asked::FOLDER;
use crate::convert::files::Files;
use crate::convert::pyproject::Chosen;
use parse_dockerfile::{Command as Form, RunInstruction};
use std::path::Path;

/// Longest text of a comment, in bytes.
const LONGEST: usize = 2000;

impl Walk<'_, '_> {
    pub(super) fn run(&mut self, run: &RunInstruction<'_>, at: &str) -> Result<(), ConvertError> {
        for option in run.options.iter().filter(|o| o.name.value == "mount") {
            if let Some(value) = &option.value {
                self.mounted(&value.value);
            }
        }
        let found = match (&run.arguments, run.here_docs.first()) {
            // Only a document that is the whole command is a script of the shell.
            (Form::Shell(text), Some(document)) if of_shell(text.value) => {
                script(&document.value, &self.variables, '\\')
            }
            (Form::Shell(text), Some(_)) => {
                self.other(at, text.value, "a document for another program: build what it makes into a wheel, or add its file by `image.files`");
                return Ok(());
            }
            (Form::Shell(text), None) => script(text.value, &self.variables, self.escape),
            (Form::Exec(list), _) => exec(list.value.iter().map(|w| w.value.to_string()).collect()),
            _ => return Ok(()),
        };
        if found.conditional {
            let text: Vec<&str> = found.commands.iter().map(|c| c.text.as_str()).collect();
            self.other(at, &text.join("; "), "control flow, which `init` does not follow: write what it installs into `libraries` and `packages`");
            return Ok(());
        }
        // A `cd` holds within one instruction.
        self.folder_before.clone_from(&self.workdir);
        let read = found
            .commands
            .iter()
            .try_for_each(|command| self.command(command, at));
        self.workdir.clone_from(&self.folder_before);
        read
    }

    /// Notes files of the context that a command sees.
    fn mounted(&mut self, value: &str) {
        let get = |keys: [&str; 3]| {
            value.split(',').find_map(|pair| {
                let (key, value) = pair.split_once('=')?;
                keys.contains(&key).then(|| value.to_owned())
            })
        };
        let source = get(["source", "src", ""]);
        let target = get(["target", "dst", "destination"]);
        if let (Some(source), Some(target)) = (source, target) {
            let target = self.absolute(&target);
            self.copied.push((source, target));
        }
    }

    fn command(&mut self, command: &Command, at: &str) -> Result<(), ConvertError> {
        let words = self.bare(&command.words);
        let Some(program) = words.first() else {
            return Ok(());
        };
        let name = program.text.rsplit('/').next().unwrap_or_default();
        let text = |n: usize| words.get(n).map_or("", |w| w.text.as_str());
        let after = |n: usize| words.get(n..).unwrap_or_default();
        match name {
            "apt-get" | "apt" | "aptitude" => match installs(words, "install") {
                Some(names) => self.packages(names, at),
                None => self.unless_needless(command, at),
            },
            "useradd" | "adduser" => self.made(after(1)),
            "export" => after(1).iter().for_each(|w| self.assign(w)),
            "cd" => {
                let to = self.absolute(text(1));
                self.workdir = to;
            }
            _ if name.starts_with("pip")
                && name
                    .trim_start_matches("pip")
                    .chars()
                    .all(|c| c.is_ascii_digit() || c == '.') =>
            {
                match installs(words, "install") {
                    Some(arguments) => self.pip(arguments, at)?,
                    None => self.unless_needless(command, at),
                }
            }
            _ if name.starts_with("python") && text(1) == "-m" && text(2) == "pip" => {
                match installs(after(2), "install") {
                    Some(arguments) => self.pip(arguments, at)?,
                    None => self.unless_needless(command, at),
                }
            }
            "uv" if text(1) == "pip" => match installs(after(1), "install") {
                Some(arguments) => self.pip(arguments, at)?,
                None => self.unless_needless(command, at),
            },
            "uv" if text(1) == "add" => self.pip(after(2), at)?,
            "uv" if ["sync", "export", "run"].contains(&text(1)) => {
                self.synced(after(2), command, at)?
            }
            "poetry" | "pdm" if ["install", "sync", "export"].contains(&text(1)) => {
                self.synced(after(2), command, at)?;
            }
            "conda" | "mamba" | "micromamba" => self.conda(words, command, at)?,
            "yum" | "dnf" | "microdnf" | "apk" | "zypper" => {
                let why =
                    "packages of another distribution: name Debian's or Ubuntu's in `packages`";
                self.packages_note(&command.text, at, why);
            }
            _ => self.unless_needless(command, at),
        }
        Ok(())
    }

    /// Returns the words without what runs a command for another: `sudo`, `env A=b`.
    fn bare<'w>(&mut self, words: &'w [Word]) -> &'w [Word] {
        let mut words = words;
        while let Some((first, rest)) = words.split_first() {
            let assignment = first.text.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            });
            if assignment {
                if first.text.starts_with("TORCH_CUDA_ARCH_LIST=") && !first.opaque {
                    self.architectures(&first.text["TORCH_CUDA_ARCH_LIST=".len()..]);
                }
            } else if !["sudo", "env", "time", "exec", "command", "-E", "-H"]
                .contains(&first.text.as_str())
            {
                return words;
            }
            words = rest;
        }
        words
    }

    fn assign(&mut self, word: &Word) {
        if let Some((name, value)) = word.text.split_once('=').filter(|_| !word.opaque) {
            self.variables.insert(name.to_owned(), value.to_owned());
        }
    }

    fn unless_needless(&mut self, command: &Command, at: &str) {
        if !self.known.needless(&command.text) {
            self.other(at, &command.text, "");
        }
    }

    /// Remarks a command of the image's own stages.
    fn other(&mut self, at: &str, text: &str, why: &str) {
        if self.role == Role::Copied {
            return;
        }
        let mut end = text.len().min(LONGEST);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let more = if end < text.len() { " …" } else { "" };
        let text = format!("RUN {}{more}", &text[..end]);
        self.found.rest.push(Note::new(at, text, why));
    }

    /// Takes arguments behind `pip install`.
    fn pip(&mut self, words: &[Word], at: &str) -> Result<(), ConvertError> {
        let tools = [
            "pip",
            "setuptools",
            "wheel",
            "uv",
            "poetry",
            "pdm",
            "pipx",
            "virtualenv",
            "build",
        ];
        let plain = |w: &&Word| {
            let name = w
                .text
                .split(['=', '<', '>', '~', '!', '['])
                .next()
                .unwrap_or_default();
            !tools.contains(&name)
        };
        let words: Vec<Word> = words.iter().filter(plain).cloned().collect();
        let own = |text: &str| text == "." || text.starts_with(".[");
        let extras = words.iter().find(|w| own(&w.text)).map(|w| {
            let names = w
                .text
                .trim_start_matches(".[")
                .trim_end_matches(']')
                .split(',');
            let names = names.map(|name| name.trim().to_owned());
            names.filter(|name| name != ".").collect()
        });
        let words: Vec<Word> = words.into_iter().filter(|w| !own(&w.text)).collect();
        let (folder, workdir, copied) = (
            self.folder().to_owned(),
            self.workdir.clone(),
            self.copied.clone(),
        );
        let find = |files: &Files<'_>, name: &str| beside(files, name, &folder, &workdir, &copied);
        let place = pip::Place {
            at,
            folder: Path::new(""),
            find: &find,
            read: requirements::lines,
            constrains: false,
        };
        let first = self.found.libraries.len();
        let (indexes, default) = (self.found.indexes.len(), self.found.own_default_index);
        let without = words
            .iter()
            .position(|w| ["-e", "--editable"].contains(&w.text.as_str()));
        let ends_editable = without == words.len().checked_sub(1) && without.is_some();
        let words = if ends_editable {
            &words[..words.len() - 1]
        } else {
            &words
        };
        let arguments = pip::arguments(words, &place, self.files, self.known, self.found)?;
        // An index in the place of PyPI is one for this command alone.
        let own = self
            .found
            .indexes
            .get(indexes..)
            .unwrap_or_default()
            .to_vec();
        if let (true, [Item::Take(index)]) =
            (!default && self.found.own_default_index, own.as_slice())
        {
            let named = self.found.libraries[first..].iter_mut();
            for asked in named.filter_map(|item| match item {
                Item::Take(asked) => Some(asked),
                Item::Note(_) => None,
            }) {
                asked.index.get_or_insert_with(|| index.value.clone());
            }
            self.found.indexes.truncate(indexes);
            self.found.own_default_index = false;
        }
        for (name, from) in arguments.from {
            requirements::built(&mut self.found.libraries[first..], &name, from);
        }
        let Some(names) = extras else {
            return Ok(());
        };
        let chosen = Chosen { names, all: false };
        let elsewhere = self.workdir != self.folder_before;
        if elsewhere || !self.project_requirements(&chosen, at)? {
            let why = if elsewhere {
                FOLDER
            } else {
                "there is no pyproject.toml beside the Dockerfile: write here what the project requires"
            };
            let text = format!("pip install . (in {})", self.workdir);
            self.found
                .libraries
                .push(Item::Note(Note::new(at, text, why)));
        }
        Ok(())
    }

    /// Reads the requirements of the project that uv, Poetry or PDM installs.
    fn synced(&mut self, words: &[Word], command: &Command, at: &str) -> Result<(), ConvertError> {
        let mut chosen = Chosen::default();
        let mut words = words.iter().map(|w| w.text.as_str());
        while let Some(word) = words.next() {
            match word {
                "--extra" | "--group" | "--with" | "-E" | "--extras" | "-G" => {
                    let names = words.next().unwrap_or_default();
                    chosen
                        .names
                        .extend(names.split([',', ' ']).map(str::to_owned));
                }
                "--all-extras" | "--all-groups" => chosen.all = true,
                _ => {}
            }
        }
        if self.project_requirements(&chosen, at)? {
            return Ok(());
        }
        let why = "there is no pyproject.toml beside the Dockerfile: write what it installs here";
        let note = Note::new(at, command.text.clone(), why);
        self.found.libraries.push(Item::Note(note));
        Ok(())
    }

    /// Takes the dependencies of the project beside the Dockerfile, once. Returns whether it has such a file.
    fn project_requirements(&mut self, chosen: &Chosen, at: &str) -> Result<bool, ConvertError> {
        let name = "pyproject.toml";
        let Some(path) = beside(self.files, name, self.folder(), &self.workdir, &self.copied)
        else {
            return Ok(false);
        };
        if self.found.name.is_some() {
            return Ok(true);
        }
        let python = self.found.python.clone();
        let (known, found) = (self.known, &mut *self.found);
        let app = found.app.take();
        self.files.within(&path, at, |files, file| {
            pyproject::tables(file, chosen, files, known, found)
        })?;
        // The image's own Python is what the project runs with, and its `COPY` says where the project lies.
        self.found.python = python.or(self.found.python.take());
        self.found.app = app;
        Ok(true)
    }

    fn conda(&mut self, words: &[Word], command: &Command, at: &str) -> Result<(), ConvertError> {
        let file = words
            .windows(2)
            .find(|w| ["-f", "--file"].contains(&w[0].text.as_str()));
        let file = file.map(|w| w[1].text.clone()).or_else(|| {
            let inline = words.iter().find_map(|w| w.text.strip_prefix("--file="));
            inline.map(str::to_owned)
        });
        if let Some(name) = file {
            let path = beside(
                self.files,
                &name,
                self.folder(),
                &self.workdir,
                &self.copied,
            );
            let Some(path) = path else {
                let why = "the file is not beside the Dockerfile: give it to `init --from`";
                self.found
                    .libraries
                    .push(Item::Note(Note::new(at, command.text.clone(), why)));
                return Ok(());
            };
            let (known, found) = (self.known, &mut *self.found);
            return self.files.within(&path, at, |files, file| {
                conda::document(file, files, known, found)
            });
        }
        let Some(names) = installs(words, "install").or_else(|| installs(words, "create")) else {
            self.unless_needless(command, at);
            return Ok(());
        };
        let mut names = names.iter();
        while let Some(word) = names.next() {
            match word.text.as_str() {
                "-c" | "--channel" | "-n" | "--name" | "-p" | "--prefix" => {
                    names.next();
                }
                text if text.starts_with('-') => {}
                text => conda::package(text, at, self.known, self.found),
            }
        }
        Ok(())
    }
}

/// Whether a here-document is the whole of a command: the parser leaves `<<NAME` out of it, or not.
fn of_shell(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || text.starts_with("<<") && !text.contains(char::is_whitespace)
}

/// Returns the words behind a subcommand, in front of which only options stand.
fn installs<'w>(words: &'w [Word], subcommand: &str) -> Option<&'w [Word]> {
    let at = words
        .iter()
        .skip(1)
        .position(|w| !w.text.starts_with('-'))?
        + 1;
    (words[at].text == subcommand).then(|| &words[at + 1..])
}

/// Makes a script of a command that needs no shell, or of what a shell is given.
fn exec(list: Vec<String>) -> Script {
    match list.as_slice() {
        [shell, flag, text]
            if shell.ends_with("sh") && flag.starts_with('-') && flag.ends_with('c') =>
        {
            script(text, &std::collections::BTreeMap::new(), '\\')
        }
        _ => {
            let words = list.iter().map(|w| Word {
                text: w.clone(),
                opaque: false,
            });
            let command = Command {
                words: words.collect(),
                text: list.join(" "),
                redirected: false,
            };
            Script {
                commands: vec![command],
                conditional: false,
            }
        }
    }
}
