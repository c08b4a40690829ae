//! The previous images of a directory: `DIR~1`, `DIR~2` and so on.
//!
//! Each step is one rename to a free name. A killed process leaves a gap in the names and the newest image
//! in the hidden directory; the next process continues from there.

use super::beside::Beside;
use super::marker::Marker;
use super::rename;
use super::target::Target;
use crate::pull::PullError;
use std::path::{Path, PathBuf};

/// Fails if stackforge did not write what is at one of the `keep` names.
pub(super) fn free(target: &Target, keep: u32) -> Result<(), PullError> {
    let other = |path: &Path| path.symlink_metadata().is_ok() && !ours(path);
    match (1..=keep).map(|n| target.slot(n)).find(|path| other(path)) {
        Some(path) => Err(PullError::InTheWay(path)),
        None => Ok(()),
    }
}

/// Makes `tree` the newest of `keep` images.
pub(super) fn enter(
    target: &Target,
    beside: &Beside,
    tree: &Path,
    keep: u32,
) -> Result<(), PullError> {
    if keep == 0 {
        return beside.discard(tree);
    }
    free(target, keep)?;
    let empty = |n: &u32| target.slot(*n).symlink_metadata().is_err();
    let last = match (1..=keep).find(empty) {
        Some(n) => n,
        None => {
            beside.discard(&target.slot(keep))?;
            keep
        }
    };
    for n in (1..last).rev() {
        rename(&target.slot(n), &target.slot(n + 1))?;
    }
    rename(tree, &target.slot(1))?;
    target.sync()
}

/// Returns the images after the first `keep`. Directories that stackforge did not write are left out.
pub(super) fn after(target: &Target, keep: u32) -> Result<Vec<PathBuf>, PullError> {
    let names = target.names()?;
    let numbers = names.iter().filter_map(|name| target.slot_of(name));
    let more = numbers.filter(|n| *n > keep).map(|n| target.slot(n));
    Ok(more.filter(|path| ours(path)).collect())
}

/// Returns the images beside the target, and whether each is removed when another one enters.
pub(super) fn beside(target: &Target, keep: u32) -> Result<Vec<(PathBuf, bool)>, PullError> {
    let is_full = (1..=keep).all(|n| target.slot(n).symlink_metadata().is_ok());
    let kept = (1..=keep).map(|n| (target.slot(n), is_full && n == keep));
    let more = after(target, keep)?.into_iter().map(|path| (path, true));
    Ok(kept.chain(more).filter(|(path, _)| ours(path)).collect())
}

fn ours(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir()) && Marker::read(path).is_some()
}
