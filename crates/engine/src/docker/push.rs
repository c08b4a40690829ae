//! Pushes images from the engine into a registry.

use bollard::auth::DockerCredentials;
use bollard::errors::Error as Client;
use bollard::query_parameters::PushImageOptions;
use futures_util::StreamExt;

use super::client::Docker;
use super::lines;
use super::reference::{check_reference, repository_and_tag};
use crate::{EngineError, Login};
use stackforge_types::{Cancel, Digest};

impl Docker {
    /// Pushes the engine's image `reference`, which has the form `[HOST/]NAME:TAG`. What the registry
    /// already has is not sent again. Returns the manifest's digest if the engine reports it.
    ///
    /// # Errors
    /// [`EngineError::Push`] if the registry refuses or cannot be reached, and errors of the engine.
    pub async fn push(
        &self,
        reference: &str,
        login: Option<&Login>,
        cancel: &Cancel,
    ) -> Result<Option<Digest>, EngineError> {
        check_reference(reference)?;
        let (repository, tag) = repository_and_tag(reference);
        let options = PushImageOptions {
            // Without a tag the engine would push every tag of the repository.
            tag: Some(tag.unwrap_or("latest").to_owned()),
            ..PushImageOptions::default()
        };
        let doing = format!("pushing {reference}");
        let mut api = self.api.clone();
        if self.is_podman() && is_on_loopback(reference) {
            // Docker and this program use plain HTTP for such a registry; Podman needs an option.
            api = api.with_request_modifier(|mut request| {
                if let Ok(uri) = format!("{}&tlsVerify=false", request.uri()).parse() {
                    *request.uri_mut() = uri;
                }
                request
            });
        }
        let answers = api.push_image(repository, Some(options), login.map(credentials));
        let answers = lines::whole(answers);
        let mut answers = std::pin::pin!(answers);
        let mut digest = None;
        loop {
            let answer = tokio::select! {
                () = cancel.cancelled() => return Err(EngineError::Cancelled { doing }),
                answer = answers.next() => answer,
            };
            match answer {
                None => return Ok(digest),
                Some(Ok(info)) => {
                    let pushed = info.status.as_deref().and_then(pushed_digest);
                    digest = pushed.or(digest);
                }
                Some(Err(Client::DockerStreamError { error })) => {
                    return Err(EngineError::Push {
                        reference: reference.to_owned(),
                        message: error,
                    });
                }
                Some(Err(error)) => return Err(self.failed(error, &doing)),
            }
        }
    }
}

/// Returns the manifest's digest from `latest: digest: sha256:… size: 1234`.
fn pushed_digest(status: &str) -> Option<Digest> {
    let (_, rest) = status.split_once("digest: ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Whether the registry of a reference is on loopback.
fn is_on_loopback(reference: &str) -> bool {
    let host = reference.split('/').next().unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let address = name.parse::<std::net::IpAddr>();
    reference.contains('/') && (name == "localhost" || address.is_ok_and(|a| a.is_loopback()))
}

pub(super) fn credentials(login: &Login) -> DockerCredentials {
    let text = |secret: &crate::Secret| Some(secret.expose_text().into_owned());
    match login {
        Login::Anonymous => DockerCredentials::default(),
        Login::Password { user, password } => DockerCredentials {
            username: Some(user.clone()),
            password: text(password),
            ..DockerCredentials::default()
        },
        Login::Identity(token) => DockerCredentials {
            identitytoken: text(token),
            ..DockerCredentials::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{is_on_loopback, pushed_digest};
    use stackforge_types::Digest;

    #[test]
    fn an_engine_says_what_it_pushed() {
        let digest = Digest::of(b"manifest");
        let parsed = pushed_digest(&format!("v1: digest: {digest} size: 528"));
        assert_eq!(parsed, Some(digest));
        assert_eq!(pushed_digest("v1: digest: sha256:ab size: 528"), None);
        assert_eq!(pushed_digest("Pushed"), None);
    }

    #[test]
    fn only_a_registry_on_loopback_goes_without_tls() {
        for on in [
            "127.0.0.1:5599/x:1",
            "localhost/x",
            "localhost:5000/a/b:c",
            "127.9.9.9/x",
        ] {
            assert!(is_on_loopback(on), "{on}");
        }
        for off in [
            "localhost",
            "localhost:1",
            "x:1",
            "a/127.0.0.1:1",
            "127.0.0.1.example.com/x",
            "10.0.0.1:5000/x",
            "localhost.example.com/x",
        ] {
            assert!(!is_on_loopback(off), "{off}");
        }
    }
}
