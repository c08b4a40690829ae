//! Containers of an image: runs one to its end, or reads a file from one.
//!
//! A container's name is chosen before it is created, so that it can be removed whenever and however
//! the call ends. No container may stay behind.

use std::io::Read;

use bollard::container::LogOutput;
use bollard::errors::Error as Client;
use bollard::models::{ContainerCreateBody, DeviceRequest, HostConfig};
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, DownloadFromContainerOptions,
    ListContainersOptions, RemoveContainerOptions, StartContainerOptions, UploadToContainerOptions,
    WaitContainerOptions,
};
use futures_util::StreamExt;

use super::answer::{list, raw, texts};
use super::build::unique;
use super::build_log::{Lines, shown};
use super::client::Docker;
use super::reference::check_reference;
use super::{context, image};
use crate::{EngineError, RunOutcome, RunRequest, Temporary};
use stackforge_types::{Cancel, LogStream};

/// Prefix of the names of containers that are made here.
const PREFIX: &str = "stackforge-";
/// Number of links that are followed before a file counts as missing.
const LINKS: usize = 8;
/// Bytes that a tar adds to a file: headers, long names, padding, the end.
const TAR_EXTRA: usize = 64 << 10;

/// A container that is removed on drop.
pub(super) struct Container {
    docker: Docker,
    pub name: String,
    removed: bool,
}

impl Container {
    pub(super) async fn create(
        docker: &Docker,
        body: ContainerCreateBody,
    ) -> Result<Self, EngineError> {
        let doing = format!(
            "creating a container of {}",
            body.image.as_deref().unwrap_or_default()
        );
        let container = Container {
            docker: docker.clone(),
            name: format!("{PREFIX}{}", unique()),
            removed: false,
        };
        let options = CreateContainerOptions {
            name: Some(container.name.clone()),
            ..CreateContainerOptions::default()
        };
        docker.begins(&Temporary::Container(container.name.clone()));
        match docker.api.create_container(Some(options), body).await {
            Ok(_) => Ok(container),
            Err(error) => Err(docker.failed(error, &doing)),
        }
    }

    pub(super) async fn remove(mut self) {
        self.removed = true;
        remove(self.docker.clone(), self.name.clone()).await;
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if !self.removed
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(remove(self.docker.clone(), self.name.clone()));
        }
    }
}

pub(super) async fn remove(docker: Docker, name: String) {
    match docker.remove_container(&name).await {
        Ok(()) => docker.is_gone(&Temporary::Container(name)),
        Err(error) => tracing::warn!("cannot remove the container {name}: {error}"),
    }
}

impl Docker {
    /// Removes a container if it exists.
    pub(super) async fn remove_container(&self, name: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptions {
            v: true,
            force: true,
            link: false,
        };
        match self.api.remove_container(name, Some(options)).await {
            Err(error) if !image::is_missing(&error) => {
                Err(self.failed(error, &format!("removing the container {name}")))
            }
            _ => Ok(()),
        }
    }

    /// Whether the engine has a container of this name or ID.
    ///
    /// # Errors
    /// If the engine cannot be asked.
    pub async fn has_container(&self, name: &str) -> Result<bool, EngineError> {
        match raw(self.api.inspect_container(name, None).await) {
            Ok(_) => Ok(true),
            Err(error) if image::is_missing(&error) => Ok(false),
            Err(error) => Err(self.failed(error, &format!("looking for the container {name}"))),
        }
    }

    /// Removes the containers that were made here from an image with exactly this name.
    pub(super) async fn remove_made_of(&self, image: &str) -> Result<(), EngineError> {
        let options = ListContainersOptions {
            all: true,
            ..ListContainersOptions::default()
        };
        let listed = self.api.list_containers(Some(options)).await;
        let listed = listed.map_err(|error| self.failed(error, "listing containers"))?;
        let of = listed
            .into_iter()
            .filter(|c| c.image.as_deref() == Some(image));
        for name in of.flat_map(|c| c.names.unwrap_or_default()) {
            let name = name.trim_start_matches('/');
            if name.starts_with(PREFIX) {
                self.remove_container(name).await?;
            }
        }
        Ok(())
    }

    /// Removes containers of an image that [`Docker::run`] made in a process that was killed.
    ///
    /// # Errors
    /// If the engine cannot be asked.
    pub async fn remove_runs(&self, image: &str) -> Result<(), EngineError> {
        let filters = [("ancestor".to_owned(), vec![image.to_owned()])];
        let options = ListContainersOptions {
            all: true,
            filters: Some(filters.into()),
            ..ListContainersOptions::default()
        };
        let listed = raw(self.api.list_containers(Some(options)).await);
        let listed = listed.map_err(|error| self.failed(error, "listing containers"))?;
        for name in list(&listed).flat_map(|c| texts(&c["Names"])) {
            let name = name.trim_start_matches('/');
            if name.starts_with(PREFIX) {
                remove(self.clone(), name.to_owned()).await;
            }
        }
        Ok(())
    }

    /// Runs a container to its end. Each line that it prints is passed to `on_line` at once.
    /// Cancelling, or dropping the future, kills the container. It is always removed.
    ///
    /// # Errors
    /// If the container cannot be created or started, or if `cancel` was set. A failing exit code is
    /// not an error.
    pub async fn run(
        &self,
        request: RunRequest,
        cancel: &Cancel,
        on_line: &mut (dyn FnMut(LogStream, &str) + Send),
    ) -> Result<RunOutcome, EngineError> {
        check_reference(&request.image)?;
        let doing = format!("running a container of {}", request.image);
        let kernel = if request.gpus {
            Some(self.info().await?)
        } else {
            None
        };
        // On Jetson the GPU is not a PCI device, so only NVIDIA's runtime can provide it.
        let by_runtime = kernel.is_some_and(|info| {
            info.kernel.contains("tegra") && info.runtimes.iter().any(|name| name == "nvidia")
        });
        let container = Container::create(self, body(&request, by_runtime))
            .await
            .map_err(no_gpu)?;
        let outcome = tokio::select! {
            outcome = self.follow(&container.name, request, &doing, on_line) => outcome,
            () = cancel.cancelled() => Err(EngineError::Cancelled { doing: doing.clone() }),
        };
        container.remove().await;
        outcome.map_err(no_gpu)
    }

    async fn follow(
        &self,
        name: &str,
        request: RunRequest,
        doing: &str,
        on_line: &mut (dyn FnMut(LogStream, &str) + Send),
    ) -> Result<RunOutcome, EngineError> {
        let failed = |error| self.failed(error, doing);
        if !request.files.is_empty() {
            let (body, upload) = context::tar_stream(request.files, false)?;
            let options = UploadToContainerOptions {
                path: "/".to_owned(),
                ..UploadToContainerOptions::default()
            };
            let body = bollard::body_try_stream(body);
            let sent = self.api.upload_to_container(name, Some(options), body);
            sent.await
                .map_err(|error| upload.take_failure().unwrap_or_else(|| failed(error)))?;
        }
        let options = AttachContainerOptions {
            stream: true,
            stdout: true,
            stderr: true,
            ..AttachContainerOptions::default()
        };
        let attached = self.api.attach_container(name, Some(options)).await;
        let mut output = attached.map_err(failed)?.output;
        let started = self
            .api
            .start_container(name, None::<StartContainerOptions>);
        started.await.map_err(failed)?;

        let mut out = Kept::new(LogStream::Stdout, request.output_limit);
        let mut err = Kept::new(LogStream::Stderr, request.output_limit);
        while let Some(chunk) = output.next().await {
            match chunk.map_err(failed)? {
                LogOutput::StdErr { message } => err.push(&message, on_line),
                other => out.push(other.as_ref(), on_line),
            }
        }
        out.finish(on_line);
        err.finish(on_line);

        let exit_code = self.exit_code(name, doing).await?;
        Ok(RunOutcome {
            exit_code,
            oom_killed: self.killed_for_memory(name).await.unwrap_or(false),
            truncated: out.truncated || err.truncated,
            stdout: out.text(),
            stderr: err.text(),
        })
    }

    /// Waits until the container has ended.
    pub(super) async fn exit_code(&self, name: &str, doing: &str) -> Result<i64, EngineError> {
        let options = WaitContainerOptions {
            condition: "not-running".to_owned(),
        };
        let mut end = std::pin::pin!(self.api.wait_container(name, Some(options)));
        let mut exit_code = None;
        while let Some(answer) = end.next().await {
            match answer {
                Ok(answer) => exit_code = Some(answer.status_code),
                // The client library turns every exit code but 0 into an error.
                Err(Client::DockerContainerWaitError { code, .. }) => exit_code = Some(code),
                Err(error) => return Err(self.failed(error, doing)),
            }
        }
        exit_code.ok_or_else(|| EngineError::Gone {
            doing: doing.to_owned(),
            source: None,
        })
    }

    /// Whether the kernel killed a process of the container because memory ran out. `None` if the
    /// engine does not report it.
    async fn killed_for_memory(&self, container: &str) -> Option<bool> {
        match raw(self.api.inspect_container(container, None).await) {
            Ok(answer) => answer["State"]["OOMKilled"].as_bool(),
            Err(error) => {
                tracing::debug!("cannot look at the container {container}: {error}");
                None
            }
        }
    }

    /// Reads a file of an image and follows links. `None` if the file does not exist. A file of more
    /// than `limit` bytes is an error and is not held in memory.
    ///
    /// # Errors
    /// [`EngineError::TooLarge`], and errors of the engine.
    pub async fn read_file(
        &self,
        image: &str,
        path: &str,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        check_reference(image)?;
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            // The container is never started, but an image without a command would be refused.
            cmd: Some(vec!["-".to_owned()]),
            ..ContainerCreateBody::default()
        };
        let container = Container::create(self, body).await?;
        let read = self.read_from(&container.name, image, path, limit).await;
        container.remove().await;
        read
    }

    async fn read_from(
        &self,
        container: &str,
        image: &str,
        path: &str,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let doing = format!("reading {path} in {image}");
        let mut at = path.to_owned();
        for _ in 0..LINKS {
            let options = DownloadFromContainerOptions { path: at.clone() };
            let mut chunks =
                std::pin::pin!(self.api.download_from_container(container, Some(options)));
            let mut tar = Vec::new();
            while let Some(chunk) = chunks.next().await {
                match chunk {
                    Ok(bytes) => tar.extend_from_slice(&bytes),
                    Err(error) if image::is_missing(&error) => return Ok(None),
                    Err(error) => return Err(self.failed(error, &doing)),
                }
                if tar.len() > limit.saturating_add(TAR_EXTRA) {
                    return Err(too_large(image, path, limit));
                }
            }
            let odd = |error: std::io::Error| EngineError::Build {
                message: format!("{doing}: the engine's archive makes no sense: {error}"),
            };
            match first_entry(&tar).map_err(odd)? {
                Entry::File(bytes) if bytes.len() > limit => {
                    return Err(too_large(image, path, limit));
                }
                Entry::File(bytes) => return Ok(Some(bytes)),
                Entry::Link(target) => at = resolved(&at, &target),
                Entry::Other => return Err(odd(std::io::Error::other("not a regular file"))),
            }
        }
        Ok(None)
    }
}

fn too_large(image: &str, path: &str, limit: usize) -> EngineError {
    EngineError::TooLarge {
        image: image.to_owned(),
        path: path.to_owned(),
        limit,
    }
}

fn body(request: &RunRequest, by_runtime: bool) -> ContainerCreateBody {
    let signed = |bytes: Option<u64>| bytes.and_then(|bytes| i64::try_from(bytes).ok());
    let mut env: Vec<String> = request
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if by_runtime {
        env.push("NVIDIA_VISIBLE_DEVICES=all".to_owned());
    }
    let devices = DeviceRequest {
        count: Some(-1),
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..DeviceRequest::default()
    };
    ContainerCreateBody {
        image: Some(request.image.clone()),
        entrypoint: request.entrypoint.clone(),
        cmd: Some(request.cmd.clone()).filter(|words| !words.is_empty()),
        env: Some(env),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        host_config: Some(HostConfig {
            binds: Some(request.binds.clone()),
            network_mode: request.network.clone(),
            memory: signed(request.memory),
            memory_swap: signed(request.memory),
            shm_size: signed(request.shm_size),
            runtime: by_runtime.then(|| "nvidia".to_owned()),
            device_requests: (request.gpus && !by_runtime).then(|| vec![devices]),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// Explains an error of an engine that cannot provide GPUs.
fn no_gpu(error: EngineError) -> EngineError {
    match error {
        EngineError::Api { message, .. } if message.contains("could not select device driver") => {
            EngineError::Unsupported {
                what: "give a container the host's GPUs".to_owned(),
                engine: "this engine".to_owned(),
                help: "install the NVIDIA Container Toolkit on the engine's host and run \
                       `nvidia-ctk runtime configure`"
                    .to_owned(),
            }
        }
        other => other,
    }
}

/// One output stream of a container: passes its lines on as they arrive and keeps its beginning.
struct Kept {
    stream: LogStream,
    lines: Lines,
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Kept {
    fn new(stream: LogStream, limit: usize) -> Self {
        Kept {
            stream,
            lines: Lines::default(),
            bytes: Vec::new(),
            limit,
            truncated: false,
        }
    }

    fn push(&mut self, bytes: &[u8], on_line: &mut (dyn FnMut(LogStream, &str) + Send)) {
        let room = self.limit - self.bytes.len();
        self.truncated |= bytes.len() > room;
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        for line in self.lines.push(bytes) {
            on_line(self.stream, &shown(&line));
        }
    }

    fn finish(&mut self, on_line: &mut (dyn FnMut(LogStream, &str) + Send)) {
        if let Some(line) = self.lines.rest() {
            on_line(self.stream, &shown(&line));
        }
    }

    fn text(self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

enum Entry {
    File(Vec<u8>),
    Link(String),
    Other,
}

fn first_entry(tar: &[u8]) -> std::io::Result<Entry> {
    let mut archive = tar::Archive::new(tar);
    let mut entry = archive
        .entries()?
        .next()
        .ok_or_else(|| std::io::Error::other("it is empty"))??;
    let kind = entry.header().entry_type();
    if kind.is_file() {
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        return Ok(Entry::File(bytes));
    }
    match entry.link_name()? {
        Some(target) if kind.is_symlink() => Ok(Entry::Link(target.to_string_lossy().into_owned())),
        _ => Ok(Entry::Other),
    }
}

/// Returns the target of a link at `at`.
fn resolved(at: &str, target: &str) -> String {
    match (target.starts_with('/'), at.rsplit_once('/')) {
        (false, Some((parent, _))) => format!("{parent}/{target}"),
        _ => target.to_owned(),
    }
}
