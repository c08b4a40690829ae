//! Reads what a source distribution says of itself, without running anything of it.
//!
//! In: the archive. Out: its requirements, what its build requires, and whether it has code to compile. The
//! requirements are those that a build cannot change (PEP 643, PEP 621); else those that setuptools wrote
//! beside them when the archive was made, or those that a setup.py names literally. A build's wheel is compared with what was locked, so that an archive
//! that speaks otherwise of itself is found.

use crate::offer::Releases;
use flate2::bufread::MultiGzDecoder;
use pep440_rs::Version;
use pep508_rs::{Requirement, VerbatimUrl};
use stackforge_binary::source::{FileSource, bytes};
use stackforge_binary::tar;
use stackforge_binary::zip::{Archive, ZipError};
use stackforge_stack::catalog::StaticMetadata;
use stackforge_stack::lock::PythonFile;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::str::FromStr;

/// Most bytes that an archive unpacks to. The largest known has 3 GB.
const MOST: u64 = 8 << 30;
/// Longest text that is read, in bytes.
const LONGEST: u64 = 4 << 20;

/// What a build backend without `build-system` requires. setup.py files of before PEP 517 import `pkg_resources`,
/// which setuptools 82 lacks.
const LEGACY: [&str; 2] = ["setuptools<81", "wheel"];

/// Endings of files that a build compiles.
const COMPILED: [&str; 12] = [
    "c", "cc", "cpp", "cxx", "cu", "cuh", "pyx", "f", "f90", "rs", "m", "swg",
];

/// A source distribution that is to be built.
#[derive(Debug, Clone)]
pub(super) struct Sdist {
    pub file: PythonFile,
    pub metadata: SdistMetadata,
    /// The releases that have a wheel, where the stack pins one that has none.
    pub wheels: Option<Releases>,
}

/// Source distributions by name.
pub(super) type Sdists = BTreeMap<String, Sdist>;

#[derive(Debug, Clone)]
pub(super) struct SdistMetadata {
    pub dependencies: StaticMetadata,
    pub build_requires: Vec<String>,
    /// Whether there is code to compile.
    pub compiles: bool,
    /// What its build fetches.
    pub fetches: Option<Fetched>,
}

/// What a build fetches by itself, which it cannot: builds have no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetched {
    /// Crates: it is compiled with Rust, and does not have them.
    Crates,
    /// Its own wheel, from another index: the source is a stub.
    Wheel,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SdistError {
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("its archive is of another kind than .tar.gz and .zip")]
    Kind,
    #[error("it cannot be read: {0}")]
    Zip(#[from] ZipError),
    #[error("its pyproject.toml cannot be read: {0}")]
    Project(String),
    #[error("it says that it requires `{0}`, which is no requirement")]
    Requirement(String),
}

/// Texts of an archive by their path below its folder.
#[derive(Debug, Default)]
struct Texts {
    by_path: BTreeMap<String, String>,
    compiles: bool,
    /// Whether there are other people's crates.
    has_crates: bool,
}

/// Reads an archive.
pub(super) fn read(file: &str, path: &Path) -> Result<SdistMetadata, SdistError> {
    let texts = if file.ends_with(".tar.gz") || file.ends_with(".tgz") {
        of_tar(path)?
    } else if file.ends_with(".zip") {
        of_zip(file, path)?
    } else {
        return Err(SdistError::Kind);
    };
    texts.metadata()
}

fn of_tar(path: &Path) -> Result<Texts, SdistError> {
    let gz = MultiGzDecoder::new(BufReader::new(File::open(path)?));
    let mut reader = tar::Reader::new(gz.take(MOST));
    let mut texts = Texts::default();
    while let Some(mut entry) = reader.next().map_err(std::io::Error::other)? {
        let path = entry.header.path.clone();
        if let Some(below) = texts.text(&path)
            && entry.header.size <= LONGEST
        {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            texts.add(below, &bytes);
        }
    }
    Ok(texts)
}

fn of_zip(file: &str, path: &Path) -> Result<Texts, SdistError> {
    let mut source = FileSource::open(path)?;
    let archive = Archive::read(file, &mut source)?;
    let mut texts = Texts::default();
    for member in &archive.members {
        if let Some(below) = texts.text(&member.name)
            && member.size <= LONGEST
        {
            let mut content = archive.open(member, &mut source)?;
            let text = bytes(&mut content, 0, member.size).map_err(std::io::Error::other)?;
            texts.add(below, &text);
        }
    }
    Ok(texts)
}

/// Returns what a wheel's METADATA says.
pub(super) fn of_wheel(text: &str) -> SdistMetadata {
    let info = Info::of(text);
    SdistMetadata {
        dependencies: StaticMetadata {
            requires_python: info.requires_python,
            requires_dist: info.requires,
        },
        build_requires: Vec::new(),
        compiles: false,
        fetches: None,
    }
}

impl Texts {
    /// Takes note of a file. Returns its path below the archive's folder, if its text is to be read.
    fn text<'p>(&mut self, path: &'p str) -> Option<&'p str> {
        let (_, below) = path.split_once('/')?;
        let (folder, name) = below.rsplit_once('/').unwrap_or(("", below));
        let shipped = !["test", "doc", "example", "bench"]
            .iter()
            .any(|word| folder.starts_with(word));
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        self.compiles |= shipped && COMPILED.contains(&ending);
        let vendored = folder.split('/').any(|part| part == "vendor");
        self.has_crates |= vendored && name == "Cargo.toml";
        let is_text = ["PKG-INFO", "pyproject.toml", "setup.py"].contains(&below)
            || below.ends_with(".egg-info/requires.txt");
        is_text.then_some(below)
    }

    fn add(&mut self, below: &str, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        self.by_path.insert(below.to_owned(), text);
    }

    fn metadata(&self) -> Result<SdistMetadata, SdistError> {
        let text = |name: &str| self.by_path.get(name).map(String::as_str);
        let project = match text("pyproject.toml") {
            Some(text) => Some(
                text.parse::<toml::Table>()
                    .map_err(|e| SdistError::Project(e.message().to_owned()))?,
            ),
            None => None,
        };
        let info = Info::of(text("PKG-INFO").unwrap_or_default());
        let setup = text("setup.py").unwrap_or_default();
        let beside = self.by_path.iter();
        let mut beside = beside.filter(|(path, _)| path.ends_with("requires.txt"));
        let requires_dist = if info.is_fixed() {
            info.requires.clone()
        } else if let Some(requires) = project.as_ref().and_then(of_project) {
            requires
        } else if let Some((_, text)) = beside.next() {
            of_setuptools(text)
        } else if info.requires.is_empty() {
            let named = of_setup(setup, "install_requires").into_iter();
            named.filter(|line| is_requirement(line)).collect()
        } else {
            info.requires.clone()
        };
        let requires_dist: Result<Vec<String>, SdistError> =
            requires_dist.into_iter().filter_map(requirement).collect();
        let requires_dist = requires_dist?;
        let build = project.as_ref().and_then(|p| p.get("build-system"));
        let requires = build.and_then(|b| strings(b.get("requires")?));
        let mut requires = requires.unwrap_or_else(|| LEGACY.map(str::to_owned).to_vec());
        let backend = build.and_then(|b| b.get("build-backend")?.as_str());
        requires.extend(of_backend(backend.unwrap_or_default()));
        requires.extend(of_setup(setup, "setup_requires"));
        let of_rust = requires.iter().any(|line| is_for_rust(line));
        let is_stub = backend.is_some_and(|b| b.starts_with("wheel_stub")) || runs_pip(setup);
        let fetches = if is_stub {
            Some(Fetched::Wheel)
        } else {
            (of_rust && !self.has_crates).then_some(Fetched::Crates)
        };
        Ok(SdistMetadata {
            dependencies: StaticMetadata {
                requires_python: info.requires_python.clone(),
                requires_dist,
            },
            build_requires: requires,
            compiles: self.compiles,
            fetches,
        })
    }
}

/// Whether a setup.py installs from an index of its own, as that of tensorrt 8.6.1 does.
fn runs_pip(setup: &str) -> bool {
    let setup = setup.replace('\'', "\"");
    let words = ["\"pip\"", "\"install\"", "index-url"];
    words.iter().all(|word| setup.contains(word))
}

fn is_requirement(text: &str) -> bool {
    Requirement::<VerbatimUrl>::from_str(text).is_ok()
}

/// Whether a requirement of a build is what compiles Rust.
fn is_for_rust(requirement: &str) -> bool {
    let requirement = Requirement::<VerbatimUrl>::from_str(requirement);
    requirement.is_ok_and(|r| ["maturin", "setuptools-rust"].contains(&r.name.as_ref()))
}

/// Fields of `PKG-INFO`.
#[derive(Debug, Default)]
struct Info {
    version: Option<Version>,
    requires: Vec<String>,
    requires_python: Option<String>,
    dynamic: Vec<String>,
}

impl Info {
    fn of(text: &str) -> Self {
        let mut out = Self::default();
        // The description follows an empty line.
        for line in text.lines().take_while(|line| !line.is_empty()) {
            let Some((key, value)) = line.split_once(": ") else {
                continue;
            };
            let value = value.trim();
            match key {
                "Metadata-Version" => out.version = Version::from_str(value).ok(),
                "Requires-Dist" => out.requires.push(value.to_owned()),
                "Requires-Python" => out.requires_python = Some(value.to_owned()),
                "Dynamic" => out.dynamic.push(value.to_lowercase()),
                _ => {}
            }
        }
        out
    }

    /// Whether a build must not change the requirements (PEP 643).
    fn is_fixed(&self) -> bool {
        let says = |name: &str| self.dynamic.iter().any(|d| d == name);
        let new = self
            .version
            .as_ref()
            .is_some_and(|v| *v >= Version::new([2, 2]));
        new && !says("requires-dist") && !says("provides-extra")
    }
}

fn strings(value: &toml::Value) -> Option<Vec<String>> {
    let items = value.as_array()?.iter();
    items.map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Returns the requirements in `[project]`, if they are there and not dynamic.
fn of_project(project: &toml::Table) -> Option<Vec<String>> {
    let project = project.get("project")?.as_table()?;
    let dynamic = project.get("dynamic").and_then(strings).unwrap_or_default();
    if dynamic
        .iter()
        .any(|d| d == "dependencies" || d == "optional-dependencies")
    {
        return None;
    }
    let mut out = match project.get("dependencies") {
        Some(list) => strings(list)?,
        None => Vec::new(),
    };
    let optional = project
        .get("optional-dependencies")
        .and_then(|o| o.as_table());
    for (extra, list) in optional.into_iter().flatten() {
        for requirement in strings(list)? {
            out.push(with_marker(&requirement, Some(extra), None));
        }
    }
    Some(out)
}

/// Returns a requirement as PEP 508 has it. Archives of before it have `>=1.*`, which pip took for `>=1`.
/// `None` for what an extra requires and nobody can read.
fn requirement(text: String) -> Option<Result<String, SdistError>> {
    if is_requirement(&text) {
        return Some(Ok(text));
    }
    let (asked, marker) = text.split_once(';').unwrap_or((&text, ""));
    let clauses: Vec<String> = asked
        .split(',')
        .map(|clause| {
            let ordered = clause.contains(['<', '>']);
            let plain = if ordered {
                clause.replace(".*", "")
            } else {
                clause.to_owned()
            };
            plain.trim().to_owned()
        })
        .filter(|clause| !clause.is_empty())
        .collect();
    let mut plain = clauses.join(",");
    if !marker.is_empty() {
        plain = format!("{plain} ;{marker}");
    }
    if is_requirement(&plain) {
        Some(Ok(plain))
    } else if text.contains("extra ==") {
        None
    } else {
        Some(Err(SdistError::Requirement(text)))
    }
}

/// Returns the requirements in setuptools' `requires.txt`: lines, and sections `[extra:marker]`.
fn of_setuptools(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let (mut extra, mut marker) = (None, None);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let (name, condition) = section.split_once(':').unwrap_or((section, ""));
            extra = Some(name.to_owned()).filter(|n| !n.is_empty());
            marker = Some(condition.to_owned()).filter(|m| !m.is_empty());
        } else {
            out.push(with_marker(line, extra.as_deref(), marker.as_deref()));
        }
    }
    out
}

/// Returns what a backend asks for only when it is asked (PEP 517, `get_requires_for_build_wheel`).
fn of_backend(backend: &str) -> Vec<String> {
    let names: &[&str] = match backend.split(['.', ':']).next().unwrap_or(backend) {
        "scikit_build_core" => &["cmake", "ninja"],
        "mesonpy" => &["ninja"],
        _ => &[],
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the literal strings of `KEY=[…]` in a setup.py, up to what is not literal: of `setup_requires`, which setuptools
/// would fetch while it builds, and `install_requires`, which distutils does not write into an archive.
fn of_setup(setup: &str, key: &str) -> Vec<String> {
    let mut out = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let list = setup
        .match_indices(key)
        .filter(|(at, _)| !setup[..*at].ends_with(is_word))
        .find_map(|(at, _)| setup[at + key.len()..].trim_start().strip_prefix('='));
    let Some(mut rest) = list.and_then(|list| list.trim_start().strip_prefix(['[', '('])) else {
        return out;
    };
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if let Some(comment) = rest.strip_prefix('#') {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
            continue;
        }
        let quote = rest.chars().next().filter(|c| ['"', '\''].contains(c));
        let literal = quote.and_then(|quote| rest[1..].split_once(quote));
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.<>=!~ ;,[]()'\"".contains(c);
        match literal {
            Some((literal, after)) if !literal.is_empty() && literal.chars().all(plain) => {
                out.push(literal.to_owned());
                rest = after;
            }
            _ => return out,
        }
    }
}

/// Adds conditions to a requirement, which may have one of its own.
fn with_marker(requirement: &str, extra: Option<&str>, marker: Option<&str>) -> String {
    // A direct address ends at white space, others have no semicolon but before the condition.
    let cut = if requirement.contains('@') { " ;" } else { ";" };
    let (what, own) = match requirement.split_once(cut) {
        Some((what, own)) => (what.trim(), Some(own.trim())),
        None => (requirement.trim(), None),
    };
    let mut conditions: Vec<String> = [own, marker]
        .into_iter()
        .flatten()
        .map(|condition| format!("({condition})"))
        .collect();
    conditions.extend(extra.map(|extra| format!("extra == \"{extra}\"")));
    match conditions.as_slice() {
        [] => what.to_owned(),
        some => format!("{what} ; {}", some.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;
    use stackforge_binary::tar::{Attributes, Format, Writer};

    fn read_of(files: &[(&str, &str)]) -> SdistMetadata {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let gz = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
        let mut archive = Writer::new(Format::UstarOldFiles, gz);
        for (name, text) in files {
            let attributes = Attributes::new(0o644);
            let size = text.len() as u64;
            archive
                .file(&format!("x-1/{name}"), attributes, size, text.as_bytes())
                .unwrap();
        }
        archive.finish().unwrap().finish().unwrap();
        read("x-1.tar.gz", &path).unwrap()
    }

    #[test]
    fn what_a_build_cannot_change_is_taken_first() {
        let info = "Metadata-Version: 2.2\nName: x\nRequires-Python: >=3.8\nRequires-Dist: a>=1\n\nRequires-Dist: no\n";
        let project = "[build-system]\nrequires = ['hatchling']\n[project]\nname = 'x'\ndependencies = ['b']\n";
        let x = read_of(&[
            ("PKG-INFO", info),
            ("pyproject.toml", project),
            ("x/__init__.py", ""),
        ]);
        assert_eq!(x.dependencies.requires_dist, ["a>=1"]);
        assert_eq!(x.dependencies.requires_python.as_deref(), Some(">=3.8"));
        assert_eq!(x.build_requires, ["hatchling"]);
        assert!(!x.compiles);
        let dynamic = info.replace("Name: x", "Name: x\nDynamic: Requires-Dist");
        let x = read_of(&[("PKG-INFO", &dynamic), ("pyproject.toml", project)]);
        assert_eq!(x.dependencies.requires_dist, ["b"]);
    }

    #[test]
    fn setuptools_wrote_what_setup_py_says() {
        let requires = "numpy>=1.2\n\n[:python_version < \"3.9\"]\ntyping\n\n[fast:sys_platform == \"linux\"]\nuvloop\n[doc]\nsphinx; os_name == 'posix'\n";
        let x = read_of(&[
            ("PKG-INFO", "Metadata-Version: 1.1\nName: x\n"),
            ("setup.py", "import this\n"),
            ("src/x.egg-info/requires.txt", requires),
            ("csrc/x.cpp", ""),
        ]);
        let expected = [
            "numpy>=1.2",
            "typing ; (python_version < \"3.9\")",
            "uvloop ; (sys_platform == \"linux\") and extra == \"fast\"",
            "sphinx ; (os_name == 'posix') and extra == \"doc\"",
        ];
        assert_eq!(x.dependencies.requires_dist, expected);
        assert_eq!(x.build_requires, ["setuptools<81", "wheel"]);
        assert!(x.compiles);
    }

    #[test]
    fn what_is_compiled_with_rust_fetches_crates_unless_it_has_them() {
        let project = "[build-system]\nrequires = ['setuptools', 'setuptools_rust>=1.3']\n";
        let rust = [("pyproject.toml", project), ("Cargo.toml", "[package]")];
        assert_eq!(read_of(&rust).fetches, Some(Fetched::Crates));
        let vendored = [rust[0], ("rust/vendor/libc/Cargo.toml", "[package]")];
        assert_eq!(read_of(&vendored).fetches, None);
        let other = [
            (
                "pyproject.toml",
                "[build-system]\nrequires = ['setuptools']\n",
            ),
            rust[1],
        ];
        assert_eq!(read_of(&other).fetches, None);
    }

    /// As in tensorrt-cu13-libs 11.4.0.106 and tensorrt 8.6.1.
    #[test]
    fn stubs_fetch_their_wheels() {
        let project =
            "[build-system]\nrequires = ['wheel-stub']\nbuild-backend = 'wheel_stub.buildapi'\n";
        let stub = read_of(&[("pyproject.toml", project)]);
        assert_eq!(stub.fetches, Some(Fetched::Wheel));
        let setup = |text: &str| read_of(&[("setup.py", text)]).fetches;
        let runs =
            "sp.run([sys.executable, '-m', 'pip', 'install', 'x_libs', '--index-url', INDEX])";
        assert_eq!(setup(runs), Some(Fetched::Wheel));
        assert_eq!(setup("setup(name='pip', cmdclass={'install': I})"), None);
    }

    #[test]
    fn requirements_that_nobody_can_read_are_named_or_read_as_pip_did() {
        let of = |text: &str| requirement(text.to_owned());
        let read = |text: &str| of(text).unwrap().unwrap();
        assert_eq!(read("six (>=1.0)"), "six (>=1.0)");
        assert_eq!(
            read("six>=1.*,<2.*, ; os_name == 'posix'"),
            "six>=1,<2 ; os_name == 'posix'"
        );
        let why = of("python_version>\"3.7\"")
            .unwrap()
            .unwrap_err()
            .to_string();
        assert_eq!(
            why,
            "it says that it requires `python_version>\"3.7\"`, which is no requirement"
        );
        assert!(of("a b c ; extra == \"docs\"").is_none());
    }

    #[test]
    fn what_setup_py_would_fetch_is_required() {
        let of = |text: &str| of_setup(text, "setup_requires");
        assert_eq!(
            of("setup(\n  setup_requires = [\n 'nose', \"numpy>=1.2\" ],\n)"),
            ["nose", "numpy>=1.2"]
        );
        assert_eq!(of("setup(setup_requires=needs, x=[1])"), [""; 0]);
        assert_eq!(of("setup_requires=['a b@c', f'x']"), [""; 0]);
        let more = "my_setup_requires=['x'] setup_requires=( # two\n'a[b]>=1,<2', # 'c'\n 'd', e)";
        assert_eq!(of(more), ["a[b]>=1,<2", "d"]);
    }

    #[test]
    fn what_distutils_does_not_write_down_is_read_in_setup_py() {
        let setup = "setup(name='pybars4', install_requires=['PyMeta3>=0.5.1', 'x y z', 'a'])";
        let x = read_of(&[("PKG-INFO", "Metadata-Version: 1.1\n"), ("setup.py", setup)]);
        assert_eq!(x.dependencies.requires_dist, ["PyMeta3>=0.5.1", "a"]);
        let beside = ("x.egg-info/requires.txt", "b\n");
        let x = read_of(&[("setup.py", setup), beside]);
        assert_eq!(x.dependencies.requires_dist, ["b"]);
        let fixed = "Metadata-Version: 2.2\nName: x\n";
        let x = read_of(&[("PKG-INFO", fixed), ("setup.py", setup)]);
        assert_eq!(x.dependencies.requires_dist, [""; 0]);
    }

    proptest! {
        #[test]
        fn no_text_panics(info in "\\PC{0,200}", requires in "[\\[\\]a-z:;@ \n]{0,80}") {
            let _ = Info::of(&info);
            let _ = of_setup(&info, "setup_requires");
            for line in of_setuptools(&requires) {
                prop_assert!(!line.contains('\n'));
            }
        }
    }
}
