//! Makes a finished system from packages, in process: the files that their scripts would leave, without
//! running one.
//!
//! The input is verified package files and, if packages are added to a system, the system below. The
//! output is one deterministic tar, written in one pass: the packages' files, then what their
//! maintainer scripts leave on a fresh installation, then dpkg's database, or, without dpkg, the
//! stanzas that scanners look for. No script runs, no root is needed, and any architecture will do. A
//! script that is not understood is an error before the first byte: a script is never skipped.
//!
//! If this module writes something else for the same packages, [`VERSION`] must change.
//!
//! Left out are Python's byte code, which only that Python can make, and debconf's database, which
//! debconf makes again when it is next asked. The packages' own scripts would make both.

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
mod subject_hash;
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
pub use error::{CertificateError, FinishError, UnknownScript};
pub use known::TEXT as SCRIPTS;
pub use system::{Nothing, Root, Unpacked};

/// Version of this module's output. With [`SCRIPTS`], a part of the key of a system that is made here.
pub const VERSION: u32 = 1;

/// Writes the whole system of `debs` for `architecture` to `out`. No time stamp is later than
/// `source_date_epoch`, in seconds since 1970. The same packages give the same bytes.
///
/// # Errors
/// [`FinishError::Scripts`] before the first byte, and the other cases of [`FinishError`].
pub fn write(
    debs: &[PathBuf],
    architecture: &str,
    source_date_epoch: u64,
    out: impl Write,
) -> Result<RootfsSummary, FinishError> {
    layer(debs, None, architecture, source_date_epoch, out)
}

/// Writes the layer that installs `debs` on the system `root`: their files, and each file of the system
/// that the installation changes, in full. `debs` must not contain a package that is already installed.
///
/// # Errors
/// The same as for [`write()`].
pub fn add(
    debs: &[PathBuf],
    root: &dyn Root,
    architecture: &str,
    source_date_epoch: u64,
    out: impl Write,
) -> Result<RootfsSummary, FinishError> {
    layer(debs, Some(root), architecture, source_date_epoch, out)
}

/// Returns the scripts of `debs` that are not understood, on top of a system that has `below`
/// installed.
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
        members: tar.members(),
        content: tar.content(),
    };
    tar.finish()?.flush()?;
    Ok(summary)
}
