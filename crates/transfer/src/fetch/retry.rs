//! How often, and after which pauses, a request is tried again.

use std::time::Duration;

/// Retry limits of a [`Fetcher`](super::Fetcher).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Most files at a time.
    pub parallel: usize,
    /// Consecutive attempts that may fail before an address is given up. An attempt that brought at least 1
    /// MiB starts the count anew.
    pub attempts: u32,
    /// Pause before the second attempt; it doubles each time.
    pub first_pause: Duration,
    /// Longest pause. A server that asks for a longer one is not asked again.
    pub longest_pause: Duration,
    /// A connection that brings no bytes for this long is broken.
    pub stall: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            parallel: 8,
            attempts: 5,
            first_pause: Duration::from_millis(400),
            longest_pause: Duration::from_secs(60),
            stall: Duration::from_secs(60),
        }
    }
}

/// An attempt that brought this many bytes restarts the count of failures: over a bad line, a large file
/// arrives in many pieces.
const MUCH: u64 = 1 << 20;

pub(super) struct Backoff<'a> {
    policy: &'a Policy,
    failed: u32,
}

impl<'a> Backoff<'a> {
    pub(crate) fn new(policy: &'a Policy) -> Self {
        Self { policy, failed: 0 }
    }

    /// The pause after an attempt that brought `gained` bytes, or `None` to give up. `wait` is the pause
    /// that the server asks for.
    pub(crate) fn after(&mut self, gained: u64, wait: Option<Duration>) -> Option<Duration> {
        if gained >= MUCH {
            self.failed = 0;
        }
        self.failed += 1;
        let longest = self.policy.longest_pause;
        if self.failed >= self.policy.attempts || wait.is_some_and(|w| w > longest) {
            return None;
        }
        let doubled = self
            .policy
            .first_pause
            .saturating_mul(1 << (self.failed - 1).min(16));
        // Jitter of up to half the pause, so that many clients that failed together do not return together.
        let jittered = doubled.min(longest).mul_f64(0.5 + 0.5 * fastrand::f64());
        Some(wait.map_or(jittered, |w| w.max(jittered)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let policy = Policy::default();
        let mut backoff = Backoff::new(&policy);
        let pauses: Vec<Duration> = std::iter::from_fn(|| backoff.after(0, None)).collect();
        assert_eq!(pauses.len(), 4);
        for (n, pause) in pauses.iter().enumerate() {
            let most = policy.first_pause * (1 << n);
            assert!(*pause <= most && *pause * 2 >= most, "{pause:?}");
        }
    }

    #[test]
    fn a_servers_wish_is_a_least_pause_and_too_long_a_one_ends_it() {
        let policy = Policy::default();
        let mut backoff = Backoff::new(&policy);
        let wish = Duration::from_secs(9);
        assert_eq!(backoff.after(0, Some(wish)), Some(wish));
        assert_eq!(backoff.after(0, Some(Duration::from_secs(3600))), None);
    }

    #[test]
    fn what_brings_much_goes_on() {
        let policy = Policy::default();
        let mut backoff = Backoff::new(&policy);
        for _ in 0..100 {
            assert!(backoff.after(MUCH, None).is_some());
        }
    }
}
