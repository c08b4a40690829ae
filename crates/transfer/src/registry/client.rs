//! A registry and its mirrors, and how often requests are tried.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::RegistryError;
use super::auth::Scope;
use super::credentials::Keychain;
use super::endpoint::{Ask, Endpoint};
use super::event::{Event, Observer};
use super::options::Options;
use super::pace::Pace;
use crate::RetryPolicy;
use crate::retry::Backoff;
use stackforge_types::reference::Repository;

/// Most blobs that are fetched at a time.
const ARRIVING: usize = 4;

/// One registry. Cheap to clone; clones share connections and tokens.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    host: String,
    /// The mirrors, then the registry.
    endpoints: Vec<Arc<Endpoint>>,
    own: Arc<Endpoint>,
    retry: RetryPolicy,
    observer: Option<Observer>,
    pace: Option<Pace>,
    arriving: Semaphore,
    chunk: Option<u64>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("host", &self.inner.host)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// Creates a client. `host` is `HOST[:PORT]`, `docker.io` for Docker Hub. Nothing is sent yet.
    ///
    /// # Errors
    /// If the host or a mirror is malformed, or the bundle of authorities cannot be used.
    pub fn connect(
        host: &str,
        keychain: Arc<Keychain>,
        options: &Options,
    ) -> Result<Self, RegistryError> {
        let own = Arc::new(Endpoint::new(host, options, Arc::clone(&keychain))?);
        let mut endpoints = Vec::new();
        for mirror in &options.mirrors {
            let mirror = Endpoint::new(mirror, options, Arc::clone(&keychain))?;
            endpoints.push(Arc::new(mirror));
        }
        endpoints.push(Arc::clone(&own));
        let inner = Inner {
            host: host.to_owned(),
            endpoints,
            own,
            retry: options.retry.clone(),
            observer: options.observer.clone(),
            pace: options.rate.map(Pace::new),
            arriving: Semaphore::new(ARRIVING),
            chunk: options.chunk,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The host as given to [`Registry::connect`].
    pub fn host(&self) -> &str {
        &self.inner.host
    }

    pub(super) fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.inner.endpoints
    }

    /// The registry itself, which receives all writes.
    pub(super) fn own(&self) -> &Arc<Endpoint> {
        &self.inner.own
    }

    pub(super) fn chunk(&self) -> Option<u64> {
        self.inner.chunk
    }

    /// Waits while the received bytes exceed the rate.
    pub(super) async fn paced(&self, bytes: u64) {
        if let Some(pace) = &self.inner.pace {
            pace.take(bytes).await;
        }
    }

    /// Waits for a permit to fetch a blob. `None` only if the semaphore is closed.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.inner.arriving.acquire().await.ok()
    }

    pub(super) fn notify(&self, event: Event) {
        if let Some(observer) = &self.inner.observer {
            observer(event);
        }
    }

    /// Describes a request: `doing` is "reading", `what` "manifest `a:b`".
    pub(super) fn ask(
        &self,
        doing: &str,
        what: String,
        repository: &Repository,
        actions: &'static str,
    ) -> Ask {
        Ask {
            doing: format!("{doing} the {what}"),
            what,
            scope: Scope {
                repository: repository.to_string(),
                actions,
                source: None,
            },
        }
    }

    /// Reads from each mirror once, then from the registry, repeated while the error may pass.
    pub(super) async fn read<T, F>(
        &self,
        attempt: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<T, RegistryError>
    where
        F: Future<Output = Result<T, RegistryError>>,
    {
        for mirror in self.endpoints().iter().filter(|e| !self.is_own(e)) {
            match attempt(Arc::clone(mirror)).await {
                Ok(done) => return Ok(done),
                Err(error) => tracing::debug!(%error, "asking the next one"),
            }
        }
        self.write(attempt).await
    }

    pub(super) fn is_own(&self, endpoint: &Arc<Endpoint>) -> bool {
        Arc::ptr_eq(endpoint, self.own())
    }

    /// Sends a request to the registry itself, repeated while the error may pass.
    pub(super) async fn write<T, F>(
        &self,
        attempt: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<T, RegistryError>
    where
        F: Future<Output = Result<T, RegistryError>>,
    {
        let mut backoff = Backoff::default();
        loop {
            match attempt(Arc::clone(self.own())).await {
                Err(error) => self.pause_or_fail(&mut backoff, error).await?,
                done => return done,
            }
        }
    }

    /// Waits before the next attempt, or returns the error if there is none.
    pub(super) async fn pause_or_fail(
        &self,
        backoff: &mut Backoff,
        error: RegistryError,
    ) -> Result<(), RegistryError> {
        if !error.is_passing() {
            return Err(error);
        }
        self.wait(backoff, error).await
    }

    /// Like [`Registry::rest`], for an error after which something else is tried.
    pub(super) async fn wait(
        &self,
        backoff: &mut Backoff,
        error: RegistryError,
    ) -> Result<(), RegistryError> {
        let Some(pause) = backoff.pause(&self.inner.retry, error.asked_pause()) else {
            return Err(error);
        };
        tracing::debug!(%error, ?pause, "trying again");
        self.notify(Event::Retrying {
            error: error.to_string(),
            pause,
        });
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
