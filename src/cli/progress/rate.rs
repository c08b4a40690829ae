//! How fast bytes arrive, and how long the rest of them takes.

use super::mib;
use std::time::{Duration, Instant};

/// A shorter time says nothing of a rate.
const SHORTEST: Duration = Duration::from_secs(1);

/// A transfer since it was first seen.
pub(super) struct Rate {
    since: Instant,
    from: u64,
}

impl Rate {
    pub fn since(now: Instant, done: u64) -> Self {
        Self {
            since: now,
            from: done,
        }
    }

    /// How much is there: `12 MiB of 300 MiB, 10 MiB/s, 28 s left`, as far as it is known.
    pub fn text(&self, now: Instant, done: u64, total: Option<u64>) -> String {
        let mut text = mib(done);
        if let Some(total) = total {
            text += &format!(" of {}", mib(total));
        }
        let time = now.saturating_duration_since(self.since);
        let moved = done.saturating_sub(self.from);
        let ended = total.is_some_and(|total| done >= total);
        if ended || moved == 0 || time < SHORTEST {
            return text;
        }
        let each_second = moved as f64 / time.as_secs_f64();
        text += &format!(", {}/s", mib(each_second as u64));
        if let Some(total) = total {
            let left = (total - done) as f64 / each_second;
            text += &format!(", {left:.0} s left");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_told() {
        let start = Instant::now();
        let rate = Rate::since(start, 2 << 20);
        let at = |seconds, mib: u64, total: Option<u64>| {
            let now = start + Duration::from_millis(seconds);
            rate.text(now, mib << 20, total.map(|mib| mib << 20))
        };
        assert_eq!(at(500, 12, Some(300)), "12 MiB of 300 MiB");
        assert_eq!(
            at(2000, 22, Some(300)),
            "22 MiB of 300 MiB, 10 MiB/s, 28 s left"
        );
        assert_eq!(at(2000, 22, None), "22 MiB, 10 MiB/s");
        assert_eq!(at(2000, 2, Some(300)), "2 MiB of 300 MiB", "it stands");
        assert_eq!(at(2000, 1, Some(300)), "1 MiB of 300 MiB", "it was lost");
        assert_eq!(at(2000, 300, Some(300)), "300 MiB of 300 MiB");
    }
}
