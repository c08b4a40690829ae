//! The base image and OS packages: fetched by lock, unpacked in process, configured by the
//! packages' own scripts in a build step, kept in the engine under a tag that carries its key.

use super::error::chain;
use super::run::once;
use super::{BuildError, BuildEvent, Options};
use crate::debian::fetch::{FetchEvent, fetch_debs};
use crate::debian::mirror::Mirrors;
use crate::debian::{LockedDeb, download, rootfs};
use crate::diag::codes;
use crate::engine::docker::Docker;
use crate::engine::{BuildRequest, Cancel, ContextEntry, Source};
use crate::lock::OsPackageLock;
use crate::plan::Plan;
use crate::store::{Action, StoreError};
use std::collections::BTreeMap;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

/// Times in a base are no later than this: 2024-01-01, so that equal packages give equal files.
const EPOCH: u64 = 1_704_067_200;

const DOCKERFILE: &str = "FROM scratch\nADD rootfs.tar /\nRUN --mount=type=bind,source=configure.sh,target=/dev/configure.sh sh /dev/configure.sh\n";

/// Name of the bootstrapped base in the engine, made if it is not there; None where the
/// plan's base comes from a registry.
pub(super) async fn ensure(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
    log: &Path,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Option<String>, BuildError> {
    let Some(tag) = plan.base_tag() else {
        return Ok(None);
    };
    if docker.image(&tag).await?.is_some() {
        return Ok(Some(tag));
    }
    let start = Instant::now();
    let tar = rootfs_tar(plan, options, on).await?;
    on(BuildEvent::Phase { name: "base" });
    let request = BuildRequest {
        context: vec![
            entry("Dockerfile", Source::Bytes(DOCKERFILE.as_bytes().to_vec())),
            entry(
                "configure.sh",
                Source::Bytes(crate::debian::configure::CONFIGURE.as_bytes().to_vec()),
            ),
            entry("rootfs.tar", Source::File(tar.path.clone())),
        ],
        dockerfile: "Dockerfile".into(),
        tags: vec![tag.clone()],
        labels: BTreeMap::from([(
            "io.stackforge.base".to_owned(),
            plan.parts.base.name.clone(),
        )]),
        ..BuildRequest::default()
    };
    let log = log.with_extension("base.log");
    let outcome = once(docker, &request, &log, cancel, on).await?;
    if let Some(step) = plan.step("base") {
        options.store.record(
            &step.key,
            &Action {
                step: "base".into(),
                image: Some(outcome.image_id),
                seconds: start.elapsed().as_secs_f64(),
                report: None,
                audit: None,
            },
        )?;
    }
    Ok(Some(tag))
}

fn entry(path: &str, source: Source) -> ContextEntry {
    ContextEntry {
        path: path.into(),
        mode: 0o644,
        source,
    }
}

/// A file that goes when its user does.
pub struct Scratch {
    pub path: PathBuf,
    _dir: tempfile::TempDir,
}

/// The unpacked packages of a bootstrapped base as one tar.
pub(super) async fn rootfs_tar(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Scratch, BuildError> {
    let debs = fetch(&plan.parts.base.packages, "base packages", options, on).await?;
    on(BuildEvent::Phase { name: "unpack" });
    let folder = options.store.dir("tmp")?;
    let dir = tempfile::tempdir_in(&folder)
        .map_err(|source| io("create a directory in", &folder, source))?;
    let path = dir.path().join("rootfs.tar");
    let arch = plan.platform.arch();
    let written = path.clone();
    let result = tokio::task::spawn_blocking(move || {
        let file = std::fs::File::create(&written).map_err(|e| io("create", &written, e))?;
        rootfs::write_rootfs(&debs, arch, EPOCH, BufWriter::with_capacity(1 << 20, file)).map_err(
            |e| BuildError::Packages {
                code: codes::STORE_IO,
                help: e.help().to_owned(),
                message: format!("make the base's root file system: {}", chain(&e)),
            },
        )
    })
    .await;
    match result {
        Ok(done) => done?,
        Err(e) => return Err(io("unpack into", &path, std::io::Error::other(e))),
    };
    Ok(Scratch { path, _dir: dir })
}

/// Fetches the OS packages that the context carries.
pub(super) async fn fetch_packages(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<(), BuildError> {
    let mut packages = plan.parts.runtime_packages.clone();
    packages.extend(plan.parts.builder_packages.iter().cloned());
    fetch(&packages, "OS packages", options, on).await.map(drop)
}

/// Locked packages as files in the store; names without digests are left to the image's apt.
async fn fetch(
    packages: &[OsPackageLock],
    what: &str,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Vec<PathBuf>, BuildError> {
    let debs: Vec<LockedDeb> = packages.iter().filter_map(locked).collect();
    let cache = options.store.dir("debs")?;
    if debs.is_empty() {
        return Ok(Vec::new());
    }
    let mirrors = Mirrors::discover(&options.config.debian).map_err(|e| BuildError::Packages {
        code: codes::MIRROR_UNKNOWN,
        help: e.help(),
        message: chain(&e),
    })?;
    let client = download::client().map_err(|e| network(&e, e.help()))?;
    let total = debs.iter().map(|d| d.size).sum();
    let done = Mutex::new(0u64);
    let on = Mutex::new(on);
    let event = |event: FetchEvent<'_>| {
        let more = match event {
            FetchEvent::Cached(deb) => deb.size,
            FetchEvent::Bytes(_, bytes) => bytes,
            FetchEvent::Done(_) => 0,
        };
        if let (Ok(mut done), Ok(mut on)) = (done.lock(), on.lock()) {
            *done += more;
            on(BuildEvent::Download {
                what: what.to_owned(),
                done: *done,
                total,
            });
        }
    };
    fetch_debs(&client, &mirrors, &cache, &debs, &event)
        .await
        .map_err(|e| {
            let gone = matches!(e, crate::debian::fetch::FetchError::Gone { .. });
            BuildError::Packages {
                code: if gone { codes::PACKAGE_GONE } else { codes::NETWORK },
                help: if gone {
                    "run `stackforge lock STACK --upgrade-os`, or configure a mirror that keeps old versions".to_owned()
                } else {
                    e.help()
                },
                message: chain(&e),
            }
        })
}

/// A lock's entry as the package that it names.
fn locked(p: &OsPackageLock) -> Option<LockedDeb> {
    Some(LockedDeb {
        name: p.name.clone(),
        version: p.version.clone()?,
        architecture: p.architecture.clone()?,
        archive: p.archive.clone()?,
        path: p.path.clone()?,
        size: p.size,
        sha256: p.sha256.clone()?,
    })
}

fn network(e: &dyn std::error::Error, help: &str) -> BuildError {
    BuildError::Packages {
        code: codes::NETWORK,
        help: help.to_owned(),
        message: chain(e),
    }
}

pub(super) fn io(doing: &'static str, path: &Path, source: std::io::Error) -> BuildError {
    BuildError::Store(StoreError::Io {
        doing,
        path: path.to_owned(),
        source,
    })
}
