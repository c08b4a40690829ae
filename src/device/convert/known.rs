//! Names that people use and stacks do not: `catalog/foreign.yaml`, extended by a user's own.
//!
//! In: the embedded file and, if an overlay has one, the user's. Out: [`Known`]. Expressions that do not match their
//! own examples are never loaded.

use super::item::Os;
use pep440_rs::Version;
use regex::Regex;
use serde::{Deserialize, Deserializer};
use stackforge_stack::catalog::{CatalogError, parse, schema};
use stackforge_stack::spec::PythonVersion;
use std::collections::BTreeMap;
use std::path::Path;

const FILE: &str = "foreign.yaml";
static EMBEDDED: &[u8] = include_bytes!("../../../catalog/foreign.yaml");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    schema: u32,
    torch: Torch,
    /// Packages of conda that PyPI has under the same name.
    conda_same: Vec<String>,
    /// What other packages of conda are, by their names.
    conda: BTreeMap<String, Conda>,
    /// Images that Dockerfiles start from; of an overlay's, the first that matches.
    images: Vec<Image>,
    /// OS packages that a stack has otherwise, or under another name.
    pub os_packages: Vec<OsRule>,
    /// Commands of `RUN` that a stack needs no counterpart of.
    commands: Vec<Expression>,
    /// Variables of an image that a stack sets itself or that mean nothing in it.
    variables: Vec<Variable>,
}

/// torch's own indexes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Torch {
    /// What their addresses begin with; a label of CUDA follows.
    prefixes: Vec<String>,
    /// Distributions that they have builds of for each CUDA.
    libraries: Vec<String>,
    /// The newest Python of releases before a version, oldest first.
    pythons: Vec<TorchPython>,
    #[allow(dead_code, reason = "for readers of the file")]
    source: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TorchPython {
    before: Version,
    newest: PythonVersion,
}

/// An index of torch's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchIndex {
    /// `cu128`, `cpu`, `rocm6.2`.
    pub label: String,
    /// CUDA's version, if it is for CUDA.
    pub cuda: Option<String>,
}

/// What a package of conda is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Conda {
    /// A distribution of PyPI under another name, with its extras.
    Pypi(String),
    /// CUDA itself, in that version.
    Cuda,
    /// OS packages.
    Os(Vec<String>),
    /// Nothing that a stack would name, and why.
    Left(String),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    /// On `NAME:TAG`, without `docker.io/` and `library/`. Named groups: `cuda`, `python`, `ubuntu`, `debian`, `l4t`,
    /// and those that `libraries` names.
    image: Expression,
    /// Requirements; `{group}` is replaced by what it captured, and a specifier with an empty one is left out.
    #[serde(default)]
    libraries: Vec<String>,
    /// By the group `release`: what the tag does not say itself.
    #[serde(default)]
    releases: BTreeMap<String, Release>,
    examples: Vec<String>,
    #[allow(dead_code, reason = "for readers of the file")]
    source: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    cuda: String,
    python: String,
    ubuntu: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OsRule {
    /// On the package's name.
    pub package: Expression,
    /// What it is called now.
    #[serde(default)]
    pub now: Vec<String>,
    /// Why it is left out.
    #[serde(default)]
    pub left: Option<String>,
    /// Whether a reader needs to know that.
    #[serde(default)]
    pub silent: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    pub name: Expression,
    pub why: String,
    /// Whether no reader misses it.
    #[serde(default)]
    pub silent: bool,
}

/// An expression that has to match the whole of a text.
#[derive(Debug, Clone)]
pub struct Expression(Regex);

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let whole = format!("^(?:{text})$");
        Regex::new(&whole)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

impl Expression {
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// What the name of a base image says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Based {
    pub cuda: Option<String>,
    pub python: Option<String>,
    pub os: Option<Os>,
    pub l4t: Option<String>,
    pub libraries: Vec<String>,
}

impl Known {
    /// Loads the embedded file. An overlay's entries come first, or replace those of the same name.
    ///
    /// # Errors
    /// If the overlay's file is not valid.
    pub fn load(overlay: Option<&Path>) -> Result<Self, CatalogError> {
        let mut all = read(&format!("catalog/{FILE}"), EMBEDDED)?;
        let Some(path) = overlay.map(|dir| dir.join(FILE)) else {
            return Ok(all);
        };
        let content = match std::fs::read(&path) {
            Ok(content) => content,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(all),
            Err(source) => return Err(CatalogError::Read { path, source }),
        };
        let mut own = read(&path.display().to_string(), &content)?;
        all.torch.prefixes.append(&mut own.torch.prefixes);
        all.torch.libraries.append(&mut own.torch.libraries);
        own.torch.pythons.append(&mut all.torch.pythons);
        all.torch.pythons = own.torch.pythons;
        all.conda_same.append(&mut own.conda_same);
        all.conda.append(&mut own.conda);
        own.images.append(&mut all.images);
        own.os_packages.append(&mut all.os_packages);
        own.commands.append(&mut all.commands);
        own.variables.append(&mut all.variables);
        (all.images, all.os_packages) = (own.images, own.os_packages);
        (all.commands, all.variables) = (own.commands, own.variables);
        Ok(all)
    }

    /// Returns what an address is an index of torch for.
    pub fn torch_index(&self, url: &str) -> Option<TorchIndex> {
        let rest = self
            .torch
            .prefixes
            .iter()
            .find_map(|p| url.strip_prefix(p.as_str()))?;
        let mut parts = rest.split('/').filter(|part| !part.is_empty());
        let label = parts.next().unwrap_or_default();
        let label = if ["nightly", "test"].contains(&label) {
            parts.next().unwrap_or_default()
        } else {
            label
        };
        Some(TorchIndex {
            label: label.to_owned(),
            cuda: self.cuda_of_label(label),
        })
    }

    /// Returns the address of torch's index with that label.
    pub fn torch_address(&self, label: &str) -> Option<String> {
        let first = self.torch.prefixes.first()?;
        Some(format!("{first}{label}"))
    }

    /// Returns the CUDA version of a label: `12.8` of `cu128`.
    pub fn cuda_of_label(&self, label: &str) -> Option<String> {
        let digits = label.strip_prefix("cu")?;
        let plain = digits.len() >= 3 && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| format!("{}.{}", &digits[..2], &digits[2..]))
    }

    /// Returns the newest Python that a release of torch has wheels for. `None` if it is not known, or of today.
    pub fn python_of_torch(&self, torch: &Version) -> Option<PythonVersion> {
        let older = self.torch.pythons.iter().find(|p| *torch < p.before);
        older.map(|p| p.newest)
    }

    /// Whether torch's indexes have builds of that distribution for each CUDA.
    pub fn of_torch(&self, name: &str) -> bool {
        self.torch.libraries.iter().any(|l| l == name)
    }

    /// Returns what a package of conda is. `None` if it is not known.
    pub fn conda(&self, name: &str) -> Option<Conda> {
        let own = self.conda.get(name).cloned();
        let same = || self.conda_same.iter().any(|same| same == name);
        own.or_else(|| same().then(|| Conda::Pypi(name.to_owned())))
    }

    /// Returns what a base image's name says. `None` if it is none that is known.
    pub fn image(&self, reference: &str) -> Option<Based> {
        let name = plain_reference(reference);
        self.images.iter().find_map(|image| image.read(&name))
    }

    /// Whether a stack needs no counterpart of a command.
    pub fn needless(&self, command: &str) -> bool {
        self.commands.iter().any(|c| c.is_match(command))
    }

    /// Returns the rule by which a variable is left out.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|v| v.name.is_match(name))
    }

    pub fn os_package(&self, name: &str) -> Option<&OsRule> {
        self.os_packages
            .iter()
            .find(|rule| rule.package.is_match(name))
    }
}

impl Image {
    fn read(&self, name: &str) -> Option<Based> {
        let found = self.image.0.captures(name)?;
        let group = |group: &str| found.name(group).map(|m| m.as_str().to_owned());
        let os = |id, release: Option<String>| release.map(|release| Os { id, release });
        let mut based = Based {
            cuda: group("cuda"),
            python: group("python"),
            os: os("ubuntu", group("ubuntu")).or(os("debian", group("debian"))),
            l4t: group("l4t"),
            libraries: self.libraries.iter().map(|l| expanded(l, &group)).collect(),
        };
        if let Some(release) = group("release").and_then(|r| self.releases.get(&r)) {
            based.cuda = Some(release.cuda.clone());
            based.python = Some(release.python.clone());
            based.os = os("ubuntu", Some(release.ubuntu.clone()));
        }
        Some(based)
    }
}

/// Fills in groups; a requirement whose group captured nothing is its name alone.
fn expanded(requirement: &str, group: &dyn Fn(&str) -> Option<String>) -> String {
    let Some((before, rest)) = requirement.split_once('{') else {
        return requirement.to_owned();
    };
    let (name, after) = rest.split_once('}').unwrap_or((rest, ""));
    match group(name) {
        Some(value) => format!("{before}{value}{after}"),
        None => before
            .trim_end_matches(['=', '<', '>', '~', '!'])
            .to_owned(),
    }
}

/// Returns an image's name as Docker Hub's are written for short, without a digest.
fn plain_reference(reference: &str) -> String {
    let name = reference.split('@').next().unwrap_or(reference);
    let mut name = name;
    for prefix in [
        "docker.io/",
        "index.docker.io/",
        "registry-1.docker.io/",
        "library/",
    ] {
        name = name.strip_prefix(prefix).unwrap_or(name);
    }
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains(':') {
        name.to_owned()
    } else {
        format!("{name}:latest")
    }
}

fn read(shown: &str, content: &[u8]) -> Result<Known, CatalogError> {
    let known: Known = parse(shown, content)?;
    schema(shown, known.schema)?;
    for image in &known.images {
        if let Some(wrong) = image.examples.iter().find(|e| image.read(e).is_none()) {
            return Err(CatalogError::Inconsistent {
                file: shown.to_owned(),
                message: format!("an expression does not match its example `{wrong}`"),
            });
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_is_read_by_its_own_expression() {
        let known = Known::load(None).unwrap();
        for image in &known.images {
            for example in &image.examples {
                let own = image.read(&plain_reference(example));
                assert_eq!(known.image(example), own, "{example}");
            }
        }
    }

    #[test]
    fn indexes_of_torch_name_their_cuda() {
        let known = Known::load(None).unwrap();
        for (url, label, cuda) in [
            (
                "https://download.pytorch.org/whl/cu128",
                "cu128",
                Some("12.8"),
            ),
            (
                "https://download.pytorch.org/whl/nightly/cu130",
                "cu130",
                Some("13.0"),
            ),
            (
                "https://download.pytorch.org/whl/cu118/torch_stable.html",
                "cu118",
                Some("11.8"),
            ),
            ("https://download.pytorch.org/whl/cpu", "cpu", None),
            ("https://download.pytorch.org/whl", "", None),
        ] {
            let found = known.torch_index(url).unwrap();
            assert_eq!((found.label.as_str(), found.cuda.as_deref()), (label, cuda));
        }
        assert_eq!(known.torch_index("https://pypi.org/simple"), None);
    }

    #[test]
    fn base_images_say_what_they_have() {
        let known = Known::load(None).unwrap();
        let found = known.image("docker.io/nvidia/cuda:12.1.1-cudnn8-devel-ubuntu22.04@sha256:00");
        let found = found.unwrap();
        assert_eq!(found.cuda.as_deref(), Some("12.1"));
        assert_eq!(
            found.os,
            Some(Os {
                id: "ubuntu",
                release: "22.04".into()
            })
        );
        let found = known
            .image("pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime")
            .unwrap();
        assert_eq!(found.libraries, ["torch==2.3.1"]);
        assert_eq!(known.image("vllm/vllm-openai").unwrap().libraries, ["vllm"]);
        assert_eq!(known.image("alpine:3"), None);
    }
}
