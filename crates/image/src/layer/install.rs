//! Decides which files a wheel installs, by the specification of binary distributions.
//!
//! In: a [`Wheel`], the image's directories and its interpreter. Out: files with paths below the root, modes
//! and contents; RECORD's content is known only after all else was read. Where the specification leaves a
//! choice, the files are those that pip installs.

use std::collections::BTreeMap;

use super::cut::Changed;
use super::error::WheelFault;
use super::record;
use super::scheme::Scheme;
use super::wheel::Wheel;
use super::{LayerError, scripts};
use stackforge_binary::source::Source;
use stackforge_binary::zip::Member;

const MAX_SCRIPT: u64 = 16 << 20;
const IFMT: u16 = 0o170_000;
const IFREG: u16 = 0o100_000;
/// Files that only an installer writes. A wheel that came from an index has no `direct_url.json`.
const INSTALLERS: [&str; 4] = ["INSTALLER", "REQUESTED", "RECORD", "direct_url.json"];
const INSTALLER: &str = "stackforge\n";

/// A wheel to install, and how.
pub struct Install<'a, S> {
    /// The wheel.
    pub wheel: &'a Wheel<S>,
    /// Whether it was asked for by name, and not only required by another wheel.
    pub requested: bool,
    /// Files to leave out, by their names in the wheel: `*` and `?` match within a folder, `**` across
    /// folders. Metadata files stay, whatever a pattern matches.
    pub drop: &'a [String],
    /// Members with a replaced content of the same size, by their names in the wheel.
    pub changed: &'a BTreeMap<String, Changed>,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    /// Indexes of the wheel and of the member in its directory.
    Member(usize, usize),
    Bytes(Vec<u8>),
    Record,
}

#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub path: String,
    pub mode: u32,
    pub size: u64,
    pub content: Content,
    /// Index of the member whose bytes it has unchanged.
    pub member: Option<usize>,
}

pub(super) struct Plan<'a> {
    pub scheme: &'a Scheme,
    /// Absolute path of the interpreter.
    pub python: &'a str,
}

impl Plan<'_> {
    /// The directory that RECORD's paths are relative to, below the root.
    pub(super) fn site_packages<S>(&self, wheel: &Wheel<S>) -> &str {
        let site = if wheel.pure {
            &self.scheme.purelib
        } else {
            &self.scheme.platlib
        };
        site.trim_start_matches('/')
    }

    /// The files of the wheel with index `place`; RECORD is the last.
    pub(super) fn files<S: Source + Clone>(
        &self,
        install: &Install<'_, S>,
        place: usize,
    ) -> Result<Vec<Placed>, LayerError> {
        let wheel = install.wheel;
        let drop = Drop::parse(install.drop)?;
        let metadata = wheel.metadata("");
        let mut files = Vec::new();
        for (index, member) in wheel.archive.members.iter().enumerate() {
            if member.is_folder() {
                continue;
            }
            match member.name.strip_prefix(&metadata) {
                Some(own) if INSTALLERS.contains(&own) => continue,
                None if drop.matches(&member.name) => continue,
                _ => files.push(self.member(wheel, (place, index), member)?),
            }
        }
        let root = self.site_packages(wheel);
        for command in &wheel.commands {
            let folder = self.scheme.scripts.trim_start_matches('/');
            let path = format!("{folder}/{}", command.name);
            // Like pip, which writes these last.
            files.retain(|f| f.path != path);
            files.push(bytes(path, 0o755, command.script(self.python)));
        }
        let own = |file: &str| format!("{root}/{metadata}{file}");
        files.push(bytes(own("INSTALLER"), 0o644, INSTALLER.into()));
        if install.requested {
            files.push(bytes(own("REQUESTED"), 0o644, Vec::new()));
        }
        files.push(Placed {
            content: Content::Record,
            ..bytes(own("RECORD"), 0o644, Vec::new())
        });
        let own = format!("{root}/{metadata}");
        for file in &files {
            self.check_path(&file.path)
                .map_err(|fault| wheel.fault(fault))?;
            if is_metadata(&file.path) && !file.path.starts_with(&own) {
                return Err(wheel.fault(WheelFault::Foreign(file.path.clone())));
            }
        }
        Ok(files)
    }

    fn member<S: Source + Clone>(
        &self,
        wheel: &Wheel<S>,
        (place, index): (usize, usize),
        member: &Member,
    ) -> Result<Placed, LayerError> {
        let (path, script) = self.path(wheel, &member.name)?;
        // Executable by pip's rule. A script always is, even if the archive has no modes.
        let executable =
            (member.unix_mode).is_some_and(|mode| mode & IFMT == IFREG && mode & 0o111 != 0);
        let mode = if executable || script { 0o755 } else { 0o644 };
        if script && scripts::asks_for_python(&wheel.start(member, 8)?) {
            let content = wheel.read(member, MAX_SCRIPT)?;
            wheel.check_record(member, &record::sha256(&content))?;
            return Ok(bytes(
                path,
                mode,
                scripts::with_python(&content, self.python),
            ));
        }
        Ok(Placed {
            path,
            mode,
            size: member.size,
            content: Content::Member(place, index),
            member: Some(index),
        })
    }

    /// The path that a member is installed to, and whether it is a script.
    fn path<S: Source + Clone>(
        &self,
        wheel: &Wheel<S>,
        name: &str,
    ) -> Result<(String, bool), LayerError> {
        let (first, rest) = name.split_once('/').unwrap_or((name, ""));
        let Some(stem) = first.strip_suffix(".data").filter(|_| !rest.is_empty()) else {
            return Ok((format!("{}/{name}", self.site_packages(wheel)), false));
        };
        let (distribution, _) = wheel.stem.split_once('-').unwrap_or((&wheel.stem, ""));
        let (part, file) = rest.split_once('/').unwrap_or((rest, ""));
        let folder = (self.scheme.part(part, distribution))
            .filter(|_| stem.eq_ignore_ascii_case(&wheel.stem) && !file.is_empty())
            .ok_or_else(|| wheel.fault(WheelFault::Part(name.to_owned())))?;
        Ok((format!("{folder}/{file}"), part == "scripts"))
    }

    fn check_path(&self, path: &str) -> Result<(), WheelFault> {
        // Whiteouts remove files of lower layers (OCI image specification, layers). eStargz's own names are
        // at the root, where no directory of a scheme is.
        if path.split('/').any(|part| part.starts_with(".wh.")) {
            return Err(WheelFault::Reserved(path.to_owned()));
        }
        // A file in place of a parent of one of the scheme's directories would remove that directory too.
        let above = |below: &str| below.trim_matches('/').starts_with(&format!("{path}/"));
        let scheme = self.scheme;
        let kept = [
            self.python,
            &scheme.scripts,
            &scheme.data,
            &scheme.purelib,
            &scheme.platlib,
        ];
        let ancestors = path.match_indices('/').map(|(end, _)| &path[..end]);
        if kept.into_iter().any(above)
            || kept[1..]
                .iter()
                .any(|folder| folder.trim_matches('/') == path)
            || ancestors
                .chain([path])
                .any(|path| self.is_interpreter(path))
        {
            return Err(WheelFault::Interpreter(path.to_owned()));
        }
        Ok(())
    }

    /// Whether a file is the interpreter, another name of it, or what tells it where its library is
    /// (`pyvenv.cfg`, `lib64`).
    fn is_interpreter(&self, path: &str) -> bool {
        let below = |folder: &str| {
            let folder = folder.trim_matches('/');
            path.strip_prefix(folder)?.strip_prefix('/')
        };
        let version = |name: &str| match name.strip_prefix("python") {
            Some("" | "3") => true,
            Some(rest) => rest.strip_prefix("3.").is_some_and(|minor| {
                !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit())
            }),
            None => false,
        };
        let own = self
            .python
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder);
        self.python.strip_prefix('/') == Some(path)
            || [own, &self.scheme.scripts]
                .into_iter()
                .filter_map(below)
                .any(version)
            || matches!(below(&self.scheme.data), Some("pyvenv.cfg" | "lib64"))
    }
}

/// Whether a path is part of a distribution's metadata, where `importlib.metadata` looks for it.
fn is_metadata(path: &str) -> bool {
    let below = path.rsplit_once("/site-packages/").map(|(_, below)| below);
    let first = below.and_then(|below| below.split_once('/'));
    first.is_some_and(|(folder, _)| folder.ends_with(".dist-info"))
}

fn bytes(path: String, mode: u32, content: Vec<u8>) -> Placed {
    Placed {
        path,
        mode,
        size: content.len() as u64,
        content: Content::Bytes(content),
        member: None,
    }
}

/// The patterns of files to leave out.
struct Drop(Vec<glob::Pattern>);

impl Drop {
    fn parse(patterns: &[String]) -> Result<Self, LayerError> {
        let parse = |pattern: &String| {
            glob::Pattern::new(pattern).map_err(|error| LayerError::Pattern {
                pattern: pattern.clone(),
                why: error.msg.to_owned(),
            })
        };
        patterns
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn matches(&self, name: &str) -> bool {
        let how = glob::MatchOptions {
            require_literal_separator: true,
            ..glob::MatchOptions::new()
        };
        self.0.iter().any(|pattern| pattern.matches_with(name, how))
    }
}
