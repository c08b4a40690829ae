//! Makes the base image and its OS packages, and keeps the base in the engine under a tag with its key.
//! The packages come from the lock. They are unpacked in process; if the maintainer script of one is not
//! understood, a build step runs the packages' own scripts.

use super::docker::run::once;
use super::{BuildError, BuildEvent, Options};
use stackforge_debian::fetch::{FetchEvent, fetch_debs};
use stackforge_debian::mirror::Mirrors;
use stackforge_debian::{LockedDeb, finish, rootfs};
use stackforge_engine::docker::Docker;
use stackforge_engine::{BuildRequest, ContextEntry, Source};
use stackforge_image::store::{Action, Scratch as Folder, StoreError};
use stackforge_plan::{Plan, StepId};
use stackforge_stack::labels;
use stackforge_stack::lock::OsPackageLock;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::Fetcher;
use stackforge_types::{Cancel, Digest};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Newest modification time in a base (2024-01-01), so that equal packages give equal files.
const EPOCH: u64 = 1_704_067_200;

const FINISHED: &str = "FROM scratch\nADD rootfs.tar /\n";

/// The Dockerfile of a base that its packages' own scripts configure. It contains the digest of
/// `configure.sh`, because Podman's cache ignores the content of mounted files.
fn unpacked() -> String {
    let key = Digest::of(stackforge_debian::configure::CONFIGURE.as_bytes());
    format!(
        "{FINISHED}RUN --mount=type=bind,source=configure.sh,target=/dev/configure.sh \
         sh /dev/configure.sh # {key}\n"
    )
}

/// Returns the name of the bootstrapped base in the engine and builds it if it is missing. `None` if the
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
    let (tar, dockerfile) = match finished_tar(plan, options, on).await? {
        Some(tar) => (tar, FINISHED.to_owned()),
        None => (rootfs_tar(plan, options, on).await?, unpacked()),
    };
    on(BuildEvent::Phase { name: "base" });
    let request = BuildRequest {
        context: vec![
            entry("Dockerfile", Source::Bytes(dockerfile.into_bytes())),
            entry(
                "configure.sh",
                Source::Bytes(stackforge_debian::configure::CONFIGURE.as_bytes().to_vec()),
            ),
            entry("rootfs.tar", Source::File(tar.path.clone())),
        ],
        dockerfile: "Dockerfile".into(),
        tags: vec![tag.clone()],
        labels: BTreeMap::from([(labels::BASE.to_owned(), plan.base().lock.name.clone())]),
        ..BuildRequest::default()
    };
    let log = log.with_extension("base.log");
    let outcome = once(docker, &request, &log, cancel, on).await?;
    if let Some(step) = plan.step(&StepId::Base) {
        options.store.record(
            &step.key,
            &Action {
                step: step.id.to_string(),
                image: Some(outcome.image_id),
                seconds: start.elapsed().as_secs_f64(),
                ..Action::default()
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

/// A temporary file that is removed on drop.
pub struct Scratch {
    pub path: PathBuf,
    _folder: Folder,
}

/// Returns the unpacked packages of a bootstrapped base as one tar.
pub(super) async fn rootfs_tar(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Scratch, BuildError> {
    let arch = plan.platform.arch();
    let write = move |debs: Vec<PathBuf>, out| {
        rootfs::write_rootfs(&debs, arch, EPOCH, out)
            .map(drop)
            .map_err(BuildError::from)
    };
    base_tar(plan, options, on, write).await
}

/// Returns the finished base as one tar. `None` if only its packages' own scripts can finish it.
async fn finished_tar(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Option<Scratch>, BuildError> {
    let arch = plan.platform.arch();
    let understood = Arc::new(AtomicBool::new(true));
    let answer = Arc::clone(&understood);
    let write = move |debs: Vec<PathBuf>, out| match finish::write(&debs, arch, EPOCH, out) {
        Err(e) if e.is_not_understood() => {
            answer.store(false, Ordering::Relaxed);
            Ok(())
        }
        Err(e) => Err(e.into()),
        Ok(_) => Ok(()),
    };
    let tar = base_tar(plan, options, on, write).await?;
    Ok(understood.load(Ordering::Relaxed).then_some(tar))
}

async fn base_tar<F>(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
    write: F,
) -> Result<Scratch, BuildError>
where
    F: FnOnce(Vec<PathBuf>, BufWriter<File>) -> Result<(), BuildError> + Send + 'static,
{
    let debs = fetch(&plan.base().lock.packages, "base packages", options, on).await?;
    on(BuildEvent::Phase { name: "unpack" });
    let folder = options.store.scratch()?;
    let path = folder.path().join("rootfs.tar");
    let written = path.clone();
    let result = tokio::task::spawn_blocking(move || {
        let file = File::create(&written).map_err(|e| io("create", &written, e))?;
        write(debs, BufWriter::with_capacity(1 << 20, file))
    })
    .await;
    match result {
        Ok(done) => done?,
        Err(e) => return Err(io("unpack into", &path, std::io::Error::other(e))),
    };
    Ok(Scratch {
        path,
        _folder: folder,
    })
}

/// Fetches the OS packages that the context carries.
pub(super) async fn fetch_packages(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<(), BuildError> {
    let mut packages = plan.packages().to_vec();
    packages.extend(plan.tools().iter().flat_map(|t| t.packages.iter().cloned()));
    fetch(&packages, "OS packages", options, on).await.map(drop)
}

/// Fetches locked packages into the store. The image's apt installs those that the lock names without a digest.
pub(super) async fn fetch(
    packages: &[OsPackageLock],
    what: &str,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Vec<PathBuf>, BuildError> {
    let debs: Vec<LockedDeb> = packages.iter().filter_map(locked).collect();
    if debs.is_empty() {
        return Ok(Vec::new());
    }
    let folder = options.store.dir("blobs/sha256")?;
    options.store.lease(debs.iter().map(|deb| &deb.sha256))?;
    let mirrors = Mirrors::discover(&options.config.debian)?;
    let fetcher = Fetcher::new(RetryPolicy::default())?.with_parts(options.store.dir("parts")?);
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
    let paths = fetch_debs(&fetcher, &mirrors, &folder, &debs, &event).await?;
    for deb in &debs {
        options.store.verified(&deb.sha256);
        let file = deb.path.rsplit('/').next().unwrap_or(&deb.path);
        options.store.named(&deb.sha256, file)?;
    }
    Ok(paths)
}

/// Converts a lock's entry. `None` if it lacks a field, such as its digest.
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

pub(super) fn io(doing: &'static str, path: &Path, source: std::io::Error) -> BuildError {
    BuildError::Store(StoreError::at(doing, path, source))
}
