//! Makes Kubernetes' probes of Docker's health check.

use crate::yaml::Map;
use stackforge_stack::spec::service::Health;
use std::time::Duration;

/// What engines take where a health check does not say it.
const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(30);
const RETRIES: u64 = 3;
/// Longest time between two checks while a service starts, so that one that is ready gets its requests soon.
const STARTING: u64 = 10;

const NO_LIVENESS: &str = "No livenessProbe: `image.health` has no `start_period`, so nothing says how long a start may \
                           take, and Kubernetes would end a service that still loads its model.";

/// Adds the probes to a container.
pub(crate) fn add(container: Map, health: &Health) -> Map {
    let interval = seconds(health.interval.unwrap_or(INTERVAL));
    let retries = health.retries.map_or(RETRIES, u64::from).max(1);
    let ready = probe(health, interval, retries);
    let Some(start) = health.start_period.filter(|start| !start.is_zero()) else {
        return container.with("readinessProbe", ready).why(NO_LIVENESS);
    };
    let often = interval.min(STARTING);
    let tries = seconds(start).div_ceil(often) + retries;
    container
        .with("startupProbe", probe(health, often, tries))
        .why("For as long as `start_period` lasts, failed checks do not count.")
        .with("readinessProbe", ready.clone())
        .with("livenessProbe", ready)
}

fn probe(health: &Health, period: u64, failures: u64) -> Map {
    let command: Vec<String> = health.cmd.iter().map(|word| literal(word)).collect();
    Map::new()
        .with("exec", Map::new().with("command", command))
        .with("periodSeconds", period)
        .with("timeoutSeconds", seconds(health.timeout.unwrap_or(TIMEOUT)))
        .with("failureThreshold", failures)
}

/// Whole seconds, at least one: Kubernetes knows no shorter time.
fn seconds(time: Duration) -> u64 {
    let partial = u64::from(time.subsec_nanos() > 0);
    // A probe's numbers have 32 bits.
    time.as_secs()
        .saturating_add(partial)
        .clamp(1, i32::MAX as u64)
}

/// Kubernetes puts a container's variables in place of `$(NAME)`, and reads `$$` as `$`.
pub(crate) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_seconds() {
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_millis(1500)), 2);
        assert_eq!(seconds(Duration::ZERO), 1);
        assert_eq!(seconds(Duration::MAX), 2_147_483_647);
    }
}
