//! What an app's files of requirements ask for.
//!
//! In: a `requirements.txt`, a `pyproject.toml` or a `uv.lock`. Out: [`Asked`], requirements with their places. A
//! `uv.lock` asks for what its project requires, and holds everything to the versions that it names.

use super::project;
use crate::diag::{Diagnostic, Span, codes};
use crate::spec::constraints::{DEEPEST, Line, lines};
use crate::spec::requirement::requirement;
use crate::spec::{At, Stack};
use pep508_rs::{ExtraName, PackageName};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::{Table, Value};

/// A requirement of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// As PEP 508 has it.
    pub requirement: String,
    /// Where it stands: `requirements.txt:12`, `pyproject.toml:7`.
    pub place: String,
    /// Whether it only holds versions back, and installs nothing.
    pub is_constraint: bool,
}

/// Whether a file's name says of what form its requirements are.
pub(super) fn is_known(path: &str) -> bool {
    is_text(path) || is_project(path) || is_lock(path)
}

fn is_text(path: &str) -> bool {
    path.ends_with(".txt") || path.ends_with(".in")
}

fn is_project(path: &str) -> bool {
    path.rsplit('/').next() == Some("pyproject.toml")
}

fn is_lock(path: &str) -> bool {
    path.rsplit('/').next() == Some("uv.lock")
}

/// Reads the app's files of requirements. `read` returns the text of a file.
///
/// # Errors
/// A finding for each line that cannot be taken.
pub fn expand(
    stack: &mut Stack,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<(), Vec<Diagnostic>> {
    let folder = Path::new(stack.file()).parent().unwrap_or(Path::new(""));
    let folder = folder.to_owned();
    let own: BTreeSet<String> = stack
        .libraries
        .iter()
        .map(|l| l.name.value.to_string())
        .collect();
    let Some(app) = &mut stack.app else {
        return Ok(());
    };
    let mut all = Reader {
        read,
        own: &own,
        groups: &app.groups,
        extras: &app.extras,
        asked: Vec::new(),
        files: Vec::new(),
        faults: Vec::new(),
        span: Span::default(),
    };
    for At { value, span } in &app.requirements {
        all.span = *span;
        all.file(&folder.join(value), value);
    }
    let project = match project::of(app, &folder, read) {
        Ok(project) => project,
        Err(fault) => {
            all.faults.push(*fault);
            None
        }
    };
    if let Some((project, path)) = &project {
        all.files.push(path.clone());
        // What is installed needs what it depends on.
        if app.requirements.is_empty() && project.says_dependencies {
            all.span = app.source.span;
            all.file(path, "pyproject.toml");
        }
    }
    let Reader {
        asked,
        files,
        faults,
        ..
    } = all;
    if !faults.is_empty() {
        return Err(faults);
    }
    (app.asked, app.files) = (asked, files);
    app.project = project.map(|(project, _)| project);
    Ok(())
}

struct Reader<'a> {
    read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// Names of the stack's libraries.
    own: &'a BTreeSet<String>,
    groups: &'a [String],
    extras: &'a [String],
    asked: Vec<Asked>,
    files: Vec<PathBuf>,
    faults: Vec<Diagnostic>,
    /// The stack's line that names the file.
    span: Span,
}

impl Reader<'_> {
    fn fault(&mut self, message: String, help: &str) {
        let fault = Diagnostic::error(codes::BAD_REQUIREMENT, message);
        self.faults.push(fault.at(self.span).help(help));
    }

    fn text(&mut self, path: &Path, shown: &str) -> Option<String> {
        match (self.read)(path) {
            Ok(text) => {
                self.files.push(path.to_owned());
                Some(text)
            }
            Err(e) => {
                let help = "its path starts at the stack file's folder";
                self.fault(format!("`{shown}` cannot be read: {e}"), help);
                None
            }
        }
    }

    fn file(&mut self, path: &Path, shown: &str) {
        if is_text(shown) {
            return self.lines(path, shown, false, 0);
        }
        let Some(text) = self.text(path, shown) else {
            return;
        };
        let file = Lines::of(shown, &text);
        match text.parse::<Table>() {
            Ok(document) if is_project(shown) => self.project(&document, &file),
            Ok(document) => self.lock(&document, &file),
            Err(e) => {
                let message = format!("`{shown}` is not TOML: {}", e.message());
                self.fault(message, "correct it there");
            }
        }
    }

    /// Adds a requirement, unless it cannot be one.
    fn add(&mut self, text: &str, place: &str, is_constraint: bool) {
        match requirement(text) {
            Ok(_) => self.asked.push(Asked {
                requirement: text.to_owned(),
                place: place.to_owned(),
                is_constraint,
            }),
            Err(why) => {
                let help = "a line is a name with versions: `fastapi>=0.115`; files and repositories are named in the stack's `libraries`";
                self.fault(format!("{place} is not a requirement: {why}"), help);
            }
        }
    }

    fn lines(&mut self, path: &Path, shown: &str, is_constraint: bool, depth: usize) {
        if depth == DEEPEST {
            let message = format!("{shown}: files of requirements name each other too deeply");
            return self.fault(message, "write their lines into one file");
        }
        let Some(text) = self.text(path, shown) else {
            return;
        };
        for (number, line) in lines(&text) {
            let at = format!("{shown}:{number}");
            match Line::of(&line) {
                Line::Nothing => {}
                Line::Requirement(text) => self.add(&text, &at, is_constraint),
                Line::Requirements(other) | Line::Constraints(other) => {
                    let folder = path.parent().unwrap_or(Path::new(""));
                    let shown = Path::new(shown).with_file_name(&other);
                    let holds = is_constraint || matches!(Line::of(&line), Line::Constraints(_));
                    let shown = shown.display().to_string();
                    self.lines(&folder.join(&other), &shown, holds, depth + 1);
                }
                Line::Option(option) => {
                    let help = match option.as_str() {
                        "-e" | "--editable" => {
                            "leave the line out: `app.source` puts the project into the image, and other projects are named in `libraries`"
                        }
                        _ => "leave the line out, and name indexes in the stack's `indexes`",
                    };
                    self.fault(format!("{at}: `{option}` is not taken"), help);
                }
            }
        }
    }

    fn project(&mut self, document: &Table, file: &Lines<'_>) {
        let shown = file.shown;
        let Some(project) = document.get("project").and_then(Value::as_table) else {
            let help = match document.get("tool").and_then(|tool| tool.get("poetry")) {
                Some(_) => {
                    "Poetry's own tables are not read: `poetry export` writes a `requirements.txt`, and Poetry 2 reads `[project]` too"
                }
                None => "add `[project]` with `dependencies` (PEP 621)",
            };
            return self.fault(format!("`{shown}` has no `[project]`"), help);
        };
        let dynamic = project.get("dynamic").and_then(Value::as_array);
        let dynamic = dynamic
            .into_iter()
            .flatten()
            .any(|d| d.as_str() == Some("dependencies"));
        if dynamic {
            let help = "write them into `[project]`, or name the file that they come from";
            self.fault(
                format!("the `dependencies` in `{shown}` are `dynamic`"),
                help,
            );
        }
        self.sources(document, shown);
        let name = project
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let mut wanted = texts(project.get("dependencies"));
        let optional = project
            .get("optional-dependencies")
            .and_then(Value::as_table);
        let mut extras: Vec<String> = self.extras.to_vec();
        let mut seen: BTreeSet<String> = extras.iter().cloned().collect();
        while let Some(extra) = extras.pop() {
            let tables = optional.into_iter().flatten();
            let found = tables
                .filter(|(key, _)| same_extra(key, &extra))
                .map(|(_, list)| list)
                .next();
            let Some(list) = found else {
                let help = names("extras", optional);
                self.fault(format!("`{shown}` has no extra `{extra}`"), &help);
                continue;
            };
            for text in texts(Some(list)) {
                // `all = ["app[server,client]"]` names other extras of the same project.
                match of_itself(&text, name) {
                    Some(more) => {
                        extras.extend(more.into_iter().filter(|e| seen.insert(e.clone())))
                    }
                    None => wanted.push(text),
                }
            }
        }
        let groups = document.get("dependency-groups").and_then(Value::as_table);
        let asked = self.groups;
        for group in asked {
            self.group(groups, group, shown, &mut wanted, 0);
        }
        for text in wanted {
            let quoted = [format!("\"{text}\""), format!("'{text}'")];
            let line = file.find(0, |line| quoted.iter().any(|quoted| line.contains(quoted)));
            self.add(&text, &file.place(line), false);
        }
    }

    /// Adds the requirements of a dependency group, and of those that it includes (PEP 735).
    fn group(
        &mut self,
        groups: Option<&Table>,
        group: &str,
        shown: &str,
        wanted: &mut Vec<String>,
        depth: usize,
    ) {
        let mut tables = groups.into_iter().flatten();
        let found = tables
            .find(|(key, _)| same_extra(key, group))
            .and_then(|(_, list)| list.as_array());
        let Some(list) = found.filter(|_| depth < DEEPEST) else {
            let help = names("groups", groups);
            return self.fault(format!("`{shown}` has no group `{group}`"), &help);
        };
        for entry in list {
            if let Some(text) = entry.as_str() {
                wanted.push(text.to_owned());
            } else if let Some(other) = entry.get("include-group").and_then(Value::as_str) {
                self.group(groups, other, shown, wanted, depth + 1);
            }
        }
    }

    /// Refuses sources of uv's that no index has, unless the stack's `libraries` name them.
    fn sources(&mut self, document: &Table, shown: &str) {
        let sources = document.get("tool").and_then(|tool| tool.get("uv"));
        let sources = sources
            .and_then(|uv| uv.get("sources"))
            .and_then(Value::as_table);
        for (name, source) in sources.into_iter().flatten() {
            let elsewhere = ["path", "git", "url", "workspace"].into_iter();
            let Some(kind) = elsewhere.into_iter().find(|kind| has_key(source, kind)) else {
                continue;
            };
            let normal =
                PackageName::from_str(name).map_or_else(|_| name.clone(), |n| n.to_string());
            if !self.own.contains(&normal) {
                let message = format!("`{shown}` takes `{name}` from a {kind}, which no index has");
                self.fault(
                    message,
                    "name it in the stack's `libraries`, with `git` and `ref` or `file`",
                );
            }
        }
    }

    fn lock(&mut self, document: &Table, file: &Lines<'_>) {
        let shown = file.shown;
        let version = document.get("version").and_then(Value::as_integer);
        let packages = document.get("package").and_then(Value::as_array);
        let (Some(1), Some(packages)) = (version, packages) else {
            let message = format!("`{shown}` is not a lock of uv that is known");
            return self.fault(message, "`uv lock` writes version 1");
        };
        let roots: Vec<&Value> = packages.iter().filter(|p| is_root(p)).collect();
        let [root] = roots[..] else {
            let message = format!("`{shown}` locks {} projects", roots.len());
            let help = "a workspace's app is taken by its requirements: `uv export --package NAME > requirements.txt`";
            return self.fault(message, help);
        };
        self.asked_by_root(root, file);
        let is_several =
            |name: &str| packages.iter().filter(|p| text(p, "name") == name).count() > 1;
        // Each package's heading is after that of the package before.
        let mut next = 0;
        for package in packages {
            let name = text(package, "name");
            let line = file.heading(next, name);
            next = line.map_or(file.lines.len(), |line| line + 1);
            let from_index = package
                .get("source")
                .is_some_and(|s| has_key(s, "registry"));
            // The stack says itself from where and in which version its libraries come.
            if is_root(package) || !from_index || self.own.contains(name) {
                continue;
            }
            // Another index has the same release without or with another local version: `2.7.0+cu128`.
            let version = text(package, "version")
                .split('+')
                .next()
                .unwrap_or_default();
            let held = format!("{name}=={version}");
            let place = file.place(line);
            if !is_several(name) {
                self.add(&held, &place, true);
                continue;
            }
            for marker in texts(package.get("resolution-markers")) {
                self.add(&format!("{held} ; {marker}"), &place, true);
            }
        }
    }

    fn asked_by_root(&mut self, root: &Value, file: &Lines<'_>) {
        let shown = file.shown;
        let heading = file.heading(0, text(root, "name"));
        let mut lists = vec![root.get("dependencies")];
        for (key, wanted) in [
            ("optional-dependencies", self.extras),
            ("dev-dependencies", self.groups),
        ] {
            let tables = root.get(key).and_then(Value::as_table);
            let of = |name: &String| {
                let mut tables = tables.into_iter().flatten();
                tables
                    .find(|(key, _)| same_extra(key, name))
                    .map(|(_, list)| list)
            };
            for name in wanted {
                let list = of(name);
                if list.is_none() {
                    let what = if key == "optional-dependencies" {
                        "extras"
                    } else {
                        "groups"
                    };
                    let message =
                        format!("`{shown}` has no {} `{name}`", what.trim_end_matches('s'));
                    self.fault(message, &names(what, tables));
                }
                lists.push(list);
            }
        }
        let entries = lists
            .into_iter()
            .flatten()
            .filter_map(Value::as_array)
            .flatten();
        for entry in entries {
            let mut line = text(entry, "name").to_owned();
            let named = format!("{{ name = \"{line}\"");
            let at = heading.and_then(|from| file.find(from, |line| line.contains(&named)));
            let place = file.place(at);
            let extras = texts(entry.get("extra"));
            if !extras.is_empty() {
                line.push_str(&format!("[{}]", extras.join(",")));
            }
            if let Some(marker) = entry.get("marker").and_then(Value::as_str) {
                line.push_str(&format!(" ; {marker}"));
            }
            self.add(&line, &place, false);
        }
    }
}

/// The lines of a TOML file, whose tables do not say where they stand. TOML can write the same otherwise than people
/// and uv do: what is not found has the file alone as its place.
struct Lines<'a> {
    shown: &'a str,
    lines: Vec<&'a str>,
}

impl<'a> Lines<'a> {
    fn of(shown: &'a str, text: &'a str) -> Self {
        let lines = text.lines().map(str::trim_start).collect();
        Self { shown, lines }
    }

    /// Returns the index of the first line from `from` on that is not a comment and that `is_wanted` accepts.
    fn find(&self, from: usize, is_wanted: impl Fn(&str) -> bool) -> Option<usize> {
        let mut lines = self.lines.iter().enumerate().skip(from);
        let found = lines.find(|(_, line)| !line.starts_with('#') && is_wanted(line));
        found.map(|(index, _)| index)
    }

    /// Returns the index of the line that begins a package of a `uv.lock`.
    fn heading(&self, from: usize, package: &str) -> Option<usize> {
        let heading = format!("name = \"{package}\"");
        self.find(from, |line| line.starts_with(&heading))
    }

    /// Returns the place of a line by its index, `pyproject.toml:7`.
    fn place(&self, line: Option<usize>) -> String {
        match line {
            Some(index) => format!("{}:{}", self.shown, index + 1),
            None => self.shown.to_owned(),
        }
    }
}

/// Whether a package of a `uv.lock` is the project itself.
fn is_root(package: &Value) -> bool {
    let source = package.get("source");
    source.is_some_and(|s| has_key(s, "editable") || has_key(s, "virtual"))
}

/// Whether a source, or one of several, has a key.
fn has_key(source: &Value, key: &str) -> bool {
    match source {
        Value::Array(several) => several.iter().any(|one| one.get(key).is_some()),
        one => one.get(key).is_some(),
    }
}

fn text<'a>(table: &'a Value, key: &str) -> &'a str {
    table.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether two names of extras or groups are the same by PEP 685.
fn same_extra(one: &str, other: &str) -> bool {
    let normal =
        |name: &str| ExtraName::from_str(name).map_or_else(|_| name.to_owned(), |n| n.to_string());
    normal(one) == normal(other)
}

/// Returns the extras that a requirement names, if it is one of the project itself.
fn of_itself(text: &str, project: &str) -> Option<Vec<String>> {
    let parsed = requirement(text).ok()?;
    let own = PackageName::from_str(project).ok()?;
    (parsed.name == own).then(|| parsed.extras.iter().map(ToString::to_string).collect())
}

fn names(what: &str, tables: Option<&Table>) -> String {
    let all: Vec<&str> = tables
        .into_iter()
        .flat_map(Table::keys)
        .map(String::as_str)
        .collect();
    match all.as_slice() {
        [] => format!("it has no {what}"),
        all => format!("its {what}: {}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(files: &[(&str, &str)], app: &str) -> Result<Vec<String>, Vec<String>> {
        let text = format!(
            "stack: s\nbase: b\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\npython: \"3.12\"\nlibraries: {{ torch: auto }}\napp: {{ source: ., {app} }}\n"
        );
        let mut stack = crate::spec::read("d/s.yaml", &text).unwrap().pattern;
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            let missing = || io::Error::from(io::ErrorKind::NotFound);
            found
                .map(|(_, text)| (*text).to_owned())
                .ok_or_else(missing)
        };
        let shown = |asked: Asked| {
            let kind = if asked.is_constraint { "holds " } else { "" };
            format!("{kind}{} @{}", asked.requirement, asked.place)
        };
        match expand(&mut stack, &read) {
            Ok(()) => Ok(stack.app.unwrap().asked.into_iter().map(shown).collect()),
            Err(faults) => Err(faults.into_iter().map(|f| f.message).collect()),
        }
    }

    #[test]
    fn requirements_as_pip_reads_them() {
        let files = [
            (
                "d/requirements.txt",
                "fastapi>=0.115 # web\n-r more/base.txt\n-c held.txt\nuvicorn[standard]==0.34.0 \\\n  --hash=sha256:aa\n",
            ),
            ("d/more/base.txt", "numpy<3\n"),
            ("d/held.txt", "starlette<1\n"),
        ];
        assert_eq!(
            asked(&files, "requirements: requirements.txt").unwrap(),
            [
                "fastapi>=0.115 @requirements.txt:1",
                "numpy<3 @more/base.txt:1",
                "holds starlette<1 @held.txt:1",
                "uvicorn[standard]==0.34.0 @requirements.txt:4",
            ]
        );
    }

    const PROJECT: &str = r#"
[project]
name = "My.App"
dependencies = ["fastapi"]
[project.optional-dependencies]
server = ["uvicorn"]
all = ["my-app[server,GPU_stuff]"]
gpu-stuff = ["pynvml"]
[dependency-groups]
prod = ["gunicorn", { include-group = "metrics" }]
metrics = ["prometheus-client"]
[tool.uv.sources]
torch = { git = "https://example.test/torch" }
"#;

    #[test]
    fn a_project_with_extras_and_groups() {
        let files = [("d/pyproject.toml", PROJECT)];
        let app = "requirements: [pyproject.toml], extras: [all], groups: [prod]";
        let found = asked(&files, app).unwrap();
        assert_eq!(found[1], "pynvml @pyproject.toml:8");
        let names: Vec<&str> = found.iter().map(|l| l.split(' ').next().unwrap()).collect();
        assert_eq!(
            names,
            [
                "fastapi",
                "pynvml",
                "uvicorn",
                "gunicorn",
                "prometheus-client"
            ]
        );
    }

    #[test]
    fn what_a_project_lacks_is_named_with_what_it_has() {
        let files = [("d/pyproject.toml", PROJECT)];
        let faults = asked(
            &files,
            "requirements: pyproject.toml, extras: [sever], groups: [dev]",
        )
        .unwrap_err();
        assert_eq!(
            faults,
            [
                "`pyproject.toml` has no extra `sever`",
                "`pyproject.toml` has no group `dev`"
            ]
        );
        let elsewhere = "[project]\nname = 'x'\n[tool.uv.sources]\nours = { path = '../ours' }\n";
        let faults = asked(
            &[("d/pyproject.toml", elsewhere)],
            "requirements: pyproject.toml",
        );
        assert!(faults.unwrap_err()[0].contains("takes `ours` from a path"));
        let poetry = "[tool.poetry]\nname = 'x'\n";
        assert!(
            asked(
                &[("d/pyproject.toml", poetry)],
                "requirements: pyproject.toml"
            )
            .is_err()
        );
    }

    #[test]
    fn a_lock_of_uv_holds_versions() {
        let lock = r#"
version = 1
[[package]]
name = "app"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
  { name = "fastapi" },
  { name = "uvicorn", extra = ["standard"], marker = "sys_platform != 'win32'" },
]
[package.dev-dependencies]
dev = [{ name = "pytest" }]
[[package]]
name = "fastapi"
version = "0.115.6"
source = { registry = "https://example.test/simple" }
[[package]]
name = "torch"
version = "2.7.0+cu128"
source = { registry = "https://example.test/simple" }
[[package]]
name = "numpy"
version = "2.2.0"
source = { registry = "https://example.test/simple" }
resolution-markers = ["python_full_version < '3.11'"]
[[package]]
name = "numpy"
version = "2.3.0"
source = { registry = "https://example.test/simple" }
resolution-markers = ["python_full_version >= '3.11'"]
"#;
        let files = [("d/uv.lock", lock)];
        assert_eq!(
            asked(&files, "requirements: uv.lock").unwrap(),
            [
                "fastapi @uv.lock:8",
                "uvicorn[standard] ; sys_platform != 'win32' @uv.lock:9",
                "holds fastapi==0.115.6 @uv.lock:14",
                "holds numpy==2.2.0 ; python_full_version < '3.11' @uv.lock:22",
                "holds numpy==2.3.0 ; python_full_version >= '3.11' @uv.lock:27",
            ]
        );
        let with_dev = asked(&files, "requirements: uv.lock, groups: [dev]").unwrap();
        assert!(
            with_dev.contains(&"pytest @uv.lock:12".to_owned()),
            "{with_dev:?}"
        );
        assert!(asked(&files, "requirements: uv.lock, groups: [test]").is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            for name in ["requirements.txt", "pyproject.toml", "uv.lock"] {
                let path = format!("d/{name}");
                let _ = asked(&[(path.as_str(), text.as_str())], &format!("requirements: {name}"));
            }
        }
    }
}
