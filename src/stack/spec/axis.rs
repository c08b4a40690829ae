//! The axes of `matrix:`: the values that a stack is expanded over.
//!
//! In: the raw lists, and the parts of the stack that they replace. Out: [`Matrix`], or a diagnostic for each
//! value that does not parse or is repeated, each placeholder without its axis, each axis without its
//! placeholder, and each key that neither the stack nor an axis gives. Only the catalog knows which SMs, ISAs
//! and bases exist.

use super::At;
use super::raw::{Positioned, RawMatrix, RawTarget};
use super::read::Checker;
use crate::diag::{Code, Diagnostic, Span, codes};
use serde::Serialize;
use stackforge_types::{IsaName, Malformed, Platform, PythonVersion, Sm, malformed, string_serde};
use std::fmt;
use std::str::FromStr;

/// Most combinations. Each is checked by every rule; real matrices have far fewer.
const MAX_COMBINATIONS: usize = 2048;

/// The axes, in the order in which a variant's name contains their values.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Matrix {
    pub python: Vec<At<PythonVersion>>,
    pub cuda: Vec<At<CudaVersion>>,
    pub sm: Vec<At<Sm>>,
    pub isa: Vec<At<IsaName>>,
    pub platform: Vec<At<Platform>>,
}

impl Matrix {
    pub fn is_empty(&self) -> bool {
        self.lengths().iter().all(|n| *n == 0)
    }

    fn lengths(&self) -> [usize; 5] {
        [
            self.python.len(),
            self.cuda.len(),
            self.sm.len(),
            self.isa.len(),
            self.platform.len(),
        ]
    }
}

/// A CUDA version, major and minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion {
    pub major: u8,
    pub minor: u8,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for CudaVersion {
    type Err = Malformed;

    fn from_str(s: &str) -> Result<Self, Malformed> {
        let part = |p: &str| {
            let plain = p.bytes().all(|b| b.is_ascii_digit()) && (p == "0" || !p.starts_with('0'));
            plain.then(|| p.parse::<u8>().ok()).flatten()
        };
        s.split_once('.')
            .and_then(|(major, minor)| {
                Some(Self {
                    major: part(major)?,
                    minor: part(minor)?,
                })
            })
            .ok_or_else(|| malformed(s, "a CUDA version such as `\"12.9\"`"))
    }
}

string_serde!(CudaVersion);

/// Replaces `{{name}}` in the text by its value; other placeholders stay.
pub fn fill(text: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{{{name}}}}}"), value)
    })
}

/// Returns the names between `{{` and `}}`.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{")
        .skip(1)
        .filter_map(|rest| rest.split_once("}}").map(|(name, _)| name))
}

impl Checker<'_> {
    pub(super) fn matrix(&mut self, raw: RawMatrix, base: &At<String>) -> Matrix {
        let matrix = Matrix {
            python: self.axis("python", raw.python, codes::BAD_PYTHON),
            cuda: self.axis("cuda", raw.cuda, codes::BAD_VALUE),
            sm: self.axis("sm", raw.sm, codes::UNKNOWN_GPU),
            isa: self.axis("isa", raw.isa, codes::UNKNOWN_ISA),
            platform: self.axis("platform", raw.platform, codes::BAD_PLATFORM),
        };
        self.placeholders(&matrix, base);
        let combinations: usize = matrix.lengths().iter().map(|n| (*n).max(1)).product();
        if combinations > MAX_COMBINATIONS {
            let what = format!("the axes of `matrix` make {combinations} combinations");
            self.diagnostics
                .push(Diagnostic::error(codes::BAD_VALUE, what).help(format!(
                    "split the stack: a matrix makes at most {MAX_COMBINATIONS}"
                )));
        }
        matrix
    }

    /// Returns a value that every stack needs, unless an axis of the matrix gives it.
    pub(super) fn or_axis<T: FromStr + Clone>(
        &mut self,
        (key, value, place): (&str, Option<Positioned<String>>, Span),
        axis: Option<&At<T>>,
        code: Code,
    ) -> Option<At<T>>
    where
        T::Err: fmt::Display,
    {
        match (value, axis) {
            (Some(value), _) => self.parse(value, code),
            (None, Some(first)) => Some(first.clone()),
            (None, None) => {
                self.missing(key, place);
                None
            }
        }
    }

    fn missing(&mut self, key: &str, place: Span) {
        let axis = key.rsplit('.').next().unwrap_or(key);
        let axis = if axis == "gpu" { "sm" } else { axis };
        self.push(
            place,
            Diagnostic::error(codes::MISSING_KEY, format!("missing key `{key}`")).help(format!(
                "add `{key}`, or an axis `{axis}` to `matrix`; `stackforge init` writes a complete stack"
            )),
        );
    }

    pub(super) fn gpus(&mut self, target: &At<RawTarget>, matrix: &Matrix) -> Vec<At<String>> {
        let by_axis = !matrix.sm.is_empty();
        match &target.value.gpu {
            None if by_axis => Vec::new(),
            None => {
                self.missing("target.gpu", target.span);
                Vec::new()
            }
            Some(gpus) if gpus.is_empty() && !by_axis => {
                self.push(
                    target.span,
                    Diagnostic::error(codes::BAD_VALUE, "`target.gpu` is empty")
                        .help("name the GPUs that the image is for: `gpu: [h100]`"),
                );
                Vec::new()
            }
            Some(gpus) => gpus.iter().map(|g| g.0.clone()).collect(),
        }
    }

    fn axis<T>(&mut self, axis: &str, values: Vec<Positioned<String>>, code: Code) -> Vec<At<T>>
    where
        T: FromStr<Err = Malformed> + PartialEq + fmt::Display,
    {
        let mut out: Vec<At<T>> = Vec::with_capacity(values.len());
        for value in values {
            let Some(value) = self.parse::<T>(value, code) else {
                continue;
            };
            if !out.iter().any(|v| v.value == value.value) {
                out.push(value)
            } else {
                self.push(
                    value.span,
                    Diagnostic::error(
                        codes::BAD_VALUE,
                        format!("`{}` stands twice in `matrix.{axis}`", value.value),
                    )
                    .help("remove one of the two"),
                )
            }
        }
        out
    }

    fn placeholders(&mut self, matrix: &Matrix, base: &At<String>) {
        let used: Vec<&str> = placeholders(&base.value).collect();
        for name in &used {
            let help = match *name {
                "cuda" if !matrix.cuda.is_empty() => continue,
                "python" if !matrix.python.is_empty() => continue,
                "cuda" => "add `cuda: [\"12.9\"]` to `matrix`, or write the version into the base",
                "python" => {
                    "add `python: [\"3.12\"]` to `matrix`, or write the version into the base"
                }
                _ => "a base may hold `{{cuda}}` and `{{python}}`",
            };
            self.push(
                base.span,
                Diagnostic::error(
                    codes::PLACEHOLDER,
                    format!("`{{{{{name}}}}}` stands for no axis of the matrix"),
                )
                .help(help),
            );
        }
        if let Some(first) = matrix.cuda.first()
            && !used.contains(&"cuda")
        {
            self.push(
                first.span,
                Diagnostic::error(
                    codes::PLACEHOLDER,
                    format!("base `{}` is the same for every CUDA", base.value),
                )
                .help("write `{{cuda}}` where the base's name has the version: `cuda-{{cuda}}-ubuntu24.04`"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn placeholders_are_found_and_filled() {
        let text = "cuda-{{cuda}}-{{python}}-{{x";
        assert_eq!(placeholders(text).collect::<Vec<_>>(), ["cuda", "python"]);
        let values = [("cuda", "12.9".to_owned())];
        assert_eq!(fill(text, &values), "cuda-12.9-{{python}}-{{x");
    }

    #[test]
    fn cuda_versions_have_two_parts() {
        assert_eq!(
            "12.9".parse(),
            Ok(CudaVersion {
                major: 12,
                minor: 9
            })
        );
        for bad in ["12", "12.9.1", "12.", ".9", "12.09", "x", "300.1"] {
            assert!(bad.parse::<CudaVersion>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(s in "(\\PC|\\{\\{|\\}\\}){0,20}") {
            let _ = s.parse::<CudaVersion>();
            let _ = placeholders(&s).count();
        }
    }
}
