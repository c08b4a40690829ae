//! Extras of a distribution that bring CUDA's libraries which its objects need and no wheel has.

use super::objects::Objects;
use super::{SystemFile, SystemNeeds};
use stackforge_stack::catalog::Loader;
use std::collections::{BTreeMap, BTreeSet};

/// Returns a sentence for each distribution whose extras have what it lacks.
pub(super) fn proposals(
    needs: &SystemNeeds,
    all: &BTreeMap<&str, Objects>,
    loader: &Loader,
) -> Vec<String> {
    let mut lacking: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, distributions) in needs {
        if let SystemFile::Library(soname) = file
            && loader.nvidia.has(soname)
        {
            for distribution in distributions {
                lacking.entry(distribution).or_default().insert(soname);
            }
        }
    }
    let mut out = Vec::new();
    for (distribution, sonames) in lacking {
        let Some(objects) = all.get(distribution) else {
            continue;
        };
        let extras = covering(&sonames, objects, loader);
        if extras.is_empty() {
            continue;
        }
        let sonames: Vec<&str> = sonames.into_iter().collect();
        let what = match extras.len() {
            1 => "its extra brings them",
            _ => "its extras bring them",
        };
        out.push(format!(
            "{distribution} needs {}, which no wheel of the stack has: {what}, `\"{distribution}[{}]\": …`",
            sonames.join(", "),
            extras.join(",")
        ));
    }
    out
}

/// Returns few extras that bring as much as all of them do. Of equal ones the first by name is taken.
fn covering<'a>(sonames: &BTreeSet<&str>, objects: &'a Objects, loader: &Loader) -> Vec<&'a str> {
    let mut left = sonames.clone();
    let mut out = Vec::new();
    while !left.is_empty() {
        let covered = |required: &BTreeSet<String>| -> Vec<&str> {
            let brings = |soname: &&&str| required.iter().any(|d| loader.nvidia.brings(d, soname));
            left.iter().filter(brings).copied().collect()
        };
        let extras = objects.extras().iter();
        let best = extras
            .map(|(extra, required)| (covered(required), extra, required.len()))
            .max_by(|(a, x, many), (b, y, more)| {
                let size = a.len().cmp(&b.len());
                size.then(more.cmp(many)).then(y.cmp(x))
            });
        let Some((found, extra, _)) = best.filter(|(found, ..)| !found.is_empty()) else {
            break;
        };
        let found: Vec<&str> = found;
        left.retain(|soname| !found.contains(soname));
        out.push(extra.as_str());
    }
    out.sort_unstable();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_that_bring_what_is_missing_are_proposed() {
        let loader = stackforge_stack::catalog::load(None).unwrap().loader;
        let mut objects = Objects::default();
        objects.metadata(
            "Requires-Dist: nvidia-cuda-runtime-cu12 ; extra == 'cuda'\nRequires-Dist: nvidia-cublas-cu12 ; extra == 'cuda'\nRequires-Dist: nvidia-cudnn-cu12 ; extra == 'cudnn'\nRequires-Dist: pytest ; extra == 'all'\n",
        );
        let all = BTreeMap::from([("onnxruntime-gpu", objects)]);
        let by = || BTreeSet::from(["onnxruntime-gpu".to_owned()]);
        let library = |name: &str| SystemFile::Library(name.to_owned());
        let needs = SystemNeeds::from([
            (library("libcublas.so.12"), by()),
            (library("libcudart.so.12"), by()),
            (library("libcudnn.so.9"), by()),
            (library("libgomp.so.1"), by()),
        ]);
        let said = proposals(&needs, &all, &loader);
        assert_eq!(
            said,
            [
                "onnxruntime-gpu needs libcublas.so.12, libcudart.so.12, libcudnn.so.9, which no wheel of the stack has: its extras bring them, `\"onnxruntime-gpu[cuda,cudnn]\": …`"
            ]
        );
        let brings = |d: &str, s: &str| loader.nvidia.brings(d, s);
        assert!(
            brings("cuda-toolkit", "libnvrtc.so.13") && !brings("cuda-toolkit", "libcudnn.so.9")
        );
        assert!(
            brings("nvidia-cudnn-cu13", "libcudnn_ops.so.9")
                && !brings("nvidia-cublas", "libcudart.so.13")
        );
    }
}
