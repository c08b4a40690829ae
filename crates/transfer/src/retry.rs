//! How often, and after which pauses, a request is tried again.
//!
//! In: how many new bytes a failed attempt brought, and the pause that the server asked for. Out: the pause
//! before the next attempt, or the end of all attempts. Every request of this crate follows one
//! [`RetryPolicy`], whether it goes to a file server or to a registry.

use std::time::Duration;

/// Retry limits of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Consecutive attempts that may fail before a server is given up. An attempt that brought at least 64
    /// KiB of new bytes starts the count anew.
    pub attempts: u32,
    /// Pause before the second attempt; it doubles each time.
    pub first_pause: Duration,
    /// Longest pause. A server that asks for a longer one is not asked again.
    pub longest_pause: Duration,
    /// A connection that brings no bytes for this long is broken.
    pub stall: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 6,
            first_pause: Duration::from_millis(400),
            longest_pause: Duration::from_secs(60),
            stall: Duration::from_secs(60),
        }
    }
}

/// New bytes of an attempt that count as progress: over a bad line, a large file arrives in many pieces.
/// With a lower bound, a server that sends one byte at a time would never be given up.
const PROGRESS: u64 = 64 << 10;

/// Counts the failures of one request.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Takes note of the new bytes that an attempt brought.
    pub(crate) fn gained(&mut self, bytes: u64) {
        if bytes >= PROGRESS {
            self.failures = 0;
        }
    }

    /// Returns the pause after a failed attempt, or `None` to give up. `asked` is the pause that the server
    /// asks for.
    pub(crate) fn pause(
        &mut self,
        policy: &RetryPolicy,
        asked: Option<Duration>,
    ) -> Option<Duration> {
        self.failures += 1;
        let longest = policy.longest_pause;
        if self.failures >= policy.attempts || asked.is_some_and(|asked| asked > longest) {
            return None;
        }
        let doubled = policy
            .first_pause
            .saturating_mul(1 << (self.failures - 1).min(16));
        // Up to half of the pause is random, so that many clients that failed together do not return
        // together.
        let own = doubled.min(longest).mul_f64(0.5 + fastrand::f64() / 2.0);
        let Some(asked) = asked else {
            return Some(own);
        };
        // A little later than asked, because many clients wait for the same moment.
        let later = asked + policy.first_pause.mul_f64(fastrand::f64());
        Some(later.max(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_end() {
        let policy = RetryPolicy {
            attempts: 40,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(20),
            ..RetryPolicy::default()
        };
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = std::iter::from_fn(|| backoff.pause(&policy, None)).collect();
        assert_eq!(pauses.len(), 39);
        for (n, pause) in pauses.iter().enumerate() {
            let most = Duration::from_secs(1 << n.min(10)).min(policy.longest_pause);
            assert!(*pause <= most && *pause * 2 >= most, "{n}: {pause:?}");
        }
    }

    #[test]
    fn a_server_is_given_the_time_it_asks_for_or_left_alone() {
        let policy = RetryPolicy::default();
        let mut backoff = Backoff::default();
        let asked = Duration::from_secs(7);
        let pause = backoff.pause(&policy, Some(asked)).unwrap();
        assert!(pause >= asked && pause <= asked + policy.first_pause);
        let hour = Duration::from_secs(3600);
        assert_eq!(backoff.pause(&policy, Some(hour)), None);
    }

    #[test]
    fn a_server_that_asks_for_no_pause_still_gets_growing_ones() {
        let policy = RetryPolicy::default();
        let mut backoff = Backoff::default();
        for most in [400, 800, 1600] {
            let pause = backoff.pause(&policy, Some(Duration::ZERO)).unwrap();
            assert!(pause * 2 >= Duration::from_millis(most), "{pause:?}");
        }
    }

    #[test]
    fn progress_starts_the_count_anew() {
        let policy = RetryPolicy {
            attempts: 2,
            ..RetryPolicy::default()
        };
        let mut backoff = Backoff::default();
        for _ in 0..100 {
            backoff.gained(PROGRESS);
            assert!(backoff.pause(&policy, None).is_some());
        }
        backoff.gained(PROGRESS - 1);
        assert_eq!(backoff.pause(&policy, None), None);
    }
}
