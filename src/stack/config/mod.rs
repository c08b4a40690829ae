//! The user's configuration: where this machine fetches from.
//!
//! In: `$STACKFORGE_CONFIG`, else `stackforge/config.yaml` in the user's configuration directory. Out:
//! [`Config`]; a missing file counts as empty. The configuration never changes what an image contains, so it
//! is not part of a lock or a key.

mod file;
mod size;

use crate::diag::{Code, Explained, codes};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::spec::Platform;
pub use file::read;
pub use size::Size;
use stackforge_types::printable::without_passwords;
use stackforge_types::yaml;

/// URL schemes by which an engine is reached.
const ENGINES: [&str; 4] = ["unix", "tcp", "https", "ssh"];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Mirrors of image registries: `nvcr.io: mirror.example/nvcr`. Images are pinned by
    /// digest, so a mirror cannot serve another.
    #[serde(default)]
    pub registries: BTreeMap<String, String>,
    /// Mirrors of Debian's archives, in order; without them, the host's apt sources.
    #[serde(default)]
    pub debian: Vec<String>,
    #[serde(default)]
    pub cache: Cache,
    /// Docker engines that build for a platform, in the form of `DOCKER_HOST`. A variant of the platform is built
    /// by the one that is free.
    #[serde(default, deserialize_with = "builders")]
    pub builders: BTreeMap<Platform, Vec<String>>,
    /// Whether compiles keep their objects and take those that an earlier one kept (default: they do).
    #[serde(default)]
    pub compile_cache: Option<bool>,
}

/// Settings of what is kept between runs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Largest store after a build, which makes room if it has grown beyond that: `max_size: 50GB`.
    #[serde(default, deserialize_with = "size")]
    pub max_size: Option<Size>,
    /// Repository for sharing compiled wheels: `registry: registry.example/team/cache`.
    #[serde(default)]
    pub registry: Option<String>,
    /// Repositories that a stack's own `cache.registry` may name. A wheel from a cache runs in images, so a stack
    /// file alone must not decide where it comes from.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Public key (a PEM file, or `env://NAME`). Only content that it has signed is taken from a shared cache.
    #[serde(default)]
    pub verify: Option<String>,
    /// Private key that signs what is pushed to the cache: a PEM file, or `env://NAME`.
    #[serde(default)]
    pub key: Option<String>,
}

fn size<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Size>, D::Error> {
    let text = String::deserialize(d)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

fn builders<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<Platform, Vec<String>>, D::Error> {
    let named = BTreeMap::<String, Vec<String>>::deserialize(d)?;
    let platform = |(name, engines): (String, Vec<String>)| {
        let platform = name.parse::<Platform>().map_err(|_| name);
        Ok((platform?, engines))
    };
    let all: Result<_, String> = named.into_iter().map(platform).collect();
    all.map_err(|name| {
        let known = Platform::ALL.map(|p| p.to_string()).join(" and ");
        serde::de::Error::custom(format!("builders are for {known}, not for `{name}`"))
    })
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

impl Explained for ConfigError {
    fn code(&self) -> Code {
        codes::CONFIG_INVALID
    }

    fn help(&self) -> String {
        "it may hold `registries` and `builders` (maps), `debian` (a list), `compile_cache: false` and `cache: { max_size: 50GB, registry: HOST/NAME }`"
            .to_owned()
    }
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
        match read(&path) {
            // A text that does not parse may contain a password anywhere, so do not show it.
            Ok(text) => Self::parse(&text).map_err(|message| ConfigError::Invalid {
                path,
                message: without_passwords(&message),
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read { path, source }),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = yaml::from_slice(text.as_bytes()).map_err(|e| e.to_string())?;
        config.is_sound()?;
        Ok(config)
    }

    /// Fails for values that the types allow but the program cannot use.
    fn is_sound(&self) -> Result<(), String> {
        for (registry, mirror) in &self.registries {
            for name in [registry, mirror] {
                if !stackforge_types::reference::image_reference(&format!("{name}/x")) {
                    return Err(format!("`{name}` is not the name of a registry"));
                }
            }
        }
        for name in self.cache.registry.iter().chain(&self.cache.allow) {
            if !stackforge_types::reference::repository(name) {
                return Err(format!("`{name}` is not a repository: `HOST/NAME`"));
            }
        }
        for engine in self.builders.values().flatten() {
            let kind = engine.split_once("://").map(|(kind, _)| kind);
            if !kind.is_some_and(|kind| ENGINES.contains(&kind)) {
                return Err(format!(
                    "`{engine}` is not the address of an engine: write unix://PATH, tcp://HOST:PORT \
                     or ssh://[USER@]HOST"
                ));
            }
        }
        Ok(())
    }

    /// Returns the reference by which this machine pulls an image, from a mirror if there is one.
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

    #[test]
    fn nothing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, "{}").unwrap();
        assert_eq!(read(&path).unwrap(), "{}");
        assert_eq!(read("/dev/null".as_ref()).unwrap(), "");
        std::fs::write(&path, vec![b' '; 1 << 20]).unwrap();
        assert!(read(&path).is_ok());
        std::fs::write(&path, vec![b' '; (1 << 20) + 1]).unwrap();
        for refused in [path.as_path(), "/dev/zero".as_ref(), dir.path()] {
            assert!(read(refused).is_err(), "{}", refused.display());
        }
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        assert!(read(&pipe).is_err());
    }

    #[test]
    fn builders_are_engines_of_a_platform() {
        let config =
            Config::parse("builders: { linux/arm64: ['ssh://build@orin', 'tcp://10.0.0.7:2376'] }")
                .unwrap();
        let engines = &config.builders[&Platform::LinuxArm64];
        assert_eq!(engines, &["ssh://build@orin", "tcp://10.0.0.7:2376"]);
        let parse_error = |text: &str| Config::parse(text).unwrap_err();
        let other = parse_error("builders: { linux/riscv64: [] }");
        assert!(other.contains("linux/amd64 and linux/arm64"), "{other}");
        for bad in ["orin", "ftp://orin", "'--flag'"] {
            let why = parse_error(&format!("builders: {{ linux/arm64: [{bad}] }}"));
            assert!(why.contains("ssh://[USER@]HOST"), "{why}");
        }
    }

    #[test]
    fn a_budget_is_a_size() {
        let config = Config::parse("cache: { max_size: 50GB }").unwrap();
        assert_eq!(config.cache.max_size, Some(Size(50_000_000_000)));
        for bad in ["cache: { max_size: much }", "cache: { size: 1GB }"] {
            assert!(Config::parse(bad).is_err(), "{bad}");
        }
    }
}
