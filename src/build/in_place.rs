//! Runs the validation programs on a root file system without an engine: this machine's own, a mounted
//! one or an unpacked image.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::BuildError;
use super::validation::{
    OUTPUT, SHARED, ValidationRequest, command, is_progress, no_report, programs, recorded,
};
use crate::validate::{Report, SPEC_PATH};
use stackforge_sandbox::{Memory, Mount, OWN, Root, Sandbox, gpu};
use stackforge_types::{Cancel, LogStream};

/// Path of Python's programs in stackforge's images.
const VENV: &str = "opt/venv/bin";
pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Variables of this machine that say where Python, its packages and CUDA are.
const SURROUNDINGS: [&str; 9] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
];

/// Runs the validation programs in the root file system at `dir`, which is not changed, and returns their
/// report.
pub async fn validate_rootfs(
    dir: &Path,
    request: ValidationRequest,
    cancel: &Cancel,
    line: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, BuildError> {
    stackforge_sandbox::supported()?;
    if !dir.is_dir() {
        return Err(BuildError::NoRoot {
            path: dir.to_owned(),
        });
    }
    let request = request.with(|| {
        let file = dir.join(SPEC_PATH.trim_start_matches('/'));
        recorded(std::fs::read(file).ok().as_deref())
    });
    validate_root(
        Root::directory(dir),
        root_environment(dir),
        request,
        cancel,
        line,
    )
    .await
}

/// Runs the programs in `root` with exactly the environment `env`.
pub(super) async fn validate_root(
    root: Root,
    env: BTreeMap<OsString, OsString>,
    request: ValidationRequest,
    cancel: &Cancel,
    line: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, BuildError> {
    let (gpu, start) = (request.gpu, request.start);
    let mut spec = request.promised.unwrap_or_else(|| recorded(None));
    if gpu {
        spec["require_gpu"] = true.into();
    }
    let own = Path::new(OWN);
    let inside = own.join("validate");
    let mut sandbox = Sandbox::new(root, command(&inside.display().to_string(), start));
    sandbox.env = env;
    sandbox.shm_size = Some(SHARED);
    // The files are in the sandbox's memory: nothing is left even if this process is killed.
    sandbox.mounts = vec![Mount::Files {
        target: inside,
        files: programs(&spec, start).collect(),
    }];
    // Kernels are compiled and run in these folders, even if the root is read-only or mounted noexec.
    for (name, place) in [("HOME", "home"), ("TMPDIR", "tmp")] {
        let target = own.join(place);
        sandbox.env.insert(name.into(), target.clone().into());
        sandbox.mounts.push(Mount::Tmpfs { target, size: None });
    }
    if gpu {
        let searched = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let searched: Vec<PathBuf> = std::env::split_paths(&searched).collect();
        if let Some(access) = gpu::Access::find(Path::new("/"), &searched) {
            access.give(&mut sandbox);
        }
    }
    run(&sandbox, cancel, line).await
}

async fn run(
    sandbox: &Sandbox,
    cancel: &Cancel,
    line: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, BuildError> {
    let (mut report, mut last) = (Vec::new(), None);
    let mut show = |stream: LogStream, text: &[u8]| {
        let shown = String::from_utf8_lossy(text);
        if is_progress(&shown) {
            line(&shown);
        }
        match stream {
            LogStream::Stdout if report.len() < OUTPUT => {
                report.extend(text);
                report.push(b'\n');
            }
            LogStream::Stdout => {}
            LogStream::Stderr => last = Some(shown.into_owned()),
        }
    };
    let outcome = sandbox.run(cancel, &mut show).await?;
    Report::from_slice(&report).map_err(|e| match outcome.memory {
        Memory::KilledFor => BuildError::ValidationMemory { certain: true },
        Memory::MaybeKilledFor => BuildError::ValidationMemory { certain: false },
        Memory::Enough => {
            let code = outcome.code();
            no_report(last.as_deref(), &format!("exit code {code}"), &e)
        }
    })
}

/// Returns the environment of programs in a root file system whose image's configuration is not known: the
/// caller's for this machine's own root, else that of a stackforge image.
pub fn root_environment(dir: &Path) -> BTreeMap<OsString, OsString> {
    let here = std::fs::canonicalize(dir).is_ok_and(|d| d == Path::new("/"));
    let mut env: BTreeMap<OsString, OsString> = if here {
        SURROUNDINGS
            .iter()
            .filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)))
            .collect()
    } else {
        BTreeMap::new()
    };
    let path = env
        .entry("PATH".into())
        .or_insert_with(|| SYSTEM_PATH.into());
    let venv = dir.join(VENV).join("python3");
    // `python3` may be a symbolic link to a path inside `dir`: only check that the name exists.
    if !here && venv.symlink_metadata().is_ok() {
        let mut all = OsString::from(format!("/{VENV}:"));
        all.push(&*path);
        *path = all;
    }
    env
}
