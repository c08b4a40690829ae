//! What a killed command may leave in a store and in a layout, and what may not stay.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Sandbox;

/// What nobody holds is left alone for a day.
const GRACE: Duration = Duration::from_secs(25 * 3600);

/// Every blob has the bytes of its name, and all that leads to a blob leads to one that is there.
pub fn right(sandbox: &Sandbox, case: &str) {
    let run = sandbox.run(&["cache", "verify"]);
    assert_eq!(run.code, 0, "{case}: {}{}", run.stdout, run.stderr);
}

/// A day later `cache gc` leaves nothing temporary.
pub fn swept(sandbox: &Sandbox, case: &str) {
    let store = sandbox.path("store");
    for path in temporary(&store) {
        let aged = File::open(&path).and_then(|f| f.set_modified(SystemTime::now() - GRACE));
        aged.unwrap();
    }
    let run = sandbox.run(&["cache", "gc"]);
    assert_eq!(run.code, 0, "{case}: {}", run.stderr);
    assert_eq!(temporary(&store), Vec::<PathBuf>::new(), "{case}");
}

/// Files below `folder` that have no name of their own yet.
pub fn temporary(folder: &Path) -> Vec<PathBuf> {
    let is_temporary = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        let waits = name.starts_with(".tmp-") || name.starts_with(".part-");
        let held = ["tmp", "leases", "parts"].map(|held| folder.join(held));
        waits || name.ends_with(".part") || held.iter().any(|held| path.parent() == Some(held))
    };
    let mut all = files(folder);
    all.retain(is_temporary);
    all
}

/// Files and directories below `folder`, without the files of unpacked trees and tools.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        // A program that is killed early makes nothing.
        let Ok(entries) = std::fs::read_dir(folder) else {
            continue;
        };
        for entry in entries {
            let entry = entry.unwrap();
            let inside = entry.file_name() == "unpacked" || entry.file_name() == "tools";
            if entry.file_type().unwrap().is_dir() && !inside {
                left.push(entry.path());
            }
            all.push(entry.path());
        }
    }
    all.sort();
    all
}
