//! Combines the axes into concrete, named stacks.

use crate::catalog::Catalog;
use crate::diag::Span;
use crate::spec::{At, CudaVersion, Platform, PythonVersion, Sm, Stack, StackFile, fill};
use std::collections::BTreeSet;

/// Returns the values of an axis, or a single `None` if the stack has no such axis.
fn values<T>(axis: &[At<T>]) -> Vec<Option<&At<T>>> {
    match axis {
        [] => vec![None],
        values => values.iter().map(Some).collect(),
    }
}

/// Returns the base for a Python and a CUDA version, at the place in the stack that decides it.
fn base(
    stack: &Stack,
    python: Option<&At<PythonVersion>>,
    cuda: Option<&At<CudaVersion>>,
) -> At<String> {
    let span = cuda
        .map(|c| c.span)
        .or(python
            .filter(|_| stack.base.value.contains("{{python}}"))
            .map(|p| p.span))
        .unwrap_or(stack.base.span);
    At {
        value: fill(&stack.base.value, &placeholders(python, cuda)),
        span,
    }
}

fn placeholders(
    python: Option<&At<PythonVersion>>,
    cuda: Option<&At<CudaVersion>>,
) -> Vec<(&'static str, String)> {
    let python = python.map(|p| ("python", p.value.to_string()));
    let cuda = cuda.map(|c| ("cuda", c.value.to_string()));
    python.into_iter().chain(cuda).collect()
}

/// Returns every base that results from the axes.
pub(super) fn bases(file: &StackFile) -> Vec<(String, Span)> {
    let mut out = Vec::new();
    for python in values(&file.matrix.python) {
        for cuda in values(&file.matrix.cuda) {
            let At { value, span } = base(&file.pattern, python, cuda);
            out.push((value, span));
        }
    }
    out
}

/// Returns every combination as a stack, in the order of the axes. An instruction set belongs to one platform
/// and is not combined with others.
pub(super) fn combinations(file: &StackFile, catalog: &Catalog) -> Vec<Stack> {
    let (stack, m) = (&file.pattern, &file.matrix);
    if m.is_empty() {
        return vec![stack.clone()];
    }
    // An ISA implies the platform; without that axis two variants would have one name.
    let with_platform = m.isa.is_empty() && m.platform.len() > 1;
    let mut out = Vec::new();
    for python in values(&m.python) {
        for cuda in values(&m.cuda) {
            for sm in values(&m.sm) {
                for isa in values(&m.isa) {
                    for platform in values(&m.platform) {
                        let mut made = stack.clone();
                        made.base = base(stack, python, cuda);
                        if let Some(p) = &mut made.publish {
                            for tag in &mut p.tags {
                                *tag = fill(tag, &placeholders(python, cuda));
                            }
                        }
                        if let Some(python) = python {
                            made.python = python.clone();
                        }
                        if let Some(At { value, span }) = sm {
                            let (value, span) = (format!("sm_{}", value.digits()), *span);
                            made.gpus = vec![At { value, span }];
                        }
                        if let Some(platform) = platform {
                            made.platform = platform.clone();
                        }
                        made.isa = isa.cloned();
                        let of_other_platform = made
                            .isa
                            .as_ref()
                            .and_then(|i| catalog.isa(&i.value))
                            .is_some_and(|i| i.platform != made.platform.value);
                        if of_other_platform {
                            continue;
                        }
                        made.variant = Some(name(&made, catalog, with_platform));
                        out.push(made);
                    }
                }
            }
        }
    }
    out
}

/// Returns a name such as `vllm-python312-cuda12_9-sm90-avx512`.
fn name(stack: &Stack, catalog: &Catalog, with_platform: bool) -> String {
    let python = stack.python.value;
    let mut name = format!(
        "{}-python{}{}",
        stack.stack.value, python.major, python.minor
    );
    if let Some(cuda) = cuda(stack, catalog) {
        name.push_str(&format!("-cuda{}", cuda.replace('.', "_")));
    }
    let sms = sms(stack, catalog);
    let digits: Vec<String> = sms.iter().map(|s| s.digits()).collect();
    if !digits.is_empty() {
        name.push_str(&format!("-sm{}", digits.join("_")));
    }
    if let Some(isa) = &stack.isa {
        name.push_str(&format!("-{}", isa.value));
    }
    if with_platform && stack.platform.value != Platform::LinuxAmd64 {
        name.push_str(&format!("-{}", stack.platform.value.arch()));
    }
    name
}

/// Returns the stack's SMs that the catalog knows, in ascending order.
pub(super) fn sms(stack: &Stack, catalog: &Catalog) -> Vec<Sm> {
    let known = stack.gpus.iter().filter_map(|g| catalog.sm(&g.value));
    let sms: BTreeSet<Sm> = known.collect();
    sms.into_iter().collect()
}

/// Returns the CUDA version of the base, major and minor.
pub(super) fn cuda(stack: &Stack, catalog: &Catalog) -> Option<String> {
    let cuda = catalog.images.get(&stack.base.value)?.cuda.as_deref()?;
    Some(cuda.splitn(3, '.').take(2).collect::<Vec<_>>().join("."))
}
