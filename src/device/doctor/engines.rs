//! Examines container engines and the programs around them.

use crate::program;
use serde::Serialize;
use stackforge_engine::docker::Docker;
use stackforge_engine::{EngineError, Fault};
use stackforge_types::Platform;
use stackforge_types::root::clean;
use std::path::PathBuf;

/// The engine that builds would use.
#[derive(Debug, Default, Serialize)]
pub struct Engine {
    /// `Docker 28.2.2`; `None` if no engine answers.
    pub server: Option<String>,
    /// Why no engine answers.
    pub silent: Option<String>,
    /// What to do if no engine answers.
    #[serde(skip)]
    pub help: Option<String>,
    /// The address in use, in the form of `DOCKER_HOST`, and the setting that named it.
    pub address: Option<String>,
    pub found_by: Option<String>,
    pub local: bool,
    pub platform: Option<Platform>,
    /// Whether the engine builds with BuildKit. Podman's socket builds with Buildah instead.
    pub buildkit: bool,
    pub runtimes: Vec<String>,
    pub cdi: bool,
    pub storage: Option<String>,
    /// What keeps the layers, as the engine calls it, and whether containerd does it.
    #[serde(skip)]
    pub storage_driver: String,
    #[serde(skip)]
    pub in_containerd: bool,
    pub data: Option<PathBuf>,
    pub cpus: Option<u32>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Why the engine is too old to build, and what to do.
    #[serde(skip)]
    pub too_old: Option<(String, String)>,
    /// Faults that only the engine's own project can fix.
    pub faults: Vec<Fault>,
}

/// A program on PATH. `version` is `None` if the program does not print one.
#[derive(Debug, Serialize)]
pub struct Program {
    pub name: &'static str,
    pub version: Option<String>,
}

const PROGRAMS: [&str; 6] = [
    "podman",
    "nerdctl",
    "nvidia-ctk",
    "nvidia-container-runtime-hook",
    "uv",
    "python3",
];

pub async fn docker() -> Engine {
    match ask().await {
        Ok(engine) => engine,
        Err(e) => Engine {
            silent: Some(clean(&e.to_string())),
            help: Some(e.help().to_owned()),
            ..Engine::default()
        },
    }
}

async fn ask() -> Result<Engine, EngineError> {
    let docker = Docker::connect(None).await?;
    let info = docker.info().await?;
    let platform = Platform::ALL
        .into_iter()
        .find(|p| [p.machine(), p.arch()].contains(&info.architecture.as_str()));
    let known = |s: String| Some(clean(&s)).filter(|s| !s.is_empty());
    Ok(Engine {
        server: known(docker.server()),
        address: known(docker.address()),
        found_by: known(docker.found_by().to_owned()),
        too_old: docker
            .mounts_from_stages()
            .err()
            .map(|e| (e.to_string(), e.help().to_owned())),
        faults: docker.faults(),
        local: docker.is_local(),
        platform,
        buildkit: !docker.is_podman(),
        runtimes: info.runtimes.iter().map(|r| clean(r)).collect(),
        cdi: info.cdi,
        in_containerd: info.in_containerd,
        storage_driver: info.storage_driver.clone(),
        storage: known(info.storage_driver).map(|driver| {
            if info.in_containerd {
                format!("{driver} of containerd")
            } else {
                driver
            }
        }),
        data: Some(info.data).filter(|d| d.is_absolute()),
        cpus: Some(info.cpus),
        memory: Some(info.memory),
        ..Engine::default()
    })
}

pub fn programs() -> Vec<Program> {
    let found = PROGRAMS.into_iter().filter_map(|name| {
        let path = program::on_path(name).into_iter().next()?;
        Some(Program {
            name,
            version: program::output(&path, &["--version"]).and_then(|t| version(&t)),
        })
    });
    found.collect()
}

/// Returns the first word that begins with a digit, or with `v` and a digit, and contains a dot.
fn version(text: &str) -> Option<String> {
    let plain = |w: &str| {
        let w = w.trim_start_matches('v').trim_end_matches(',');
        let fine = w.starts_with(|c: char| c.is_ascii_digit()) && w.contains('.');
        fine.then(|| clean(w))
    };
    text.lines().next()?.split_whitespace().find_map(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn programs_say_their_version_in_several_ways() {
        let version = |s: &str| version(s);
        assert_eq!(version("podman version 4.3.1").as_deref(), Some("4.3.1"));
        assert_eq!(
            version("nerdctl version v2.0.0, x").as_deref(),
            Some("2.0.0")
        );
        assert_eq!(version("uv 0.8.3 (abc)").as_deref(), Some("0.8.3"));
        assert_eq!(version(""), None);
    }

    proptest! {
        #[test]
        fn any_output_is_fine(s in "(?s).*") {
            let _ = version(&s);
        }
    }
}
