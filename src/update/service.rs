//! The service that runs the image: a unit of systemd.

use super::UpdateError;
use super::settings::Service;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// What systemd says of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// `active`, `activating`, `failed` …
    pub active: String,
    /// Times that systemd itself has restarted it.
    pub restarts: u64,
}

impl Service {
    pub async fn start(&self) -> Result<(), UpdateError> {
        self.ask("start").await
    }

    pub async fn stop(&self) -> Result<(), UpdateError> {
        self.ask("stop").await
    }

    /// Also starts one that was stopped. A unit that failed too often before starts again.
    pub async fn restart(&self, within: Duration) -> Result<(), UpdateError> {
        // Of a unit that has not failed there is nothing to reset.
        let _ = self.ask("reset-failed").await;
        let restarted = tokio::time::timeout(within, self.ask("restart")).await;
        restarted.unwrap_or_else(|_| {
            let within = humantime::format_duration(within);
            Err(UpdateError::Service {
                verb: "restart",
                unit: self.unit.clone(),
                said: format!("it has not started within {within}"),
            })
        })
    }

    pub async fn unit(&self) -> Result<Unit, UpdateError> {
        let properties = ["show", "--property=ActiveState,NRestarts"];
        let said = self.systemctl("show", &properties).await?;
        let value = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(name));
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
        let failed = |said: String| UpdateError::Service {
            verb,
            unit: self.unit.clone(),
            said,
        };
        let ran = Command::new("systemctl")
            .args(args)
            .arg("--")
            .arg(&self.unit)
            .stdin(Stdio::null())
            // Ctrl-C at the terminal is for us: a restart under way is not broken off.
            .process_group(0)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|e| failed(e.to_string()))?;
        match ran.status.success() {
            true => Ok(String::from_utf8_lossy(&ran.stdout).into_owned()),
            false => Err(failed(
                String::from_utf8_lossy(&ran.stderr).trim().to_owned(),
            )),
        }
    }
}
