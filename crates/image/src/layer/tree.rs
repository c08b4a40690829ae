//! Merges the files of several wheels into one tree.
//!
//! In: each wheel's files. Out: folders and files by path. Files with the same path and content, such as the
//! `__init__.py` of a namespace, are stored once and every RECORD lists them, as after pip. Different
//! contents are an error, where pip silently keeps what it installed last, but for files that belong to no
//! distribution or only declare a namespace: of these the first wheel's stays.

use std::collections::{BTreeMap, BTreeSet};

use super::LayerError;
use super::error::WheelFault;
use super::install::{Content, Install, Placed};
use super::namespace;
use super::record::{self, Sha256};
use stackforge_binary::source::Source;

#[derive(Debug)]
pub(super) struct File {
    pub mode: u32,
    pub size: u64,
    pub content: Content,
    /// Indexes of the wheels that contain the file, each with the member that it copies, if any.
    pub owners: Vec<(usize, Option<usize>)>,
}

#[derive(Debug, Default)]
pub(super) struct Tree {
    pub folders: BTreeSet<String>,
    pub files: BTreeMap<String, File>,
}

impl Tree {
    /// Adds a wheel's files. `is_nobodys` says which paths may differ between wheels.
    pub(super) fn add<S: Source + Clone>(
        &mut self,
        place: usize,
        files: Vec<Placed>,
        installs: &[Install<'_, S>],
        is_nobodys: &dyn Fn(&str) -> bool,
    ) -> Result<(), LayerError> {
        for placed in files {
            self.add_folders(&placed.path);
            let Some(file) = self.files.get_mut(&placed.path) else {
                let file = File {
                    mode: placed.mode,
                    size: placed.size,
                    content: placed.content,
                    owners: vec![(place, placed.member)],
                };
                self.files.insert(placed.path, file);
                continue;
            };
            let known = sha256(&file.content, installs)?;
            let same = known.is_some() && known == sha256(&placed.content, installs)?;
            let of_another = file.owners.iter().all(|(owner, _)| *owner != place);
            let may_differ = || -> Result<bool, LayerError> {
                Ok(is_nobodys(&placed.path)
                    || declares_namespace(&placed.path, &file.content, installs)?
                        && declares_namespace(&placed.path, &placed.content, installs)?)
            };
            if !same && of_another && may_differ()? {
                continue;
            }
            if !same {
                return Err(collision(file, place, &placed, installs));
            }
            file.mode |= placed.mode;
            file.owners.push((place, placed.member));
        }
        Ok(())
    }

    /// Adds a file of no wheel, in place of one of that path.
    pub(super) fn add_file(&mut self, path: String, file: File) {
        self.add_folders(&path);
        self.files.insert(path, file);
    }

    /// Adds the folders above a path.
    fn add_folders(&mut self, mut path: &str) {
        while let Some((folder, _)) = path.rsplit_once('/') {
            if !self.folders.insert(folder.to_owned()) {
                break;
            }
            path = folder;
        }
    }

    /// Fails if a path is a file of one wheel and a folder of another.
    pub(super) fn check<S>(&self, installs: &[Install<'_, S>]) -> Result<(), LayerError> {
        let name = |file: &File| {
            let owner = file
                .owners
                .first()
                .and_then(|(place, _)| installs.get(*place));
            owner
                .map(|install| install.wheel.file.clone())
                .unwrap_or_default()
        };
        for (path, file) in &self.files {
            if !self.folders.contains(path) {
                continue;
            }
            let start = format!("{path}/");
            let below = self.files.range(start.clone()..).next();
            let Some((below, other)) = below.filter(|(below, _)| below.starts_with(&start)) else {
                continue;
            };
            return Err(LayerError::FileAndFolder {
                wheel: name(file),
                path: path.clone(),
                other: name(other),
                below: below.clone(),
            });
        }
        Ok(())
    }
}

fn collision<S: Source + Clone>(
    file: &File,
    place: usize,
    placed: &Placed,
    installs: &[Install<'_, S>],
) -> LayerError {
    let path = placed.path.clone();
    let (first, member) = file.owners.first().copied().unwrap_or((place, None));
    let (one, other) = (installs[first].wheel, installs[place].wheel);
    if first != place {
        return LayerError::Collision {
            first: one.file.clone(),
            second: other.file.clone(),
            path,
        };
    }
    let name = |member: Option<usize>| match member {
        Some(member) => one.archive.members[member].name.clone(),
        None => "(made by the installation)".to_owned(),
    };
    one.fault(WheelFault::Twice(name(member), name(placed.member), path))
}

/// Whether a file of a wheel only declares a namespace.
fn declares_namespace<S: Source + Clone>(
    path: &str,
    content: &Content,
    installs: &[Install<'_, S>],
) -> Result<bool, LayerError> {
    let Content::Member(place, member) = content else {
        return Ok(false);
    };
    let wheel = installs[*place].wheel;
    let member = &wheel.archive.members[*member];
    let is_small = path.ends_with("/__init__.py") && member.size <= namespace::LARGEST;
    Ok(is_small && namespace::declares(&wheel.read(member, namespace::LARGEST)?))
}

/// The digest of a known content; a RECORD's is not known yet.
fn sha256<S: Source + Clone>(
    content: &Content,
    installs: &[Install<'_, S>],
) -> Result<Option<Sha256>, LayerError> {
    match content {
        Content::Bytes(bytes) => Ok(Some(record::sha256(bytes))),
        Content::Record => Ok(None),
        Content::Member(place, member) => {
            let wheel = installs[*place].wheel;
            wheel.sha256(&wheel.archive.members[*member]).map(Some)
        }
    }
}
