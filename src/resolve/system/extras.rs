//! CUDA's libraries that a distribution's objects need and no wheel has, and the extras of it that bring them.

use super::{AllObjects, Objects, SystemFile, SystemNeeds};
use stackforge_stack::catalog::{Catalog, Loader};
use stackforge_stack::lock::LackingLock;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the distributions that lack libraries which extras of theirs bring, and those that lack libraries of a
/// release of CUDA, without an extra.
pub(super) fn lacking(
    needs: &SystemNeeds,
    all: &AllObjects,
    catalog: &Catalog,
) -> Vec<LackingLock> {
    let loader = &catalog.loader;
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
    let of = |(name, sonames): (&str, BTreeSet<&str>)| {
        let (covered, extras) = match all.get(name) {
            Some(objects) => covering(&sonames, objects, loader),
            None => (Vec::new(), Vec::new()),
        };
        let known = |soname: &&str| !covered.contains(soname) && catalog.cuda_of(soname).is_some();
        let left: Vec<&str> = sonames.iter().copied().filter(known).collect();
        let owned = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect();
        let parts = [(covered, extras), (left, Vec::new())];
        parts.map(|(needs, extras)| {
            (!needs.is_empty()).then(|| LackingLock {
                name: name.to_owned(),
                needs: owned(needs),
                extras: owned(extras),
            })
        })
    };
    lacking.into_iter().flat_map(of).flatten().collect()
}

/// Returns few extras that bring as many libraries as all of them do, and those libraries. Of equal extras
/// the first by name is taken.
fn covering<'a>(
    sonames: &BTreeSet<&'a str>,
    objects: &'a Objects,
    loader: &Loader,
) -> (Vec<&'a str>, Vec<&'a str>) {
    let mut left = sonames.clone();
    let mut covered = Vec::new();
    let mut out = Vec::new();
    while !left.is_empty() {
        let brought = |required: &BTreeSet<String>| -> Vec<&'a str> {
            let brings = |soname: &&&str| required.iter().any(|d| loader.nvidia.brings(d, soname));
            left.iter().filter(brings).copied().collect()
        };
        let extras = objects.extras().iter();
        let best = extras
            .map(|(extra, required)| (brought(required), extra, required.len()))
            .max_by(|(a, x, many), (b, y, more)| {
                let size = a.len().cmp(&b.len());
                size.then(more.cmp(many)).then(y.cmp(x))
            });
        let Some((found, extra, _)) = best.filter(|(found, ..)| !found.is_empty()) else {
            break;
        };
        left.retain(|soname| !found.contains(soname));
        covered.extend(found);
        out.push(extra.as_str());
    }
    covered.sort_unstable();
    out.sort_unstable();
    (covered, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_that_bring_what_is_missing_are_proposed() {
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let loader = &catalog.loader;
        let mut objects = Objects::default();
        objects.metadata(
            "Requires-Dist: nvidia-cuda-runtime-cu12 ; extra == 'cuda'\nRequires-Dist: nvidia-cublas-cu12 ; extra == 'cuda'\nRequires-Dist: nvidia-cudnn-cu12 ; extra == 'cudnn'\nRequires-Dist: pytest ; extra == 'all'\n",
        );
        let all = AllObjects::from([("onnxruntime-gpu", &objects)]);
        let by = || BTreeSet::from(["onnxruntime-gpu".to_owned()]);
        let library = |name: &str| SystemFile::Library(name.to_owned());
        let needs = SystemNeeds::from([
            (library("libcublas.so.12"), by()),
            (library("libcudart.so.12"), by()),
            (library("libcudnn.so.9"), by()),
            (library("libgomp.so.1"), by()),
            // No extra has it.
            (library("libnvrtc.so.12"), by()),
            // Not a library of one release of CUDA.
            (library("libnccl.so.2"), by()),
        ]);
        let found = lacking(&needs, &all, &catalog);
        let brought = ["libcublas.so.12", "libcudart.so.12", "libcudnn.so.9"];
        let expected = LackingLock {
            name: "onnxruntime-gpu".to_owned(),
            needs: brought.map(str::to_owned).to_vec(),
            extras: vec!["cuda".to_owned(), "cudnn".to_owned()],
        };
        let rest = LackingLock {
            name: "onnxruntime-gpu".to_owned(),
            needs: vec!["libnvrtc.so.12".to_owned()],
            extras: Vec::new(),
        };
        assert_eq!(found, [expected, rest]);
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
