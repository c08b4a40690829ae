//! The shape of `app`, `image` and `validate.run`.

use crate::spec::raw::Positioned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawApp {
    /// The project's folder; a relative path starts at the stack file's folder. Files that `.dockerignore` or
    /// `.gitignore` leave out stay out of the image.
    pub source: Positioned<String>,
    /// Where its files go in the image; `/app` if it is not set.
    #[schemars(with = "Option<String>")]
    pub to: Option<Positioned<String>>,
    /// Files of requirements: `requirements.txt`, `pyproject.toml` or `uv.lock`. They are locked together with
    /// `libraries`. A relative path starts at the stack file's folder.
    #[serde(default)]
    #[schemars(with = "TextOrTexts")]
    pub requirements: Texts,
    /// Dependency groups (PEP 735) of the `pyproject.toml` that are installed too.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub groups: Vec<Positioned<String>>,
    /// Extras of the `pyproject.toml` that are installed too.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub extras: Vec<Positioned<String>>,
    /// Whether the project is built to a wheel and installed; if it is not set, it is if its `pyproject.toml` has
    /// `[build-system]`.
    #[schemars(with = "Option<bool>")]
    pub install: Option<Positioned<bool>>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawImage {
    /// The program, and arguments that are always given.
    pub entrypoint: Option<Vec<Positioned<String>>>,
    /// The default arguments, or the whole command if there is no entrypoint.
    pub cmd: Option<Vec<Positioned<String>>>,
    /// Environment variables. Everybody who has the image can read them: no secrets.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub env: BTreeMap<Positioned<String>, Positioned<String>>,
    /// Who runs the programs: a name, `UID`, `UID:GID`, or a mapping. A name that the base lacks is created.
    #[schemars(with = "Option<RawUserSchema>")]
    pub user: Option<RawUser>,
    /// Directory that programs start in; an app's own if it is not set.
    #[schemars(with = "Option<String>")]
    pub workdir: Option<Positioned<String>>,
    /// Ports that the service listens on: `8000`, `"9000/udp"`.
    #[serde(default)]
    #[schemars(with = "Vec<NumberOrText>")]
    pub ports: Vec<Positioned<String>>,
    /// Directories whose content outlives a container. They are created, and belong to `user`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub volumes: Vec<Positioned<String>>,
    /// Labels of the image besides its own.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub labels: BTreeMap<Positioned<String>, Positioned<String>>,
    /// Signal that asks the service to end: `SIGTERM`.
    #[schemars(with = "Option<String>")]
    pub stop_signal: Option<Positioned<String>>,
    pub health: Option<RawHealth>,
    /// Files beside the stack, by their absolute paths in the image.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub files: BTreeMap<Positioned<String>, Positioned<String>>,
}

/// A program that says whether the service works: exit status 0 if it does.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawHealth {
    #[schemars(with = "Vec<String>", extend("minItems" = 1))]
    pub cmd: Positioned<Vec<Positioned<String>>>,
    /// Time between two checks: `30s`.
    #[schemars(with = "Option<String>")]
    pub interval: Option<Positioned<String>>,
    /// When a check is ended, and has failed: `30s`.
    #[schemars(with = "Option<String>")]
    pub timeout: Option<Positioned<String>>,
    /// How long the service may take to start; until then failed checks do not count.
    #[schemars(with = "Option<String>")]
    pub start_period: Option<Positioned<String>>,
    /// Failed checks in a row after which the service is unhealthy.
    #[schemars(with = "Option<u32>")]
    pub retries: Option<Positioned<u32>>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawSmokeTest {
    /// The program with its arguments. It has passed if its exit status is 0.
    #[schemars(with = "Vec<String>", extend("minItems" = 1))]
    pub cmd: Positioned<Vec<Positioned<String>>>,
    /// When it is ended, and has failed; `60s` if it is not set.
    #[schemars(with = "Option<String>")]
    pub timeout: Option<Positioned<String>>,
    /// Whether it needs a GPU; then it runs only with `--gpu`.
    #[serde(default)]
    pub gpu: bool,
}

/// A text or a list of texts.
#[derive(Debug, Clone, Default)]
pub struct Texts(pub Vec<Positioned<String>>);

/// A user's name or numbers, or a mapping of both.
#[derive(Debug, Clone)]
pub struct RawUser(pub Positioned<RawUserBody>);

#[derive(Debug, Clone, Default)]
pub enum RawUserBody {
    #[default]
    Nothing,
    Text(String),
    Mapping(RawNamedUser),
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawNamedUser {
    pub name: String,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

// Schemas of values that are one thing or another.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum TextOrTexts {
    One(String),
    Several(Vec<String>),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum NumberOrText {
    Number(u16),
    Text(String),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum RawUserSchema {
    Id(u32),
    Text(String),
    Mapping(RawNamedUser),
}

mod visit {
    use super::{Positioned, RawNamedUser, RawUser, RawUserBody, Texts};
    use serde::de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
    use serde::{Deserialize, Deserializer};
    use std::fmt;

    /// The texts, without the place of one that stands alone.
    #[derive(Default)]
    struct TextList(Vec<Positioned<String>>);

    impl<'de> Deserialize<'de> for TextList {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            struct Either;

            impl<'de> Visitor<'de> for Either {
                type Value = Vec<Positioned<String>>;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("the path of a file, or a list of paths")
                }

                fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Self::Value, E> {
                    let text = Positioned::<String>::default();
                    Ok(vec![Positioned(crate::spec::At {
                        value: v.to_owned(),
                        ..text.0
                    })])
                }

                fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                    let mut all = Vec::new();
                    while let Some(one) = seq.next_element()? {
                        all.push(one);
                    }
                    Ok(all)
                }
            }
            d.deserialize_any(Either).map(TextList)
        }
    }

    impl<'de> Deserialize<'de> for Texts {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            let Positioned(whole) = Positioned::<TextList>::deserialize(d)?;
            let TextList(mut all) = whole.value;
            for text in all.iter_mut().filter(|text| text.0.span.line == 0) {
                text.0.span = whole.span;
            }
            Ok(Self(all))
        }
    }

    impl<'de> Deserialize<'de> for RawUser {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            Positioned::<RawUserBody>::deserialize(d).map(RawUser)
        }
    }

    impl<'de> Deserialize<'de> for RawUserBody {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            struct Either;

            impl<'de> Visitor<'de> for Either {
                type Value = RawUserBody;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a user's name, `UID`, `UID:GID`, or a mapping with `name`")
                }

                fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<RawUserBody, E> {
                    Ok(RawUserBody::Text(v.to_owned()))
                }

                fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<RawUserBody, E> {
                    Ok(RawUserBody::Text(v.to_string()))
                }

                fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<RawUserBody, E> {
                    Ok(RawUserBody::Text(v.to_string()))
                }

                fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawUserBody, A::Error> {
                    RawNamedUser::deserialize(MapAccessDeserializer::new(map))
                        .map(RawUserBody::Mapping)
                }
            }
            d.deserialize_any(Either)
        }
    }
}
