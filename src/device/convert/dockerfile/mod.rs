//! Dockerfiles: what the last stage, the stages that it starts from and those that it copies from put into the image.
//!
//! Nothing is run: a command that is not known stays a comment. Which base the stack gets follows from the name of the
//! image that the last stage starts from.

mod copy;
mod documents;
mod find;
mod packages;
mod run;
mod settings;

use super::file::File;
use super::files::Files;
use super::found::Found;
use super::item::{Item, Note, Os, Why};
use super::known::Known;
use super::shell::{Word, filled, words};
use super::{Asked, ConvertError};
use parse_dockerfile::{Dockerfile, FromInstruction, Instruction, parse};
use pep440_rs::VersionSpecifiers;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr as _;

/// Whether a stage's settings are the image's, or only what it installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Final,
    /// The image copies files from it.
    Copied,
}

/// What is known at one point of the file.
struct Walk<'a, 'f> {
    file: &'a File,
    files: &'a mut Files<'f>,
    known: &'a Known,
    found: &'a mut Found,
    lines: Vec<usize>,
    escape: char,
    globals: BTreeMap<String, String>,
    /// Of the stage: arguments and environment.
    variables: BTreeMap<String, String>,
    workdir: String,
    /// Its value before the commands of one `RUN`.
    folder_before: String,
    shell: Vec<String>,
    role: Role,
    /// What `COPY` put where: sources and the directory or file.
    copied: Vec<(String, String)>,
    /// Users that commands make, with their numbers.
    users: Vec<(String, Option<u32>)>,
    /// Copies of parts of the project.
    parts: Vec<copy::Part>,
    /// Stages that files are copied from and that are still to be read.
    pending: Vec<String>,
}

/// Reads a Dockerfile.
///
/// # Errors
/// If it is not one, or a requirements file that it copies cannot be read.
pub fn read(
    file: &File,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
) -> Result<(), ConvertError> {
    files.enter(file);
    let text = documents::without(&file.text);
    let dockerfile = parse(&text).map_err(|e| invalid(file, e.line(), &format!("{e:#}")))?;
    let escape = dockerfile.parser_directives.escape.as_ref();
    let mut walk = Walk {
        file,
        files,
        known,
        found,
        lines: starts(&text),
        escape: escape.map_or('\\', |e| e.value.value),
        globals: BTreeMap::new(),
        variables: BTreeMap::new(),
        workdir: "/".to_owned(),
        folder_before: "/".to_owned(),
        shell: vec!["/bin/sh".to_owned(), "-c".to_owned()],
        role: Role::Final,
        copied: Vec::new(),
        users: Vec::new(),
        parts: Vec::new(),
        pending: Vec::new(),
    };
    for arg in dockerfile.global_args() {
        walk.argument(&arg.arguments.value, true);
    }
    walk.stages(&dockerfile)?;
    walk.project();
    Ok(())
}

fn invalid(file: &File, line: usize, message: &str) -> ConvertError {
    ConvertError::Invalid {
        at: format!("{}:{}", file.shown, line.max(1)),
        message: message.to_owned(),
        what: "a Dockerfile: `docker build --check` says more",
    }
}

/// Returns where each line starts.
fn starts(text: &str) -> Vec<usize> {
    let ends = text.match_indices('\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).collect()
}

impl Walk<'_, '_> {
    fn at(&self, offset: usize) -> String {
        let line = self.lines.partition_point(|start| *start <= offset);
        format!("{}:{line}", self.file.shown)
    }

    fn folder(&self) -> &Path {
        self.file.path.parent().unwrap_or(Path::new(""))
    }

    fn fill(&self, text: &str) -> Word {
        filled(text, &self.variables)
    }

    fn stages(&mut self, dockerfile: &Dockerfile<'_>) -> Result<(), ConvertError> {
        let stages: Vec<_> = dockerfile.stages().collect();
        let names: Vec<Option<String>> = stages
            .iter()
            .map(|s| Some(s.from.as_.as_ref()?.1.value.to_ascii_lowercase()))
            .collect();
        let earlier = |name: &str, before: usize| {
            let name = name.to_ascii_lowercase();
            let named = names[..before]
                .iter()
                .rposition(|n| n.as_ref() == Some(&name));
            named.or_else(|| name.parse::<usize>().ok().filter(|n| *n < before))
        };
        let mut read = BTreeSet::new();
        let mut next = stages.len().checked_sub(1);
        while let Some(last) = next {
            // The stages that it starts from, one from the other, are part of it.
            let mut chain = vec![last];
            let mut first = last;
            let root = loop {
                let image = filled(&stages[first].from.image.value, &self.globals);
                match earlier(&image.text, first) {
                    Some(stage) if !image.text.bytes().all(|b| b.is_ascii_digit()) => {
                        chain.push(stage);
                        first = stage;
                    }
                    _ => break image,
                }
            };
            self.begin(stages[first].from, &root);
            for stage in chain.into_iter().rev() {
                // Of a stage that the image is made of already, nothing is new.
                if !read.insert(stage) && self.role == Role::Copied {
                    continue;
                }
                for instruction in stages[stage].instructions {
                    self.instruction(instruction)?;
                }
            }
            self.role = Role::Copied;
            let pending = std::mem::take(&mut self.pending);
            let mut wanted = pending
                .iter()
                .filter_map(|name| earlier(name, stages.len() - 1));
            next = wanted.find(|stage| !read.contains(stage));
            self.pending = pending;
        }
        Ok(())
    }

    /// Starts a stage from an image.
    fn begin(&mut self, from: &FromInstruction<'_>, image: &Word) {
        self.variables = BTreeMap::new();
        self.workdir = "/".to_owned();
        self.copied.clear();
        if self.role == Role::Copied {
            return;
        }
        let at = self.at(from.from.span.start);
        for option in &from.options {
            let value = option
                .value
                .as_ref()
                .map(|v| filled(&v.value, &self.globals));
            if let Some(value) = value.filter(|_| option.name.value == "platform") {
                self.found.platform = value.text.parse().ok();
            }
        }
        self.found.from = Some(Why {
            value: image.text.split('@').next().unwrap_or_default().to_owned(),
            at: at.clone(),
        });
        if image.text == "scratch" {
            return;
        }
        let Some(based) = self.known.image(&image.text).filter(|_| !image.opaque) else {
            let why = "what this image has is not known: say what the stack needs of it";
            self.found
                .rest
                .push(Note::new(&at, format!("FROM {}", image.text), why));
            return;
        };
        let short = image.text.split('@').next().unwrap_or_default().to_owned();
        let why = |value: String| Why {
            value,
            at: short.clone(),
        };
        if let Some(cuda) = based.cuda {
            self.found.cuda = Some(why(cuda));
        }
        self.found.l4t = based.l4t.map(why);
        self.found.os = based.os.map(|os| Os {
            release: plain_release(&os),
            ..os
        });
        if let Some(python) = based.python
            && let Ok(value) = VersionSpecifiers::from_str(&format!("=={python}.*"))
        {
            self.found.python = Some(Why {
                value,
                at: short.clone(),
            });
        }
        for library in based.libraries {
            let item = match Asked::parse(&at, &library, Path::new("")) {
                Item::Take(asked) => Item::Take(Asked {
                    remark: Some(format!("of {short}")),
                    ..asked
                }),
                note => note,
            };
            self.found.libraries.push(item);
        }
    }

    fn instruction(&mut self, instruction: &Instruction<'_>) -> Result<(), ConvertError> {
        let at = self.at(start(instruction));
        match instruction {
            Instruction::Arg(arg) => self.argument(&arg.arguments.value, false),
            Instruction::Env(env) => self.environment(&env.arguments.value, &at),
            Instruction::Run(run) => self.run(run, &at)?,
            Instruction::Workdir(workdir) => self.change(&workdir.arguments.value),
            Instruction::Copy(copy) => {
                let dest = copy.dest.value.clone();
                self.copy(&copy.options, &copy.src, &dest, &at);
            }
            Instruction::Add(add) => {
                let dest = add.dest.value.clone();
                self.copy(&add.options, &add.src, &dest, &at);
            }
            Instruction::Shell(shell) => {
                self.shell = shell
                    .arguments
                    .iter()
                    .map(|a| a.value.to_string())
                    .collect();
            }
            other if self.role == Role::Final => self.setting(other, &at),
            _ => {}
        }
        Ok(())
    }

    /// Takes `ARG NAME=default`, of a stage or in front of all.
    fn argument(&mut self, text: &str, global: bool) {
        let scope = if global {
            &self.globals
        } else {
            &self.variables
        };
        for word in words(text, scope) {
            let (name, value) = match word.text.split_once('=') {
                Some((name, value)) if !word.opaque => (name, Some(value.to_owned())),
                Some(_) => continue,
                None => (word.text.as_str(), self.globals.get(&word.text).cloned()),
            };
            let Some(value) = value else { continue };
            if name == "TORCH_CUDA_ARCH_LIST" {
                self.architectures(&value);
            }
            let scope = if global {
                &mut self.globals
            } else {
                &mut self.variables
            };
            // An environment variable wins over an argument of the same name.
            scope.entry(name.to_owned()).or_insert(value);
        }
    }

    /// Takes the GPUs of torch's list: `8.0;8.6;9.0+PTX`.
    fn architectures(&mut self, list: &str) {
        for arch in list.split([';', ',', ' ']) {
            let digits: String = arch.trim_end_matches("+PTX").replace('.', "");
            let plain = digits.len() >= 2 && digits.bytes().take(2).all(|b| b.is_ascii_digit());
            let sm = format!("sm_{digits}");
            if plain && !self.found.gpus.contains(&sm) {
                self.found.gpus.push(sm);
            }
        }
    }

    /// Returns an absolute path in the image.
    fn absolute(&self, path: &str) -> String {
        let path = self.fill(path).text;
        let whole = if path.starts_with('/') {
            path
        } else {
            format!("{}/{path}", self.workdir)
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in whole.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }
}

/// Returns the version of a release that is named by its codename.
fn plain_release(os: &Os) -> String {
    let by_name = [
        ("focal", "20.04"),
        ("jammy", "22.04"),
        ("noble", "24.04"),
        ("resolute", "26.04"),
        ("buster", "10"),
        ("bullseye", "11"),
        ("bookworm", "12"),
        ("trixie", "13"),
    ];
    let named = by_name.iter().find(|(name, _)| *name == os.release);
    named.map_or_else(|| os.release.clone(), |(_, version)| (*version).to_owned())
}

/// Returns where an instruction starts in the text.
fn start(instruction: &Instruction<'_>) -> usize {
    let keyword = match instruction {
        Instruction::Add(i) => &i.add,
        Instruction::Arg(i) => &i.arg,
        Instruction::Cmd(i) => &i.cmd,
        Instruction::Copy(i) => &i.copy,
        Instruction::Entrypoint(i) => &i.entrypoint,
        Instruction::Env(i) => &i.env,
        Instruction::Expose(i) => &i.expose,
        Instruction::From(i) => &i.from,
        Instruction::Healthcheck(i) => &i.healthcheck,
        Instruction::Label(i) => &i.label,
        Instruction::Maintainer(i) => &i.maintainer,
        Instruction::Onbuild(i) => &i.onbuild,
        Instruction::Run(i) => &i.run,
        Instruction::Shell(i) => &i.shell,
        Instruction::Stopsignal(i) => &i.stopsignal,
        Instruction::User(i) => &i.user,
        Instruction::Volume(i) => &i.volume,
        Instruction::Workdir(i) => &i.workdir,
        _ => return 0,
    };
    keyword.span.start
}
