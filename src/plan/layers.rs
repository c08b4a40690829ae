//! Groups wheels into layers.
//!
//! There are three layers, from what changes least to what changes most: CUDA's own libraries, torch with
//! its dependencies, everything else. Builder stages start from the second, so a new version of an
//! unrelated wheel recompiles nothing.

use super::{WheelGroup, WheelLayer};
use stackforge_stack::lock::{PythonFile, with_requirements};
use std::collections::BTreeMap;

/// Returns the layers of `wheels`, each in name order, without empty ones.
pub fn wheel_layers(wheels: &[PythonFile]) -> Vec<WheelLayer> {
    let core = with_requirements("torch", wheels.iter().map(|w| (w.name.as_str(), &w.via)));
    let mut layers: BTreeMap<WheelGroup, Vec<PythonFile>> = BTreeMap::new();
    for wheel in wheels {
        let group = if !core.contains(wheel.name.as_str()) {
            WheelGroup::Libraries
        } else if wheel.name.starts_with("nvidia-") || wheel.name.starts_with("cuda-") {
            WheelGroup::Cuda
        } else {
            WheelGroup::Torch
        };
        layers.entry(group).or_default().push(wheel.clone());
    }
    layers
        .into_iter()
        .map(|(group, mut wheels)| {
            wheels.sort();
            WheelLayer { group, wheels }
        })
        .collect()
}

/// Returns the layers that builders start from: all but the libraries, unless there is nothing else. So a
/// new version of an unrelated wheel recompiles nothing.
pub fn below_builders<L: std::borrow::Borrow<WheelLayer>>(layers: &[L]) -> &[L] {
    let others = |layer: &L| layer.borrow().group != WheelGroup::Libraries;
    let last = layers.iter().rposition(others).unwrap_or(0);
    &layers[..layers.len().min(last + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackforge_types::Digest;

    fn wheel(name: &str, via: &[&str]) -> PythonFile {
        PythonFile {
            name: name.into(),
            version: "1".into(),
            file: format!("{name}-1-py3-none-any.whl"),
            size: 0,
            sha256: Digest::of(name.as_bytes()),
            via: via.iter().map(|s| (*s).to_string()).collect(),
        }
    }

    #[test]
    fn torch_and_what_it_asks_for_come_before_the_rest() {
        let wheels = [
            wheel("numpy", &["vllm"]),
            wheel("nvidia-cublas", &["torch"]),
            wheel("torch", &[]),
            wheel("sympy", &["torch"]),
            wheel("mpmath", &["sympy"]),
            wheel("vllm", &[]),
            wheel("nvidia-ml-py", &["vllm"]),
        ];
        let layers = wheel_layers(&wheels);
        let names: Vec<_> = layers
            .iter()
            .map(|l| {
                (
                    l.group.name(),
                    l.wheels.iter().map(|w| w.name.as_str()).collect::<Vec<_>>(),
                )
            })
            .collect();
        assert_eq!(
            names,
            [
                ("cuda", vec!["nvidia-cublas"]),
                ("torch", vec!["mpmath", "sympy", "torch"]),
                ("libraries", vec!["numpy", "nvidia-ml-py", "vllm"]),
            ]
        );
    }

    #[test]
    fn without_torch_there_is_one_layer() {
        let layers = wheel_layers(&[wheel("six", &[])]);
        assert_eq!(layers.len(), 1);
        assert_eq!(layers[0].group, WheelGroup::Libraries);
    }
}
