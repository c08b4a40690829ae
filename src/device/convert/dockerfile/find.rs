//! Finds a file of the build context by its path in the image.

use crate::convert::files::Files;
use std::path::{Path, PathBuf};

/// Finds a file beside the Dockerfile or in the folder above it, by its path in the image.
pub(super) fn beside(
    files: &Files<'_>,
    name: &str,
    folder: &Path,
    workdir: &str,
    copied: &[(String, String)],
) -> Option<PathBuf> {
    let whole = if name.starts_with('/') {
        name.to_owned()
    } else {
        format!(
            "{}/{}",
            workdir.trim_end_matches('/'),
            name.trim_start_matches("./")
        )
    };
    let mut candidates = Vec::new();
    for (source, dest) in copied.iter().rev() {
        let source = source.trim_start_matches("./").trim_end_matches('/');
        let last = source.rsplit('/').next().unwrap_or(source);
        let dest = dest.trim_end_matches('/');
        if whole == dest || whole == format!("{dest}/{last}") {
            candidates.push(source.to_owned());
        }
        if let Some(rest) = whole.strip_prefix(dest).and_then(|r| r.strip_prefix('/')) {
            let source = if source == "." { "" } else { source };
            candidates.push(
                format!("{source}/{rest}")
                    .trim_start_matches('/')
                    .to_owned(),
            );
        }
    }
    let mut rest = whole.trim_start_matches('/');
    candidates.push(name.trim_start_matches("./").to_owned());
    while let Some((_, shorter)) = rest.split_once('/') {
        candidates.push(rest.to_owned());
        rest = shorter;
    }
    candidates.push(rest.to_owned());
    let inside = |c: &String| !c.starts_with('/') && !c.split('/').any(|part| part == "..");
    let folders = [Some(folder), folder.parent()];
    candidates
        .iter()
        .filter(|c| inside(c))
        .take(32)
        .find_map(|candidate| {
            let paths = folders
                .iter()
                .flatten()
                .map(|folder| folder.join(candidate));
            paths.into_iter().find(|path| files.is_file(path))
        })
}
