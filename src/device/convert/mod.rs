//! Reads what people have instead of a stack: requirements, `pyproject.toml`, a Dockerfile, a conda environment.
//!
//! In: the file, and what the catalog knows of names that are not a stack's ([`Known`]). Out: [`Found`], what a stack
//! takes of it, each part with its place, and what it cannot take with the reason. Nothing is chosen here: base,
//! Python, platform and GPU are decided in [`crate::starter`]. Runs nothing, opens no connection, reads no file that
//! the given one does not name, and reads each one within a limit.

mod asked;
mod conda;
mod dockerfile;
mod document;
mod error;
mod file;
mod files;
mod found;
mod item;
mod kind;
mod known;
mod names;
mod pip;
mod poetry;
mod pyproject;
mod requirements;
mod shell;
mod uv;

pub use asked::{Asked, Wants, environment};
pub use error::ConvertError;
pub use files::{Disk, MAX_BYTES};
pub use found::{App, Found, Health, ImageKeys, User};
pub use item::{Item, Note, Os, Why};
pub use known::{Known, TorchIndex};

use files::Files;
use kind::Format;
use std::path::Path;

/// Reads a file of any kind that `init --from` takes.
///
/// # Errors
/// If it, or a file that it includes, cannot be read or is of another kind.
pub fn read(path: &Path, known: &Known, source: &dyn Disk) -> Result<Found, ConvertError> {
    let mut files = Files::new(source);
    let file = files.open(path, None)?;
    let mut found = Found {
        shown: file.shown.clone(),
        ..Found::default()
    };
    match Format::of(&file)? {
        Format::Requirements => requirements::read(&file, &mut files, known, &mut found)?,
        Format::Pyproject => pyproject::read(&file, &mut files, known, &mut found)?,
        Format::Conda => conda::read(&file, &mut files, known, &mut found)?,
        Format::Dockerfile => dockerfile::read(&file, &mut files, known, &mut found)?,
    }
    Ok(found)
}
