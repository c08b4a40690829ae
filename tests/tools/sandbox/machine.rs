//! What is on this machine outside of any sandbox.

use std::time::{Duration, Instant};

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a process has `word` as one of its arguments.
pub fn runs(word: &str) -> bool {
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|e| std::fs::read(e.ok()?.path().join("cmdline")).ok())
        .any(|line| line.split(|b| *b == 0).any(|a| a == word.as_bytes()))
}

pub fn within_a_while(mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

pub fn mounts() -> usize {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    text.lines()
        .filter(|l| l.contains("overlay") || l.contains("stackforge"))
        .count()
}

/// Whether a control group of a process that ended is still there.
pub fn control_group_left() -> bool {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let roots = text.lines().filter(|l| l.contains(" - cgroup"));
    let mut all: Vec<std::path::PathBuf> = roots
        .filter_map(|l| Some(l.split(' ').nth(4)?.into()))
        .collect();
    while let Some(directory) = all.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.filter_map(Result::ok) {
            if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix("stackforge-");
            if pid.is_some_and(|pid| !std::path::Path::new("/proc").join(pid).exists()) {
                return true;
            }
            all.push(entry.path());
        }
    }
    false
}
