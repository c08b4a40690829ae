//! Whether the index that a lock would ask is there, for a report on this machine.

use super::indexes::Indexes;
use super::uv::{Uv, UvError};
use crate::catalog::Catalog;
use std::path::Path;

/// Where the user's settings say that packages come from, apart from any stack.
pub enum IndexAddress {
    /// May hold credentials: for requests, never for messages.
    Url(String),
    /// The settings forbid every index.
    None,
    /// Nothing is set, and only uv knows its default.
    DefaultOfUv,
}

pub fn index_address() -> IndexAddress {
    Indexes::of_user().address()
}

/// Asks uv for one package of its default index; false when there is no uv yet.
pub async fn index_answers(catalog: &Catalog, store: &Path) -> Result<bool, String> {
    let uv = match Uv::find(catalog, store, true, false, &mut |_| {}).await {
        Ok(uv) => uv,
        Err(UvError::Offline | UvError::NotPinned) => return Ok(false),
        Err(e) => return Err(e.to_string()),
    };
    let work = tempfile::tempdir().map_err(|e| format!("make a directory: {e}"))?;
    let wanted = work.path().join("wanted.in");
    std::fs::write(&wanted, "pip\n").map_err(|e| format!("write a file: {e}"))?;
    let arguments = [
        "pip",
        "compile",
        "--quiet",
        "--no-deps",
        "--no-cache",
        "wanted.in",
    ];
    let answer = uv
        .run(work.path(), &arguments.map(str::to_owned))
        .await
        .map_err(|e| e.to_string())?;
    match answer.ok {
        true => Ok(true),
        false => Err(super::uv::last_lines(&answer.stderr, 1)),
    }
}
