//! The container engine of a device: what it is, what it can, and the command that starts containers.

use stackforge_device::{Device, program};
use stackforge_engine::docker::Docker;
use stackforge_engine::{EngineError, EngineInfo};
use std::path::Path;

/// Docker's own place to listen, which its command uses without being told.
const USUAL: &str = "unix:///var/run/docker.sock";
/// Where engines look for the program that they make process 1 with `--init`, besides PATH.
const INIT: [&str; 8] = [
    "/usr/local/libexec/docker/docker-init",
    "/usr/libexec/docker/docker-init",
    "/usr/local/lib/docker/docker-init",
    "/usr/lib/docker/docker-init",
    "/usr/bin/docker-init",
    "/usr/sbin/docker-init",
    "/snap/docker/current/bin/docker-init",
    "/usr/local/bin/docker-init",
];
const CATATONIT: [&str; 3] = [
    "/usr/libexec/podman/catatonit",
    "/usr/libexec/catatonit/catatonit",
    "/usr/bin/catatonit",
];

/// Whose command starts containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerProgram {
    Docker,
    Podman,
}

impl ContainerProgram {
    /// Returns the name of the command.
    pub fn program(self) -> &'static str {
        match self {
            ContainerProgram::Docker => "docker",
            ContainerProgram::Podman => "podman",
        }
    }
}

/// A container engine, as far as starting a container depends on it.
#[derive(Debug, Clone)]
pub struct Engine {
    pub kind: ContainerProgram,
    /// `Docker 28.2.2`; `None` if it was not asked.
    pub server: Option<String>,
    /// Where its command has to be told to find it.
    pub address: Option<String>,
    /// Where it is, for messages, if it does not have this process's files, ports and devices: on another machine, or
    /// outside of the container that this process is in.
    pub elsewhere: Option<String>,
    pub runtimes: Vec<String>,
    /// Whether it gives devices by CDI.
    pub cdi: bool,
    /// CDI devices that it names itself.
    pub cdi_devices: Vec<String>,
    /// Memory of its machine in bytes.
    pub memory: Option<u64>,
    /// Whether it can put a small process 1 before the program.
    pub init: bool,
}

impl Engine {
    /// Describes the engine that answered.
    ///
    /// # Errors
    /// If it does not answer the question whether this process is in a container of its.
    pub async fn of(docker: &Docker, info: &EngineInfo) -> Result<Self, EngineError> {
        let podman = info.is_podman && docker.is_local() && !program::on_path("podman").is_empty();
        let kind = if podman {
            ContainerProgram::Podman
        } else {
            ContainerProgram::Docker
        };
        let address = docker.address();
        // The commands read these settings themselves.
        let found_by = docker.found_by();
        let told = match kind {
            ContainerProgram::Docker => {
                address != USUAL
                    && found_by != "DOCKER_HOST"
                    && !found_by.starts_with("docker context")
            }
            ContainerProgram::Podman => !own_podman(&address),
        };
        let elsewhere = if !docker.is_local() {
            Some(address.clone())
        } else if contains_this_process(docker).await? {
            Some(format!("{address}, outside of this container"))
        } else {
            None
        };
        let there = |paths: &[&str]| paths.iter().any(|path| Path::new(path).exists());
        let has_init = if info.is_podman {
            there(&CATATONIT)
        } else {
            there(&INIT) || !program::on_path("docker-init").is_empty()
        };
        Ok(Self {
            kind,
            server: Some(docker.server()),
            address: told.then_some(address),
            // Another machine's files are not known; Docker comes with its own.
            init: has_init || elsewhere.is_some(),
            elsewhere,
            runtimes: info.runtimes.clone(),
            cdi: info.cdi || info.is_podman,
            cdi_devices: info.cdi_devices.clone(),
            memory: Some(info.memory).filter(|bytes| *bytes > 0),
        })
    }

    /// Podman on PATH, which needs no service. `None` if it is not there.
    pub fn podman() -> Option<Self> {
        let path = program::on_path("podman").into_iter().next()?;
        let version = program::output(&path, &["--version"]);
        let version = version.and_then(|text| {
            let words = text.split_whitespace();
            words.last().map(|version| format!("Podman {version}"))
        });
        Some(Self {
            kind: ContainerProgram::Podman,
            server: version,
            address: None,
            elsewhere: None,
            runtimes: Vec::new(),
            cdi: true,
            cdi_devices: Vec::new(),
            memory: None,
            init: CATATONIT.iter().any(|path| Path::new(path).exists()),
        })
    }

    /// The engine that a device of which only files are known most likely has: a Docker of today, with the
    /// runtimes of its configuration.
    pub fn expected(device: &Device) -> Self {
        Self {
            kind: ContainerProgram::Docker,
            server: None,
            address: None,
            elsewhere: None,
            runtimes: device.containers.runtimes.clone(),
            cdi: true,
            cdi_devices: Vec::new(),
            memory: device.memory.total,
            init: true,
        }
    }

    /// Returns the name for messages.
    pub fn shown(&self) -> &str {
        let name = match self.kind {
            ContainerProgram::Docker => "Docker",
            ContainerProgram::Podman => "Podman",
        };
        self.server.as_deref().unwrap_or(name)
    }
}

/// Whether `podman` without a setting uses the storage behind this socket: each user has an own one.
fn own_podman(address: &str) -> bool {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        address == "unix:///run/podman/podman.sock"
    } else {
        address.contains(&format!("/run/user/{}/", uid.as_raw()))
    }
}

/// Whether this process is in a container of the engine.
async fn contains_this_process(docker: &Docker) -> Result<bool, EngineError> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match own_container(&mounts) {
        Some(id) => docker.has_container(id).await,
        None => Ok(false),
    }
}

/// Returns the ID of the container that a process with these mounts is in: engines mount `/etc/hostname` from a
/// directory of that name.
fn own_container(mountinfo: &str) -> Option<&str> {
    let is_id = |part: &&str| part.len() == 64 && part.bytes().all(|b| b.is_ascii_hexdigit());
    mountinfo.lines().find_map(|line| {
        let (root, place) = (line.split(' ').nth(3)?, line.split(' ').nth(4)?);
        let of_engine = ["/etc/hostname", "/etc/resolv.conf"].contains(&place);
        of_engine.then(|| root.split('/').find(is_id)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_containers_id_is_where_its_hostname_comes_from() {
        let id = "7b0c2f5f3a0c9e4a1d6d8b7e5f40312298badcfe0123456789abcdef01234567";
        let docker = format!(
            "613 604 0:52 / / rw,relatime - overlay overlay rw\n\
             620 613 8:1 /var/lib/docker/containers/{id}/hostname /etc/hostname rw,relatime - ext4 /dev/sda1 rw\n"
        );
        assert_eq!(own_container(&docker), Some(id));
        let podman = format!(
            "1 2 0:25 /containers/storage/overlay-containers/{id}/userdata/resolv.conf /etc/resolv.conf rw - tmpfs x rw"
        );
        assert_eq!(own_container(&podman), Some(id));
        let volume =
            format!("1 2 8:1 /var/lib/docker/volumes/{id}/_data /data rw - ext4 /dev/sda1 rw");
        for other in [
            "",
            "x",
            &volume,
            "1 2 8:1 /etc/hostname /etc/hostname rw - ext4 /dev/sda1 rw",
        ] {
            assert_eq!(own_container(other), None);
        }
    }
}
