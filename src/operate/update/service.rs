//! The systemd unit that runs the image.

use super::UpdateError;
use super::settings::Service;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The state of a unit, from systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// ActiveState: `active`, `activating`, `failed` …
    pub active: String,
    /// Number of restarts by systemd itself.
    pub restarts: u64,
}

impl Service {
    pub async fn start(&self) -> Result<(), UpdateError> {
        self.ask("start").await
    }

    pub async fn stop(&self) -> Result<(), UpdateError> {
        self.ask("stop").await
    }

    /// Restarts the unit, or starts it if it is stopped. A unit at its start limit can start again.
    pub async fn restart(&self, within: Duration) -> Result<(), UpdateError> {
        // Resetting fails for a unit that has not failed.
        let _ = self.ask("reset-failed").await;
        let restarted = tokio::time::timeout(within, self.ask("restart")).await;
        restarted.unwrap_or_else(|_| {
            let within = humantime::format_duration(within);
            Err(UpdateError::Service {
                verb: "restart",
                unit: self.unit.clone(),
                reason: format!("it has not started within {within}"),
            })
        })
    }

    pub async fn unit(&self) -> Result<Unit, UpdateError> {
        let properties = ["show", "--property=ActiveState,NRestarts"];
        let output = self.systemctl("show", &properties).await?;
        let value = |name: &str| {
            let line = output.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().to_owned()
        };
        Ok(Unit {
            active: value("ActiveState="),
            restarts: value("NRestarts=").parse().unwrap_or_default(),
        })
    }

    async fn ask(&self, verb: &'static str) -> Result<(), UpdateError> {
        self.systemctl(verb, &[verb]).await.map(drop)
    }

    async fn systemctl(&self, verb: &'static str, args: &[&str]) -> Result<String, UpdateError> {
        let failed = |reason: String| UpdateError::Service {
            verb,
            unit: self.unit.clone(),
            reason,
        };
        let ran = Command::new("systemctl")
            .args(args)
            .arg("--")
            .arg(&self.unit)
            .stdin(Stdio::null())
            // Ctrl-C at the terminal must not interrupt a restart under way.
            .process_group(0)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|e| failed(e.to_string()))?;
        if ran.status.success() {
            Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
        } else {
            Err(failed(
                String::from_utf8_lossy(&ran.stderr).trim().to_owned(),
            ))
        }
    }
}
