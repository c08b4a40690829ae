//! Runs one build, from a request to the ID of an image.
//!
//! BuildKit reads the context and secrets over a [`Session`], and its progress is the response to
//! `POST /build`. Podman has no session: there the context is the body of the request, and a secret is
//! a file that its server moves out of the context before the build begins. The engine sets the tags
//! after the last step.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::time::{Duration, SystemTime};

use bollard::auth::DockerCredentials;
use bollard::errors::Error as Client;
use bollard::models::{BuildInfo, BuildInfoAux};
use bollard::query_parameters::{BuildImageOptions, BuilderVersion};
use bollard_buildkit_proto::google::protobuf::Timestamp;
use bytes::Bytes;
use futures_util::StreamExt;

use super::build_log::{LogFile, Redaction};
use super::client::Docker;
use super::context::{self, Upload};
use super::lines;
use super::podman::PodmanOutput;
use super::progress::Progress;
use super::push;
use super::reference::{check_reference, escaped};
use super::session::{self, Session};

use crate::{BuildOutcome, BuildRequest, ContextEntry, EngineError, Event, Login, Secret, Source};
use stackforge_types::Cancel;

const DOING: &str = "building the image";
const TICK: Duration = Duration::from_millis(250);

impl Docker {
    /// Builds `request`. Every line of every step is appended to the file `log` and, like all other
    /// progress, is passed to `on_event`. Cancelling, or dropping the future, stops the engine's work,
    /// but Podman finishes the running step.
    ///
    /// BuildKit itself cuts off output of a step that is faster than 200 KiB/s or longer than 2 MiB
    /// (measured with Docker 20.10.24). It prints a line that says so, and the end of a failed step's
    /// output still arrives.
    ///
    /// # Errors
    /// [`EngineError::StepFailed`] if a step fails, [`EngineError::DockerfileSyntax`] if the Dockerfile
    /// does not parse, [`EngineError::Context`] or [`EngineError::Log`] if a file cannot be used,
    /// [`EngineError::Cancelled`], and errors of the engine.
    pub async fn build(
        &self,
        mut request: BuildRequest,
        log: Option<&Path>,
        cancel: &Cancel,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> Result<BuildOutcome, EngineError> {
        for reference in request.tags.iter().chain(&request.cache_from) {
            check_reference(reference)?;
        }
        let dockerfile = dockerfile_text(&request)?;
        let log = LogFile::create(log)?;
        let progress = Progress::new(dockerfile, Redaction::of(&request.secrets), log);
        on_event(Event::Connected {
            server: self.server(),
            api: self.server.api_version.clone(),
        });

        let id = unique();
        let secrets = std::mem::take(&mut request.secrets);
        let logins = std::mem::take(&mut request.logins);
        let query = if self.is_podman() {
            podman_secrets(&mut request, &secrets, &id)?
        } else {
            String::new()
        };
        let query = request
            .tags
            .iter()
            .fold(query, |query, tag| query + "&t=" + &escaped(tag));
        let context = std::mem::take(&mut request.context);
        let (context, upload) = context::tar_stream(context, true)?;
        let tags = std::mem::take(&mut request.tags);
        let mut options = options(request);
        let (mut credentials, mut _session) = (None, None);
        // The client library requires a body.
        let mut body = bollard::body_full(Bytes::new());
        if self.is_podman() {
            credentials = of_hosts(&logins);
            body = bollard::body_try_stream(context);
        } else {
            let context = Box::pin(context);
            _session = Some(self.session(&id, secrets, logins, context, cancel).await?);
            options.remote = Some(session::context_address(&id));
            options.session = Some(id);
        }

        let api = self.with_query(query);
        let answers = lines::whole(api.build_image(options, credentials, Some(body)));
        let run = Run {
            docker: self,
            progress,
            podman: self.is_podman().then(PodmanOutput::default),
            upload,
            uploaded: 0,
        };
        let outcome = run.outcome(answers, cancel, on_event).await?;
        self.expect_built(&tags, &outcome.image_id).await?;
        Ok(outcome)
    }

    /// Opens BuildKit's session, over which it reads the context, the secrets and the logins.
    async fn session(
        &self,
        id: &str,
        secrets: BTreeMap<String, Secret>,
        logins: BTreeMap<String, Login>,
        context: session::Context,
        cancel: &Cancel,
    ) -> Result<Session, EngineError> {
        let session = tokio::select! {
            session = Session::open(&self.address, id, secrets, logins, context) => session,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        session.map_err(|source| EngineError::Gone {
            doing: "opening the build's session".to_owned(),
            source: Some(Box::new(source)),
        })
    }

    /// Returns a connection whose requests for a build have `query` at the end of their address.
    fn with_query(&self, query: String) -> bollard::Docker {
        // If bollard is told that this is BuildKit, it opens its own session, without secrets. So it is
        // told that this is the classic builder, and the request is changed here.
        let is_podman = self.is_podman();
        self.api.clone().with_request_modifier(move |mut request| {
            let uri = request.uri().to_string();
            let uri = if is_podman {
                uri
            } else {
                uri.replace("version=1", "version=2")
            };
            if let Ok(uri) = (uri + &query).parse() {
                *request.uri_mut() = uri;
            }
            request
        })
    }

    /// Checks that each of the tags names the image that the engine built.
    async fn expect_built(&self, tags: &[String], id: &str) -> Result<(), EngineError> {
        if tags.is_empty() {
            return Ok(());
        }
        // A build may report another digest of the image than the one that is its ID.
        let image = self.image(id).await?.map(|image| image.id);
        self.expect(tags, &[image.as_deref().unwrap_or(id), id])
            .await
    }
}

/// A running build.
struct Run<'a> {
    docker: &'a Docker,
    progress: Progress,
    /// Parser of Podman's text. `None` for BuildKit.
    podman: Option<PodmanOutput>,
    upload: Upload,
    uploaded: u64,
}

/// How the stream of the response ended.
enum End {
    Image(String),
    /// The engine reported that the build failed, with this text.
    BuildFailed(String),
    /// The image's ID never arrived.
    Silence,
    Failed(EngineError),
}

impl Run<'_> {
    async fn outcome(
        mut self,
        answers: impl futures_util::Stream<Item = Result<BuildInfo, Client>>,
        cancel: &Cancel,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> Result<BuildOutcome, EngineError> {
        let end = self.follow(answers, cancel, on_event).await;
        self.finish(end, on_event)
    }

    async fn follow(
        &mut self,
        answers: impl futures_util::Stream<Item = Result<BuildInfo, Client>>,
        cancel: &Cancel,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> End {
        let mut answers = std::pin::pin!(answers);
        let mut ticks = tokio::time::interval(TICK);
        let mut image = None;
        loop {
            let events = tokio::select! {
                () = cancel.cancelled() => return End::Failed(cancelled()),
                _ = ticks.tick() => {
                    self.report_upload(on_event);
                    Ok(self.progress.tick())
                }
                answer = answers.next() => match answer {
                    None => return image.map_or(End::Silence, End::Image),
                    Some(Err(Client::DockerStreamError { error })) => return End::BuildFailed(error),
                    Some(Err(error)) => return End::Failed(self.why(error)),
                    Some(Ok(BuildInfo { aux: Some(BuildInfoAux::BuildKit(status)), .. })) => {
                        self.report_upload(on_event);
                        self.progress.feed(&status)
                    }
                    Some(Ok(info)) => {
                        if let Some(BuildInfoAux::Default(id)) = info.aux {
                            image = id.id.or(image);
                        }
                        match (&mut self.podman, info.stream) {
                            (Some(podman), Some(text)) => {
                                self.progress.feed(&podman.feed(&text, now()))
                            }
                            _ => Ok(Vec::new()),
                        }
                    }
                },
            };
            match events {
                Ok(events) => events.into_iter().for_each(&mut *on_event),
                Err(error) => return End::Failed(error),
            }
        }
    }

    fn finish(
        mut self,
        end: End,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> Result<BuildOutcome, EngineError> {
        let fate = match &end {
            End::Image(_) => None,
            End::BuildFailed(text) => Some(text.as_str()),
            End::Silence | End::Failed(_) => Some("the build was interrupted"),
        };
        if let Some(podman) = &mut self.podman {
            let last = self.progress.feed(&podman.close(fate, now()))?;
            last.into_iter().for_each(&mut *on_event);
        }
        // The build's error matters more than an error of its log file.
        let last = self.progress.close(fate.map(|_| "interrupted"));
        let events = match (&end, last) {
            (End::Image(_), last) => last?,
            (_, last) => last.unwrap_or_default(),
        };
        events.into_iter().for_each(&mut *on_event);
        match end {
            End::Image(id) => Ok(BuildOutcome {
                image_id: if id.contains(':') {
                    id
                } else {
                    format!("sha256:{id}")
                },
                steps: self.progress.summary(),
            }),
            // If the upload failed, the engine's error would only name what is missing, not why.
            End::BuildFailed(text) => Err(self
                .upload
                .take_failure()
                .unwrap_or_else(|| self.progress.failure(&text))),
            End::Silence => Err(EngineError::Gone {
                doing: DOING.to_owned(),
                source: None,
            }),
            End::Failed(error) => Err(error),
        }
    }

    fn report_upload(&mut self, on_event: &mut (dyn FnMut(Event) + Send)) {
        let bytes = self.upload.sent();
        if bytes != self.uploaded {
            self.uploaded = bytes;
            on_event(Event::Uploading { bytes });
        }
    }

    fn why(&self, error: Client) -> EngineError {
        self.upload
            .take_failure()
            .unwrap_or_else(|| self.docker.failed(error, DOING))
    }
}

fn cancelled() -> EngineError {
    EngineError::Cancelled {
        doing: DOING.to_owned(),
    }
}

/// Returns the logins as Podman takes them: in a header, by host. `None` if there are none.
fn of_hosts(logins: &BTreeMap<String, Login>) -> Option<HashMap<String, DockerCredentials>> {
    let each = logins.iter();
    let each = each.map(|(host, login)| (host.clone(), push::credentials(login)));
    (!logins.is_empty()).then(|| each.collect())
}

/// Returns the Dockerfile's text, which is needed to find the line of a failed step.
fn dockerfile_text(request: &BuildRequest) -> Result<String, EngineError> {
    let entry = request
        .context
        .iter()
        .find(|entry| entry.path == request.dockerfile)
        .ok_or_else(|| EngineError::Invalid {
            what: "the Dockerfile's path",
            value: request.dockerfile.clone(),
            help: "name a file of the context",
        })?;
    match &entry.source {
        Source::Bytes(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Source::File(path) => {
            std::fs::read_to_string(path).map_err(|source| EngineError::Context {
                path: path.clone(),
                source,
            })
        }
    }
}

fn options(request: BuildRequest) -> BuildImageOptions {
    let some = |map: BTreeMap<String, String>| -> Option<HashMap<String, String>> {
        (!map.is_empty()).then(|| map.into_iter().collect())
    };
    BuildImageOptions {
        dockerfile: request.dockerfile,
        target: request.target.unwrap_or_default(),
        labels: some(request.labels),
        buildargs: some(request.build_args),
        platform: request.platform.unwrap_or_default(),
        networkmode: request.network,
        nocache: request.no_cache,
        cachefrom: Some(request.cache_from).filter(|images| !images.is_empty()),
        rm: true,
        forcerm: true,
        version: BuilderVersion::BuilderV1,
        ..BuildImageOptions::default()
    }
}

/// Puts the secrets into the context, at its top and under names that nobody can guess. Podman's server
/// moves these files out of the context before the first step.
fn podman_secrets(
    request: &mut BuildRequest,
    secrets: &BTreeMap<String, Secret>,
    unique: &str,
) -> Result<String, EngineError> {
    let mut named = Vec::new();
    for (number, (id, secret)) in secrets.iter().enumerate() {
        if id.contains([',', '=', '"']) {
            return Err(EngineError::Invalid {
                what: "the id of a secret",
                value: id.clone(),
                help: "Podman takes letters, digits, `.`, `_` and `-`",
            });
        }
        let path = format!(".secret-{unique}-{number}");
        named.push(format!("id={id},src={path}"));
        request.context.push(ContextEntry {
            path,
            mode: 0o600,
            source: Source::Bytes(secret.expose().to_vec()),
        });
    }
    if named.is_empty() {
        return Ok(String::new());
    }
    let list = serde_json::Value::from(named).to_string();
    Ok(format!("&secrets={}", escaped(&list)))
}

/// Returns a random word that no other build uses.
pub(super) fn unique() -> String {
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp {
        seconds: since.as_secs() as i64,
        nanos: since.subsec_nanos() as i32,
    }
}
