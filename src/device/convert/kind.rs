//! Tells what kind of file it is: by its name, else by its content.

use super::ConvertError;
use super::file::File;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Requirements,
    Pyproject,
    Dockerfile,
    Conda,
}

/// Names of files that other tools read and that say too little, or say it as a program.
const REFUSED: [(&str, &str, &str); 10] = [
    (
        "setup.py",
        "a program, which `init` does not run",
        "build the project's wheel (`pip wheel --no-deps .`) and name it in `libraries`, or write its requirements into a requirements.txt and give that",
    ),
    (
        "setup.cfg",
        "setuptools' own file",
        "write its `install_requires` into a requirements.txt or a pyproject.toml and give that",
    ),
    (
        "Pipfile",
        "Pipenv's file",
        "run `pipenv requirements > requirements.txt` and give that file",
    ),
    (
        "Pipfile.lock",
        "Pipenv's lock",
        "run `pipenv requirements > requirements.txt` and give that file",
    ),
    (
        "uv.lock",
        "uv's lock",
        "give the pyproject.toml beside it; `stackforge lock` makes a lock of its own",
    ),
    (
        "poetry.lock",
        "Poetry's lock",
        "give the pyproject.toml beside it; `stackforge lock` makes a lock of its own",
    ),
    (
        "pdm.lock",
        "PDM's lock",
        "give the pyproject.toml beside it; `stackforge lock` makes a lock of its own",
    ),
    (
        "pixi.toml",
        "pixi's file",
        "run `pixi project export conda-environment environment.yml` and give that file",
    ),
    (
        "conda-lock.yml",
        "conda-lock's lock",
        "give the environment.yml that it was made from",
    ),
    (
        "meta.yaml",
        "a recipe of conda-build",
        "give the environment.yml in which the package is installed",
    ),
];

/// Returns the kind that a name stands for.
pub fn by_name(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let ends = |end: &str| name.ends_with(end);
    let in_requirements = path
        .parent()
        .and_then(Path::file_name)
        .is_some_and(|folder| folder == "requirements");
    if name == "pyproject.toml" {
        Some(Format::Pyproject)
    } else if name.starts_with("dockerfile")
        || name.starts_with("containerfile")
        || ends(".dockerfile")
        || ends(".containerfile")
    {
        Some(Format::Dockerfile)
    } else if (name.starts_with("environment") || name.starts_with("conda"))
        && (ends(".yml") || ends(".yaml"))
    {
        Some(Format::Conda)
    } else if (ends(".txt") || ends(".in"))
        && (name.contains("require") || name.contains("constraint") || in_requirements)
    {
        Some(Format::Requirements)
    } else {
        None
    }
}

impl Format {
    /// # Errors
    /// If it is a file of another kind.
    pub fn of(file: &File) -> Result<Self, ConvertError> {
        let refused = |what, help| ConvertError::OtherKind {
            shown: file.shown.clone(),
            what,
            help,
        };
        let name = file.path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if let Some((_, what, help)) = REFUSED.iter().find(|r| r.0.eq_ignore_ascii_case(name)) {
            return Err(refused(what, help));
        }
        if let Some(kind) = by_name(&file.path) {
            // `conda env export` prints a list of files with `--explicit`.
            return Ok(kind);
        }
        if file.text.lines().any(|l| l.trim() == "@EXPLICIT") {
            return Err(refused(
                "conda's list of files",
                "run `conda env export --from-history > environment.yml` and give that file",
            ));
        }
        let ending = file.path.extension().and_then(|e| e.to_str()).unwrap_or("");
        let content = match by_content(&file.text) {
            None if ["txt", "in"].contains(&ending) && requirements(&file.text).0 > 0 => {
                Some(Content::Format(Self::Requirements))
            }
            content => content,
        };
        match (ending, content) {
            (_, Some(Content::Format(kind))) => Ok(kind),
            (_, Some(Content::Stack)) => {
                Err(refused("a stack already", "run `stackforge check` on it"))
            }
            (_, Some(Content::Compose)) => Err(refused(
                "a Compose file",
                "give the Dockerfile that its service is built from",
            )),
            ("py", None) => Err(refused(
                "a program, which `init` does not run",
                "write the requirements of the program into a requirements.txt and give that",
            )),
            ("ipynb", _) => Err(refused(
                "a notebook",
                "write what it installs into a requirements.txt and give that",
            )),
            _ => Err(refused(
                "of a kind that `init` does not read",
                "give a requirements file, a pyproject.toml, a Dockerfile or a conda environment.yml",
            )),
        }
    }
}

enum Content {
    Format(Format),
    Stack,
    Compose,
}

fn by_content(text: &str) -> Option<Content> {
    let mut lines = text.lines().filter(|l| written(l));
    let first = lines.next()?.trim();
    let word = first.split_whitespace().next()?.to_ascii_uppercase();
    if ["FROM", "ARG"].contains(&word.as_str()) && first.len() > word.len() {
        return Some(Content::Format(Format::Dockerfile));
    }
    let key = |key: &str| {
        text.lines().any(|l| {
            let rest = l.strip_prefix(key);
            rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
        })
    };
    if key("libraries") && key("base") {
        return Some(Content::Stack);
    }
    if key("services") {
        return Some(Content::Compose);
    }
    if key("dependencies") {
        return Some(Content::Format(Format::Conda));
    }
    let table = |l: &str| {
        let l = l.trim();
        [
            "[project]",
            "[tool.poetry]",
            "[dependency-groups]",
            "[build-system]",
        ]
        .contains(&l)
            || l.starts_with("[tool.uv")
    };
    if text.lines().any(table) {
        return Some(Content::Format(Format::Pyproject));
    }
    let (good, bad) = requirements(text);
    (good > 3 * bad).then_some(Content::Format(Format::Requirements))
}

fn written(line: &str) -> bool {
    !line.trim().is_empty() && !line.trim_start().starts_with('#')
}

/// Counts lines that are requirements or options, and those that are not.
fn requirements(text: &str) -> (usize, usize) {
    let (mut good, mut bad) = (0, 0);
    for line in text.lines().filter(|l| written(l)) {
        let line = line.split(" #").next().unwrap_or(line).trim();
        let option = line.starts_with('-') || line.contains("://");
        if option || stackforge_stack::spec::requirement(line).is_ok() {
            good += 1
        } else {
            bad += 1
        }
    }
    (good, bad)
}
