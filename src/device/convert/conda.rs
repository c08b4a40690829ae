//! conda's environment.yml.

use super::asked::Asked;
use super::file::File;
use super::files::Files;
use super::found::Found;
use super::item::{Item, Note, Why};
use super::known::{Conda, Known};
use super::pip::{self, Place};
use super::requirements;
use super::{ConvertError, shell};
use pep440_rs::VersionSpecifiers;
use serde_json::Value;
use stackforge_types::wheel::is_of_name;
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr as _;

/// Channels whose packages are the ones that are known by name.
const CHANNELS: [&str; 8] = [
    "defaults",
    "conda-forge",
    "pytorch",
    "nvidia",
    "anaconda",
    "main",
    "huggingface",
    "nodefaults",
];

/// Reads an environment.yml.
///
/// # Errors
/// If it is not YAML of that shape, or a file that its `pip` list includes cannot be read.
pub fn read(
    file: &File,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
) -> Result<(), ConvertError> {
    files.enter(file);
    document(file, files, known, found)
}

/// Reads its lists, also where a Dockerfile creates the environment.
///
/// # Errors
/// As [`read`].
pub(super) fn document(
    file: &File,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
) -> Result<(), ConvertError> {
    let invalid = |line: usize, message: String| ConvertError::Invalid {
        at: format!("{}:{line}", file.shown),
        message,
        what: "a conda environment: a YAML mapping with a list of `dependencies`",
    };
    let document: Value = match stackforge_types::yaml::from_slice(file.text.as_bytes()) {
        Ok(document) => document,
        Err(e) => {
            let line = e.line().and_then(|line| usize::try_from(line).ok());
            let line = line.unwrap_or(1);
            let text = e.to_string();
            let message = text.lines().next().unwrap_or_default().to_owned();
            return Err(invalid(line, message));
        }
    };
    let Some(list) = document.get("dependencies").and_then(Value::as_array) else {
        return Err(invalid(1, "it has no list of `dependencies`".to_owned()));
    };
    found.name = document
        .get("name")
        .and_then(Value::as_str)
        .map(str::to_owned);
    for channel in document
        .get("channels")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let channel = channel.as_str().unwrap_or_default();
        if !CHANNELS.contains(&channel) && !channel.is_empty() {
            let why = "a stack takes from package indexes, not from conda's channels";
            found.rest.push(Note::new(
                &at(file, channel),
                format!("channel {channel}"),
                why,
            ));
        }
    }
    for entry in list {
        match entry {
            Value::String(spec) => package(spec, &at(file, spec), known, found),
            Value::Object(map) => {
                for line in map
                    .get("pip")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    if let Some(line) = line.as_str() {
                        of_pip(line, file, files, known, found)?;
                    }
                }
            }
            _ => {}
        }
    }
    let variables = document.get("variables").and_then(Value::as_object);
    for (name, value) in variables.into_iter().flatten() {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let shown = format!("{name}={value}");
        found
            .image
            .variable(known, &at(file, name), name, value, shown);
    }
    Ok(())
}

fn at(file: &File, text: &str) -> String {
    let line = file.text.lines().position(|l| l.contains(text));
    format!("{}:{}", file.shown, line.unwrap_or(0) + 1)
}

fn of_pip(
    line: &str,
    file: &File,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
) -> Result<(), ConvertError> {
    let folder = file.path.parent().unwrap_or(Path::new("")).to_owned();
    let at = at(file, line);
    let place = Place {
        at: &at,
        folder: &folder,
        find: &|_, name| Some(folder.join(name)),
        read: requirements::lines,
        constrains: false,
    };
    let line = line.trim();
    if line.starts_with('-') {
        let words = shell::words(line, &BTreeMap::new());
        pip::arguments(&words, &place, files, known, found)?;
    } else if !line.is_empty() {
        pip::add(Asked::parse(&at, line, &folder), &place, found);
    }
    Ok(())
}

/// Takes one package of conda: `channel::name=version=build`, `name >=1.0`, `name[version='>=1.0']`.
pub(super) fn package(spec: &str, at: &str, known: &Known, found: &mut Found) {
    let plain = spec.rsplit("::").next().unwrap_or(spec).trim();
    let end = plain.find(|c| !is_of_name(c));
    let (name, rest) = plain.split_at(end.unwrap_or(plain.len()));
    let name = name.to_ascii_lowercase();
    let asked = versions(rest);
    if name == "python" {
        match asked {
            Some(value) if !value.is_empty() => {
                found.python.get_or_insert(Why {
                    value,
                    at: spec.to_owned(),
                });
            }
            Some(_) => {}
            None => found
                .rest
                .push(Note::new(at, spec, "set `python` yourself")),
        }
        return;
    }
    let note = |why: &str| Item::Note(Note::new(at, spec, why));
    match known.conda(&name) {
        Some(Conda::Pypi(other)) => match asked {
            Some(versions) => {
                if name.starts_with("pytorch") && rest.contains("cpu") {
                    found.libraries.push(note("a build for CPUs: a stack's torch is for CUDA"));
                }
                found.libraries.push(Item::Take(Asked::versions(at, &other, versions)));
            }
            None => found.libraries.push(note(&format!(
                "PyPI has it as `{other}`; its versions are not a specifier (PEP 440): write `{other}: auto` or one"
            ))),
        },
        Some(Conda::Cuda) => {
            if let Some(value) = cuda_version(rest) {
                found.cuda.get_or_insert(Why { value, at: format!("{spec} ({at})") });
            }
        }
        Some(Conda::Os(packages)) => {
            for value in packages {
                found.packages.push(Item::Take(Why { value, at: at.to_owned() }));
            }
        }
        Some(Conda::Left(why)) if why.is_empty() => {}
        Some(Conda::Left(why)) => found.libraries.push(note(&why)),
        None => found.libraries.push(note(&format!(
            "not known: if PyPI has it, write `{name}: auto`; if Debian has it, name it in `packages`"
        ))),
    }
}

/// Returns major and minor version of a specifier.
fn cuda_version(rest: &str) -> Option<String> {
    let start = rest.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = rest[start..].split(|c: char| !c.is_ascii_digit());
    let (major, minor) = (numbers.next()?, numbers.next().unwrap_or("0"));
    let minor = if minor.is_empty() { "0" } else { minor };
    (major.len() == 2).then(|| format!("{major}.{minor}"))
}

/// Returns the versions that conda's notation stands for. `None` if PEP 440 has no word for it.
fn versions(rest: &str) -> Option<VersionSpecifiers> {
    let rest = rest.trim();
    let rest = match rest.strip_prefix('[') {
        Some(inside) => inside
            .split("version=")
            .nth(1)?
            .trim_matches(['\'', '"', ']', ' ']),
        None => rest,
    };
    if rest.is_empty() || rest == "*" {
        return Some(VersionSpecifiers::empty());
    }
    if rest.contains('|') {
        return None;
    }
    let fuzzy = |version: &str| match version.strip_suffix(".*").unwrap_or(version) {
        // A whole version, as an export has it, is that version.
        whole if whole.matches('.').count() >= 2 && !version.ends_with('*') => format!("=={whole}"),
        part => format!("=={part}.*"),
    };
    let part = |part: &str| {
        let part = part.trim();
        // A build follows behind the version.
        if let Some(exact) = part.strip_prefix("==") {
            return format!("=={}", exact.split('=').next().unwrap_or(exact));
        }
        if let Some(version) = part.strip_prefix('=') {
            return match version.split_once('=') {
                Some((version, build)) if !build.is_empty() => format!("=={version}"),
                _ => fuzzy(version.trim_end_matches('=')),
            };
        }
        if part.starts_with(|c: char| c.is_ascii_digit()) {
            fuzzy(part.split(['=', ' ']).next().unwrap_or(part))
        } else {
            part.to_owned()
        }
    };
    let all: Vec<String> = rest.split(',').map(part).collect();
    VersionSpecifiers::from_str(&all.join(",")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_conda_means_them() {
        for (rest, same) in [
            ("=3.11", "==3.11.*"),
            ("=2.3.1=py3.11_cuda12.1_cudnn8.9.2_0", "==2.3.1"),
            ("=1.26.4", "==1.26.4"),
            ("==1.2", "==1.2"),
            (">=1.0,<2", ">=1.0, <2"),
            (" 3.10", "==3.10.*"),
            ("=1.*", "==1.*"),
            ("[version='>=2.1']", ">=2.1"),
            ("", ""),
        ] {
            assert_eq!(versions(rest).unwrap().to_string(), same, "{rest}");
        }
        assert_eq!(versions("1.7|1.8"), None);
        assert_eq!(cuda_version("=12.1").as_deref(), Some("12.1"));
        assert_eq!(cuda_version("=11.8.0=0").as_deref(), Some("11.8"));
    }

    proptest::proptest! {
        #[test]
        fn no_package_panics(spec in "[ a-c0-9.=<>|,*:\\[\\]']{0,24}|\\PC{0,30}") {
            let known = Known::load(None).unwrap();
            package(&spec, "e:1", &known, &mut Found::default());
        }
    }
}
