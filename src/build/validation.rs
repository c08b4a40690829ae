//! The validation programs, run on an image that exists.

use super::BuildError;
use crate::catalog::templates_in;
use crate::engine::docker::Docker;
use crate::engine::{Cancel, ContextEntry, LogStream, RunRequest, Source};
use crate::validate::{Report, SPEC_PATH};

/// Bound of what the programs print: a report and a traceback or two.
const OUTPUT: usize = 4 << 20;
const PROGRAMS: &str = "opt/stackforge-validate";

/// Runs the programs in `image` and returns their report. `promised` says what the image
/// should hold; without it, what the image itself recorded, else what any torch image can do.
pub async fn validate_image(
    docker: &Docker,
    image: &str,
    promised: Option<serde_json::Value>,
    gpu: bool,
    cancel: &Cancel,
    line: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, BuildError> {
    if docker.image(image).await?.is_none() {
        return Err(BuildError::NoImage {
            image: image.to_owned(),
        });
    }
    let mut spec = match promised {
        Some(spec) => spec,
        None => recorded(docker, image).await,
    };
    spec["require_gpu"] = gpu.into();
    let file = |path: String, bytes: Vec<u8>| ContextEntry {
        path: format!("{PROGRAMS}/{path}"),
        mode: 0o644,
        source: Source::Bytes(bytes),
    };
    let mut files: Vec<ContextEntry> = templates_in("validate")
        .into_iter()
        .map(|(path, text)| file(path, text.as_bytes().to_vec()))
        .collect();
    files.push(file("spec.json".into(), spec.to_string().into_bytes()));
    let command =
        format!("exec python3 /{PROGRAMS}/validate.py --spec /{PROGRAMS}/spec.json --out -");
    let request = RunRequest {
        image: image.to_owned(),
        entrypoint: Some(Vec::new()),
        cmd: vec!["sh".into(), "-c".into(), command],
        files,
        gpus: gpu,
        network: Some("none".into()),
        shm_size: Some(1 << 30),
        output_limit: OUTPUT,
        ..RunRequest::default()
    };
    let mut show = |_: LogStream, text: &str| {
        if !text.starts_with(['{', '}', ' ']) {
            line(text);
        }
    };
    let outcome = docker.run(request, cancel, &mut show).await?;
    Report::from_slice(outcome.stdout.as_bytes()).map_err(|e| {
        let last = outcome
            .stderr
            .lines()
            .last()
            .unwrap_or("no output")
            .to_owned();
        let killed = if outcome.oom_killed {
            ", killed for memory"
        } else {
            ""
        };
        BuildError::NoReport {
            reason: format!("{last} (exit code {}{killed}; {e})", outcome.exit_code),
        }
    })
}

async fn recorded(docker: &Docker, image: &str) -> serde_json::Value {
    let bytes = docker.read_file(image, SPEC_PATH, OUTPUT).await;
    bytes
        .ok()
        .flatten()
        .and_then(|b| serde_json::from_slice(&b).ok())
        .unwrap_or_else(|| {
            serde_json::json!({
                "schema": 1,
                "stack": "image",
                "libraries": [{ "name": "torch", "imports": ["torch"] }],
                "checks": ["imports", "cuda", "triton", "compile", "attention"],
            })
        })
}
