//! The validation programs, run on a root file system without an engine: this machine's own, a
//! mounted one, an unpacked image.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::BuildError;
use super::validation::{OUTPUT, SHARED, command, is_progress, no_report, programs, recorded};
use crate::validate::{Report, SPEC_PATH};
use stackforge_sandbox::{Memory, Mount, OWN, Root, Sandbox, gpu};
use stackforge_types::{Cancel, LogStream};

/// Where images of stackforge have their Python.
const VENV: &str = "opt/venv/bin";
pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What says, on a machine that is validated in place, where Python, its packages and CUDA are.
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

/// Runs the programs in the root file system at `dir`, which stays as it is, and returns their
/// report. `promised` as for an image.
pub async fn validate_rootfs(
    dir: &Path,
    promised: Option<serde_json::Value>,
    gpu: bool,
    cancel: &Cancel,
    line: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, BuildError> {
    if !dir.is_dir() {
        return Err(BuildError::NoRoot {
            path: dir.to_owned(),
        });
    }
    let spec = promised.unwrap_or_else(|| {
        let file = dir.join(SPEC_PATH.trim_start_matches('/'));
        recorded(std::fs::read(file).ok().as_deref())
    });
    validate_root(
        Root::directory(dir),
        environment(dir),
        spec,
        gpu,
        cancel,
        line,
    )
    .await
}

/// The same in a root of any kind, with just that environment.
pub(super) async fn validate_root(
    root: Root,
    env: BTreeMap<OsString, OsString>,
    mut spec: serde_json::Value,
    gpu: bool,
    cancel: &Cancel,
    line: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, BuildError> {
    if gpu {
        spec["require_gpu"] = true.into();
    }
    let own = Path::new(OWN);
    let inside = own.join("validate");
    let mut sandbox = Sandbox::new(root, command(&inside.display().to_string()));
    sandbox.env = env;
    sandbox.shm_size = Some(SHARED);
    // In memory of the sandbox: nothing of it is left, however this process ends.
    sandbox.mounts = vec![Mount::Files {
        target: inside,
        files: programs(&spec).collect(),
    }];
    // Kernels are compiled and run there, whatever of the root may not be written or executed.
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

/// This machine's own root is used as this user uses it; any other as an image of stackforge.
fn environment(dir: &Path) -> BTreeMap<OsString, OsString> {
    let here = std::fs::canonicalize(dir).is_ok_and(|d| d == Path::new("/"));
    let mut env: BTreeMap<OsString, OsString> = match here {
        true => SURROUNDINGS
            .iter()
            .filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)))
            .collect(),
        false => BTreeMap::new(),
    };
    let path = env
        .entry("PATH".into())
        .or_insert_with(|| SYSTEM_PATH.into());
    let venv = dir.join(VENV).join("python3");
    // A link's target is inside: what counts is that the name is there.
    if !here && venv.symlink_metadata().is_ok() {
        let mut all = OsString::from(format!("/{VENV}:"));
        all.push(&*path);
        *path = all;
    }
    env
}
