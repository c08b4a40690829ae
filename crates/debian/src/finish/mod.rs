//! A finished system from packages, in process: what their scripts would leave, without running one.
//!
//! In come verified package files and, where packages are added, the system below; out goes one
//! deterministic tar, written in one pass: the packages' files, then what their maintainer scripts
//! leave on a fresh installation, then dpkg's database — or, where no dpkg is, the stanzas that
//! scanners look for. No script runs, no root is needed, any architecture will do. A script that
//! is not understood is an error before the first byte: none is ever passed over.
//!
//! A change of what is written here for the same packages is a change of [`VERSION`].
//!
//! Left out, in words: Python's byte code, which only that Python can make, and debconf's
//! database, which it makes again when it is asked. Both differ from what a container leaves.

mod accounts;
mod alternatives;
mod certificates;
mod database;
mod effects;
mod error;
mod known;
mod loader_cache;
mod pam;
mod script;
mod services;
mod shells;
mod system;

use std::io::Write;
use std::path::PathBuf;

use super::deb::Deb;
use super::rootfs::{self, Layout, RootfsSummary};
use super::tree::Tree;
use effects::Plan;
use system::System;

pub use super::tree::Node;
pub use database::installed;
pub use error::{FinishError, UnknownScript};
pub use known::TEXT as SCRIPTS;
pub use system::{Nothing, Root, Unpacked};

/// Part of the key of a system that was made here, with [`SCRIPTS`].
pub const VERSION: u32 = 1;

/// Writes the whole system of `debs` for `architecture` to `out`. No time is later than
/// `source_date_epoch`, in seconds since 1970. Same packages, same bytes.
///
/// # Errors
/// [`FinishError::Scripts`] before the first byte, and whatever [`FinishError`] names.
pub fn write(
    debs: &[PathBuf],
    architecture: &str,
    source_date_epoch: u64,
    out: impl Write,
) -> Result<RootfsSummary, FinishError> {
    layer(debs, None, architecture, source_date_epoch, out)
}

/// Writes the layer that installs `debs` on the system that is `root`: their files, and each file
/// of the system that installing them changes, whole. What is installed already must not be among
/// them.
///
/// # Errors
/// As [`write()`].
pub fn add(
    debs: &[PathBuf],
    root: &dyn Root,
    architecture: &str,
    source_date_epoch: u64,
    out: impl Write,
) -> Result<RootfsSummary, FinishError> {
    layer(debs, Some(root), architecture, source_date_epoch, out)
}

/// The scripts of `debs` that are not understood, on top of a system that has `below` installed.
///
/// # Errors
/// If a package file cannot be read, is given twice or is for another architecture.
pub fn unknown_scripts(
    debs: &[PathBuf],
    below: &[String],
    architecture: &str,
) -> Result<Vec<UnknownScript>, FinishError> {
    let packages = rootfs::open(debs, architecture)?;
    match Plan::of(&packages, below, architecture) {
        Ok(_) => Ok(Vec::new()),
        Err(FinishError::Scripts(unknown)) => Ok(unknown),
        Err(other) => Err(other),
    }
}

fn layer(
    debs: &[PathBuf],
    root: Option<&dyn Root>,
    architecture: &str,
    source_date_epoch: u64,
    out: impl Write,
) -> Result<RootfsSummary, FinishError> {
    let packages: Vec<Deb> = rootfs::open(debs, architecture)?;
    let below = match root {
        Some(root) => installed(root)?,
        None => Default::default(),
    };
    if let Some(twice) = packages.iter().find(|deb| below.contains_key(deb.name())) {
        return Err(rootfs::RootfsError::Twice {
            package: twice.name().to_owned(),
        }
        .into());
    }
    let names: Vec<String> = below.into_keys().collect();
    let plan = Plan::of(&packages, &names, architecture)?;
    let (tree, implied) = match root {
        None => Tree::new(),
        Some(root) => {
            let owned = database::owned(root)?;
            let node = move |path: &str| Some((root.node(path)?, owned.contains(path)));
            (Tree::over(Box::new(node)), Vec::new())
        }
    };
    let mut system = System::new(root.unwrap_or(&Nothing), tree);
    plan.before(&mut system);
    let mut keeper = effects::Keeper::new(&plan);
    let mut tree = std::mem::take(&mut system.tree);
    let mut layout = Layout::new(out, &mut tree, source_date_epoch, Some(&mut keeper));
    if root.is_none() {
        let attributes = layout.own(0o755);
        layout.tar.directory("", attributes)?;
    }
    layout.implied(implied)?;
    let laid = layout.lay(&packages, architecture)?;
    let mut tar = layout.into_tar();
    system.tree = tree;
    system.kept = keeper.take_kept();
    plan.after(&mut system, &keeper, source_date_epoch / 86_400)?;
    database::write(
        &mut system,
        &packages,
        &laid,
        architecture,
        plan.has_dpkg(root),
    )?;
    system.write(&mut tar, source_date_epoch)?;
    let summary = RootfsSummary {
        packages: packages.len(),
        members: tar.members,
        content: tar.content,
    };
    tar.finish()?;
    Ok(summary)
}
