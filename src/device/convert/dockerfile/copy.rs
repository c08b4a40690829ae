//! `COPY` and `ADD`: the project's files, single files, and what comes from other stages.

use super::super::found::App;
use super::super::item::Note;
use super::super::kind;
use super::{Role, Walk};
use parse_dockerfile::{Flag, Source};
use std::path::Path;

/// A copy of a part of the project.
pub(super) struct Part {
    at: String,
    source: String,
    dest: String,
}

/// Names that say that Python packages are copied.
const ENVIRONMENTS: [&str; 8] = [
    "site-packages",
    "dist-packages",
    "venv",
    "/usr/local",
    "/.local",
    "/install",
    "conda",
    "wheels",
];

impl Walk<'_, '_> {
    pub(super) fn copy(
        &mut self,
        options: &[Flag<'_>],
        sources: &[Source<'_>],
        dest: &str,
        at: &str,
    ) {
        let from = options
            .iter()
            .find(|o| o.name.value == "from")
            .and_then(|o| o.value.as_ref());
        let sources: Vec<String> = sources
            .iter()
            .map(|source| match source {
                Source::Path(path) => self.fill(&path.value).text,
                _ => "<<".to_owned(),
            })
            .collect();
        let folder = dest.ends_with('/') || dest == "." || sources.len() > 1;
        let to = self.absolute(dest);
        if let Some(from) = from {
            let from = self.fill(&from.value).text;
            return self.other_stage(&from, &sources, &to, at);
        }
        for source in sources {
            if source == "<<" {
                self.note(
                    at,
                    &format!("COPY <<… {to}"),
                    "write the file and name it in `image.files`",
                );
                continue;
            }
            if source.contains("://") || source.ends_with(".git") {
                let why = "fetch it yourself and name the file in `image.files`, or a wheel in `libraries`";
                self.note(at, &format!("ADD {source} {to}"), why);
                continue;
            }
            self.copied.push((source.clone(), to.clone()));
            if self.role == Role::Final {
                self.own(source, &to, folder, at);
            }
        }
    }

    fn note(&mut self, at: &str, text: &str, why: &str) {
        if self.role == Role::Final {
            self.found.rest.push(Note::new(at, text, why));
        }
    }

    fn other_stage(&mut self, from: &str, sources: &[String], to: &str, at: &str) {
        self.pending.push(from.to_owned());
        if from.contains("astral-sh/uv") || from.contains("astral/uv") {
            return;
        }
        let python = |path: &str| ENVIRONMENTS.iter().any(|name| path.contains(name));
        if !sources.iter().any(|s| python(s)) && !python(to) {
            let text = format!("COPY --from={from} {} {to}", sources.join(" "));
            let why = "a stack has no stages: name a package that has it, or add the file by `image.files`";
            self.note(at, &text, why);
        }
    }

    /// Takes a copy of the project's files.
    fn own(&mut self, source: String, to: &str, folder: bool, at: &str) {
        let plain = source.trim_start_matches("./").trim_end_matches('/');
        if plain.is_empty() || plain == "." || plain == "*" {
            let app = App {
                source: ".".to_owned(),
                to: to.to_owned(),
            };
            if self.found.app.as_ref().is_some_and(|other| *other != app) {
                self.note(
                    at,
                    &format!("COPY {source} {to}"),
                    "`app` copies the project to one place",
                );
                return;
            }
            self.found.app = Some(app);
            return;
        }
        let name = plain.rsplit('/').next().unwrap_or(plain);
        let lock = [".lock", ".toml", ".cfg", "setup.py"]
            .iter()
            .any(|end| name.ends_with(end));
        if kind::by_name(Path::new(plain)).is_some() || lock || name.starts_with("requirements") {
            return;
        }
        let part = Part {
            at: at.to_owned(),
            source: plain.to_owned(),
            dest: to.to_owned(),
        };
        let file = self.files.is_file(&self.folder().join(plain)) || name.contains('.');
        let inside = to == self.workdir
            || to.starts_with(&format!("{}/", self.workdir.trim_end_matches('/')));
        if file && !plain.contains('*') && (!inside || self.workdir == "/") {
            let dest = if folder {
                format!("{}/{name}", to.trim_end_matches('/'))
            } else {
                to.to_owned()
            };
            self.found.image.files.insert(dest, plain.to_owned());
            return;
        }
        self.parts.push(part);
    }

    /// Takes the project's folder for its parts, at the end.
    pub(super) fn project(&mut self) {
        // What only said what to install is not needed in the image.
        let (folder, files) = (self.folder().to_owned(), &*self.files);
        let needed = |_: &String, source: &mut String| !files.was_read(&folder.join(&*source));
        self.found.image.files.retain(needed);
        let parts = std::mem::take(&mut self.parts);
        if parts.is_empty() {
            return;
        }
        let workdir = self.found.image.workdir.clone();
        let to = workdir
            .filter(|w| w != "/")
            .unwrap_or_else(|| "/app".to_owned());
        let whole = self.found.app.clone();
        let app = whole.unwrap_or(App {
            source: ".".to_owned(),
            to,
        });
        for part in &parts {
            let same = format!("{}/{}", app.to.trim_end_matches('/'), part.source);
            if part.dest != same && part.dest != app.to {
                let text = format!("COPY {} {}", part.source, part.dest);
                let why = format!("`app` has it as {same}");
                self.found.rest.push(Note::new(&part.at, text, why));
            }
        }
        self.found.app = Some(app);
    }
}
