//! How a project is built to a wheel (PEP 517, PEP 518).
//!
//! In: the app's folder, and its `pyproject.toml`. Out: [`Project`], or nothing if the app is not installed. As for
//! uv, a project is installed if its `pyproject.toml` has `[build-system]`.

use crate::diag::{Diagnostic, codes};
use crate::spec::App;
use crate::spec::requirement::requirement;
use std::io;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The backend of projects that name none, and what it requires.
const LEGACY: (&str, [&str; 1]) = ("setuptools.build_meta:__legacy__", ["setuptools"]);

/// The build system of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Requirements of the build, as PEP 508 has them.
    pub requires: Vec<String>,
    /// The backend: a module, and perhaps an object in it after a colon.
    pub backend: String,
    /// Folders of the project in which the backend lies.
    pub backend_path: Vec<String>,
    /// Whether `[project]` lists what it depends on.
    pub(super) says_dependencies: bool,
}

/// Reads how an app is built. `read` returns the text of a file. Returns the files that were read too.
///
/// # Errors
/// A finding, if the app has to be installed and cannot be.
pub(super) fn of(
    app: &App,
    folder: &Path,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Option<(Project, PathBuf)>, Box<Diagnostic>> {
    let wanted = app.install.as_ref().map(|install| install.value);
    if wanted == Some(false) {
        return Ok(None);
    }
    let fault = |message: String, help: &str| {
        let span = app
            .install
            .as_ref()
            .map_or(app.source.span, |install| install.span);
        let fault = Diagnostic::error(codes::BAD_VALUE, message);
        Box::new(fault.at(span).help(help))
    };
    let path = folder.join(&app.source.value).join("pyproject.toml");
    let text = match read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound && wanted.is_none() => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let path = path.with_file_name("setup.py");
            read(&path).map_err(|_| {
                let message = format!(
                    "`{}` is not a project that can be installed",
                    app.source.value
                );
                fault(
                    message,
                    "it has neither `pyproject.toml` nor `setup.py`: leave `install` out",
                )
            })?;
            return Ok(Some((Project::legacy(), path)));
        }
        Err(e) => {
            let message = format!("the app's `pyproject.toml` cannot be read: {e}");
            return Err(fault(message, "correct it there, or set `install: false`"));
        }
    };
    let help = "correct it there, or set `install: false`";
    let document: Table = text.parse().map_err(|e: toml::de::Error| {
        fault(
            format!("the app's `pyproject.toml` is not TOML: {}", e.message()),
            help,
        )
    })?;
    let project = Project::read(&document, wanted == Some(true))
        .map_err(|why| fault(format!("the app's `pyproject.toml`: {why}"), help))?;
    Ok(project.map(|project| (project, path)))
}

impl Project {
    fn legacy() -> Self {
        let (backend, requires) = LEGACY;
        Self {
            requires: requires.map(str::to_owned).to_vec(),
            backend: backend.to_owned(),
            backend_path: Vec::new(),
            says_dependencies: false,
        }
    }

    /// Reads `[build-system]`. `is_wanted` is whether a project without it is installed too.
    fn read(document: &Table, is_wanted: bool) -> Result<Option<Self>, String> {
        let says_dependencies = says_dependencies(document);
        let Some(system) = document.get("build-system") else {
            let legacy = Self {
                says_dependencies,
                ..Self::legacy()
            };
            return Ok(is_wanted.then_some(legacy));
        };
        let requires = texts(system, "requires")?.ok_or("`build-system` has no `requires`")?;
        if let Some(why) = requires.iter().find_map(|text| requirement(text).err()) {
            return Err(format!(
                "`build-system.requires` has a line that is not a requirement: {why}"
            ));
        }
        let legacy = || LEGACY.0.to_owned();
        let backend = system.get("build-backend").map(|value| {
            let text = value.as_str().filter(|text| is_object(text));
            text.map(str::to_owned)
                .ok_or("`build-backend` is not the name of an object")
        });
        let backend_path = texts(system, "backend-path")?.unwrap_or_default();
        let inside = |path: &String| {
            let path = Path::new(path);
            let parts = path.components();
            path.is_relative()
                && parts
                    .into_iter()
                    .all(|part| part != std::path::Component::ParentDir)
        };
        if !backend_path.iter().all(inside) {
            return Err("`backend-path` leads out of the project".to_owned());
        }
        Ok(Some(Self {
            requires,
            backend: backend.transpose()?.unwrap_or_else(legacy),
            backend_path,
            says_dependencies,
        }))
    }
}

/// Whether `[project]` lists what the project depends on, so that nothing has to be built to know it.
fn says_dependencies(document: &Table) -> bool {
    let Some(project) = document.get("project").and_then(Value::as_table) else {
        return false;
    };
    let dynamic = project.get("dynamic").and_then(Value::as_array);
    let mut dynamic = dynamic.into_iter().flatten();
    !dynamic.any(|name| name.as_str() == Some("dependencies"))
}

/// Returns the texts of a list. `None` if the key is not there.
fn texts(table: &Value, key: &str) -> Result<Option<Vec<String>>, String> {
    let Some(value) = table.get(key) else {
        return Ok(None);
    };
    let list = value.as_array().into_iter().flatten();
    let all: Option<Vec<String>> = list.map(|v| v.as_str().map(str::to_owned)).collect();
    let all = all.filter(|_| value.is_array());
    all.map(Some)
        .ok_or_else(|| format!("`{key}` is not a list of texts"))
}

/// Whether a text is `module.submodule:object.attribute`.
fn is_object(text: &str) -> bool {
    let (module, object) = text.split_once(':').unwrap_or((text, "x"));
    [module, object]
        .iter()
        .all(|path| super::read::is_module(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, is_wanted: bool) -> Result<Option<Project>, String> {
        Project::read(&text.parse().unwrap(), is_wanted)
    }

    #[test]
    fn a_build_system_is_read() {
        let text = "[build-system]\nrequires = ['hatchling>=1.20']\nbuild-backend = 'hatchling.build'\n[project]\nname = 'x'\n";
        let project = read(text, false).unwrap().unwrap();
        assert_eq!(project.requires, ["hatchling>=1.20"]);
        assert_eq!(project.backend, "hatchling.build");
        assert!(project.says_dependencies);
        let own = "[build-system]\nrequires = []\nbuild-backend = 'backend:api.hooks'\nbackend-path = ['tools']\n[project]\ndynamic = ['dependencies']\n";
        let project = read(own, false).unwrap().unwrap();
        assert_eq!(
            (project.backend_path, project.says_dependencies),
            (vec!["tools".to_owned()], false)
        );
    }

    #[test]
    fn without_one_it_is_installed_if_asked() {
        let text = "[project]\nname = 'x'\n";
        assert_eq!(read(text, false), Ok(None));
        let project = read(text, true).unwrap().unwrap();
        assert_eq!(project.backend, LEGACY.0);
    }

    #[test]
    fn what_no_build_can_have_is_refused() {
        for system in [
            "build-backend = 'x'",
            "requires = 'x'",
            "requires = [1]",
            "requires = ['a b c']",
            "requires = []\nbuild-backend = 'os; x'",
            "requires = []\nbackend-path = ['../x']",
            "requires = []\nbackend-path = ['/x']",
        ] {
            let text = format!("[build-system]\n{system}\n");
            assert!(read(&text, false).is_err(), "{system}");
        }
    }
}
