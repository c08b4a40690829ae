//! The settings of an update: a file on the device, by convention `/etc/stackforge/edge.yaml`.

use super::UpdateError;
use super::place::Place;
use serde::{Deserialize, Deserializer};
use stackforge_stack::config;
use stackforge_transfer::registry::Reference;
use stackforge_types::yaml;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Reference that the publisher moves: an image, or an index from which the device chooses a variant.
    #[serde(deserialize_with = "text")]
    pub image: Reference,
    /// Place of the service's image: `docker:NAME`, `rootfs:DIR` or `oci:DIR`.
    #[serde(deserialize_with = "text")]
    pub place: Place,
    #[serde(default)]
    pub verify: Option<Verify>,
    #[serde(default)]
    pub validate: Validate,
    #[serde(default)]
    pub service: Option<Service>,
    #[serde(default)]
    pub health: Health,
    /// Directory of the state that has to survive a power cut.
    #[serde(default = "state")]
    pub state: PathBuf,
}

/// Whose signatures are accepted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// The publisher's public key in PEM: a file, or `env://NAME`.
    pub key: String,
    /// Repositories that an image may be signed for, if `image` is a mirror of them.
    #[serde(default, deserialize_with = "texts")]
    pub names: Vec<Reference>,
    /// Whether to accept an image that was signed before the current one.
    #[serde(default)]
    pub downgrade: bool,
}

/// How a new image is validated before the service gets it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Validate {
    pub gpu: bool,
    /// Longest time of a validation. An image that takes longer is refused.
    #[serde(deserialize_with = "duration")]
    pub within: Duration,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The systemd unit to restart when the image has changed.
    pub unit: String,
    /// Whether to stop the unit during a validation, on devices whose memory is too small for both.
    #[serde(default)]
    pub pause: bool,
}

/// When the service is healthy. Everything that is set has to hold; with a unit and nothing set, the unit has
/// to stay active.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Health {
    /// A command line for `/bin/sh` that has to succeed.
    pub command: Option<String>,
    /// A URL that has to answer with a status from 200 to 299.
    pub http: Option<String>,
    /// How long the unit has to stay active without a restart by systemd.
    #[serde(deserialize_with = "optional_duration")]
    pub active: Option<Duration>,
    /// Time within which everything has to hold, including the time that a model takes to load.
    #[serde(deserialize_with = "duration")]
    pub within: Duration,
}

impl Default for Validate {
    fn default() -> Self {
        Self {
            gpu: true,
            within: Duration::from_secs(2 * 3600),
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self {
            command: None,
            http: None,
            active: None,
            within: Duration::from_secs(300),
        }
    }
}

fn state() -> PathBuf {
    "/var/lib/stackforge-edge".into()
}

impl Settings {
    pub fn read(path: &Path) -> Result<Self, UpdateError> {
        let text = config::read(path).map_err(|e| UpdateError::io("read", path, e))?;
        Self::parse(&text).map_err(|message| UpdateError::Settings {
            path: path.to_owned(),
            message,
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = yaml::from_slice(text.as_bytes()).map_err(|e| e.to_string())?;
        if let Some(service) = &settings.service
            && !is_unit(&service.unit)
        {
            return Err(format!("`{}` is not the name of a unit", service.unit));
        }
        let health = &settings.health;
        if settings.service.is_none() && health.active.is_some() {
            return Err("`health.active` is about a unit: name it in `service.unit`".to_owned());
        }
        if health.active.is_some_and(|active| active > health.within) {
            return Err("`health.active` is longer than `health.within`".to_owned());
        }
        if let Some(address) = &health.http {
            let read = reqwest::Url::parse(address).map_err(|e| format!("`{address}`: {e}"))?;
            if !matches!(read.scheme(), "http" | "https") {
                return Err(format!("`{address}` is not an HTTP address"));
            }
        }
        Ok(settings)
    }
}

/// Whether `text` has only characters of unit names (systemd.unit(5)) and is not an option of systemctl.
fn is_unit(text: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b":-_.\\@".contains(&b);
    !text.starts_with('-') && text.bytes().all(is_allowed) && (1..256).contains(&text.len())
}

fn text<'de, D: Deserializer<'de>, T: FromStr<Err: std::fmt::Display>>(
    d: D,
) -> Result<T, D::Error> {
    let text = String::deserialize(d)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn texts<'de, D: Deserializer<'de>, T: FromStr<Err: std::fmt::Display>>(
    d: D,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(d)?;
    let read = texts.iter().map(|text| text.parse());
    read.collect::<Result<_, T::Err>>()
        .map_err(serde::de::Error::custom)
}

fn duration<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(d)?;
    let wrong = |_| format!("`{text}` is not a duration: write it as `90s`, `5m` or `2h`");
    humantime::parse_duration(&text)
        .map_err(wrong)
        .map_err(serde::de::Error::custom)
}

fn optional_duration<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    duration(d).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_with_their_defaults() {
        let least = Settings::parse("image: a.example/b:1\nplace: docker:b:current\n").unwrap();
        assert_eq!(least.place.to_string(), "docker:b:current");
        assert!(least.validate.gpu && least.service.is_none() && least.verify.is_none());
        let text = "image: a.example/b:1\nplace: rootfs:/srv/b\nverify: { key: k.pub }\n\
                    validate: { gpu: false, within: 90s }\nservice: { unit: b@1.service, pause: true }\n\
                    health: { http: 'http://127.0.0.1:8000/health', active: 10s, within: 5m }\n";
        let all = Settings::parse(text).unwrap();
        assert_eq!(all.validate.within, Duration::from_secs(90));
        assert!(!all.verify.unwrap().downgrade);
        assert_eq!(all.health.active, Some(Duration::from_secs(10)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for bad in [
            "image: a.example/b\n",
            "image: a.example/b\nplace: docker\n",
            "image: a.example/b\nplace: 'docker:-x'\n",
            "image: 'a b'\nplace: docker:b\n",
            "image: a.example/b\nplace: docker:b\nkey: x\n",
            "image: a.example/b\nplace: docker:b\nservice: { unit: '--force' }\n",
            "image: a.example/b\nplace: docker:b\nservice: { unit: 'a b' }\n",
            "image: a.example/b\nplace: docker:b\nhealth: { active: 1s }\n",
            "image: a.example/b\nplace: docker:b\nhealth: { within: soon }\n",
            "image: a.example/b\nplace: docker:b\nhealth: { http: 'file:///etc/passwd' }\n",
            "image: a.example/b\nplace: docker:b\nservice: { unit: u }\nhealth: { active: 1h }\n",
            "",
        ] {
            assert!(Settings::parse(bad).is_err(), "{bad}");
        }
    }
}
