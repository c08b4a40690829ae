//! The files of an image by the headers of its layers, where that is sure to be what unpacking gives.

use super::super::{DEEPEST, META, OPAQUE, WHITEOUT};
use super::{Listing, UpdateError};
use crate::oci::merge::{Merge, Node};
use stackforge_binary::tar::{Header, MemberKind};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The files of an image.
pub(super) struct Merged {
    /// By path, without directories that no layer lists.
    pub(super) nodes: BTreeMap<String, Node>,
    /// Attributes of the root directory, if a layer has them.
    pub(super) root: Option<Header>,
    /// The headers of each layer, with extended attributes.
    layers: Vec<Vec<Header>>,
}

impl Merged {
    /// Merges layers, the lowest first. Refuses those in which the order of unpacking matters in ways that
    /// headers do not show.
    pub(super) fn of(listings: Vec<Listing>) -> Result<Self, UpdateError> {
        let layers: Option<Vec<Vec<Header>>> = listings.into_iter().map(Listing::headers).collect();
        let layers = layers.ok_or(UpdateError::Unclear("a record has an unknown kind"))?;
        let mut merge = Merge::new();
        let mut root = None;
        for header in layers.iter().flatten() {
            plain(header)?;
            if header.path.is_empty() {
                root = Some(header.clone());
            }
        }
        for layer in &layers {
            hides_itself(layer)?;
            for header in layer {
                let failed = |_| UpdateError::Unclear("a layer cannot be applied");
                merge.add(header.clone()).map_err(failed)?;
            }
            merge.end_layer();
        }
        let nodes = merge.finish();
        folders(&layers, &nodes)?;
        Ok(Self {
            nodes,
            root,
            layers,
        })
    }

    /// Members whose content the image has: layer and number.
    pub(super) fn contents(&self) -> BTreeSet<(usize, usize)> {
        let files = self
            .nodes
            .values()
            .filter(|n| n.header.kind == MemberKind::File);
        files.map(|n| (n.content.layer, n.content.member)).collect()
    }

    /// The header of a node with its extended attributes.
    pub(super) fn header<'a>(&'a self, node: &'a Node) -> &'a Header {
        let layer = self.layers.get(node.content.layer);
        let header = layer.and_then(|layer| layer.get(node.content.member));
        header.unwrap_or(&node.header)
    }

    /// The listings' headers of a layer.
    pub(super) fn layers(&self) -> &[Vec<Header>] {
        &self.layers
    }
}

fn plain(header: &Header) -> Result<(), UpdateError> {
    let name = name(&header.path);
    if matches!(header.kind, MemberKind::Character | MemberKind::Block) {
        return Err(UpdateError::Unclear("a layer has a device"));
    }
    // A directory keeps the attributes of lower layers' members too.
    if header.kind == MemberKind::Directory && !header.xattrs.is_empty() {
        return Err(UpdateError::Unclear("a directory has attributes"));
    }
    if header.path.split('/').count() > DEEPEST {
        return Err(UpdateError::Unclear("a path is too deep"));
    }
    if name.starts_with(META) && name != OPAQUE {
        return Err(UpdateError::Unclear("a layer has names of AUFS"));
    }
    Ok(())
}

/// Refuses a layer that hides a directory in which it has members without listing the directory itself:
/// its mode is then that of the lower layer or not, by the order.
fn hides_itself(layer: &[Header]) -> Result<(), UpdateError> {
    let hidden = layer.iter().filter_map(|header| {
        let hidden = name(&header.path).strip_prefix(WHITEOUT)?;
        let above = above(&header.path);
        Some(match above {
            "" => hidden.to_owned(),
            above => format!("{above}/{hidden}"),
        })
    });
    let hidden: HashSet<String> = hidden.collect();
    if hidden.is_empty() {
        return Ok(());
    }
    let own = |path: &str| hidden.contains(path);
    for header in layer {
        if own(&header.path) || ancestors(&header.path).any(own) {
            return Err(UpdateError::Unclear("a layer hides its own files"));
        }
    }
    Ok(())
}

/// Refuses layers with members below something that was a file or a link at a time, and directories that
/// unpacking would make and leave empty.
fn folders(layers: &[Vec<Header>], nodes: &BTreeMap<String, Node>) -> Result<(), UpdateError> {
    let others = layers.iter().flatten();
    let others =
        others.filter(|h| h.kind != MemberKind::Directory && !name(&h.path).starts_with(WHITEOUT));
    let others: HashSet<&str> = others.map(|h| h.path.as_str()).collect();
    let mut listed: HashSet<&str> = HashSet::new();
    let mut checked: HashSet<&str> = HashSet::new();
    for header in layers.iter().flatten() {
        let is_whiteout = name(&header.path).starts_with(WHITEOUT);
        for folder in ancestors(&header.path) {
            if others.contains(folder) {
                return Err(UpdateError::Unclear("a member lies below a file or a link"));
            }
            if (is_whiteout || !listed.contains(folder)) && checked.insert(folder) {
                let below = format!("{folder}/")..format!("{folder}0");
                let is_there = nodes.contains_key(folder) || nodes.range(below).next().is_some();
                if !is_there {
                    return Err(UpdateError::Unclear("a directory would stay empty"));
                }
            }
        }
        if header.kind == MemberKind::Directory {
            listed.insert(&header.path);
        }
    }
    Ok(())
}

fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

fn above(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

/// The directories above a path, without the root.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}
