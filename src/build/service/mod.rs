//! Makes a service of an image: the layer with the user's own files, and what the image starts.
//!
//! In: the image of the Python environment, which was validated and audited, and the plan's last steps. Out: an image
//! with one layer more. Both engines put the same tar over the image and set the same configuration, so a changed
//! line of code costs that layer alone.

mod accounts;
mod below;
mod checks;
mod instructions;
mod layer;
pub(super) mod project;

pub use accounts::AccountError;
pub(super) use accounts::{Account, account};
pub(super) use below::Below;
pub(super) use checks::{Ended, added, check, not_run};
pub(super) use instructions::{LAYER, dockerfile};
pub(super) use layer::write;

use super::Options;
use serde_json::{Map, Value, json};
use stackforge_stack::labels;
use stackforge_stack::spec::ImageConfig;
use stackforge_types::Cancel;
use std::collections::BTreeMap;
use std::time::Duration;

/// Returns the options of the build of the environment, whose image nobody sees.
pub(super) fn of_environment<'a>(options: &Options<'a>, tags: Vec<String>) -> Options<'a> {
    Options {
        tags,
        outputs: Vec::new(),
        index: options.index.clone(),
        ..*options
    }
}

/// Returns the variables that the image sets: those that NVIDIA's container toolkit reads, unless the base has them,
/// then the stack's own.
pub(super) fn variables(
    config: &ImageConfig,
    below: &[String],
    labels: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = Vec::new();
    let is_set = |name: &str| {
        let same = |e: &String| e.split_once('=').is_some_and(|(n, _)| n == name);
        below.iter().any(same) || config.env.contains_key(name)
    };
    for (name, value) in nvidia(labels) {
        if !is_set(name) {
            env.push((name.to_owned(), value));
        }
    }
    env.extend(
        config
            .env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    env
}

/// Returns the variables by which NVIDIA's container toolkit gives a container GPUs, and refuses drivers that are too
/// old: the audit found which driver is needed. A Jetson's driver has other numbers.
fn nvidia(labels: &BTreeMap<String, String>) -> Vec<(&'static str, String)> {
    let mut env = vec![
        ("NVIDIA_VISIBLE_DEVICES", "all".to_owned()),
        ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility".to_owned()),
    ];
    let driver = labels
        .get(labels::DRIVER)
        .filter(|_| !labels.contains_key(labels::L4T));
    if let Some(driver) = driver {
        env.push(("NVIDIA_REQUIRE_CUDA", format!("driver>={driver}")));
    }
    env
}

/// Returns the keys of an image's configuration that the stack sets, as the OCI format and Docker name them. A key
/// whose value is null is removed.
pub(super) fn document(config: &ImageConfig, user: Option<&str>) -> Map<String, Value> {
    let mut keys = Map::new();
    let mut set = |key: &str, value: Value| {
        keys.insert(key.to_owned(), value);
    };
    if let Some(entrypoint) = &config.entrypoint {
        set("Entrypoint", json!(entrypoint));
        // As in a Dockerfile: the command of the image below was for its own entrypoint.
        set("Cmd", Value::Null);
    }
    if let Some(cmd) = &config.cmd {
        set("Cmd", json!(cmd));
    }
    if let Some(user) = user {
        set("User", user.into());
    }
    if let Some(dir) = &config.workdir {
        set("WorkingDir", dir.as_str().into());
    }
    if let Some(signal) = &config.stop_signal {
        set("StopSignal", signal.as_str().into());
    }
    if let Some(health) = &config.health {
        set("Healthcheck", health.document());
    }
    let names = |all: &mut dyn Iterator<Item = String>| {
        let entries = all.map(|name| (name, json!({})));
        Value::Object(entries.collect())
    };
    if !config.ports.is_empty() {
        set(
            "ExposedPorts",
            names(&mut config.ports.iter().map(ToString::to_string)),
        );
    }
    if !config.volumes.is_empty() {
        set("Volumes", names(&mut config.volumes.iter().cloned()));
    }
    keys
}

/// Returns the text that names a user in an image's configuration: numbers, which need no `/etc/passwd`, and by which
/// Kubernetes sees that it is not root.
pub(super) fn user(account: &Account) -> String {
    format!("{}:{}", account.uid, account.gid)
}

/// Runs `work` with a request to stop that also comes when the time is over. `None` if it was over.
pub(super) async fn within<T>(
    timeout: Duration,
    cancel: &Cancel,
    work: impl AsyncFnOnce(&Cancel) -> T,
) -> Option<T> {
    let own = Cancel::new();
    let mut running = std::pin::pin!(work(&own));
    let mut over = false;
    loop {
        tokio::select! {
            done = &mut running => return (!over).then_some(done),
            () = tokio::time::sleep(timeout), if !own.is_cancelled() => {
                over = true;
                own.cancel();
            }
            () = cancel.cancelled(), if !own.is_cancelled() => own.cancel(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackforge_stack::spec::service::{Health, Port, Protocol};

    #[test]
    fn what_nvidias_toolkit_reads_can_be_overridden() {
        let labels = BTreeMap::from([(labels::DRIVER.to_owned(), "525.60.13".to_owned())]);
        let config = ImageConfig {
            env: [("NVIDIA_DRIVER_CAPABILITIES".to_owned(), "all".to_owned())].into(),
            ..ImageConfig::default()
        };
        let below = ["NVIDIA_VISIBLE_DEVICES=none".to_owned()];
        let env = variables(&config, &below, &labels);
        let expected = [
            ("NVIDIA_REQUIRE_CUDA", "driver>=525.60.13"),
            ("NVIDIA_DRIVER_CAPABILITIES", "all"),
        ];
        assert_eq!(env, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
        let jetson = BTreeMap::from([
            (labels::DRIVER.to_owned(), "540".to_owned()),
            (labels::L4T.to_owned(), "36.4".to_owned()),
        ]);
        assert_eq!(nvidia(&jetson).len(), 2);
    }

    #[test]
    fn a_configuration_has_dockers_keys() {
        let config = ImageConfig {
            entrypoint: Some(vec!["x".into()]),
            ports: vec![Port {
                number: 80,
                protocol: Protocol::Udp,
            }],
            volumes: vec!["/data".into()],
            health: Some(Health {
                cmd: vec!["true".into()],
                interval: Some(Duration::from_millis(1500)),
                timeout: None,
                start_period: None,
                retries: Some(2),
            }),
            ..ImageConfig::default()
        };
        let document = Value::Object(document(&config, Some("1:1")));
        assert_eq!(
            document,
            json!({
                "Entrypoint": ["x"], "Cmd": null, "User": "1:1",
                "ExposedPorts": { "80/udp": {} }, "Volumes": { "/data": {} },
                "Healthcheck": { "Test": ["CMD", "true"], "Interval": 1_500_000_000, "Retries": 2 },
            })
        );
    }

    #[tokio::test]
    async fn what_takes_too_long_is_told_to_stop() {
        let cancel = Cancel::new();
        let slow = async |own: &Cancel| own.cancelled().await;
        assert!(
            within(Duration::from_millis(20), &cancel, slow)
                .await
                .is_none()
        );
        let quick = async |_: &Cancel| 7;
        assert_eq!(
            within(Duration::from_secs(1), &cancel, quick).await,
            Some(7)
        );
        cancel.cancel();
        let stopped = within(Duration::from_secs(9), &cancel, slow).await;
        assert!(stopped.is_some(), "the user stopped it");
    }
}
