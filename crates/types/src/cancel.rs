//! A request to stop.

use std::sync::Arc;

use tokio::sync::watch;

/// A request to stop that can be cloned and handed to whoever may want to stop the work.
#[derive(Debug, Clone)]
pub struct Cancel(Arc<watch::Sender<bool>>);

impl Cancel {
    /// A request that is not made yet.
    pub fn new() -> Self {
        Cancel(Arc::new(watch::Sender::new(false)))
    }

    /// Makes the request. It holds for every clone and cannot be taken back.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether [`Cancel::cancel`] was called on this value or a clone of it.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once [`Cancel::cancel`] has been called, at once if it was called before.
    pub async fn cancelled(&self) {
        // Cannot fail: the sender lives in `self`.
        let _ = self.0.subscribe().wait_for(|stop| *stop).await;
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Cancel::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cancelling_wakes_who_waits_before_and_after() {
        let cancel = Cancel::new();
        let waiter = tokio::spawn({
            let cancel = cancel.clone();
            async move { cancel.cancelled().await }
        });
        assert!(!cancel.is_cancelled());
        cancel.cancel();
        waiter.await.unwrap();
        cancel.cancelled().await;
        assert!(cancel.is_cancelled());
    }
}
