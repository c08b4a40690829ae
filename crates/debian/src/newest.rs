//! The date of a suite when it was last seen, to recognise an index that is older.
//!
//! An old `InRelease` has a valid signature too, and those of stable suites never expire: a mirror that
//! is out of date, or malicious, can offer packages from before a security fix. Mirrors lag behind each
//! other and snapshots are old on purpose, so an older index is reported but accepted. The lock shows
//! what was chosen.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Records the date of an archive's suite if it is the newest so far. Returns the newest date if `date` is
/// older.
pub(crate) fn older(
    cache: &Path,
    archive: &str,
    suite: &str,
    date: SystemTime,
) -> Option<SystemTime> {
    let folder = cache.join("dates").join(archive);
    let path = folder.join(suite);
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let known = fs::read_to_string(&path).ok();
    let known = known.and_then(|text| text.trim().parse::<u64>().ok());
    if let Some(known) = known.filter(|known| *known > seconds(date)) {
        return UNIX_EPOCH.checked_add(Duration::from_secs(known));
    }
    // If the cache cannot be written, the next call cannot compare, and no more is lost.
    let _ = fs::create_dir_all(folder);
    let _ = fs::write(&path, seconds(date).to_string());
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let newer_than = |suite, seconds| older(dir.path(), "debian", suite, at(seconds));
        assert_eq!(newer_than("bookworm", 100), None);
        assert_eq!(newer_than("bookworm", 200), None);
        assert_eq!(newer_than("bookworm", 200), None);
        assert_eq!(newer_than("bookworm", 100), Some(at(200)));
        assert_eq!(newer_than("bookworm-security", 50), None, "each by itself");
        assert_eq!(older(dir.path(), "vendor", "bookworm", at(50)), None);
        std::fs::write(dir.path().join("dates/debian/bookworm"), "x").unwrap();
        assert_eq!(newer_than("bookworm", 1), None);
    }
}
