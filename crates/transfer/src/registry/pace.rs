//! A limit on bytes per second, shared by all transfers of a client.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time whose bytes may arrive at once after a pause.
const BURST: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes per second.
    rate: u64,
    /// When the rate allows the next bytes: all bytes so far are accounted for by then.
    paid: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn new(rate: u64) -> Self {
        Self {
            rate: rate.max(1),
            paid: Mutex::new(Instant::now()),
        }
    }

    /// Accounts for received bytes, and waits until the rate allows them.
    pub(crate) async fn take(&self, bytes: u64) {
        let until = self.account(bytes, Instant::now());
        tokio::time::sleep_until(until).await;
    }

    fn account(&self, bytes: u64, now: Instant) -> Instant {
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let cost = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        *paid = (*paid).max(earliest) + cost;
        *paid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_faster_waits_and_a_rest_is_not_saved_up() {
        let pace = Pace::new(1000);
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let at = |bytes, now| pace.account(bytes, now).saturating_duration_since(start);
        at(1000, start);
        let two = at(1000, start);
        assert!(two > second * 3 / 2 && two <= second * 2, "{two:?}");
        // After a minute without bytes, one second's bytes still take their time.
        let later = start + second * 60;
        let after = at(1000, later);
        assert_eq!(after, second * 61 - BURST);
    }
}
