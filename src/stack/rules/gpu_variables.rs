//! Checks the variables that NVIDIA's container toolkit reads from an image.
//!
//! Sources: NVIDIA Container Toolkit, "Specialized Configurations with Docker"; the messages of its runtime hook
//! and of libnvidia-container.

use super::case::Case;
use super::environment::Environment;
use crate::diag::{Diagnostic, codes};
use crate::spec::read::clip;

/// Parts of the driver that a container can ask for.
const CAPABILITIES: [&str; 7] = [
    "compute", "compat32", "display", "graphics", "ngx", "utility", "video",
];
const OPERATORS: [&str; 6] = ["!=", "<=", ">=", "<", "=", ">"];

/// A value by which no container with a GPU starts is an error. One by which none gets a GPU is a warning.
pub fn containers_get_gpus(case: &Case<'_>, _: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(image) = &case.stack.image else {
        return;
    };
    for (name, value) in &image.env {
        let found = fault(name, value);
        let span = image.env_spans.get(name).copied().unwrap_or_default();
        findings.extend(found.map(|found| found.at(span)));
    }
}

fn fault(name: &str, value: &str) -> Option<Diagnostic> {
    let diagnostic = match name {
        "NVIDIA_VISIBLE_DEVICES" => devices(value),
        "NVIDIA_DRIVER_CAPABILITIES" => capabilities(value),
        "NVIDIA_REQUIRE_CUDA" => conditions(value),
        _ => None,
    };
    diagnostic.map(|mut d| {
        d.message = format!("`{name}`: {}", d.message);
        d
    })
}

fn error(why: String, help: &str) -> Option<Diagnostic> {
    Some(Diagnostic::error(codes::GPU_VARIABLE, why).help(help))
}

fn warning(why: &str, help: &str) -> Option<Diagnostic> {
    Some(Diagnostic::warning(codes::GPU_VARIABLE, why).help(help))
}

fn devices(value: &str) -> Option<Diagnostic> {
    const HELP: &str = "leave it out: it is `all`, and `--gpus` chooses when a container starts";
    let names: Vec<&str> = value.split(',').map(str::trim).collect();
    if names.iter().any(|name| ["", "none", "void"].contains(name)) {
        let why = "containers get no GPU unless `--gpus` is given";
        return warning(why, HELP);
    }
    if names.contains(&"all") {
        return None;
    }
    if let Some(unknown) = names.iter().find(|name| !is_device(name)) {
        let why = format!(
            "no GPU is called `{}`, so no container with a GPU starts",
            clip(unknown)
        );
        return error(why, HELP);
    }
    let is_unique = |name: &&str| name.starts_with("GPU-") || name.starts_with("MIG-");
    if names.iter().any(is_unique) {
        let why = "a UUID is of one machine's GPU: containers start on no other";
        return warning(why, HELP);
    }
    None
}

/// Says whether it is an index, the UUID of a GPU or of a part of one, or a name of a CDI specification.
fn is_device(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_uuid = |kind| name.strip_prefix(kind).is_some_and(|uuid| !uuid.is_empty());
    let is_part = name
        .split_once(':')
        .is_some_and(|(gpu, part)| is_number(gpu) && is_number(part));
    let is_cdi = name
        .split_once('=')
        .is_some_and(|(kind, device)| kind.contains('/') && !device.is_empty());
    is_number(name) || is_part || is_cdi || is_uuid("GPU-") || is_uuid("MIG-")
}

fn capabilities(value: &str) -> Option<Diagnostic> {
    const HELP: &str =
        "leave it out: it is `compute,utility`, which is what CUDA and nvidia-smi need";
    // Empty is the toolkit's own choice, `compute,utility`.
    if value.is_empty() {
        return None;
    }
    let names = value.split(',').map(str::trim);
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let is_known = |name: &&&str| **name == "all" || CAPABILITIES.contains(*name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let why = format!(
            "the driver has no part called `{}`, so no container with a GPU starts",
            clip(unknown)
        );
        return error(
            why,
            "the parts are compute, compat32, display, graphics, ngx, utility and video; or `all`",
        );
    }
    if names.contains(&"all") {
        let why = "NVIDIA's container toolkit of 2022 refuses `all` beside others, and no container starts";
        return match names.len() {
            1 => None,
            _ => warning(why, "write `all` alone, or name the parts"),
        };
    }
    if !names.contains(&"compute") {
        let why = "without `compute` a container gets no libcuda.so.1, and CUDA finds no GPU";
        return warning(why, HELP);
    }
    None
}

/// Checks conditions: a space between two means or, a comma means and.
fn conditions(value: &str) -> Option<Diagnostic> {
    const HELP: &str = "write conditions such as `cuda>=13.0 driver>=580`, or leave it out: it is what the audit found";
    let mut all = value.split([' ', ',']).filter(|part| !part.is_empty());
    let bad = all.find(|condition| !is_condition(condition))?;
    error(
        format!(
            "`{}` is not a condition, so no container with a GPU starts",
            clip(bad)
        ),
        HELP,
    )
}

fn is_condition(text: &str) -> bool {
    let is_of_operator = |c: char| "<>=!".contains(c);
    let (subject, rest) = text.split_at(text.find(is_of_operator).unwrap_or(text.len()));
    let bound = rest.trim_start_matches(is_of_operator);
    let operator = &rest[..rest.len() - bound.len()];
    let is_version = bound.chars().all(|c| c.is_ascii_digit() || c == '.');
    let fits = match subject.to_ascii_lowercase().as_str() {
        "arch" | "cuda" | "driver" => is_version && OPERATORS.contains(&operator),
        "brand" => ["=", "!="].contains(&operator),
        _ => false,
    };
    fits && !bound.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Severity;

    #[test]
    fn what_nvidias_toolkit_takes_is_left_alone() {
        for (name, value) in [
            ("NVIDIA_VISIBLE_DEVICES", "all"),
            ("NVIDIA_VISIBLE_DEVICES", "0,2,1:0"),
            ("NVIDIA_VISIBLE_DEVICES", "nvidia.com/gpu=all"),
            (
                "NVIDIA_VISIBLE_DEVICES",
                "runtime.nvidia.com/gpu=0,nvidia.com/gpu=1",
            ),
            ("NVIDIA_VISIBLE_DEVICES", "all,0"),
            ("NVIDIA_VISIBLE_DEVICES", "0, 1"),
            ("NVIDIA_VISIBLE_DEVICES", "vendor.example/gpu=0"),
            ("NVIDIA_DRIVER_CAPABILITIES", ""),
            ("NVIDIA_DRIVER_CAPABILITIES", "compute, utility"),
            ("NVIDIA_DRIVER_CAPABILITIES", "compute,,utility,"),
            ("NVIDIA_DRIVER_CAPABILITIES", "all"),
            ("NVIDIA_DRIVER_CAPABILITIES", "graphics,compute"),
            ("NVIDIA_REQUIRE_CUDA", ""),
            ("NVIDIA_REQUIRE_CUDA", "cuda>=12.4"),
            ("NVIDIA_REQUIRE_CUDA", "CUDA>=13  driver!=580.1"),
            (
                "NVIDIA_REQUIRE_CUDA",
                "cuda>=13.0 brand=tesla,driver>=470,driver<471 arch>=9.0",
            ),
            ("NVIDIA_DISABLE_REQUIRE", "true"),
            ("NVIDIA", "x"),
        ] {
            assert!(fault(name, value).is_none(), "{name}={value}");
        }
    }

    #[test]
    fn what_stops_containers_is_an_error_and_what_hides_gpus_a_warning() {
        use Severity::{Error, Warning};
        for (name, value, severity) in [
            ("NVIDIA_VISIBLE_DEVICES", "none", Warning),
            ("NVIDIA_VISIBLE_DEVICES", "void", Warning),
            ("NVIDIA_VISIBLE_DEVICES", "", Warning),
            ("NVIDIA_VISIBLE_DEVICES", "0,GPU-fef8089b", Warning),
            ("NVIDIA_VISIBLE_DEVICES", "true", Error),
            ("NVIDIA_VISIBLE_DEVICES", "gpu0", Error),
            ("NVIDIA_VISIBLE_DEVICES", "0,", Warning),
            ("NVIDIA_DRIVER_CAPABILITIES", "utility", Warning),
            ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility,all", Warning),
            ("NVIDIA_DRIVER_CAPABILITIES", "Compute", Error),
            ("NVIDIA_DRIVER_CAPABILITIES", "compute,profile", Error),
            ("NVIDIA_REQUIRE_CUDA", ">=13.0", Error),
            ("NVIDIA_REQUIRE_CUDA", "cuda", Error),
            ("NVIDIA_REQUIRE_CUDA", "cuda>=13.x", Error),
            ("NVIDIA_REQUIRE_CUDA", "cuda>= 13.0", Error),
            ("NVIDIA_REQUIRE_CUDA", "cuda~=13.0", Error),
            ("NVIDIA_REQUIRE_CUDA", "cuda=>13.0", Error),
            ("NVIDIA_REQUIRE_CUDA", "brand>tesla", Error),
            ("NVIDIA_REQUIRE_CUDA", "cuda>=12 vram", Error),
            ("NVIDIA_REQUIRE_CUDA", "vram>=80", Error),
        ] {
            let found = fault(name, value).map(|found| found.severity);
            assert_eq!(found, Some(severity), "{name}={value}");
        }
    }
}
