//! The keys `image` and `app` of a stack that `init` writes.

use super::out::shown;
use super::yaml::{comment, list, quoted, scalar};
use crate::convert::{App, Health, ImageKeys, User};
use std::collections::BTreeMap;

/// User of a new image, if nothing else is asked for: not root.
const USER: &str = "app";

/// Returns the key `image`, with a user that is not root.
pub(super) fn image(keys: &ImageKeys) -> String {
    image_lines(keys)
}

/// Returns the key `app`. Empty if there is none.
pub(super) fn app(app: Option<&App>) -> String {
    app.map(app_lines).unwrap_or_default()
}

fn app_lines(app: &App) -> String {
    format!(
        "app:\n  source: {}\n  to: {}\n",
        scalar(&app.source),
        scalar(&app.to)
    )
}

fn image_lines(keys: &ImageKeys) -> String {
    let mut out = "image:\n".to_owned();
    let mut line = |key: &str, value: String| out.push_str(&format!("  {key}: {value}\n"));
    if let Some(entrypoint) = &keys.entrypoint {
        line("entrypoint", list(entrypoint));
    }
    if let Some(cmd) = &keys.cmd {
        line("cmd", list(cmd));
    }
    line("user", user(keys.user.as_ref()));
    if let Some(workdir) = &keys.workdir {
        line("workdir", scalar(workdir));
    }
    if !keys.ports.is_empty() {
        let ports: Vec<&str> = keys.ports.iter().map(String::as_str).collect();
        line("ports", format!("[{}]", ports.join(", ")));
    }
    if !keys.volumes.is_empty() {
        line("volumes", list(&keys.volumes));
    }
    if let Some(signal) = &keys.stop_signal {
        line("stop_signal", scalar(signal));
    }
    if let Some(health) = &keys.health {
        line("health", of_health(health));
    }
    for (key, values) in [
        ("env", &keys.env),
        ("labels", &keys.labels),
        ("files", &keys.files),
    ] {
        mapping(&mut out, key, values);
    }
    for note in &keys.notes {
        comment(&mut out, 2, &shown(note));
    }
    out
}

fn user(user: Option<&User>) -> String {
    let Some(User { name, uid, gid }) = user else {
        return USER.to_owned();
    };
    let name = scalar(name.as_deref().unwrap_or(USER));
    match (uid, gid) {
        (None, _) => name,
        (Some(uid), gid) => format!(
            "{{ name: {name}, uid: {uid}, gid: {} }}",
            gid.unwrap_or(*uid)
        ),
    }
}

fn of_health(health: &Health) -> String {
    let mut parts = vec![format!("cmd: {}", list(&health.cmd))];
    let times = [
        ("interval", &health.interval),
        ("timeout", &health.timeout),
        ("start_period", &health.start_period),
    ];
    for (key, value) in times {
        if let Some(value) = value {
            parts.push(format!("{key}: {}", scalar(value)));
        }
    }
    if let Some(retries) = health.retries {
        parts.push(format!("retries: {retries}"));
    }
    format!("{{ {} }}", parts.join(", "))
}

fn mapping(out: &mut String, key: &str, values: &BTreeMap<String, String>) {
    if values.is_empty() {
        return;
    }
    out.push_str(&format!("  {key}:\n"));
    for (name, value) in values {
        out.push_str(&format!("    {}: {}\n", scalar(name), quoted(value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::Note;

    fn full() -> ImageKeys {
        let map = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            owned.collect()
        };
        ImageKeys {
            entrypoint: Some(vec!["python".into(), "-m".into(), "service".into()]),
            cmd: Some(vec!["--port".into(), "8000".into()]),
            env: map(&[("LOG_LEVEL", "info"), ("N", "1")]),
            user: Some(User {
                uid: Some(1000),
                ..User::default()
            }),
            workdir: Some("/app".into()),
            ports: vec!["8000".into(), "9000/udp".into()],
            volumes: vec!["/data".into()],
            labels: map(&[("org.team", "vision: x")]),
            stop_signal: Some("SIGTERM".into()),
            health: Some(Health {
                cmd: vec!["curl".into(), "-f".into(), "http://localhost/".into()],
                interval: Some("30s".into()),
                retries: Some(3),
                ..Health::default()
            }),
            files: map(&[("/etc/app/config.yaml", "config.yaml")]),
            notes: vec![Note::new("Dockerfile:3", "ENV PATH=/x", "why")],
        }
    }

    #[test]
    fn keys_are_yaml_in_the_stacks_shape() {
        let yaml = image_lines(&full())
            + &app_lines(&App {
                source: ".".into(),
                to: "/app".into(),
            });
        let value: serde_json::Value = stackforge_types::yaml::from_slice(yaml.as_bytes()).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "image": {
                    "entrypoint": ["python", "-m", "service"],
                    "cmd": ["--port", "8000"],
                    "user": { "name": "app", "uid": 1000, "gid": 1000 },
                    "workdir": "/app",
                    "ports": [8000, "9000/udp"],
                    "volumes": ["/data"],
                    "stop_signal": "SIGTERM",
                    "health": { "cmd": ["curl", "-f", "http://localhost/"], "interval": "30s", "retries": 3 },
                    "env": { "LOG_LEVEL": "info", "N": "1" },
                    "labels": { "org.team": "vision: x" },
                    "files": { "/etc/app/config.yaml": "config.yaml" },
                },
                "app": { "source": ".", "to": "/app" },
            })
        );
    }

    #[test]
    fn a_new_image_does_not_run_as_root() {
        assert_eq!(image_lines(&ImageKeys::default()), "image:\n  user: app\n");
    }
}
