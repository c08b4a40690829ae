//! Docker's credential helpers: programs that read a registry from stdin and answer with
//! JSON (docker/docker-credential-helpers, `get`).

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;

use stackforge_types::login::Secret;

/// Time limit of a helper, which may ask a cloud service. One that waits longer for a person cannot be used.
const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST: u64 = 1 << 20;

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Username", default)]
    username: String,
    #[serde(rename = "Secret", default)]
    secret: String,
}

/// Asks a helper for user and secret. `None` if it has no credentials for the registry.
pub(super) async fn get(
    name: &str,
    server: &str,
    path: Option<&OsStr>,
) -> Result<Option<(String, Secret)>, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || !name.chars().all(fits) {
        return Err(format!(
            "`{}` is not a credential helper",
            name.escape_debug()
        ));
    }
    let program = format!("docker-credential-{name}");
    match tokio::time::timeout(PATIENCE, ask(&program, server, path)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("`{program}` does not answer")),
    }
}

async fn ask(
    program: &str,
    server: &str,
    path: Option<&OsStr>,
) -> Result<Option<(String, Secret)>, String> {
    let failed = |error: std::io::Error| format!("`{program}` cannot be run ({error})");
    let mut command = tokio::process::Command::new(program);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let mut child = command
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // The helper's messages may contain a secret.
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A helper that has failed already does not read; its exit status is reported below.
        let _ = input.write_all(server.as_bytes()).await;
    }
    let mut output = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(LONGEST)
            .read_to_end(&mut output)
            .await
            .map_err(failed)?;
    }
    let status = child.wait().await.map_err(failed)?;
    if !status.success() {
        let text = String::from_utf8_lossy(&output);
        return if text.contains("credentials not found") {
            Ok(None)
        } else {
            Err(format!("`{program}` fails with {status}"))
        };
    }
    let answer: Answer = serde_json::from_slice(&output)
        .map_err(|_| format!("`{program}` does not answer with JSON"))?;
    Ok((!answer.secret.is_empty()).then(|| (answer.username, Secret::new(answer.secret))))
}
