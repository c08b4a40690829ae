//! The user's configuration: where this machine fetches from.
//!
//! In: `$STACKFORGE_CONFIG`, else `stackforge/config.yaml` in the user's configuration
//! directory. Out: [`Config`]; an absent file is an empty one. Nothing here changes what an
//! image contains, so nothing here is part of a lock or a key.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Mirrors of image registries: `nvcr.io: mirror.example/nvcr`. Images are pinned by
    /// digest, so a mirror cannot serve another.
    #[serde(default)]
    pub registries: BTreeMap<String, String>,
    /// Mirrors of Debian's archives, first one first; without them, the host's apt sources.
    #[serde(default)]
    pub debian: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("read the configuration {}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the configuration {} is not valid: {message}", path.display())]
    Invalid { path: PathBuf, message: String },
}

impl Config {
    pub fn load() -> Result<Self, ConfigError> {
        let env = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let path = env("STACKFORGE_CONFIG")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(env("XDG_CONFIG_HOME")?).join("stackforge/config.yaml")))
            .or_else(|| Some(PathBuf::from(env("HOME")?).join(".config/stackforge/config.yaml")));
        let Some(path) = path else {
            return Ok(Self::default());
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                Self::parse(&text).map_err(|message| ConfigError::Invalid { path, message })
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read { path, source }),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let config: Self =
            serde_saphyr::from_str(text).map_err(|e| e.without_snippet().to_string())?;
        for (registry, mirror) in &config.registries {
            for name in [registry, mirror] {
                if !crate::spec::image_reference(&format!("{name}/x")) {
                    return Err(format!("`{name}` is not the name of a registry"));
                }
            }
        }
        Ok(config)
    }

    /// The reference under which this machine fetches an image.
    pub fn image(&self, reference: &str) -> String {
        let (registry, rest) = match reference.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
            _ => ("docker.io", reference),
        };
        match self.registries.get(registry) {
            Some(mirror) => format!("{mirror}/{rest}"),
            None => reference.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_replace_the_registry_and_nothing_else() {
        let config = Config::parse(
            "registries: { nvcr.io: 'mirror.example:5000/nv', docker.io: hub.example }",
        )
        .unwrap();
        assert_eq!(
            config.image("nvcr.io/nvidia/cuda:13.0.0-devel-ubuntu24.04"),
            "mirror.example:5000/nv/nvidia/cuda:13.0.0-devel-ubuntu24.04"
        );
        assert_eq!(config.image("ubuntu:24.04"), "hub.example/ubuntu:24.04");
        assert_eq!(config.image("ghcr.io/a/b"), "ghcr.io/a/b");
    }

    #[test]
    fn what_is_no_registry_is_refused() {
        for bad in [
            "registries: { nvcr.io: 'a b' }",
            "registries: { nvcr.io: '$(id)' }",
            "registry: {}",
        ] {
            assert!(Config::parse(bad).is_err(), "{bad}");
        }
        assert!(Config::parse("{}").unwrap().registries.is_empty());
    }
}
