//! When to give up a request: growing pauses with jitter, and the pauses that servers ask for.

use std::time::Duration;

/// Retry limits of one request.
#[derive(Debug, Clone)]
pub struct Patience {
    /// Most consecutive attempts that bring no bytes.
    pub attempts: u32,
    /// The first pause; each next one is twice as long.
    pub first: Duration,
    /// Longest pause. A server that asks for a longer one is not asked again.
    pub longest: Duration,
    /// Time without any bytes after which a connection is broken.
    pub stall: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 6,
            first: Duration::from_millis(400),
            longest: Duration::from_secs(60),
            stall: Duration::from_secs(60),
        }
    }
}

/// Counts the failures of one request.
#[derive(Debug)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { failures: 0 }
    }

    /// Resets the count, because bytes arrived.
    pub(crate) fn progress(&mut self) {
        self.failures = 0;
    }

    /// The pause before the next attempt. `None` to give up.
    pub(crate) fn pause(
        &mut self,
        patience: &Patience,
        asked: Option<Duration>,
    ) -> Option<Duration> {
        self.failures += 1;
        if self.failures >= patience.attempts {
            return None;
        }
        if let Some(asked) = asked {
            // A little later than asked, because many clients wait for the same moment.
            return (asked <= patience.longest)
                .then(|| asked + patience.first.mul_f64(fastrand::f64()));
        }
        let doubled = patience
            .first
            .saturating_mul(1 << (self.failures - 1).min(16));
        let most = doubled.min(patience.longest);
        Some(most.mul_f64(0.5 + fastrand::f64() / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_end() {
        let patience = Patience {
            attempts: 40,
            first: Duration::from_secs(1),
            longest: Duration::from_secs(20),
            ..Patience::default()
        };
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = std::iter::from_fn(|| backoff.pause(&patience, None)).collect();
        assert_eq!(pauses.len(), 39);
        for (n, pause) in pauses.iter().enumerate() {
            let most = Duration::from_secs(1 << n.min(10)).min(patience.longest);
            assert!(*pause <= most && *pause * 2 >= most, "{n}: {pause:?}");
        }
    }

    #[test]
    fn a_server_is_given_the_time_it_asks_for_or_left_alone() {
        let patience = Patience::default();
        let mut backoff = Backoff::new();
        let pause = backoff
            .pause(&patience, Some(Duration::from_secs(7)))
            .unwrap();
        assert!(pause >= Duration::from_secs(7) && pause <= Duration::from_secs(8));
        assert_eq!(
            backoff.pause(&patience, Some(Duration::from_secs(3600))),
            None
        );
    }

    #[test]
    fn progress_starts_anew() {
        let patience = Patience {
            attempts: 2,
            ..Patience::default()
        };
        let mut backoff = Backoff::new();
        assert!(backoff.pause(&patience, None).is_some());
        backoff.progress();
        assert!(backoff.pause(&patience, None).is_some());
        assert!(backoff.pause(&patience, None).is_none());
    }
}
