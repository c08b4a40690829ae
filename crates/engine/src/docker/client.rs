//! The connection to an engine: how it is found and what the engine says of itself.

use std::sync::Arc;
use std::time::Duration;

use bollard::{BollardRequest, ClientVersion};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::address::Address;
use super::answer::{list, number, raw, text, texts};
use super::candidates::{By, Candidate};
use super::{candidates, dial, failure};
use crate::{EngineError, EngineInfo, Notes, Temporary};

/// A connection to an engine. It is cheap to clone, and every request has its own stream.
#[derive(Clone)]
pub struct Docker {
    pub(super) api: bollard::Docker,
    pub(super) address: Arc<Address>,
    /// The origin of the address.
    by: String,
    pub(super) server: Arc<Server>,
    notes: Option<Arc<dyn Notes>>,
}

/// The engine that answered at the address.
#[derive(Debug)]
pub(super) struct Server {
    is_podman: bool,
    pub version: String,
    pub api_version: String,
}

/// Time limit for an engine to report its version. ssh has its own, shorter limit.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit for the head of a response, in seconds. An import only responds when it is done.
const LONGEST_REQUEST: u64 = 7 * 24 * 3600;

impl Docker {
    /// Connects to the engine at `address`, else to the one that `DOCKER_HOST` or the current docker
    /// context names, else to the first of the usual sockets that answers: Docker's, rootless Docker's,
    /// Docker Desktop's, Colima's, Rancher Desktop's, Podman's.
    ///
    /// # Errors
    /// [`EngineError::NotReachable`] if no engine answers, with the addresses that were tried.
    pub async fn connect(address: Option<&str>) -> Result<Docker, EngineError> {
        let candidates = candidates::candidates(address, |name| std::env::var_os(name))?;
        let mut failures = Vec::new();
        for Candidate { address, by } in candidates {
            match Docker::connect_to(address, &by).await {
                Ok(docker) => return Ok(docker),
                Err(error) => failures.push(failure::named_by(error, &by)),
            }
        }
        let most_informative = failures
            .into_iter()
            .rev()
            .max_by_key(failure::informativeness);
        Err(
            most_informative.unwrap_or_else(|| EngineError::NotReachable {
                address: "(none)".to_owned(),
                reason: "no address to try".to_owned(),
                source: None,
                help: "set DOCKER_HOST".to_owned(),
            }),
        )
    }

    async fn connect_to(address: Address, by: &By) -> Result<Docker, EngineError> {
        let place = address.to_string();
        let address = Arc::new(address);
        let client = Client::builder(TokioExecutor::new())
            // An idle stream that the engine has closed would fail the next request.
            .pool_max_idle_per_host(0)
            .build(dial::Connector(Arc::clone(&address)));
        let transport = move |request: BollardRequest| {
            let client = client.clone();
            async move { client.request(request).await.map_err(Into::into) }
        };
        let unusable = |error| failure::of_client(error, &place, "asking for its version");
        let with = |version: &ClientVersion| {
            let (transport, host) = (transport.clone(), Some("http://docker"));
            let longest = LONGEST_REQUEST;
            bollard::Docker::connect_with_custom_transport(transport, host, longest, version)
        };
        let newest = with(bollard::API_DEFAULT_VERSION).map_err(unusable)?;
        let version = match tokio::time::timeout(PATIENCE, newest.version()).await {
            Ok(answer) => raw(answer).map_err(|error| no_engine(unusable(error), &place))?,
            Err(_) => return Err(silent(&place, "it does not answer")),
        };
        let spoken = release(&text(&version["ApiVersion"]))
            .ok_or_else(|| stranger(&place, "it says no version of Docker's API"))?;
        let own = bollard::API_DEFAULT_VERSION;
        let (major, minor) = (own.major_version as u32, own.minor_version as u32);
        let (major, minor) = spoken.min((major, minor));
        let api = with(&ClientVersion {
            major_version: major as usize,
            minor_version: minor as usize,
        })
        .map_err(unusable)?;
        let components = list(&version["Components"]);
        let server = Server {
            is_podman: components
                .map(|c| text(&c["Name"]))
                .any(|n| n.contains("Podman")),
            version: text(&version["Version"]),
            api_version: format!("{major}.{minor}"),
        };
        Ok(Docker {
            api,
            address,
            by: by.to_string(),
            server: Arc::new(server),
            notes: None,
        })
    }

    /// Records the temporary objects of this connection in `notes`.
    #[must_use]
    pub fn noting(self, notes: Arc<dyn Notes>) -> Self {
        Self {
            notes: Some(notes),
            ..self
        }
    }

    pub(super) fn begins(&self, what: &Temporary) {
        if let Some(notes) = &self.notes {
            notes.begins(what);
        }
    }

    pub(super) fn is_gone(&self, what: &Temporary) {
        if let Some(notes) = &self.notes {
            notes.is_gone(what);
        }
    }

    /// Returns the address in use, in the spelling of `DOCKER_HOST`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns the origin of the address: `DOCKER_HOST`, a context of the docker command, or the owner
    /// of a usual socket.
    pub fn found_by(&self) -> &str {
        &self.by
    }

    /// Whether the engine runs on this machine, which is so if it is reached through a Unix socket.
    pub fn is_local(&self) -> bool {
        matches!(*self.address, Address::Unix(_))
    }

    /// Returns the engine and its version: `Docker 20.10.24` or `Podman 4.3.1`.
    pub fn server(&self) -> String {
        let name = if self.is_podman() { "Podman" } else { "Docker" };
        format!("{name} {}", self.server.version)
    }

    /// Whether the engine behind the socket is Podman.
    pub fn is_podman(&self) -> bool {
        self.server.is_podman
    }

    /// Checks that the engine can mount files of one stage in a step of another.
    ///
    /// # Errors
    /// [`EngineError::TooOld`] for Podman before 4.4, which loses the mounts if the stage comes from
    /// the cache (buildah#4375).
    pub fn mounts_from_stages(&self) -> Result<(), EngineError> {
        let old = release(&self.server.version).is_some_and(|release| release < (4, 4));
        if !(self.is_podman() && old) {
            Ok(())
        } else {
            Err(EngineError::TooOld {
                engine: self.server(),
                what: "mount files of one build stage in another".to_owned(),
                help: "use Podman 5 or newer, Docker 20.10 or newer, or `--engine native`",
            })
        }
    }

    /// Checks that the engine answers.
    ///
    /// # Errors
    /// [`EngineError::NotReachable`] or [`EngineError::Gone`].
    pub async fn ping(&self) -> Result<(), EngineError> {
        let answer = self.api.ping().await;
        answer.map_err(|error| self.failed(error, "pinging it"))?;
        Ok(())
    }

    /// Returns what the engine is and what it runs on.
    ///
    /// # Errors
    /// If the engine cannot be asked.
    pub async fn info(&self) -> Result<EngineInfo, EngineError> {
        let info = raw(self.api.info().await);
        let info = info.map_err(|error| self.failed(error, "asking what it runs on"))?;
        let runtimes = info["Runtimes"].as_object().into_iter().flatten();
        let mut runtimes: Vec<String> = runtimes.map(|(name, _)| name.clone()).collect();
        runtimes.sort();
        let count = |key: &str| number(&info[key]).unwrap_or_default();
        let small = |key: &str| u32::try_from(count(key)).unwrap_or(u32::MAX);
        Ok(EngineInfo {
            name: text(&info["Name"]),
            server_version: self.server.version.clone(),
            api_version: self.server.api_version.clone(),
            architecture: text(&info["Architecture"]),
            kernel: text(&info["KernelVersion"]),
            cpus: small("NCPU"),
            running: small("ContainersRunning"),
            memory: count("MemTotal"),
            runtimes,
            cdi: !texts(&info["CDISpecDirs"]).is_empty(),
            cdi_devices: list(&info["DiscoveredDevices"])
                .filter(|device| device["Source"] == "cdi")
                .map(|device| text(&device["ID"]))
                .collect(),
            storage_driver: text(&info["Driver"]),
            in_containerd: list(&info["DriverStatus"]).any(|pair| {
                pair[0] == "driver-type" && text(&pair[1]).starts_with("io.containerd.")
            }),
            data: text(&info["DockerRootDir"]).into(),
            is_podman: self.is_podman(),
        })
    }

    pub(super) fn failed(&self, error: bollard::errors::Error, doing: &str) -> EngineError {
        failure::of_client(error, &self.address.to_string(), doing)
    }
}

/// Parses major and minor version from `4.3.1` or `26.1.5+dfsg1`.
pub(super) fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(['.', '-', '+', '~']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Interprets the error of the first request, for the version, at `place`.
fn no_engine(error: EngineError, place: &str) -> EngineError {
    match error {
        // Nothing has begun yet, so nothing can be gone.
        EngineError::Gone {
            source: Some(source),
            ..
        } => silent(place, &deepest(source.as_ref())),
        EngineError::Api {
            status: status @ (300..=399 | 401 | 404 | 405 | 426),
            ..
        } => stranger(
            place,
            &format!("it answers {status} when asked for its version"),
        ),
        EngineError::Build { .. } => stranger(place, "its answer is not an engine's"),
        other => other,
    }
}

/// Creates the error for a server that is not an engine.
fn stranger(place: &str, why: &str) -> EngineError {
    EngineError::NotReachable {
        address: place.to_owned(),
        reason: format!("what listens there is not a container engine: {why}"),
        source: None,
        help: "point DOCKER_HOST at an engine (unix://, tcp:// or ssh://)".to_owned(),
    }
}

fn silent(place: &str, reason: &str) -> EngineError {
    failure::not_reachable(place, std::io::Error::other(reason.to_owned()))
}

fn deepest(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert_eq!(release("4.3.1"), Some((4, 3)));
        assert_eq!(release("26.1.5+dfsg1"), Some((26, 1)));
        assert_eq!(release("5.0-rc1"), Some((5, 0)));
        assert_eq!(release("dev"), None);
    }
}
