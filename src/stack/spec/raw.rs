//! The shape of a stack file, from which its JSON Schema is generated.
//!
//! Only structure is decided here; [`super::read`] checks the values. Neither `untagged`
//! nor `flatten` appear: serde buffers under them and the spans would be lost.

use super::service::raw::{RawApp, RawImage, RawSmokeTest};
use crate::diag::Span;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use stackforge_catalog::OptionValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// A value with its place in the file; by default nowhere.
#[derive(Debug, Clone)]
pub struct Positioned<T>(pub super::At<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Positioned<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let spanned = serde_saphyr::Spanned::<T>::deserialize(d)?;
        Ok(Self(super::At {
            value: spanned.value,
            span: span_of(&spanned.referenced),
        }))
    }
}

pub(super) fn span_of(location: &serde_saphyr::Location) -> Span {
    let span = location.span();
    let at = |n: Option<u64>, chars: u64| n.unwrap_or(chars) as usize;
    Span {
        line: u32::try_from(location.line()).unwrap_or(u32::MAX),
        column: u32::try_from(location.column()).unwrap_or(u32::MAX),
        offset: at(span.byte_offset(), span.offset()),
        len: at(span.byte_len(), span.len()),
    }
}

impl<T: JsonSchema> JsonSchema for Positioned<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        T::json_schema(g)
    }
    fn inline_schema() -> bool {
        T::inline_schema()
    }
}

impl<T: Default> Default for Positioned<T> {
    fn default() -> Self {
        Self(super::At {
            value: T::default(),
            span: Span::default(),
        })
    }
}

impl PartialEq for Positioned<String> {
    fn eq(&self, other: &Self) -> bool {
        self.0.value == other.0.value
    }
}
impl Eq for Positioned<String> {}
impl PartialOrd for Positioned<String> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Positioned<String> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.value.cmp(&other.0.value)
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("allOf" = from_key_or_axis()))]
pub struct RawStack {
    /// Name of the stack: also the image's default name.
    pub stack: Positioned<String>,
    /// One line for people.
    pub about: Option<String>,
    /// A name in images/, or an image reference pinned by digest. `{{cuda}}` and `{{python}}`
    /// stand for the value of that axis of `matrix`.
    pub base: Positioned<String>,
    #[serde(default)]
    pub target: Positioned<RawTarget>,
    /// Python's major and minor version, in quotes: "3.12". May be left out where `matrix` has
    /// a `python` axis.
    #[schemars(with = "Option<String>")]
    pub python: Option<Positioned<String>>,
    /// Libraries by name: a version specifier, `auto`, the address or path of a file, or a mapping.
    #[schemars(with = "BTreeMap<String, RawLibrary>", extend("minProperties" = 1))]
    pub libraries: Positioned<BTreeMap<Positioned<String>, RawLibrary>>,
    /// OS packages of the final image.
    #[serde(default)]
    pub packages: Vec<Positioned<String>>,
    /// Requirements (PEP 508) that win over what packages ask for.
    #[serde(default)]
    pub overrides: Vec<Positioned<String>>,
    /// Requirements (PEP 508) that hold versions back where something asks for the distribution, and files
    /// of them, as pip's `--constraint` takes.
    #[serde(default)]
    pub constraints: Vec<Positioned<String>>,
    /// Package indexes, the first one first; without it, the user's own configuration.
    #[serde(default)]
    pub indexes: Vec<Positioned<String>>,
    /// Whether the image must compile kernels at run time (Triton, torch.compile); false
    /// leaves the C compiler out.
    pub jit: Option<bool>,
    /// Whether OS packages that the libraries' compiled code needs (libGL, libgomp …) are found and locked;
    /// false leaves all of them to `packages`.
    pub os_libraries: Option<bool>,
    /// Whether libraries are installed without what nothing in the image loads: device code that none
    /// of the target's GPUs runs, symbol tables, debug information. Only the native engine does it.
    pub prune: Option<bool>,
    /// Whether the image has byte code of its installed Python files, so that a new container does not compile
    /// them again.
    pub bytecode: Option<bool>,
    #[serde(default)]
    pub validate: RawValidate,
    /// A project of your own in the image.
    pub app: Option<RawApp>,
    /// What the image starts, and how.
    pub image: Option<RawImage>,
    #[serde(default)]
    pub matrix: RawMatrix,
    pub publish: Option<Publish>,
    pub cache: Option<SharedCache>,
}

/// What a stack may leave out only where the matrix has that axis, for its schema.
fn from_key_or_axis() -> serde_json::Value {
    let has = |object: &str, key: &str| {
        serde_json::json!({
            "required": [object],
            "properties": { object: { "required": [key] } },
        })
    };
    let axis = |name: &str| has("matrix", name);
    serde_json::json!([
        { "anyOf": [has("target", "platform"), axis("platform")] },
        { "anyOf": [has("target", "gpu"), axis("sm")] },
        { "anyOf": [{ "required": ["python"] }, axis("python")] },
    ])
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTarget {
    /// `linux/amd64` or `linux/arm64`. May be left out where `matrix` has a `platform` axis.
    #[schemars(with = "Option<String>")]
    pub platform: Option<Positioned<String>>,
    /// GPUs by name (`thor`, `h100`) or by SM (`sm_110`). May be left out where `matrix` has an
    /// `sm` axis.
    #[schemars(with = "Option<Vec<String>>", extend("minItems" = 1))]
    pub gpu: Option<Vec<Positioned<String>>>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawValidate {
    pub attention: Option<AttentionShape>,
    /// Modules of the app that are imported in the finished image.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub imports: Vec<Positioned<String>>,
    /// Programs that have to end with exit status 0 in the finished image.
    #[serde(default)]
    pub run: Vec<RawSmokeTest>,
}

/// Shape of the attention benchmark: elements, not bytes.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct AttentionShape {
    pub batch: u32,
    pub heads: u32,
    pub seq: u32,
    pub head_dim: u32,
    pub dtype: Dtype,
    #[serde(default)]
    pub causal: bool,
}

impl Default for AttentionShape {
    fn default() -> Self {
        Self {
            batch: 16,
            heads: 16,
            seq: 2048,
            head_dim: 64,
            dtype: Dtype::Float16,
            causal: false,
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    Float16,
    Bfloat16,
    Float32,
}

/// Axes that expand a stack into variants, one for each combination that can work.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawMatrix {
    /// CUDA versions for the base's `{{cuda}}`: "12.9".
    #[serde(default)]
    pub cuda: Vec<Positioned<String>>,
    /// SMs in place of `target.gpu`: "9.0" or "sm_90".
    #[serde(default)]
    pub sm: Vec<Positioned<String>>,
    /// CPU instruction sets that compiled libraries are tuned for, by their names in
    /// catalog/cpus.yaml. Each belongs to one platform.
    #[serde(default)]
    pub isa: Vec<Positioned<String>>,
    /// Platforms in place of `target.platform`.
    #[serde(default)]
    pub platform: Vec<Positioned<String>>,
    /// Python versions in place of `python`, and for the base's `{{python}}`.
    #[serde(default)]
    pub python: Vec<Positioned<String>>,
}

/// Where machines share what they compiled.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct SharedCache {
    /// A repository of a registry, `HOST/NAME`, that keeps compiled wheels. It is used if
    /// the user's own configuration names no other and lists it under `cache.allow`.
    pub registry: String,
}

/// Where images of the stack are published.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    pub repository: String,
    /// Tags; `{{stack}}`, `{{version}}` and `{{variant}}` are filled in, and `{{cuda}}` and
    /// `{{python}}` where the matrix has that axis.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Where a library's files come from.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// A published wheel where one fits the target, else source.
    #[default]
    Auto,
    Wheel,
    Source,
}

/// `from` as people may write it: `editable` is understood to be refused with its reason.
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum RawFrom {
    #[default]
    Auto,
    Wheel,
    Source,
    Editable,
}

#[derive(Debug, Clone, Default)]
pub struct RawLibrary {
    pub version: Option<Positioned<String>>,
    pub body: LibraryBody,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibraryBody {
    /// A version specifier (PEP 440) or `auto`.
    #[schemars(with = "Option<String>")]
    pub version: Option<Positioned<String>>,
    #[serde(default)]
    #[schemars(with = "From")]
    pub from: RawFrom,
    #[serde(default)]
    pub extras: Vec<Positioned<String>>,
    /// Environment of the library's build.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub env: BTreeMap<Positioned<String>, String>,
    /// Parallel jobs of its build; without it, from cores and memory.
    pub jobs: Option<Positioned<u32>>,
    /// Patches of its recipe to apply, by id; without it, those that the recipe's conditions choose.
    #[serde(default)]
    pub patches: Vec<String>,
    /// Parts that its recipe lets a build leave out, by the option's name: `false`, or a list of what stays.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, RawOption>")]
    pub options: BTreeMap<Positioned<String>, Positioned<RawOption>>,
    /// OS packages that its build needs besides a compiler and Python's headers, `libpq-dev` for instance.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub build_packages: Vec<Positioned<String>>,
    /// Requirements (PEP 508) of its build that its metadata does not name.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub build_requires: Vec<Positioned<String>>,
    /// Source repository, in place of the recipe's.
    #[schemars(with = "Option<String>")]
    pub git: Option<Positioned<String>>,
    /// Revision, tag or branch of `git`.
    #[serde(rename = "ref")]
    #[schemars(with = "Option<String>")]
    pub git_ref: Option<Positioned<String>>,
    /// Index that this library comes from.
    #[schemars(with = "Option<String>")]
    pub index: Option<Positioned<String>>,
    /// A wheel or source distribution to take it from: an https address, or a path that starts at the stack
    /// file's folder.
    #[schemars(with = "Option<String>")]
    pub file: Option<Positioned<String>>,
    /// SHA-256 of `file`, in hexadecimal. Without it, the lock records what the first lock found.
    #[schemars(with = "Option<String>")]
    pub sha256: Option<Positioned<String>>,
}

/// The value of an option: whether it is on, or the parts that stay. A single part needs no list.
#[derive(Debug, Clone)]
pub struct RawOption(pub OptionValue);

/// A part's name; a number is its digits.
struct Part(String);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Scalar;

        impl Visitor<'_> for Scalar {
            type Value = Part;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name or the number of a part")
            }

            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Part, E> {
                Ok(Part(v.to_owned()))
            }

            fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Part, E> {
                Ok(Part(v.to_string()))
            }

            fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Part, E> {
                Ok(Part(v.to_string()))
            }
        }
        d.deserialize_any(Scalar)
    }
}

impl<'de> Deserialize<'de> for RawOption {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = RawOption;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false`, or a list of the parts that stay")
            }

            fn visit_bool<E: serde::de::Error>(self, v: bool) -> Result<RawOption, E> {
                Ok(RawOption(OptionValue::Switch(v)))
            }

            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<RawOption, E> {
                Ok(RawOption(OptionValue::Parts(vec![v.to_owned()])))
            }

            fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<RawOption, E> {
                self.visit_str(&v.to_string())
            }

            fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<RawOption, E> {
                self.visit_str(&v.to_string())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawOption, A::Error> {
                let mut parts = Vec::new();
                while let Some(Part(part)) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(RawOption(OptionValue::Parts(parts)))
            }
        }
        d.deserialize_any(Either)
    }
}

impl JsonSchema for RawOption {
    fn schema_name() -> Cow<'static, str> {
        "BuildOption".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let part = serde_json::json!({ "type": ["string", "integer"] });
        json_schema!({ "anyOf": [
            { "type": ["boolean", "string", "integer"] },
            { "type": "array", "items": part },
        ] })
    }
}

impl<'de> Deserialize<'de> for RawLibrary {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = RawLibrary;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a version specifier in quotes, `auto`, the address or path of a file, or a mapping with `version`")
            }

            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<RawLibrary, E> {
                Ok(RawLibrary {
                    version: Some(Positioned(super::At {
                        value: v.to_owned(),
                        span: Span::default(),
                    })),
                    body: LibraryBody::default(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawLibrary, A::Error> {
                let mut body = LibraryBody::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawLibrary {
                    version: body.version.take(),
                    body,
                })
            }
        }
        d.deserialize_any(Either)
    }
}

impl JsonSchema for RawLibrary {
    fn schema_name() -> Cow<'static, str> {
        "Library".into()
    }
    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        let body = g.subschema_for::<LibraryBody>();
        json_schema!({ "anyOf": [ { "type": "string" }, body ] })
    }
}
