//! The BuildKit session: the channel over which a build reads its context, secrets and logins.
//!
//! A `POST /session` is upgraded to HTTP/2 without TLS. From then on the daemon is the client and this
//! side serves gRPC. The daemon may ask for the context, the secrets and the registry logins of one
//! request and for our health, and for nothing else: no other files, no agent. (bollard 0.21 can either
//! serve secrets or report progress. This module can go when bollard does both.)

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use bollard_buildkit_proto::health::health_check_response::ServingStatus;
use bollard_buildkit_proto::health::health_server::{Health, HealthServer};
use bollard_buildkit_proto::health::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
};
use bollard_buildkit_proto::moby::buildkit::secrets::v1::secrets_server::{Secrets, SecretsServer};
use bollard_buildkit_proto::moby::buildkit::secrets::v1::{GetSecretRequest, GetSecretResponse};
use bollard_buildkit_proto::moby::filesync::v1::auth_server::{Auth, AuthServer};
use bollard_buildkit_proto::moby::filesync::v1::{
    CredentialsRequest, CredentialsResponse, FetchTokenRequest, FetchTokenResponse,
    GetTokenAuthorityRequest, GetTokenAuthorityResponse, VerifyTokenAuthorityRequest,
    VerifyTokenAuthorityResponse,
};
use bollard_buildkit_proto::moby::upload::v1::BytesMessage;
use bollard_buildkit_proto::moby::upload::v1::upload_server::{Upload, UploadServer};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tonic::{Request, Response, Status, Streaming};

use super::address::Address;
use super::dial::Wire;
use crate::{Login, Secret};

/// An open session. Dropping it closes the channel.
pub(super) struct Session(JoinHandle<()>);

impl Drop for Session {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Longest head of the response to `POST /session`, in bytes. A longer one is not from an engine.
const HEAD_LIMIT: usize = 16 << 10;

impl Session {
    pub(super) async fn open(
        address: &Address,
        id: &str,
        secrets: BTreeMap<String, Secret>,
        logins: BTreeMap<String, Login>,
        context: Context,
    ) -> io::Result<Self> {
        let mut wire = address.dial().await?;
        let ask = format!(
            "POST /session HTTP/1.1\r\nHost: docker\r\nContent-Length: 0\r\n\
             Connection: Upgrade\r\nUpgrade: h2c\r\n\
             X-Docker-Expose-Session-Uuid: {id}\r\n\
             X-Docker-Expose-Session-Name: stackforge\r\n\
             X-Docker-Expose-Session-Grpc-Method: /grpc.health.v1.Health/Check\r\n\
             X-Docker-Expose-Session-Grpc-Method: /moby.filesync.v1.Auth/Credentials\r\n\
             X-Docker-Expose-Session-Grpc-Method: /moby.upload.v1.Upload/Pull\r\n\
             X-Docker-Expose-Session-Grpc-Method: \
             /moby.buildkit.secrets.v1.Secrets/GetSecret\r\n\r\n"
        );
        wire.write_all(ask.as_bytes()).await?;
        wire.flush().await?;
        let head = read_head(&mut wire).await?;
        if !head.starts_with("HTTP/1.1 101 ") {
            let line = head.lines().next().unwrap_or_default();
            return Err(io::Error::other(format!(
                "the engine does not open a build session: {line}"
            )));
        }
        let server = tonic::transport::Server::builder()
            .add_service(HealthServer::new(Healthy))
            .add_service(SecretsServer::new(SecretsOfOneBuild(secrets)))
            .add_service(AuthServer::new(LoginsOfOneBuild(logins)))
            .add_service(UploadServer::new(ContextOfOneBuild {
                path: context_path(id),
                context: Mutex::new(Some(context)),
            }))
            .serve_with_incoming(tokio_stream::once(Ok::<_, io::Error>(wire)));
        Ok(Session(tokio::spawn(async move {
            // If the channel breaks, the build's own stream breaks too and reports it.
            let _ = server.await;
        })))
    }
}

/// The context of a build, as a tar.
pub(super) type Context = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// Returns the URL at which a build reads its context over the session with this ID. Every engine with
/// BuildKit supports it. A context in the body of the request would not reach an engine that stores
/// images in containerd (Docker before 28, moby#47717).
pub(super) fn context_address(id: &str) -> String {
    format!("http://buildkit-session{}", context_path(id))
}

fn context_path(id: &str) -> String {
    format!("/context-{id}")
}

/// Reads up to the empty line, byte by byte, because HTTP/2 follows directly.
async fn read_head(wire: &mut Wire) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_LIMIT {
            return Err(io::Error::other("the engine's answer has no end"));
        }
        head.push(wire.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

struct SecretsOfOneBuild(BTreeMap<String, Secret>);

#[tonic::async_trait]
impl Secrets for SecretsOfOneBuild {
    async fn get_secret(
        &self,
        request: Request<GetSecretRequest>,
    ) -> Result<Response<GetSecretResponse>, Status> {
        match self.0.get(&request.get_ref().id) {
            Some(secret) => Ok(Response::new(GetSecretResponse {
                data: secret.expose().to_vec(),
            })),
            None => Err(Status::not_found("the build has no such secret")),
        }
    }
}

struct ContextOfOneBuild {
    path: String,
    context: Mutex<Option<Context>>,
}

#[tonic::async_trait]
impl Upload for ContextOfOneBuild {
    type PullStream = Pin<Box<dyn Stream<Item = Result<BytesMessage, Status>> + Send>>;

    /// Sends the whole context, once: the stream cannot be rewound.
    async fn pull(
        &self,
        request: Request<Streaming<BytesMessage>>,
    ) -> Result<Response<Self::PullStream>, Status> {
        let asked = request.metadata().get("urlpath");
        if asked.and_then(|path| path.to_str().ok()) != Some(&self.path) {
            return Err(Status::not_found("the build has no such upload"));
        }
        let mut context = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        let context = context.take();
        let context = context.ok_or_else(|| Status::not_found("the context was sent already"))?;
        let messages = context.map(|piece| match piece {
            Ok(bytes) => Ok(BytesMessage { data: bytes.into() }),
            Err(error) => Err(Status::aborted(error.to_string())),
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

struct LoginsOfOneBuild(BTreeMap<String, Login>);

#[tonic::async_trait]
impl Auth for LoginsOfOneBuild {
    /// Returns empty credentials for a registry without a login, so the engine is anonymous there.
    async fn credentials(
        &self,
        request: Request<CredentialsRequest>,
    ) -> Result<Response<CredentialsResponse>, Status> {
        let host = match request.get_ref().host.as_str() {
            "registry-1.docker.io" | "index.docker.io" => "docker.io",
            host => host,
        };
        let (username, secret) = match self.0.get(host) {
            Some(Login::Password { user, password }) => (user.clone(), Some(password)),
            Some(Login::Identity(token)) => (String::new(), Some(token)),
            Some(Login::Anonymous) | None => (String::new(), None),
        };
        let text = |s: &Secret| s.expose_text().into_owned();
        Ok(Response::new(CredentialsResponse {
            username,
            secret: secret.map(text).unwrap_or_default(),
        }))
    }

    async fn fetch_token(
        &self,
        _: Request<FetchTokenRequest>,
    ) -> Result<Response<FetchTokenResponse>, Status> {
        Err(Status::unimplemented("tokens are fetched by the engine"))
    }

    async fn get_token_authority(
        &self,
        _: Request<GetTokenAuthorityRequest>,
    ) -> Result<Response<GetTokenAuthorityResponse>, Status> {
        Err(Status::unimplemented("tokens are fetched by the engine"))
    }

    async fn verify_token_authority(
        &self,
        _: Request<VerifyTokenAuthorityRequest>,
    ) -> Result<Response<VerifyTokenAuthorityResponse>, Status> {
        Err(Status::unimplemented("tokens are fetched by the engine"))
    }
}

struct Healthy;

#[tonic::async_trait]
impl Health for Healthy {
    type WatchStream = tokio_stream::Empty<Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(HealthCheckResponse {
            status: ServingStatus::Serving as i32,
        }))
    }

    async fn list(
        &self,
        _: Request<HealthListRequest>,
    ) -> Result<Response<HealthListResponse>, Status> {
        Err(Status::unimplemented("list"))
    }

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("watch"))
    }
}
