//! Reads how much of its work a step's program has done, from what it prints.

use std::time::{Duration, Instant};

/// Time between two lines that say how far a compile is.
const COUNTS_EVERY: Duration = Duration::from_secs(30);

/// The position of a program that prints how much of its work is done.
pub(super) struct Count {
    /// When it first said so, and how far it was then.
    since: Instant,
    first: u64,
    /// When a line was printed last.
    printed: Instant,
    text: String,
}

impl Count {
    pub fn since(now: Instant, first: u64) -> Self {
        Self {
            since: now,
            first,
            printed: now,
            text: String::new(),
        }
    }

    /// Notes that `done` of `all` are done.
    pub fn at(&mut self, done: u64, all: u64, now: Instant) {
        self.text = self.said(done, all, now);
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Says how far it is, and how long the rest takes if it goes on as since the first time.
    fn said(&self, done: u64, all: u64, now: Instant) -> String {
        let passed = now.duration_since(self.since).as_secs();
        let left = match done.saturating_sub(self.first) {
            0 => None,
            new => Some(passed.saturating_mul(all.saturating_sub(done)) / new),
        };
        match left {
            None | Some(0) => format!("{done} of {all}"),
            Some(seconds @ 1..120) => format!("{done} of {all}, about {seconds} s left"),
            Some(seconds) => format!("{done} of {all}, about {} min left", seconds / 60),
        }
    }

    /// Returns the text if no line was printed for a while.
    pub fn due(&mut self) -> Option<String> {
        if self.printed.elapsed() < COUNTS_EVERY {
            return None;
        }
        self.printed = Instant::now();
        Some(self.text.clone())
    }
}

/// Returns what ninja (`[12/73] …`) or a Makefile of CMake (`[ 16%] …`) has done, and of how much.
pub(super) fn counted(line: &str) -> Option<(u64, u64)> {
    let (inside, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    let (done, all) = match inside.strip_suffix('%') {
        Some(percent) => (percent, "100"),
        None => inside.split_once('/')?,
    };
    let (done, all) = (done.trim().parse().ok()?, all.parse().ok()?);
    (done <= all && all > 0).then_some((done, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_count_in_two_ways() {
        assert_eq!(
            counted("[12/73] /opt/cuda/bin/nvcc -c x.cu"),
            Some((12, 73))
        );
        assert_eq!(counted("  [  7%] Building CUDA object x.o"), Some((7, 100)));
        for other in [
            "",
            "[]",
            "[x/y]",
            "[3/2] more",
            "[0/0]",
            "[1/2",
            "12/73",
            "[1/2/3]",
            "[-1/2]",
        ] {
            assert_eq!(counted(other), None, "{other}");
        }
        let since = Instant::now();
        let count = Count::since(since, 3);
        let after = |seconds| since + Duration::from_secs(seconds);
        assert_eq!(count.said(3, 73, after(60)), "3 of 73");
        assert_eq!(count.said(13, 73, after(60)), "13 of 73, about 6 min left");
        assert_eq!(count.said(63, 73, after(60)), "63 of 73, about 10 s left");
        assert_eq!(count.said(73, 73, after(60)), "73 of 73");
        let most = count.said(u64::MAX - 1, u64::MAX, after(60));
        assert!(most.starts_with("18446744073709551614 of"), "{most}");
        let long = count.said(4, u64::MAX, after(60));
        assert!(long.ends_with("min left"), "{long}");
    }
}
