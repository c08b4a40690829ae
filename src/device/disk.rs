//! Reads the free space of a file system.

use std::path::Path;

/// Returns the bytes that this user may still write below `path`, which need not exist yet.
pub fn free(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|p| p.exists())?;
    let stat = rustix::fs::statvfs(existing).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_still_to_be_made_counts_by_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free(&dir.path().join("a/b/c")).is_some_and(|f| f > 0));
    }
}
