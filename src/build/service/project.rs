//! Builds the wheel of the app's own project (PEP 517), and reads what it installs.
//!
//! In: the plan's step, the files of the app, and what the build requires. Out: a wheel in the store, which either
//! engine takes, and its files as they are installed. The build runs in the image of the Python environment, without
//! network; a script of ours calls the project's build backend.

use super::super::audit::AuditSpec;
use super::super::base::io as failed_at;
use super::super::native::EPOCH;
use super::super::native::environment::{interpreter, scheme};
use super::super::{BuildError, Options, recorded, unmet};
use super::layer::source;
use flate2::read::MultiGzDecoder;
use serde_json::json;
use stackforge_binary::source::FileSource;
use stackforge_binary::tar::{MemberKind, Reader};
use stackforge_image::layer::{self, Install, Spec, Wheel};
use stackforge_image::store::Action;
use stackforge_plan::{LEVEL, Plan};
use stackforge_stack::catalog::template;
use stackforge_types::Digest;
use stackforge_types::wheel::{NotAWheel, WheelName};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Name of the script in the templates and, without its folder, among its inputs.
const SCRIPT: &str = "steps/project.py";
/// Where the inputs are while the project is built.
pub(in super::super) const INPUTS: &str = "/dev/stackforge/project";
/// Where its wheel is put.
pub(in super::super) const WHEELS: &str = "/opt/wheels";
/// File beside the wheel with its name.
pub(in super::super) const NAME: &str = "/opt/wheels/name";
/// Largest wheel of a project, in bytes.
pub(in super::super) const LARGEST: usize = 256 << 20;

/// A file that the project's wheel installs, by its path without a leading slash.
pub(in super::super) struct Installed {
    pub content: Vec<u8>,
    pub executable: bool,
}

pub(in super::super) type Files = BTreeMap<String, Installed>;

/// Returns the command that builds the wheel.
pub(in super::super) fn command() -> Vec<String> {
    let script = format!("{INPUTS}/project.py");
    [&interpreter(), "-I", "-B", &script, INPUTS, WHEELS]
        .map(str::to_owned)
        .to_vec()
}

/// Writes what the script reads into `folder`. `requires` are the wheels of the build's requirements.
pub(in super::super) fn lay(
    plan: &Plan,
    options: &Options<'_>,
    requires: &[PathBuf],
    folder: &Path,
) -> Result<(), BuildError> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|e| failed_at("write", &path, e))
    };
    let wheels = folder.join("requires");
    std::fs::create_dir_all(&wheels).map_err(|e| failed_at("create", &wheels, e))?;
    for wheel in requires {
        let to = wheels.join(wheel.file_name().unwrap_or_default());
        std::fs::hard_link(wheel, &to)
            .or_else(|_| std::fs::copy(wheel, &to).map(drop))
            .map_err(|e| failed_at("write", &to, e))?;
    }
    write(
        "project.py",
        &template(options.overlay, SCRIPT).unwrap_or_default(),
    )?;
    let (Some((_, project)), Some((_, app))) = (plan.project(), plan.app()) else {
        return Ok(());
    };
    let how = json!({
        "backend": project.backend,
        "backend_path": project.backend_path,
        "epoch": EPOCH,
    });
    write("project.json", &how.to_string())?;
    let path = folder.join("source.tar");
    let file = File::create(&path).map_err(|e| failed_at("create", &path, e))?;
    let mut out = source(&app.source, EPOCH, BufWriter::new(file))?;
    out.flush().map_err(|e| failed_at("write", &path, e))
}

/// Returns the wheel that an earlier build made.
pub(in super::super) fn made(plan: &Plan, options: &Options<'_>) -> Option<Digest> {
    let (step, _) = plan.project()?;
    recorded::wheel(options.store, step).filter(|_| !options.no_cache)
}

/// Audits and stores the wheel that the script made. `name` is its file's, as the script says.
pub(in super::super) fn keep(
    plan: &Plan,
    options: &Options<'_>,
    name: &str,
    wheel: File,
    start: Instant,
) -> Result<Digest, BuildError> {
    let unfit = |why: String| BuildError::Project { why };
    let parsed: WheelName = name.parse().map_err(|e: NotAWheel| unfit(e.to_string()))?;
    let distribution = parsed.name;
    if plan.installed().any(|(locked, _)| locked == distribution) {
        let why = format!("`{distribution}` is also among the locked libraries");
        return Err(unfit(why));
    }
    let store = options.store;
    let digest = store.put(wheel, None)?.digest;
    store.named(&digest, name)?;
    let path = store.named(&digest, name)?;
    let audit = AuditSpec::of(plan, options.catalog).wheel(&path)?;
    if !audit.ok {
        return Err(BuildError::Audit {
            what: "the wheel of the app".to_owned(),
            audit: Box::new(audit),
        });
    }
    unmet::check(plan, options.catalog, "the app", &path)?;
    if let Some((step, _)) = plan.project() {
        let action = Action {
            step: step.id.to_string(),
            outputs: [("wheel".to_owned(), digest.clone())].into(),
            seconds: start.elapsed().as_secs_f64(),
            audit: serde_json::to_value(audit.count()).ok(),
            ..Action::default()
        };
        store.record(&step.key, &action)?;
    }
    Ok(digest)
}

/// Returns the files that a wheel of the store installs, with the programs of its entry points and its RECORD. None
/// without a wheel.
pub(in super::super) fn files(
    plan: &Plan,
    options: &Options<'_>,
    wheel: Option<&Digest>,
) -> Result<Files, BuildError> {
    let Some(wheel) = wheel else {
        return Ok(Files::new());
    };
    let store = options.store;
    let name = store.names_of(wheel).into_iter().next().unwrap_or_default();
    let path = store.named(wheel, &name)?;
    let opened = FileSource::open(&path).map_err(|e| failed_at("open the wheel", &path, e))?;
    let wheel = Wheel::open(&name, opened)?;
    let spec = Spec {
        scheme: scheme(plan.python),
        python: interpreter(),
        epoch: EPOCH,
        level: LEVEL,
        threads: 1,
    };
    let install = Install {
        wheel: &wheel,
        requested: true,
        drop: &[],
        changed: &BTreeMap::new(),
    };
    let temp = store.temp()?;
    layer::write(&spec, &[install], BufWriter::new(temp.file()))?;
    let reading = |e: std::io::Error| failed_at("read the layer of", &path, e);
    let mut file = temp.file();
    file.rewind().map_err(reading)?;
    let mut tar = Reader::new(MultiGzDecoder::new(BufReader::new(file)));
    let mut files = Files::new();
    while let Some(mut entry) = tar.next().map_err(|e| reading(std::io::Error::other(e)))? {
        if entry.header.kind != MemberKind::File {
            continue;
        }
        let (path, executable) = (entry.header.path.clone(), entry.header.mode & 0o111 != 0);
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(reading)?;
        files.insert(
            path,
            Installed {
                content,
                executable,
            },
        );
    }
    Ok(files)
}
