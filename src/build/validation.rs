//! Runs the validation programs on an existing image or root file system.

use super::BuildError;
use crate::validate::{Report, SPEC_PATH};
use stackforge_engine::docker::Docker;
use stackforge_engine::{ContextEntry, RunRequest, Source};
use stackforge_plan::promise;
use stackforge_stack::catalog::templates_in;
use stackforge_types::{Cancel, LogStream};

/// Longest output of the programs, in bytes: a report and a traceback or two.
pub(super) const OUTPUT: usize = 4 << 20;
const PROGRAMS: &str = "opt/stackforge-validate";

/// How an image is validated.
#[derive(Debug, Clone, Default)]
pub struct ValidationRequest {
    /// What the image should hold. `None`: its own record, else what any torch image can do.
    pub promised: Option<serde_json::Value>,
    /// Whether there has to be a GPU, which the programs get.
    pub gpu: bool,
    /// Whether the start of programs is measured too, if all checks pass.
    pub start: bool,
}

impl ValidationRequest {
    /// Takes what an image recorded of itself, if nobody said what it should hold.
    pub(super) fn with(self, recorded: impl FnOnce() -> serde_json::Value) -> Self {
        Self {
            promised: Some(self.promised.unwrap_or_else(recorded)),
            ..self
        }
    }
}

/// Runs the programs in `image` and returns their report.
pub async fn validate_image(
    docker: &Docker,
    image: &str,
    request: ValidationRequest,
    cancel: &Cancel,
    line: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, BuildError> {
    if docker.image(image).await?.is_none() {
        return Err(BuildError::NoImage {
            image: image.to_owned(),
        });
    }
    let ValidationRequest {
        promised,
        gpu,
        start,
    } = request;
    let mut spec = match promised {
        Some(spec) => spec,
        None => {
            let bytes = docker.read_file(image, SPEC_PATH, OUTPUT).await;
            recorded(bytes.ok().flatten().as_deref())
        }
    };
    if gpu {
        spec["require_gpu"] = true.into();
    }
    let files = programs(&spec, start).map(|(path, text)| ContextEntry {
        path: format!("{PROGRAMS}/{path}"),
        mode: 0o644,
        source: Source::Bytes(text.into_bytes()),
    });
    let run = RunRequest {
        image: image.to_owned(),
        entrypoint: Some(Vec::new()),
        // Not through a shell, because an image may have none.
        cmd: command(&format!("/{PROGRAMS}"), start).into(),
        files: files.collect(),
        gpus: gpu,
        network: Some("none".into()),
        shm_size: Some(SHARED),
        output_limit: OUTPUT,
        ..RunRequest::default()
    };
    let mut show = |_: LogStream, text: &str| {
        if is_progress(text) {
            line(text);
        }
    };
    let outcome = docker.run(run, cancel, &mut show).await;
    let outcome = outcome.map_err(|e| match e.to_string() {
        message if message.contains("executable file not found") => BuildError::NoReport {
            reason: format!("there is no python3 in its PATH: {message}"),
        },
        _ => e.into(),
    })?;
    Report::from_slice(outcome.stdout.as_bytes()).map_err(|e| {
        if outcome.oom_killed {
            return BuildError::ValidationMemory { certain: true };
        }
        let code = outcome.exit_code;
        no_report(
            outcome.stderr.lines().last(),
            &format!("exit code {code}"),
            &e,
        )
    })
}

/// Bytes of `/dev/shm`, through which torch's workers share data.
pub(super) const SHARED: u64 = 1 << 30;

/// Returns the programs and the spec that they check, by their paths in a folder. With `start` the one that measures
/// is among them.
pub(super) fn programs(
    spec: &serde_json::Value,
    start: bool,
) -> impl Iterator<Item = (String, String)> {
    let spec = ("spec.json".to_owned(), promise(spec));
    let text = |(path, text): (String, &'static str)| (path, text.to_owned());
    let measuring = if start {
        templates_in("start")
    } else {
        Vec::new()
    };
    let all = templates_in("validate").into_iter().chain(measuring);
    all.map(text).chain([spec])
}

/// Returns the command that runs the programs in the folder `path`.
pub(super) fn command(path: &str, start: bool) -> [String; 6] {
    let program = if start {
        format!("{path}/start.py")
    } else {
        format!("{path}/validate.py")
    };
    let spec = format!("{path}/spec.json");
    [
        "python3".into(),
        program,
        "--spec".into(),
        spec,
        "--out".into(),
        "-".into(),
    ]
}

/// Whether a line is progress for people, and not part of the JSON report.
pub(super) fn is_progress(text: &str) -> bool {
    !text.starts_with(['{', '}', ' '])
}

pub(super) fn no_report(last: Option<&str>, ended: &str, e: &serde_json::Error) -> BuildError {
    let last = last.unwrap_or("no output");
    BuildError::NoReport {
        reason: format!("{last} ({ended}; {e})"),
    }
}

/// Parses the spec that an image recorded of itself, else returns what any torch image can do.
pub(super) fn recorded(file: Option<&[u8]>) -> serde_json::Value {
    file.and_then(|b| serde_json::from_slice(b).ok())
        .unwrap_or_else(|| {
            serde_json::json!({
                "schema": 1,
                "stack": "image",
                "libraries": [{ "name": "torch", "imports": ["torch"] }],
                "checks": ["imports", "cuda", "triton", "compile", "attention"],
            })
        })
}
