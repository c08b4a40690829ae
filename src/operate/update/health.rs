//! Checks whether a service is healthy with its image.

use super::UpdateError;
use super::settings::{Health, Service};
use rustix::process::{Pid, Signal, kill_process_group};
use stackforge_types::Cancel;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout_at};

/// Time between two checks.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for one HTTP answer: a server that hangs once may answer the next request.
const LOOK: Duration = Duration::from_secs(20);
/// How long a unit has to stay active if the settings require nothing else.
const SETTLED: Duration = Duration::from_secs(10);

/// Waits until the service is healthy.
///
/// # Errors
/// [`UpdateError::Stopped`] on a signal.
pub async fn well(
    health: &Health,
    service: Option<&Service>,
    cancel: &Cancel,
) -> Result<Result<(), String>, UpdateError> {
    let looks = async {
        let end = Instant::now() + health.within;
        let asked = health.command.is_some() || health.http.is_some();
        let active = health.active.or((!asked).then_some(SETTLED));
        if let (Some(service), Some(active)) = (service, active) {
            stays_active(service, active.min(health.within), end).await?;
        }
        if let Some(address) = &health.http {
            answers(address, end).await?;
        }
        if let Some(line) = &health.command {
            succeeds(line, end).await?;
        }
        Ok(())
    };
    tokio::select! {
        done = looks => Ok(done),
        () = cancel.cancelled() => Err(UpdateError::Stopped),
    }
}

/// Waits until the unit was active for `long` without a restart. A unit that systemd keeps restarting is
/// active in between.
async fn stays_active(service: &Service, long: Duration, end: Instant) -> Result<(), String> {
    let mut since: Option<(Instant, u64)> = None;
    loop {
        let asked = service.unit().await;
        let now = Instant::now();
        // systemd may be too busy to answer for a moment.
        let unit = match asked {
            Ok(unit) => unit,
            Err(e) if now >= end => return Err(e.to_string()),
            Err(_) => {
                since = None;
                sleep(PAUSE).await;
                continue;
            }
        };
        since = match since {
            _ if unit.active != "active" => None,
            Some((from, restarts)) if restarts == unit.restarts => Some((from, restarts)),
            _ => Some((now, unit.restarts)),
        };
        match since {
            Some((from, _)) if now.duration_since(from) >= long => return Ok(()),
            _ if unit.active == "failed" => {
                return Err(format!("{} has failed", service.unit));
            }
            // The time left may be too short to be active for `long`, but then the check failed too.
            _ if now >= end => {
                let (unit, restarts) = (&unit.active, unit.restarts);
                return Err(format!(
                    "{} does not stay active: it is {unit}, after {restarts} restarts",
                    service.unit
                ));
            }
            _ => sleep(PAUSE.min(long).max(Duration::from_millis(50))).await,
        }
    }
}

async fn answers(address: &str, end: Instant) -> Result<(), String> {
    // The service is on this machine, so no proxy applies.
    let client = reqwest::Client::builder().no_proxy().build();
    let client = client.map_err(|e| e.to_string())?;
    let mut failure = "no answer".to_owned();
    until(end, async || {
        match timeout_at(look_until(end), client.get(address).send()).await {
            Ok(Ok(answer)) if answer.status().is_success() => true,
            Ok(Ok(answer)) => {
                failure = format!("status {}", answer.status());
                false
            }
            Ok(Err(e)) => {
                failure = stackforge_stack::diag::chain(&e.without_url());
                false
            }
            Err(_) => false,
        }
    })
    .await
    .map_err(|()| format!("{address} is not well: {failure}"))
}

async fn succeeds(line: &str, end: Instant) -> Result<(), String> {
    let mut failure = "it does not end".to_owned();
    until(end, async || {
        let child = Command::new("/bin/sh")
            .args(["-c", line])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(e) => {
                failure = e.to_string();
                return false;
            }
        };
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        // The command may wait for the service by itself, so it gets all the time that is left.
        match timeout_at(end, child.wait()).await {
            Ok(Ok(status)) if status.success() => true,
            Ok(Ok(status)) => {
                failure = status.to_string();
                false
            }
            Ok(Err(e)) => {
                failure = e.to_string();
                false
            }
            Err(_) => {
                if let Some(group) = group {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                false
            }
        }
    })
    .await
    .map_err(|()| format!("the command of `health` does not succeed: {failure}"))
}

/// Returns the end of one HTTP request.
fn look_until(end: Instant) -> Instant {
    end.min(Instant::now() + LOOK)
}

/// Repeats a check until it succeeds or `end` is reached, at least once.
async fn until(end: Instant, mut look: impl AsyncFnMut() -> bool) -> Result<(), ()> {
    loop {
        if look().await {
            return Ok(());
        }
        if Instant::now() + PAUSE >= end {
            return Err(());
        }
        sleep(PAUSE).await;
    }
}
