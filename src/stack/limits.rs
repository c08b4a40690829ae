//! Limits of how long programs of an image may take to start.
//!
//! In: a YAML file. Out: [`Limits`], or every fault at once with its place.
//!
//! ```yaml
//! import:                                # from a new process until the library is imported
//!   torch: { warm: 3s, cold: 12s }
//! kernel:                                # until the first kernel on the GPU has given its result
//!   warm: 5s
//!   cold: { at_most: 20s, required: false }
//! ```

use crate::diag::{Code, Diagnostic, Report, Source, codes};
use crate::spec::At;
use crate::spec::fault::{structural, widen};
use crate::spec::raw::Positioned;
use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Longest file, in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// Longest time that a limit may name.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const FORM: &str = "write `500ms`, `3s` or `2m`; at most a day";

/// What a file of limits says.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// Bounds by library, as the stack names it.
    pub import: BTreeMap<String, Bounds>,
    pub kernel: Bounds,
    /// The file, for messages.
    pub source: Source,
}

/// Bounds of one time, in both states of the page cache.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    pub warm: Option<At<Limit>>,
    pub cold: Option<At<Limit>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub at_most: Duration,
    /// Whether it is an error if the time was not measured.
    pub required: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    #[serde(default)]
    import: BTreeMap<Positioned<String>, RawBounds>,
    kernel: Option<RawBounds>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBounds {
    warm: Option<Positioned<RawLimit>>,
    cold: Option<Positioned<RawLimit>>,
}

/// A time, or a mapping with one.
enum RawLimit {
    Time(String),
    Mapping(RawMapping),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMapping {
    at_most: String,
    #[serde(default = "yes")]
    required: bool,
}

fn yes() -> bool {
    true
}

impl<'de> Deserialize<'de> for RawLimit {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = RawLimit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as `3s`, or `{ at_most: 3s, required: false }`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RawLimit, E> {
                Ok(RawLimit::Time(text.to_owned()))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<RawLimit, E> {
                Err(E::custom(format!(
                    "the time {number} has no unit: write `{number}s`"
                )))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<RawLimit, E> {
                Err(E::custom(format!("`{number}` is not a time: {FORM}")))
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<RawLimit, E> {
                Err(E::custom(format!("the time {number} has no unit: {FORM}")))
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<RawLimit, M::Error> {
                RawMapping::deserialize(MapAccessDeserializer::new(map)).map(RawLimit::Mapping)
            }
        }

        d.deserialize_any(Either)
    }
}

/// Reads limits. `name` is the text's name in messages.
///
/// # Errors
/// A report with every fault. Without a single limit the file is at fault too.
pub fn read(name: &str, text: &str) -> Result<Limits, Report> {
    let source = Source {
        name: name.to_owned(),
        text: text.to_owned(),
        above: 0,
    };
    if text.len() > MAX_BYTES {
        let message = format!(
            "the file has {} bytes, limits have at most {MAX_BYTES}",
            text.len()
        );
        let fault = Diagnostic::error(codes::LIMITS_INVALID, message);
        return Err(Report::new(Source::default(), vec![fault]));
    }
    let options = serde_saphyr::options! {
        emit_comments: false,
        budget: serde_saphyr::budget! { max_events: 5_000, max_aliases: 50, max_anchors: 50, max_depth: 16 },
    };
    let raw: RawLimits = match serde_saphyr::from_str_with_options(text, options) {
        Ok(raw) => raw,
        Err(error) => {
            let fault = ours(structural(error.without_snippet(), text));
            return Err(Report::new(source, vec![fault]));
        }
    };
    let mut faults = Vec::new();
    let mut bounds = |raw: RawBounds| Bounds {
        warm: raw
            .warm
            .and_then(|limit| limit_of(limit, text, &mut faults)),
        cold: raw
            .cold
            .and_then(|limit| limit_of(limit, text, &mut faults)),
    };
    let import = raw.import.into_iter();
    let import: BTreeMap<String, Bounds> = import
        .map(|(name, raw)| (name.0.value, bounds(raw)))
        .collect();
    let kernel = raw.kernel.map(&mut bounds).unwrap_or_default();
    let has_any = |bounds: &Bounds| bounds.warm.is_some() || bounds.cold.is_some();
    if faults.is_empty() && !import.values().chain([&kernel]).any(has_any) {
        let fault = Diagnostic::error(codes::LIMITS_INVALID, "the file limits nothing");
        faults.push(fault.help(codes::LIMITS_INVALID.fix()));
    }
    if !faults.is_empty() {
        return Err(Report::new(source, faults));
    }
    Ok(Limits {
        import,
        kernel,
        source,
    })
}

/// Makes a stack's fault one of limits.
fn ours(fault: Diagnostic) -> Diagnostic {
    let code: Code = fault.code;
    let fault = Diagnostic {
        code: codes::LIMITS_INVALID,
        fix: None,
        ..fault
    };
    match code {
        codes::UNKNOWN_KEY => fault.label("not a key of limits"),
        codes::MISSING_KEY | codes::WRONG_TYPE => fault.help(codes::LIMITS_INVALID.fix()),
        _ => fault,
    }
}

fn limit_of(
    raw: Positioned<RawLimit>,
    text: &str,
    faults: &mut Vec<Diagnostic>,
) -> Option<At<Limit>> {
    let At { value, span } = raw.0;
    let (time, required) = match &value {
        RawLimit::Time(time) => (time, true),
        RawLimit::Mapping(mapping) => (&mapping.at_most, mapping.required),
    };
    let parsed = humantime::parse_duration(time).ok();
    let Some(at_most) = parsed.filter(|time| !time.is_zero() && *time <= LONGEST) else {
        let shown: String = time.escape_debug().take(40).collect();
        let fault = Diagnostic::error(codes::LIMITS_INVALID, format!("`{shown}` is not a time"));
        faults.push(fault.help(FORM).at(widen(span, text)));
        return None;
    };
    Some(At {
        value: Limit { at_most, required },
        span: widen(span, text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let report = read("limits.yaml", text).unwrap_err();
        let shown = |d: &Diagnostic| {
            assert_eq!(d.code, codes::LIMITS_INVALID);
            assert!(d.help.is_some(), "{}", d.message);
            d.message.clone()
        };
        report.diagnostics.iter().map(shown).collect()
    }

    #[test]
    fn a_limit_is_a_time_or_says_whether_it_is_required() {
        let text = "import:\n  torch: { warm: 2s 500ms, cold: { at_most: 1m } }\nkernel: { cold: { at_most: 5s, required: false } }\n";
        let limits = read("limits.yaml", text).unwrap();
        let torch = &limits.import["torch"];
        let of = |limit: &Option<At<Limit>>| {
            limit
                .as_ref()
                .map(|l| (l.value.at_most.as_millis(), l.value.required))
        };
        assert_eq!(of(&torch.warm), Some((2500, true)));
        assert_eq!(of(&torch.cold), Some((60_000, true)));
        assert_eq!(of(&limits.kernel.warm), None);
        assert_eq!(of(&limits.kernel.cold), Some((5000, false)));
        let cold = limits.kernel.cold.unwrap().span;
        assert_eq!(cold.line, 3);
    }

    #[test]
    fn every_wrong_time_is_named() {
        let text = "import:\n  torch: { warm: fast, cold: 0s }\nkernel: { warm: 25h }\n";
        assert_eq!(
            faults(text),
            [
                "`fast` is not a time",
                "`0s` is not a time",
                "`25h` is not a time"
            ]
        );
    }

    #[test]
    fn what_limits_nothing_is_refused() {
        for text in [
            "{}",
            "",
            "import: {}",
            "import: { torch: {} }",
            "kernel: {}",
        ] {
            assert_eq!(faults(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn shapes_are_refused_with_help() {
        for text in [
            "import: [torch]",
            "import: { torch: 3s }",
            "imports: { torch: { warm: 3s } }",
            "kernel: { warm: 3 }",
            "kernel: { warm: 2.5 }",
            "kernel: { warm: -1 }",
            "kernel: { warm: { required: false } }",
            "kernel: { warm: { at_most: 3s, requierd: false } }",
            "kernel: { warm: 1s, warm: 2s }",
            "kernel: { warm: [",
            "a: &a [b]\nkernel: *a",
        ] {
            assert_eq!(faults(text).len(), 1, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,80}") {
            let _ = read("limits.yaml", &text);
            let _ = read("limits.yaml", &format!("kernel: {{ warm: {text} }}"));
        }
    }
}
