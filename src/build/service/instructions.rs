//! The Dockerfile that makes a service of an image in an engine.

use crate::render::quote::dockerfile_word;
use stackforge_stack::spec::ImageConfig;
use stackforge_stack::spec::service::Health;
use std::fmt::Write as _;

/// Name of the layer's tar in the context.
pub(in super::super) const LAYER: &str = "app.tar";

/// Returns the instructions. `user` is the user's numbers; `has_layer` is whether the context has the layer's tar,
/// which `ADD` unpacks with its owners, modes and times.
pub(in super::super) fn dockerfile(
    from: &str,
    config: &ImageConfig,
    env: &[(String, String)],
    user: Option<&str>,
    has_layer: bool,
) -> String {
    let mut out = format!("FROM {from}\n");
    // Writing to a String cannot fail.
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    if has_layer {
        line(format!("ADD {LAYER} /"));
    }
    for (name, value) in env {
        line(format!("ENV {name}={}", dockerfile_word(value)));
    }
    for (key, value) in &config.labels {
        line(format!(
            "LABEL {}={}",
            dockerfile_word(key),
            dockerfile_word(value)
        ));
    }
    for port in &config.ports {
        line(format!("EXPOSE {port}"));
    }
    if !config.volumes.is_empty() {
        line(format!("VOLUME {}", words(&config.volumes)));
    }
    if let Some(dir) = &config.workdir {
        line(format!("WORKDIR {}", dockerfile_word(dir)));
    }
    if let Some(user) = user {
        line(format!("USER {user}"));
    }
    if let Some(signal) = &config.stop_signal {
        line(format!("STOPSIGNAL {signal}"));
    }
    if let Some(health) = &config.health {
        line(healthcheck(health));
    }
    // An entrypoint resets the command that is inherited.
    if let Some(entrypoint) = &config.entrypoint {
        line(format!("ENTRYPOINT {}", words(entrypoint)));
    }
    if let Some(cmd) = &config.cmd {
        line(format!("CMD {}", words(cmd)));
    }
    out
}

fn healthcheck(health: &Health) -> String {
    let mut out = "HEALTHCHECK".to_owned();
    for (option, time) in [
        ("interval", health.interval),
        ("timeout", health.timeout),
        ("start-period", health.start_period),
    ] {
        if let Some(time) = time {
            let _ = write!(out, " --{option}={}ms", time.as_millis());
        }
    }
    if let Some(retries) = health.retries {
        let _ = write!(out, " --retries={retries}");
    }
    format!("{out} CMD {}", words(&health.cmd))
}

/// Returns the JSON form, in which no shell reads the words.
fn words(words: &[String]) -> String {
    // Cannot fail: texts always serialize.
    let json = serde_json::to_string(words).unwrap_or_default();
    // U+2028 and U+2029 end a line for some readers.
    json.replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_quoted() {
        let config = ImageConfig {
            entrypoint: Some(vec!["sh".into(), "-c".into(), "echo \"$A\"\nRUN rm".into()]),
            cmd: Some(vec![]),
            workdir: Some("/a b".into()),
            labels: [("k $x".to_owned(), "a\nUSER root".to_owned())].into(),
            ..ImageConfig::default()
        };
        let env = [("A".to_owned(), "x \"y\" $HOME \\".to_owned())];
        let text = dockerfile("img", &config, &env, Some("7:7"), true);
        let expected = r#"FROM img
ADD app.tar /
ENV A="x \"y\" \$HOME \\"
LABEL "k \$x"="a USER root"
WORKDIR "/a b"
USER 7:7
ENTRYPOINT ["sh","-c","echo \"$A\"\nRUN rm"]
CMD []
"#;
        assert_eq!(text, expected);
    }
}
