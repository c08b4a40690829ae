//! Containers that a person or another program talks to while they run.

use std::collections::HashMap;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, PortBinding, RestartPolicy,
    RestartPolicyNameEnum,
};
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, KillContainerOptions,
    ResizeContainerTTYOptions, StartContainerOptions,
};
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::Receiver;

use super::client::Docker;
use super::container::remove;
use super::reference::check_reference;
use crate::{Control, Devices, EngineError, StartRequest, Streams};

/// Bytes of standard input that are sent at once.
const CHUNK: usize = 32 << 10;

impl Docker {
    /// Starts a container that goes on by itself, and returns its ID.
    ///
    /// # Errors
    /// If the container cannot be created or started. It is removed then.
    pub async fn start(&self, request: &StartRequest) -> Result<String, EngineError> {
        let id = self.created(request, false).await?;
        match self.started(&id).await {
            Ok(()) => Ok(id),
            // A container that never ran has no output and no status to keep.
            Err(error) => {
                remove(self.clone(), id).await;
                Err(error)
            }
        }
    }

    /// Runs a container to its end with the streams of its user, removes it, and returns its exit status: 128 and the
    /// signal's number if a signal ended it. What a terminal shows goes to `output` alone. If the future is dropped, the
    /// container goes on and stays.
    ///
    /// # Errors
    /// If the container cannot be created or started, or if the engine goes away.
    pub async fn interact<I, O, E>(
        &self,
        request: &StartRequest,
        streams: Streams<I, O, E>,
        controls: Receiver<Control>,
    ) -> Result<i64, EngineError>
    where
        I: AsyncRead + Unpin,
        O: AsyncWrite + Unpin,
        E: AsyncWrite + Unpin,
    {
        let id = self.created(request, true).await?;
        let ended = self.follow_with(&id, streams, controls).await;
        remove(self.clone(), id).await;
        ended
    }

    async fn created(&self, request: &StartRequest, attached: bool) -> Result<String, EngineError> {
        check_reference(&request.image)?;
        let doing = format!("creating a container of {}", request.image);
        let options = CreateContainerOptions {
            name: request.name.clone(),
            ..CreateContainerOptions::default()
        };
        let made = self
            .api
            .create_container(Some(options), body(request, attached));
        let made = made.await.map_err(|error| self.failed(error, &doing))?;
        for warning in made.warnings {
            tracing::warn!("{warning}");
        }
        Ok(made.id)
    }

    async fn started(&self, id: &str) -> Result<(), EngineError> {
        let started = self
            .api
            .start_container(id, None::<StartContainerOptions>)
            .await;
        started.map_err(|error| not_executable(self.failed(error, "starting the container")))
    }

    async fn follow_with(
        &self,
        id: &str,
        streams: Streams<impl AsyncRead + Unpin, impl AsyncWrite + Unpin, impl AsyncWrite + Unpin>,
        controls: Receiver<Control>,
    ) -> Result<i64, EngineError> {
        let doing = "following the container";
        let options = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            ..AttachContainerOptions::default()
        };
        let attached = self.api.attach_container(id, Some(options)).await;
        let attached = attached.map_err(|error| self.failed(error, doing))?;
        self.started(id).await?;
        // A program that reads nothing must not keep what it writes from being shown.
        tokio::select! {
            shown = show(attached.output, streams.output, streams.errors) => {
                shown.map_err(|error| self.failed(error, doing))?;
            }
            () = send(streams.input, attached.input) => {}
            () = self.control(id, controls) => {}
        }
        self.exit_code(id, doing).await
    }

    /// Passes signals and sizes on, and never ends. A container that has ended by now takes neither.
    async fn control(&self, id: &str, mut controls: Receiver<Control>) {
        while let Some(control) = controls.recv().await {
            let passed = match control {
                Control::Signal(number) => {
                    let signal = number.to_string();
                    let options = KillContainerOptions { signal };
                    self.api.kill_container(id, Some(options)).await
                }
                Control::Resize { rows, columns } => {
                    let (h, w) = (rows.into(), columns.into());
                    let options = ResizeContainerTTYOptions { h, w };
                    self.api.resize_container_tty(id, options).await
                }
            };
            if let Err(error) = passed {
                tracing::debug!("{control:?} does not reach the container {id}: {error}");
            }
        }
        std::future::pending().await
    }
}

/// Copies what the container writes until it ends. A reader that went away does not end the program.
async fn show<O, E>(
    mut from: impl Stream<Item = Result<LogOutput, Error>> + Unpin,
    mut output: O,
    mut errors: E,
) -> Result<(), Error>
where
    O: AsyncWrite + Unpin,
    E: AsyncWrite + Unpin,
{
    while let Some(chunk) = from.next().await {
        let written = match chunk? {
            LogOutput::StdErr { message } => copied(&mut errors, &message).await,
            other => copied(&mut output, other.as_ref()).await,
        };
        if let Err(error) = written {
            tracing::debug!("what the container writes has no reader: {error}");
        }
    }
    Ok(())
}

async fn copied(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// Copies standard input to the container, closes it there at its end, and never ends.
async fn send(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if copied(&mut to, &buffer[..count]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
    std::future::pending().await
}

fn body(request: &StartRequest, attached: bool) -> ContainerCreateBody {
    let inside = |port: &crate::Published| {
        format!("{}/{}", port.inside, if port.udp { "udp" } else { "tcp" })
    };
    let mut bindings: HashMap<String, Option<Vec<PortBinding>>> = HashMap::new();
    for port in &request.ports {
        let bound = bindings.entry(inside(port)).or_default();
        bound.get_or_insert_default().push(PortBinding {
            host_ip: port.address.map(|address| address.to_string()),
            host_port: Some(port.host.to_string()),
        });
    }
    let requests = request.devices.iter().map(device_request).collect();
    ContainerCreateBody {
        image: Some(request.image.clone()),
        entrypoint: request.entrypoint.clone(),
        cmd: Some(request.cmd.clone()).filter(|words| !words.is_empty()),
        env: Some(request.env.clone()),
        exposed_ports: Some(request.ports.iter().map(inside).collect()),
        tty: Some(request.terminal),
        open_stdin: Some(attached),
        stdin_once: Some(attached),
        attach_stdin: Some(attached),
        attach_stdout: Some(attached),
        attach_stderr: Some(attached),
        host_config: Some(HostConfig {
            binds: Some(request.binds.clone()),
            port_bindings: Some(bindings),
            shm_size: request.shm_size.and_then(|bytes| i64::try_from(bytes).ok()),
            runtime: request.runtime.clone(),
            init: Some(request.init),
            device_requests: Some(requests),
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::NO),
                ..RestartPolicy::default()
            }),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

fn device_request(devices: &Devices) -> DeviceRequest {
    let gpu = || Some(vec![vec!["gpu".to_owned()]]);
    match devices {
        Devices::AllGpus => DeviceRequest {
            count: Some(-1),
            capabilities: gpu(),
            ..DeviceRequest::default()
        },
        Devices::Gpus(names) => DeviceRequest {
            device_ids: Some(names.clone()),
            capabilities: gpu(),
            ..DeviceRequest::default()
        },
        Devices::Cdi(names) => DeviceRequest {
            driver: Some("cdi".to_owned()),
            device_ids: Some(names.clone()),
            ..DeviceRequest::default()
        },
    }
}

/// Tells a program that is not there, or cannot be executed, from other refusals.
fn not_executable(error: EngineError) -> EngineError {
    match error {
        EngineError::Api { message, .. } if is_missing(&message) => EngineError::Program {
            message,
            missing: true,
        },
        EngineError::Api { message, .. } if message.contains("permission denied") => {
            EngineError::Program {
                message,
                missing: false,
            }
        }
        other => other,
    }
}

fn is_missing(message: &str) -> bool {
    let message = message.to_lowercase();
    let about_program = message.contains("exec") && !message.contains("mounting");
    about_program
        && (message.contains("not found") || message.contains("no such file or directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Docker 20.10 with runc, Docker 28 and Podman with crun say it, without a process 1 of their own.
    #[test]
    fn a_program_that_cannot_be_started_is_told_from_other_refusals() {
        let said = |message: &str| {
            let error = EngineError::Api {
                status: 400,
                message: message.to_owned(),
                doing: "starting the container".to_owned(),
            };
            match not_executable(error) {
                EngineError::Program { missing, .. } => Some(missing),
                _ => None,
            }
        };
        let runc = "OCI runtime create failed: container_linux.go:380: starting container process caused: exec: ";
        let start = "failed to create task for container: failed to create shim task: ";
        assert_eq!(
            said(&format!(
                "{runc}\"x\": executable file not found in $PATH: unknown"
            )),
            Some(true)
        );
        assert_eq!(
            said(&format!(
                "{start}{runc}\"/x\": stat /x: no such file or directory: unknown"
            )),
            Some(true)
        );
        assert_eq!(
            said(&format!(
                "{start}{runc}\"/etc/x\": permission denied: unknown"
            )),
            Some(false)
        );
        assert_eq!(
            said(
                "crun: executable file `x` not found in $PATH: No such file or directory: OCI runtime error"
            ),
            Some(true)
        );
        assert_eq!(
            said("driver failed programming external connectivity: port is already allocated"),
            None
        );
        assert_eq!(
            said("error mounting \"/x\" to rootfs at \"/y\": not a directory"),
            None
        );
    }
}
