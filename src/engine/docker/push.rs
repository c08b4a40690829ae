//! Images into a registry, by the engine that has them.

use bollard::auth::DockerCredentials;
use bollard::errors::Error as Client;
use bollard::query_parameters::PushImageOptions;
use futures_util::StreamExt;

use super::image::repository_and_tag;
use super::{Docker, check_reference};
use crate::engine::{Cancel, EngineError, Login};

impl Docker {
    /// Pushes the engine's image of that name, `[HOST/]NAME:TAG`. What the registry has of it is not
    /// sent again. The digest that it has there is the registry's to tell.
    pub async fn push(
        &self,
        reference: &str,
        login: Option<&Login>,
        cancel: &Cancel,
    ) -> Result<(), EngineError> {
        check_reference(reference)?;
        let (repository, tag) = repository_and_tag(reference);
        let options = PushImageOptions {
            // Without one it would push every tag of the repository.
            tag: Some(tag.unwrap_or("latest").to_owned()),
            ..PushImageOptions::default()
        };
        let doing = format!("pushing {reference}");
        let answers = self
            .api
            .push_image(repository, Some(options), login.map(credentials));
        let mut answers = std::pin::pin!(answers);
        loop {
            let answer = tokio::select! {
                () = cancel.cancelled() => return Err(EngineError::Cancelled { doing }),
                answer = answers.next() => answer,
            };
            match answer {
                None => return Ok(()),
                Some(Ok(_)) => {}
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

pub(super) fn credentials(login: &Login) -> DockerCredentials {
    let text = |secret: &crate::engine::Secret| {
        Some(String::from_utf8_lossy(secret.expose()).into_owned())
    };
    match login {
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
