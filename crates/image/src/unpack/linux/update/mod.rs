//! Builds the tree of an image from earlier trees of the same device ([`TreeUpdate`]).
//!
//! In: the diff IDs of an image's layers, records of earlier trees ([`Record`]), and the tars of the layers
//! that no record knows. Out: the tree that unpacking all layers anew would give. A file of an earlier tree
//! is used only if its inode, size and times are those that the record states: the kernel sets the time of
//! change (ctime), and no program can set it back. It is cloned where the file system can share blocks, and
//! else copied. Only from a tree that is removed anyway it is moved. Never: two trees share an inode, since a
//! program that writes to one of them would write to the other.
//!
//! The layers are merged by their headers. Layers whose merge could differ from unpacking are refused
//! ([`UpdateError::Unclear`]); the caller then unpacks anew.

mod build;
mod earlier;
mod folders;
mod lease;
mod listing;
mod merged;
mod record;
#[cfg(test)]
mod tests;

use super::error::UnpackError;
use super::owner::Owner;
use super::place::Place;
use super::{Attributes, copy};
use crate::oci::OciError;
use earlier::Earlier;
use merged::Merged;
use rustix::fs::{CWD, Mode, OFlags, openat};
use stackforge_binary::tar::{MemberKind, Reader};
use stackforge_types::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

pub use build::Sources;
pub use listing::Listing;
pub use record::Record;

/// Why a tree cannot be built from earlier ones. Unpacking anew may still succeed.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The layers do not say clearly enough which files the image has.
    #[error("what the layers make of each other is not clear: {0}")]
    Unclear(&'static str),
    /// A file of an earlier tree was changed or removed since it was found.
    #[error("`/{0}` changed while it was read")]
    Changed(String),
    /// A layer could not be read or a file not be written.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// A layer's blob cannot be opened.
    #[error(transparent)]
    Layer(#[from] OciError),
    /// The operating system's error.
    #[error("prepare the files")]
    Io(#[from] io::Error),
}

/// A tree under construction. First [`TreeUpdate::stage`] each layer that is not known, then [`TreeUpdate::plan`],
/// then [`TreeUpdate::fill`] what is missing, and [`TreeUpdate::write`].
pub struct TreeUpdate {
    diff_ids: Vec<Digest>,
    listings: Vec<Option<Listing>>,
    earlier: Vec<Earlier>,
    /// Directory for the files of layers that are read, until the tree's own directories are there.
    staged: OwnedFd,
    /// Members whose content is in `staged`.
    contents: BTreeSet<(usize, usize)>,
    merged: Option<Merged>,
    owner: Owner,
}

/// A directory whose files may be used, and its record.
pub struct Tree<'a> {
    /// The directory.
    pub path: &'a Path,
    /// What was recorded when it was written.
    pub record: Record,
    /// Whether its files may be moved, because the directory is to be removed.
    pub is_spare: bool,
}

impl TreeUpdate {
    /// Starts the tree of an image with these layers. `staged` is an empty directory on the file system of
    /// the tree. `None` if no earlier tree has one of the layers.
    ///
    /// # Errors
    /// If `staged` cannot be opened.
    pub fn begin(
        diff_ids: &[Digest],
        trees: Vec<Tree<'_>>,
        staged: &Path,
        owner: Owner,
    ) -> Result<Option<Self>, UpdateError> {
        let known = |diff_id: &Digest| {
            let mut records = trees.iter().map(|tree| &tree.record);
            records.find_map(|record| record.listing(diff_id).cloned())
        };
        let listings: Vec<Option<Listing>> = diff_ids.iter().map(known).collect();
        if listings.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut earlier: Vec<Earlier> = trees.into_iter().filter_map(Earlier::open).collect();
        // What is moved costs nothing, so those trees are asked first.
        earlier.sort_by_key(|tree| !tree.is_spare);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let staged = openat(CWD, staged, flags, Mode::empty());
        Ok(Some(Self {
            diff_ids: diff_ids.to_vec(),
            listings,
            earlier,
            staged: staged.map_err(|e| UnpackError::at("open", "the staged files", e))?,
            contents: BTreeSet::new(),
            merged: None,
            owner,
        }))
    }

    /// Whether the members of a layer are known without its tar.
    pub fn knows(&self, layer: usize) -> bool {
        self.listings.get(layer).is_some_and(Option::is_some)
    }

    /// Reads the tar of a layer that is not known.
    ///
    /// # Errors
    /// If the tar is damaged, has too many members, or cannot be written.
    pub fn stage(&mut self, layer: usize, tar: impl Read) -> Result<(), UpdateError> {
        let mut listing = Listing::default();
        self.read(layer, tar, |header, _| {
            listing.add(header);
            true
        })?;
        if !listing.is_complete() {
            return Err(UpdateError::Unclear("a layer has too many members"));
        }
        if let Some(known) = self.listings.get_mut(layer) {
            *known = Some(listing);
        }
        Ok(())
    }

    /// Merges the layers. Returns the members, by layer, that no earlier tree has.
    ///
    /// # Errors
    /// If the merge is not clear, or a layer is not known.
    pub fn plan(&mut self) -> Result<BTreeMap<usize, BTreeSet<usize>>, UpdateError> {
        let listings: Option<Vec<Listing>> = self.listings.iter_mut().map(Option::take).collect();
        let listings = listings.ok_or(UpdateError::Unclear("a layer was not read"))?;
        let merged = Merged::of(listings)?;
        let mut missing: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (layer, member) in merged.contents() {
            if self.contents.contains(&(layer, member)) {
                continue;
            }
            let diff_id = &self.diff_ids[layer];
            let has = |tree: &mut Earlier| tree.find(diff_id, member);
            if !self.earlier.iter_mut().any(has) {
                missing.entry(layer).or_default().insert(member);
            }
        }
        self.merged = Some(merged);
        Ok(missing)
    }

    /// Reads `members` of a layer that [`TreeUpdate::plan`] misses.
    ///
    /// # Errors
    /// If the tar is damaged or the files cannot be written.
    pub fn fill(
        &mut self,
        layer: usize,
        members: &BTreeSet<usize>,
        tar: impl Read,
    ) -> Result<(), UpdateError> {
        self.read(layer, tar, |_, member| members.contains(&member))
    }

    /// Writes the files of a tar that `takes` chooses into `staged`, each under its number.
    fn read(
        &mut self,
        layer: usize,
        tar: impl Read,
        mut takes: impl FnMut(&stackforge_binary::tar::Header, usize) -> bool,
    ) -> Result<(), UpdateError> {
        let mut reader = Reader::new(tar);
        let mut number = 0;
        while let Some(mut entry) = reader.next().map_err(UnpackError::from)? {
            let header = entry.header.clone();
            let member = number;
            number += 1;
            if !takes(&header, member) || header.kind != MemberKind::File {
                continue;
            }
            let place = self.staged((layer, member), &header.path)?;
            let mut file = place.file()?;
            copy(&mut entry, &mut file).map_err(|source| UnpackError::Write {
                path: header.path.clone(),
                source,
            })?;
            place.attributes(Attributes::from(&header), self.owner)?;
            place.xattrs(&header)?;
            self.contents.insert((layer, member));
        }
        Ok(())
    }

    fn staged<'a>(
        &self,
        (layer, member): (usize, usize),
        path: &'a str,
    ) -> Result<Place<'a>, UnpackError> {
        let folder = self.staged.as_fd().try_clone_to_owned();
        let folder = folder.map_err(|source: io::Error| UnpackError::Io {
            doing: "open the staged file of",
            path: path.to_owned(),
            source,
        })?;
        Ok(Place {
            folder,
            name: format!("{layer}-{member}").into_bytes(),
            path,
        })
    }
}
