//! The Docker engine: dockerd (20.10 or newer), and Podman's socket where it can.
//!
//! In come the nouns of [`crate::engine`]; out goes HTTP over a [`dial::Wire`]: a Unix socket,
//! TCP, TLS or ssh. Dropping a future closes its stream, which stops the engine's work. What a
//! call creates besides its result (containers, sessions) must never outlive it.

mod address;
mod build;
mod build_log;
mod classic;
mod container;
mod context;
mod contexts;
mod dial;
mod dockerfile;
mod failure;
mod files;
mod image;
mod load;
mod progress;
mod push;
mod session;
mod step;

use std::sync::Arc;
use std::time::Duration;

use bollard::BollardRequest;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use self::address::Address;
pub use self::files::Files;
use super::{EngineError, EngineInfo};

/// A connection to an engine. Cheap to clone; every request has a stream of its own.
#[derive(Clone)]
pub struct Docker {
    api: bollard::Docker,
    address: Arc<Address>,
    server: Arc<Server>,
}

/// What answered at the address.
#[derive(Debug)]
struct Server {
    is_podman: bool,
    version: String,
    api_version: String,
}

/// How long an engine may take to say its version. An ssh has its own, shorter limit.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the head of an answer may take: an import answers when it is done.
const LONGEST_REQUEST: u64 = 7 * 24 * 3600;

impl Docker {
    /// Connects to the engine at `address`, else to the one that `DOCKER_HOST` or the docker context in use
    /// names, else to the first of the usual sockets that answers: Docker's, rootless Docker's, Docker
    /// Desktop's, Colima's, Podman's.
    pub async fn connect(address: Option<&str>) -> Result<Docker, EngineError> {
        let candidates = address::candidates(address, |name| std::env::var(name).ok())?;
        let mut first_failure = None;
        for candidate in candidates {
            match Docker::connect_to(candidate).await {
                Ok(docker) => return Ok(docker),
                Err(error) => first_failure.get_or_insert(error),
            };
        }
        Err(first_failure.unwrap_or_else(|| EngineError::NotReachable {
            address: "(none)".to_owned(),
            reason: "no address to try".to_owned(),
            source: None,
            help: "set DOCKER_HOST".to_owned(),
        }))
    }

    async fn connect_to(address: Address) -> Result<Docker, EngineError> {
        let place = address.to_string();
        let address = Arc::new(address);
        let client = Client::builder(TokioExecutor::new())
            // A stream that an engine closed while it lay idle would fail the next request.
            .pool_max_idle_per_host(0)
            .build(dial::Connector(Arc::clone(&address)));
        let transport = move |request: BollardRequest| {
            let client = client.clone();
            async move { client.request(request).await.map_err(Into::into) }
        };
        let unusable = |error| failure::of_client(error, &place, "asking for its version");
        let api = bollard::Docker::connect_with_custom_transport(
            transport,
            Some("http://docker"),
            LONGEST_REQUEST,
            bollard::API_DEFAULT_VERSION,
        )
        .map_err(unusable)?;

        let ask = async {
            let api = api.negotiate_version().await?;
            let version = api.version().await?;
            Ok((api, version))
        };
        let (api, version) = match tokio::time::timeout(PATIENCE, ask).await {
            Ok(answer) => answer.map_err(|error| match unusable(error) {
                // Nothing has begun that could be gone.
                EngineError::Gone {
                    source: Some(source),
                    ..
                } => silent(&place, &deepest(source.as_ref())),
                other => other,
            })?,
            Err(_) => return Err(silent(&place, "it does not answer")),
        };
        let is_podman = version
            .components
            .iter()
            .flatten()
            .any(|component| component.name.contains("Podman"));
        let server = Server {
            is_podman,
            version: version.version.unwrap_or_default(),
            api_version: api.client_version().to_string(),
        };
        Ok(Docker {
            api,
            address,
            server: Arc::new(server),
        })
    }

    /// The address in use, as `DOCKER_HOST` would spell it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Whether it runs on this machine: it is reached through a Unix socket.
    pub fn is_local(&self) -> bool {
        matches!(*self.address, Address::Unix(_))
    }

    /// `Docker 20.10.24` or `Podman 4.3.1`.
    pub fn server(&self) -> String {
        let name = if self.is_podman() { "Podman" } else { "Docker" };
        format!("{name} {}", self.server.version)
    }

    pub fn is_podman(&self) -> bool {
        self.server.is_podman
    }

    /// Whether the engine can mount files of one stage in a step of another.
    ///
    /// # Errors
    /// [`EngineError::TooOld`] for Podman before 4.4: its mounts are lost when the stage comes from the
    /// cache (buildah#4375).
    pub fn mounts_from_stages(&self) -> Result<(), EngineError> {
        let old = release(&self.server.version).is_some_and(|release| release < (4, 4));
        match self.is_podman() && old {
            false => Ok(()),
            true => Err(EngineError::TooOld {
                engine: self.server(),
                what: "mount files of one build stage in another".to_owned(),
                help: "use Podman 5 or newer, Docker 20.10 or newer, or `--engine native`",
            }),
        }
    }

    pub async fn ping(&self) -> Result<(), EngineError> {
        let answer = self.api.ping().await;
        answer.map_err(|error| self.failed(error, "pinging it"))?;
        Ok(())
    }

    pub async fn info(&self) -> Result<EngineInfo, EngineError> {
        let info = self.api.info().await;
        let info = info.map_err(|error| self.failed(error, "asking what it runs on"))?;
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort();
        let count = |number: Option<i64>| u64::try_from(number.unwrap_or_default()).unwrap_or(0);
        Ok(EngineInfo {
            name: info.name.unwrap_or_default(),
            server_version: self.server.version.clone(),
            api_version: self.server.api_version.clone(),
            architecture: info.architecture.unwrap_or_default(),
            kernel: info.kernel_version.unwrap_or_default(),
            cpus: u32::try_from(count(info.ncpu)).unwrap_or(u32::MAX),
            running: u32::try_from(count(info.containers_running)).unwrap_or(u32::MAX),
            memory: count(info.mem_total),
            runtimes,
            cdi: info.cdi_spec_dirs.is_some_and(|dirs| !dirs.is_empty()),
            storage_driver: info.driver.unwrap_or_default(),
            in_containerd: info.driver_status.iter().flatten().any(|pair| {
                matches!(pair.as_slice(), [key, kind] if key == "driver-type" && kind.starts_with("io.containerd."))
            }),
            data: info.docker_root_dir.unwrap_or_default().into(),
            is_podman: self.is_podman(),
        })
    }

    fn failed(&self, error: bollard::errors::Error, doing: &str) -> EngineError {
        failure::of_client(error, &self.address.to_string(), doing)
    }
}

/// Major and minor number of `4.3.1` or `26.1.5+dfsg1`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(['.', '-', '+', '~']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
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

/// A name that is fit to be part of a URL and of nothing worse.
fn check_reference(reference: &str) -> Result<(), EngineError> {
    let fine = reference.starts_with(|c: char| c.is_ascii_alphanumeric())
        && reference.len() <= 512
        && !reference.contains("..")
        && !reference.contains("//")
        && reference
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-/:@+".contains(c));
    match fine {
        true => Ok(()),
        false => Err(EngineError::Invalid {
            what: "the image reference",
            value: reference.to_owned(),
            help: "write it as [registry/]name[:tag][@sha256:…]",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{check_reference, release};

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert_eq!(release("4.3.1"), Some((4, 3)));
        assert_eq!(release("26.1.5+dfsg1"), Some((26, 1)));
        assert_eq!(release("5.0-rc1"), Some((5, 0)));
        assert_eq!(release("dev"), None);
    }

    #[test]
    fn references_cannot_leave_their_place_in_a_url() {
        for fine in [
            "debian",
            "nvcr.io/nvidia/pytorch:25.10-py3",
            "a@sha256:00ff",
            "sha256:00ff",
            "localhost:5000/x/y:1",
        ] {
            assert!(check_reference(fine).is_ok(), "{fine}");
        }
        for bad in [
            "",
            "../containers",
            "a/../b",
            "a?b",
            "a b",
            "a#b",
            "/a",
            "a&t=b",
            "-a",
            "a//b",
        ] {
            assert!(check_reference(bad).is_err(), "{bad}");
        }
    }
}
