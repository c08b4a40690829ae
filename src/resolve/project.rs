//! Writes the files and options of one `uv pip compile`.
//!
//! In: requirements and their settings. Out: a directory with the files for uv, and uv's arguments. No
//! package's code ever runs: uv may use only wheels, except for distributions whose metadata is in the files
//! written here.

use super::ResolveError;
use super::answer::ROOT;
use super::direct::DirectFiles;
use super::requirements::{Need, PackageSource};
use flate2::{Compression, write::GzEncoder};
use pep440_rs::Version;
use stackforge_binary::tar::{Attributes, Format, Writer};
use stackforge_stack::catalog::StaticMetadata;
use stackforge_types::wheel::WheelTarget;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// glibc minor versions for which uv has a platform, ascending.
const UV_GLIBC: [u16; 12] = [17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40];

/// The settings that every `uv pip compile` of one lock shares.
#[derive(Debug, Clone)]
pub(super) struct UvSettings {
    pub target: WheelTarget,
    pub overrides: Vec<String>,
    /// (distribution, index) of libraries with an index of their own.
    pub sources: Vec<(String, String)>,
    pub metadata: Vec<Metadata>,
    /// Distributions that are installed only from source.
    pub compiled: Vec<String>,
    /// Whether a release without a wheel will do. Only where uv is told the metadata of all that is asked for.
    pub sdists_too: bool,
    /// Directory with stub sdists for libraries from git.
    pub stubs: Option<PathBuf>,
    /// uv's options for the indexes.
    pub index_options: Vec<String>,
    /// Configuration that ours is added to. Without `own_config`, uv also reads the user's.
    pub config: Table,
    pub own_config: bool,
    pub offline: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Metadata {
    pub distribution: String,
    pub version: Option<Version>,
    pub content: StaticMetadata,
}

/// One question to uv.
#[derive(Debug, Clone, Default)]
pub(super) struct Question {
    pub requirements: Vec<String>,
    pub constraints: Vec<String>,
    /// `name==version` lines to keep if possible.
    pub preferences: Vec<String>,
    pub no_deps: bool,
    /// Whether to ask for the oldest versions of the requirements, not the newest; what they need is the newest.
    pub lowest: bool,
    /// Whether to leave out releases that are not final, but for those that a requirement names. Without it, uv takes
    /// one where no final release goes with the rest.
    pub only_final: bool,
    /// Whether to ask for files and digests instead of versions.
    pub files: bool,
    pub offline: bool,
}

impl UvSettings {
    /// Adds the metadata and stubs of compiled libraries and of files that the stack names.
    pub fn add(
        &mut self,
        needs: &[Need<'_>],
        files: &DirectFiles,
        stubs: &Path,
    ) -> Result<(), ResolveError> {
        for need in needs {
            let Some(file) = files.get(&need.distribution) else {
                continue;
            };
            let version = &file.version;
            let described = need.metadata().into_iter();
            let mut described = described.filter(|(v, _)| v.as_ref().is_none_or(|v| v == version));
            let content = described
                .next()
                .map_or(&file.metadata.dependencies, |(_, m)| m);
            stub(stubs, &need.distribution, version, content)?;
            self.stubs = Some(stubs.to_owned());
            self.compiled.push(need.distribution.clone());
            self.metadata.push(Metadata {
                distribution: need.distribution.clone(),
                version: Some(version.clone()),
                content: content.clone(),
            });
        }
        let in_an_index = |n: &&Need<'_>| n.compiled() && !files.contains_key(&n.distribution);
        for need in needs.iter().filter(in_an_index) {
            let metadata = need.metadata();
            let of = |version: Option<&Version>| {
                metadata
                    .iter()
                    .find(|(v, _)| v.as_ref() == version)
                    .map(|(_, m)| *m)
            };
            if let (PackageSource::Git { .. }, Some(version)) = (&need.source, &need.pinned) {
                // Without static metadata, uv reads that of the index's release of this version.
                let Some(content) = of(Some(version)).or_else(|| of(None)) else {
                    continue;
                };
                stub(stubs, &need.distribution, version, content)?;
                self.stubs = Some(stubs.to_owned());
            }
            self.compiled.push(need.distribution.clone());
            self.metadata
                .extend(metadata.iter().map(|(version, content)| Metadata {
                    distribution: need.distribution.clone(),
                    version: version.clone(),
                    content: (*content).clone(),
                }));
        }
        Ok(())
    }

    /// Writes the question into `dir` and returns uv's arguments. The answer is written to
    /// [`Question::answer`].
    pub fn write(&self, question: &Question, dir: &Path) -> Result<Vec<String>, ResolveError> {
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(|source| ResolveError::Io {
                doing: "write",
                path,
                source,
            })
        };
        write("pyproject.toml", &self.project(question).to_string())?;
        write("uv.toml", &self.configuration().to_string())?;
        let mut arguments: Vec<String> = ["pip", "compile", "pyproject.toml"]
            .map(str::to_owned)
            .into();
        let mut option = |name: &str, value: &str| {
            arguments.extend([name.to_owned(), value.to_owned()]);
        };
        if self.own_config {
            option("--config-file", "uv.toml");
        }
        if !self.overrides.is_empty() {
            write("overrides.txt", &lines(&self.overrides))?;
            option("--overrides", "overrides.txt");
        }
        if !question.constraints.is_empty() {
            write("constraints.txt", &lines(&question.constraints))?;
            option("--constraints", "constraints.txt");
        }
        if !question.preferences.is_empty() {
            write(question.answer(), &lines(&question.preferences))?;
        }
        option("--python-platform", &self.uv_platform());
        option("--python-version", &self.target.python.to_string());
        option(
            "--resolution",
            if question.lowest {
                "lowest-direct"
            } else {
                "highest"
            },
        );
        option(
            "--prerelease",
            if question.only_final {
                "explicit"
            } else {
                "if-necessary-or-explicit"
            },
        );
        if !self.sdists_too {
            option("--only-binary", ":all:");
        }
        for distribution in &self.compiled {
            option("--no-binary", distribution);
        }
        if let Some(stubs) = &self.stubs {
            option("--find-links", &stubs.display().to_string());
        }
        if question.files {
            option("--format", "pylock.toml");
        }
        option("--output-file", question.answer());
        option("--color", "never");
        arguments.extend(self.index_options.iter().cloned());
        let mut flags = vec!["--quiet", "--no-progress", "--no-header"];
        if question.no_deps {
            flags.push("--no-deps");
        }
        if question.offline || self.offline {
            flags.push("--offline");
        }
        arguments.extend(flags.into_iter().map(str::to_owned));
        Ok(arguments)
    }

    /// Returns uv's name of the target's platform. A newer glibc becomes the newest that uv knows.
    fn uv_platform(&self) -> String {
        let machine = self.target.platform.machine();
        let minor = UV_GLIBC.iter().rev().find(|m| **m <= self.target.glibc);
        match minor {
            Some(minor) => format!("{machine}-manylinux_2_{minor}"),
            None => format!("{machine}-manylinux2014"),
        }
    }

    fn project(&self, question: &Question) -> Table {
        let mut project = Table::new();
        project.insert("name".into(), ROOT.into());
        project.insert("version".into(), "0".into());
        project.insert(
            "requires-python".into(),
            format!(">={}", self.target.python).into(),
        );
        project.insert("dependencies".into(), question.requirements.clone().into());
        let mut out = Table::from_iter([("project".to_owned(), Value::Table(project))]);
        let mut sources = Table::new();
        let mut indexes: Vec<Value> = Vec::new();
        for (n, (distribution, url)) in self.sources.iter().enumerate() {
            let name = format!("of-{n}");
            let source = Table::from_iter([("index".to_owned(), Value::from(name.clone()))]);
            sources.insert(distribution.clone(), source.into());
            indexes.push(Value::Table(Table::from_iter([
                ("name".to_owned(), name.into()),
                ("url".to_owned(), url.clone().into()),
                ("explicit".to_owned(), true.into()),
            ])));
        }
        if !indexes.is_empty() {
            let uv = Table::from_iter([
                ("sources".to_owned(), Value::Table(sources)),
                ("index".to_owned(), Value::Array(indexes)),
            ]);
            out.insert(
                "tool".into(),
                Table::from_iter([("uv".to_owned(), Value::Table(uv))]).into(),
            );
        }
        out
    }

    fn configuration(&self) -> Table {
        let entry = |m: &Metadata| {
            let mut entry = Table::new();
            entry.insert("name".into(), m.distribution.clone().into());
            if let Some(version) = &m.version {
                entry.insert("version".into(), version.to_string().into());
            }
            entry.insert(
                "requires-dist".into(),
                m.content.requires_dist.clone().into(),
            );
            if let Some(python) = &m.content.requires_python {
                entry.insert("requires-python".into(), python.clone().into());
            }
            Value::Table(entry)
        };
        let mut out = self.config.clone();
        if !self.metadata.is_empty() {
            let entries: Vec<Value> = self.metadata.iter().map(entry).collect();
            out.insert("dependency-metadata".into(), entries.into());
        }
        out
    }
}

impl Question {
    /// Returns the name of the file with the answer.
    pub fn answer(&self) -> &'static str {
        if self.files {
            "pylock.toml"
        } else {
            "answer.txt"
        }
    }
}

fn lines(items: &[String]) -> String {
    items.iter().fold(String::new(), |mut text, item| {
        text.push_str(item);
        text.push('\n');
        text
    })
}

/// Writes an sdist that contains only metadata, for a release that is not in an index.
pub(super) fn stub(
    dir: &Path,
    distribution: &str,
    version: &Version,
    metadata: &StaticMetadata,
) -> Result<(), ResolveError> {
    let stem = format!("{}-{version}", distribution.replace('-', "_"));
    let mut info = format!("Metadata-Version: 2.2\nName: {distribution}\nVersion: {version}\n");
    if let Some(python) = &metadata.requires_python {
        // Writing to a String cannot fail.
        let _ = writeln!(info, "Requires-Python: {}", one_line(python));
    }
    for requirement in &metadata.requires_dist {
        let _ = writeln!(info, "Requires-Dist: {}", one_line(requirement));
    }
    let path = dir.join(format!("{stem}.tar.gz"));
    let io = |source| ResolveError::Io {
        doing: "write",
        path: path.clone(),
        source,
    };
    std::fs::create_dir_all(dir).map_err(io)?;
    let file = std::fs::File::create(&path).map_err(io)?;
    let mut archive = Writer::new(
        Format::UstarOldFiles,
        GzEncoder::new(file, Compression::fast()),
    );
    let project = "[build-system]\nrequires = []\nbuild-backend = \"none\"\n".to_owned();
    for (name, text) in [("PKG-INFO", info), ("pyproject.toml", project)] {
        let (path, size) = (format!("{stem}/{name}"), text.len() as u64);
        archive
            .file(&path, Attributes::new(0o644), size, text.as_bytes())
            .map_err(io)?;
    }
    let stream = archive.finish().map_err(io)?;
    stream.finish().map_err(io)?;
    Ok(())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn settings() -> UvSettings {
        UvSettings {
            target: WheelTarget {
                python: "3.12".parse().unwrap(),
                platform: stackforge_stack::spec::Platform::LinuxArm64,
                glibc: 41,
            },
            overrides: vec!["certifi>=2026.1".into()],
            sources: vec![("torch".into(), "https://i.test/simple".into())],
            metadata: vec![Metadata {
                distribution: "x".into(),
                version: None,
                content: StaticMetadata {
                    requires_python: None,
                    requires_dist: vec!["torch".into()],
                },
            }],
            compiled: vec!["x".into()],
            sdists_too: false,
            stubs: None,
            index_options: vec![],
            config: Table::new(),
            own_config: false,
            offline: false,
        }
    }

    #[test]
    fn no_build_is_possible_and_the_target_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let question = Question {
            requirements: vec!["torch".into(), "x==1".into()],
            preferences: vec!["torch==2.13.0".into()],
            ..Question::default()
        };
        let arguments = settings().write(&question, dir.path()).unwrap().join(" ");
        for part in [
            "--only-binary :all: --no-binary x",
            "--python-platform aarch64-manylinux_2_40 --python-version 3.12",
            "--overrides overrides.txt",
        ] {
            assert!(arguments.contains(part), "{arguments}");
        }
        let project: Table = read(dir.path(), "pyproject.toml").parse().unwrap();
        assert_eq!(
            project["tool"]["uv"]["sources"]["torch"]["index"].as_str(),
            Some("of-0")
        );
        let config: Table = read(dir.path(), "uv.toml").parse().unwrap();
        assert_eq!(config["dependency-metadata"][0]["name"].as_str(), Some("x"));
        assert_eq!(read(dir.path(), "answer.txt"), "torch==2.13.0\n");
    }

    #[test]
    fn old_glibc_has_a_platform_too() {
        let mut settings = settings();
        settings.target.glibc = 12;
        assert_eq!(settings.uv_platform(), "aarch64-manylinux2014");
        settings.target.glibc = 30;
        assert_eq!(settings.uv_platform(), "aarch64-manylinux_2_28");
    }

    fn read(dir: &Path, name: &str) -> String {
        std::fs::read_to_string(dir.join(name)).unwrap()
    }

    /// The digest was computed before the writer was shared.
    #[test]
    fn the_tar_of_an_sdist_keeps_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let metadata = StaticMetadata {
            requires_python: Some(">=3.10".into()),
            requires_dist: vec!["torch".into()],
        };
        stub(dir.path(), "some-name", &"1.2".parse().unwrap(), &metadata).unwrap();
        let file = std::fs::File::open(dir.path().join("some_name-1.2.tar.gz")).unwrap();
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(file)
            .read_to_end(&mut tar)
            .unwrap();
        assert_eq!(
            stackforge_types::Digest::of(&tar).to_string(),
            "sha256:40fb5158ba4b5cb80b4c8dfdea7391df649f56866f40588957400166e520bc9f"
        );
    }
}
