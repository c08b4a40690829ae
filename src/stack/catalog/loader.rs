//! Facts about libraries that are installed outside of wheels: `catalog/loader.yaml`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Loader {
    pub(super) schema: u32,
    pub host: Objects,
    pub base: Objects,
    pub preloads: Vec<Preload>,
    pub directories: Directories,
    pub single: Objects,
    pub accelerators: Accelerators,
    /// Objects by path below site-packages.
    pub plugins: Objects,
    pub nvidia: NvidiaLibraries,
    /// What distributions load or run by name, which no object of theirs says.
    pub opened: BTreeMap<String, Opened>,
    pub build_directories: BuildDirectories,
}

/// Libraries by SONAME, with `*` for any run of characters.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Objects {
    objects: Vec<String>,
    pub source: String,
}

/// The distributions that have CUDA's libraries.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NvidiaLibraries {
    /// The distribution whose extras bring those of `in_toolkit`.
    toolkit: String,
    /// SONAMEs by distribution. A name lacks the suffix that says which CUDA it is for.
    in_toolkit: BTreeMap<String, Vec<String>>,
    /// SONAMEs by distribution, for distributions that no extra of the toolkit brings.
    outside: BTreeMap<String, Vec<String>>,
    pub source: String,
}

impl NvidiaLibraries {
    /// Whether a distribution has, or by its own requirements brings, a library of this SONAME.
    pub fn brings(&self, distribution: &str, soname: &str) -> bool {
        let has = |objects: &[String]| objects.iter().any(|o| matches(o, soname));
        let is = |name: &str| {
            let rest = distribution.strip_prefix(name);
            rest.is_some_and(|r| r.is_empty() || r.starts_with("-cu"))
        };
        let in_toolkit = self.in_toolkit.iter();
        let of_toolkit =
            distribution == self.toolkit && in_toolkit.clone().any(|(_, objects)| has(objects));
        let mut all = in_toolkit.chain(&self.outside);
        of_toolkit || all.any(|(name, objects)| is(name) && has(objects))
    }

    /// Whether a library is one of CUDA's.
    pub fn has(&self, soname: &str) -> bool {
        let mut all = self
            .in_toolkit
            .values()
            .chain(self.outside.values())
            .flatten();
        all.any(|object| matches(object, soname))
    }
}

/// What a distribution takes from the system by itself.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// SONAMEs that it opens with `dlopen` or `ctypes`.
    #[serde(default)]
    pub libraries: Vec<String>,
    /// Programs that it starts.
    #[serde(default)]
    pub programs: Vec<String>,
    pub source: String,
}

/// Directories whose libraries a package loads when it is imported.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Preload {
    pub by: String,
    /// Paths of the directories, below site-packages.
    directories: Vec<String>,
    pub source: String,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Directories {
    paths: Vec<String>,
    /// Folders for newer CPUs in each directory, by machine, the lowest first.
    variants: BTreeMap<String, Vec<String>>,
    pub source: String,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerators {
    words: Vec<String>,
    /// What may follow a word and its number: one more build for the same accelerator.
    #[serde(default)]
    variants: Vec<String>,
    pub source: String,
}

/// Directories of machines that build wheels.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BuildDirectories {
    shared: Vec<String>,
    private: Vec<String>,
    pub source: String,
}

/// Whose a build machine's directory is on the machine that runs the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BuildDirectory {
    Private,
    /// Any user can write there.
    Shared,
}

impl BuildDirectories {
    /// Returns the kind of a path that is one of these directories or in one.
    pub fn kind_of(&self, path: &str) -> Option<BuildDirectory> {
        let inside = |prefixes: &[String]| {
            let mut prefixes = prefixes.iter();
            prefixes.any(|p| matches(p, path) || matches(&format!("{p}/*"), path))
        };
        if inside(&self.shared) {
            Some(BuildDirectory::Shared)
        } else {
            inside(&self.private).then_some(BuildDirectory::Private)
        }
    }
}

impl Objects {
    pub fn has(&self, soname: &str) -> bool {
        self.objects.iter().any(|p| matches(p, soname))
    }
}

impl Preload {
    /// Whether the objects of a directory are loaded. Its path may start above site-packages.
    pub fn covers(&self, directory: &str) -> bool {
        let below = directory
            .rsplit_once("-packages/")
            .map_or(directory, |(_, below)| below)
            .trim_start_matches('/');
        self.directories
            .iter()
            .any(|p| p.split('/').count() == below.split('/').count() && matches(p, below))
    }
}

impl Directories {
    /// Returns the directories for a machine, named as in `x86_64-linux-gnu`.
    pub fn for_machine(&self, machine: &str) -> impl Iterator<Item = String> {
        self.paths
            .iter()
            .map(move |p| p.replace("{machine}", machine))
    }

    pub fn variants(&self, machine: &str) -> impl Iterator<Item = &str> {
        let variants = self.variants.get(machine).into_iter().flatten();
        variants.map(String::as_str)
    }
}

impl Accelerators {
    /// Returns the common part of alternatives' names: `libx` for `libx_cuda130.so` and `libx_cpu.so`, or for
    /// `libx4.so` and `libx5.so`, which link different releases of a library.
    pub fn stem<'a>(&self, file: &'a str) -> Option<&'a str> {
        let name = file.split(".so").next()?;
        let mut variants = self.variants.iter();
        let name = variants
            .find_map(|v| name.strip_suffix(v.as_str()))
            .unwrap_or(name);
        let plain = without_digits(name);
        let stem = self.words.iter().find_map(|word| {
            let stem = plain.strip_suffix(word.as_str())?;
            stem.strip_suffix(['_', '-']).filter(|s| !s.is_empty())
        });
        match stem {
            Some(stem) => Some(without_digits(stem)),
            None => (plain.len() < name.len()).then_some(plain),
        }
        .filter(|s| !s.is_empty())
    }

    /// Whether a folder's name is that of one release of an accelerator: `cu12` beside `cu13`.
    pub fn names(&self, folder: &str) -> bool {
        let word = folder.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        self.words.iter().any(|w| w == word)
    }
}

fn without_digits(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// `*` stands for any run of characters.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let mut ends = (0..=rest.len()).filter(|i| rest.is_char_boundary(*i));
            ends.any(|i| matches(after, &rest[i..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::BuildDirectory;

    #[test]
    fn sonames_are_known_by_who_provides_them() {
        let loader = crate::tests::catalog().loader;
        assert!(loader.host.has("libcuda.so.1") && loader.host.has("libnvidia-ml.so.1"));
        assert!(!loader.host.has("libcudart.so.12") && !loader.base.has("libcuda.so.1"));
        assert!(loader.base.has("ld-linux-x86-64.so.2") && loader.base.has("libpython3.12.so.1.0"));
        let torch = &loader.preloads[0];
        assert!(torch.covers("nvidia/cu13/lib"));
        assert!(torch.covers("usr/lib/python3/dist-packages/nvidia/cudnn/lib"));
        assert!(!torch.covers("nvidia/a/b/lib") && !torch.covers("nvidia/lib"));
        let alternatives = loader.accelerators;
        assert_eq!(alternatives.stem("libx_cuda130.so"), Some("libx"));
        assert_eq!(alternatives.stem("libx_cpu.so"), Some("libx"));
        assert_eq!(
            alternatives.stem("libx_cuda118_nocublaslt.so"),
            Some("libx")
        );
        assert_eq!(alternatives.stem("libtorch.so"), None);
        assert_eq!(alternatives.stem("libcpu.so"), None);
        assert_eq!(alternatives.stem("libx_core4.so"), Some("libx_core"));
        assert_eq!(alternatives.stem("libx_torch27-cpu.so"), Some("libx_torch"));
        assert_eq!(alternatives.stem("_fa3_C.abi3.so"), Some("_fa3_C.abi"));
        assert!(alternatives.names("cu12") && alternatives.names("cuda12.8"));
        assert!(!alternatives.names("cutlass") && !alternatives.names("lib"));
        let bootstrap = "nvidia/nvshmem/lib/nvshmem_bootstrap_mpi.so.3";
        assert!(loader.plugins.has(bootstrap) && !loader.plugins.has("torch/lib/libtorch.so"));
        let built = |path: &str| loader.build_directories.kind_of(path);
        assert_eq!(built("/tmp/x/lib"), Some(BuildDirectory::Shared));
        assert_eq!(built("/opt/conda/lib"), Some(BuildDirectory::Private));
        assert_eq!(built("/home/a"), Some(BuildDirectory::Private));
        assert_eq!(built("/homes"), None);
        assert_eq!(built("/usr/local/cuda/lib64"), None);
    }
}
