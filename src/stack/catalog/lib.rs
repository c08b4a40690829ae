//! Compatibility knowledge as data: GPUs, CUDA toolkits, CPU ISAs, bases and recipes.
//!
//! In: YAML files, extended or replaced entry by entry by a directory of the same layout (an overlay). Out: [`Catalog`], checked as a whole. It never guesses: an unknown name is an error
//! that names the nearest known one.

mod build_options;
mod check;
mod conditions;
mod environment;
mod images;
mod imports;
mod jetson;
mod library;
mod load;
mod loader;
mod options;
mod release;
mod slim;
mod support;
mod tools;

use pep440_rs::{Version, VersionSpecifiers};
use serde::{Deserialize, Serialize};
use stackforge_types::{Digest, IsaName, Platform, PythonVersion, Sm, Suffix};
use std::collections::BTreeMap;
use std::str::FromStr as _;

pub use conditions::{Conditions, DistributionKind, Facts};
pub use environment::Environment;
pub use images::{Bootstrap, Image, Os, OsRoles, Reference};
pub use imports::{Import, ImportOf};
pub use jetson::JetsonRelease;
pub use library::{
    ArchFormat, ArchVariable, Build, BuildSource, Check, CxxFloor, CxxStandard, EnvWhen,
    Extensions, Fetch, Jobs, Known, OsRequirement, PartialArch, Patch, Proven, Recipe, Refusal,
    SmLimit, Split, StaticMetadata, WheelSource,
};
pub use load::{CatalogError, parse, schema};
pub use loader::{BuildDirectory, Loader, Opened};
pub use options::{BuildOption, Edit, OptionFault, OptionParts, OptionValue, local_version};
pub use release::{
    DeviceCode, Glibc, Pin, Ptxas, PythonTag, Release, ReleaseWheel, WheelCuda, split_local,
};
pub use slim::{Slim, SlimRule};
pub use tools::{Tool, ToolFile};

/// Facts that rules decide by; a lock records it so that a report can name it.
pub const RULES: u32 = 1;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Catalog {
    pub sms: Vec<SmFacts>,
    pub gpus: Vec<Gpu>,
    pub toolkits: Vec<Toolkit>,
    pub isas: Vec<Isa>,
    pub tools: Vec<Tool>,
    pub jetson: Vec<JetsonRelease>,
    pub images: BTreeMap<String, Image>,
    pub recipes: BTreeMap<String, Recipe>,
    /// CUDA's own libraries as wheels, by distribution.
    pub components: BTreeMap<String, Component>,
    pub conflicts: Vec<Conflict>,
    pub loader: Loader,
    /// What builds of source distributions without a recipe take, by distribution.
    pub sources: BTreeMap<String, Vec<SourceNeeds>>,
    /// What distributions import and do not require, by distribution.
    pub undeclared: BTreeMap<String, Vec<Undeclared>>,
    pub same_modules: Vec<SameModules>,
    /// What brings a module that somebody imports and does not require, by the module.
    pub modules: BTreeMap<String, String>,
    /// OS packages of modules of Python that a distribution leaves out of its own, by the module.
    pub os_modules: BTreeMap<String, String>,
    /// What brings a module that Python had itself, by the module.
    pub removed_modules: BTreeMap<String, RemovedModule>,
    /// Wrong names of libraries, by normalized name.
    pub misnomers: BTreeMap<String, Misnomer>,
    /// OS packages that newer archives no longer have, by name.
    pub former_packages: BTreeMap<String, FormerPackage>,
    pub slim: Slim,
    /// Digest of the templates that a directory puts over the embedded ones.
    pub templates: Option<Digest>,
}

/// What the build of a source distribution takes and its metadata does not name.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SourceNeeds {
    /// Releases whose builds do so.
    #[serde(default)]
    pub versions: VersionSpecifiers,
    /// OS packages.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Requirements of the build (PEP 508).
    #[serde(default)]
    pub requires: Vec<String>,
    pub source: String,
}

impl Catalog {
    /// Returns what the build of a release takes without saying so.
    pub fn source_needs(&self, distribution: &str, version: &str) -> Option<&SourceNeeds> {
        let version = Version::from_str(version).ok()?;
        let mut known = self.sources.get(distribution)?.iter();
        known.find(|known| known.versions.contains(&version))
    }
}

/// What a distribution imports and its metadata does not require.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Undeclared {
    /// Releases that do so.
    #[serde(default)]
    pub versions: VersionSpecifiers,
    /// Pythons on which they do so: `>=3.11`; empty: all.
    #[serde(default)]
    pub python: VersionSpecifiers,
    /// Whether it is so only on a base without CUDA.
    #[serde(default)]
    pub without_cuda: bool,
    /// Distributions beside one of which it is so; empty: always.
    #[serde(default)]
    pub beside: Vec<String>,
    /// Requirements (PEP 508); of several between ` | `, one has to be there, and the first is added. One with extras of
    /// the distribution itself is never there.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Requirements (PEP 508) that hold back what they require by themselves: newer releases do not go with it.
    /// `{version}` in one is the release itself.
    #[serde(default)]
    pub holds: Vec<String>,
    pub source: String,
}

impl Undeclared {
    /// Whether a release does not run on a Python: then the entry holds the distribution itself, to newer ones.
    pub fn excludes(&self, name: &str, version: &Version, python: PythonVersion) -> bool {
        let of_itself = |held: &String| {
            let rest = held.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['<', '>', '=', '!', '~']))
        };
        self.applies(version, python) && self.holds.iter().any(of_itself)
    }

    /// Returns the bounds that a release has.
    pub fn bounds(&self, version: &Version) -> impl Iterator<Item = String> {
        let version = version.clone().without_local().to_string();
        let holds = self.holds.iter();
        holds.map(move |bound| bound.replace("{version}", &version))
    }

    /// Whether it holds on a base, by whether that has CUDA.
    pub fn is_of_base(&self, cuda: bool) -> bool {
        !(self.without_cuda && cuda)
    }

    /// Whether it holds beside the distributions that are there.
    pub fn is_beside(&self, is_there: impl Fn(&str) -> bool) -> bool {
        self.beside.is_empty() || self.beside.iter().any(|name| is_there(name))
    }

    /// Whether it is of a release on a Python.
    pub fn applies(&self, version: &Version, python: PythonVersion) -> bool {
        let python = Version::new([u64::from(python.major), u64::from(python.minor)]);
        self.versions.contains(version) && self.python.contains(&python)
    }
}

/// A module that Pythons no longer have.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RemovedModule {
    /// Pythons without it: `>=3.13`.
    pub python: VersionSpecifiers,
    /// What brings it (PEP 508).
    pub requirement: String,
}

impl Catalog {
    /// Returns the requirement that brings a module on a Python, if that is known without a doubt.
    pub fn requirement_of(&self, module: &str, python: PythonVersion) -> Option<&str> {
        let python = Version::new([u64::from(python.major), u64::from(python.minor)]);
        let removed = self.removed_modules.get(module);
        let removed = removed.filter(|removed| removed.python.contains(&python));
        let removed = removed.map(|removed| &removed.requirement);
        self.modules.get(module).or(removed).map(String::as_str)
    }
}

/// A wrong name that people write for a library.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Misnomer {
    /// What PyPI has under the name; `None`: nothing.
    pub has: Option<String>,
    /// Name of the library.
    pub instead: Option<String>,
    /// What to do where no other name will do.
    pub help: Option<String>,
    /// Whether Python has the module itself.
    #[serde(default)]
    pub in_python: bool,
    /// The releases that install nowhere.
    pub fails: Option<VersionSpecifiers>,
}

impl Misnomer {
    /// Returns what to do about the name.
    pub fn advice(&self) -> Option<String> {
        if self.in_python {
            return Some("remove it: the module is part of Python".to_owned());
        }
        let instead = self.instead.as_ref().map(|name| format!("write `{name}`"));
        instead.or_else(|| self.help.clone())
    }
}

/// What has the place of an OS package that newer archives no longer have: `write` or `help`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FormerPackage {
    /// The packages to write in its place.
    #[serde(default)]
    pub write: Vec<String>,
    /// What to do where no other package will do.
    #[serde(default)]
    pub help: Option<String>,
}

impl FormerPackage {
    /// Returns what to do about the name.
    pub fn advice(&self) -> String {
        let names: Vec<String> = self.write.iter().map(|name| format!("`{name}`")).collect();
        let write = (!names.is_empty()).then(|| format!("write {}", names.join(" and ")));
        write.or_else(|| self.help.clone()).unwrap_or_default()
    }
}

/// Distributions with the same modules, of which an environment holds one.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SameModules {
    /// The best one first.
    pub distributions: Vec<String>,
    pub source: String,
}

impl SameModules {
    /// Of the distributions that are there, returns the one to keep and the others: the best of those that are
    /// wanted by name, else the best.
    pub fn choose(
        &self,
        is_there: impl Fn(&str) -> bool,
        is_named: impl Fn(&str) -> bool,
    ) -> Option<(&str, Vec<&str>)> {
        let all = self.distributions.iter().map(String::as_str);
        let mut there: Vec<&str> = all.filter(|name| is_there(name)).collect();
        let named = there.iter().position(|name| is_named(name));
        (!there.is_empty()).then(|| (there.remove(named.unwrap_or(0)), there))
    }
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SmFacts {
    pub sm: Sm,
    pub generation: String,
    pub products: Vec<String>,
    /// Whether it is an integrated GPU of a Tegra module, which has its own cubin rules.
    pub tegra: bool,
    pub cuda: CudaRange,
    pub platforms: Vec<Platform>,
    /// Instruction sets of the CPUs in machines with this GPU; empty if they are not known.
    #[serde(default)]
    pub isas: Vec<IsaName>,
    #[serde(default)]
    pub cudnn: CudnnLimit,
    #[serde(default)]
    pub flash_attn: FlashAttention,
    #[serde(default)]
    pub note: Option<String>,
    pub source: String,
}

/// cuDNN releases with code for an SM.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CudnnLimit {
    /// Last release, with all of its builds (`9.10.2` is 9.10.2.21 too); absent: current
    /// ones have code for it, or nothing is known.
    #[serde(default)]
    pub last: Option<String>,
    #[serde(default)]
    pub source: Option<String>,
}

/// Generations of FlashAttention that have kernels for an SM.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlashAttention {
    #[serde(default)]
    pub fa2: bool,
    #[serde(default)]
    pub fa3: bool,
    #[serde(default)]
    pub fa4_forward: bool,
    #[serde(default)]
    pub fa4_backward: bool,
}

/// A distribution that stacks do not name but libraries bring: cuDNN, cuBLAS, nvcc.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    pub distribution: String,
    pub about: String,
    /// Empty: only its name is known.
    #[serde(default)]
    pub releases: BTreeMap<Version, Release>,
}

/// Distributions that can be installed together but do not work together.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    pub id: String,
    /// All of them, in these versions.
    pub packages: BTreeMap<String, VersionSpecifiers>,
    pub what: String,
    pub fix: String,
    pub source: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CudaRange {
    pub first: String,
    /// The last CUDA version that supports it; absent: still supported.
    #[serde(default)]
    pub last: Option<String>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    pub name: String,
    pub about: String,
    pub sm: Sm,
    pub platforms: Vec<Platform>,
    #[serde(default)]
    pub memory_gb: Option<f64>,
    /// Prefixes of the name that the driver gives it.
    #[serde(default)]
    pub nvml: Vec<String>,
    /// Device-tree strings of boards that have it.
    #[serde(default)]
    pub compatible: Vec<String>,
    pub source: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Toolkit {
    pub version: String,
    pub sms: Vec<Sm>,
    #[serde(default)]
    pub arch_specific: Vec<Sm>,
    #[serde(default)]
    pub family_specific: Vec<Sm>,
    /// Newest GCC major that its headers accept.
    pub gcc_max: u32,
    #[serde(default)]
    pub driver: DriverFloor,
    /// ISA version of the PTX that it writes; absent: not known.
    #[serde(default)]
    pub ptx: Option<String>,
    /// SONAMEs of its libraries: `cudart` → `libcudart.so.13`.
    #[serde(default)]
    pub sonames: BTreeMap<String, String>,
    #[serde(default)]
    pub wheels: Option<ToolkitWheels>,
    #[serde(default)]
    pub note: Option<String>,
    pub source: String,
}

/// Lowest Linux driver: as shipped, and with minor-version compatibility.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DriverFloor {
    #[serde(default)]
    pub toolkit: Option<String>,
    #[serde(default)]
    pub minor: Option<String>,
}

/// The toolkit as Python wheels.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ToolkitWheels {
    pub package: String,
    pub versions: Vec<String>,
    /// Whether nvcc itself is in the wheels, not only ptxas.
    pub compiler: bool,
    /// Directory of the toolkit below site-packages.
    #[serde(default)]
    pub home: Option<String>,
    #[serde(default)]
    pub note: Option<String>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Isa {
    pub name: IsaName,
    pub platform: Platform,
    pub flags: Vec<String>,
    /// Flags in /proc/cpuinfo that a processor with this set has; without any, none is known to.
    #[serde(default)]
    pub cpuinfo: Vec<String>,
    pub source: String,
}

impl Toolkit {
    /// Returns the SMs that its ptxas accepts, including those with a suffix.
    pub fn every_sm(&self) -> impl Iterator<Item = &Sm> {
        (self.sms.iter())
            .chain(&self.arch_specific)
            .chain(&self.family_specific)
    }
}

impl Catalog {
    /// Returns the SM of a stack's `gpu` entry: a product's name or an SM.
    pub fn sm(&self, gpu: &str) -> Option<Sm> {
        if let Some(gpu) = self.gpus.iter().find(|g| g.name == gpu) {
            return Some(gpu.sm);
        }
        let sm: Sm = gpu.strip_prefix("sm_").and_then(|d| d.parse().ok())?;
        self.sms.iter().any(|f| f.sm == sm.base()).then_some(sm)
    }

    pub fn gpu(&self, name: &str) -> Option<&Gpu> {
        self.gpus.iter().find(|g| g.name == name)
    }

    pub fn toolkit(&self, version: &str) -> Option<&Toolkit> {
        let minor = version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
        self.toolkits.iter().find(|t| t.version == minor)
    }

    /// Returns the only major release of CUDA that has a library with this SONAME.
    pub fn cuda_of(&self, soname: &str) -> Option<u32> {
        let mut toolkits = self.toolkits.iter();
        let of = |toolkit: &Toolkit| -> Option<u32> {
            let major = toolkit.version.split('.').next()?.parse().ok()?;
            let has = toolkit.sonames.values().any(|name| name == soname);
            has.then_some(major)
        };
        let first = toolkits.find_map(of)?;
        let same = |toolkit: &Toolkit| of(toolkit).is_none_or(|major| major == first);
        toolkits.all(same).then_some(first)
    }

    /// Returns the Jetson release of an L4T version such as `36.4.3`.
    pub fn jetson_release(&self, l4t: &str) -> Option<&JetsonRelease> {
        self.jetson.iter().find(|r| r.is(l4t))
    }

    /// Whether that assembler accepts a GPU as Triton names it, with an `a` from 9.0 on. `None` if its toolkit is
    /// not known.
    pub fn assembles(&self, ptxas: &Ptxas, gpu: Sm) -> Option<bool> {
        let toolkit = self.toolkit(&ptxas.version)?;
        let suffix = (gpu.major >= 9).then_some(Suffix::Arch);
        let target = Sm { suffix, ..gpu };
        Some(toolkit.every_sm().any(|sm| *sm == target))
    }

    pub fn isa(&self, name: &IsaName) -> Option<&Isa> {
        self.isas.iter().find(|i| i.name == *name)
    }

    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|t| t.name == name)
    }

    /// Returns the releases of a distribution that the catalog describes.
    pub fn releases(&self, distribution: &str) -> Option<&BTreeMap<Version, Release>> {
        let of = |r: &&Recipe| r.distribution == distribution;
        self.recipes
            .get(distribution)
            .filter(of)
            .or_else(|| self.recipes.values().find(of))
            .map(|r| &r.releases)
            .or_else(|| self.components.get(distribution).map(|c| &c.releases))
    }

    /// Whether a library is useless on a GPU that does not run this object. `package` is the library's import
    /// name.
    pub fn is_core(&self, package: &str, object: &str) -> bool {
        let imported = |r: &&Recipe| {
            let first = r.imports.first().and_then(|i| i.module().split('.').next());
            first == Some(package)
        };
        let recipes = self.recipes.values().filter(imported);
        let wheels = recipes.flat_map(|r| r.releases.values().flat_map(|r| &r.wheels));
        let mut code = wheels.flat_map(|w| &w.code).filter(|c| c.core);
        code.any(|c| c.objects.iter().any(|o| loader::matches(o, object)))
    }

    pub fn sm_facts(&self, sm: Sm) -> Option<&SmFacts> {
        self.sms.iter().find(|f| f.sm == sm.base())
    }

    pub fn recipe(&self, library: &str) -> Option<&Recipe> {
        self.recipes.get(library)
    }
}

/// Returns the numbers of a dotted version, which compare as versions do.
pub fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        assert!(numbers("580.65.06") > numbers("580.9"));
        assert!(numbers("12.10") > numbers("12.9"));
        assert!(numbers("580") < numbers("580.65"));
    }

    /// Reads the catalog of the source tree.
    pub(crate) fn catalog() -> Catalog {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
        Catalog::read(&root.join("catalog"), &root.join("images"), &|_| true).unwrap()
    }

    fn release<'a>(catalog: &'a Catalog, name: &str, version: &str) -> &'a Release {
        let version: Version = version.parse().unwrap();
        &catalog.releases(name).unwrap()[&version]
    }

    #[test]
    fn tritons_assembler_decides_what_it_compiles_for() {
        let catalog = catalog();
        let assembles = |version: &str, gpu: &str| {
            let sm = gpu.parse().unwrap();
            let ptxas = release(&catalog, "triton", version).ptxas_for(sm).unwrap();
            catalog.assembles(ptxas, sm).unwrap()
        };
        assert!(!assembles("3.2.0", "10.0"));
        assert!(assembles("3.3.1", "10.0"), "by its ptxas-blackwell");
        assert!(!assembles("3.6.0", "11.0"));
        assert!(assembles("3.7.1", "11.0"));
        assert!(!assembles("3.8.0", "10.7"));
        assert!(assembles("3.9.0", "10.7"));
        assert!(assembles("3.9.0", "8.7"));
    }

    #[test]
    fn what_a_wheel_asks_holds_for_its_platform() {
        let catalog = catalog();
        let torch = release(&catalog, "torch", "2.10.0");
        let asks = |platform| torch.asks_on(platform, "triton").map(ToString::to_string);
        assert_eq!(asks(Platform::LinuxAmd64).as_deref(), Some("==3.6.0"));
        assert_eq!(asks(Platform::LinuxArm64), None, "that wheel has no CUDA");
        let torch = release(&catalog, "torch", "2.14.0");
        assert_eq!(torch.asks("triton").unwrap().to_string(), "~=3.8.0");
    }

    #[test]
    fn every_name_is_found_as_a_recipe_or_a_component() {
        let catalog = catalog();
        let cudnn = release(&catalog, "nvidia-cudnn-cu13", "9.24.0.43");
        let wheel = cudnn.wheels_for(Platform::LinuxArm64, "").next().unwrap();
        let orin: Sm = "8.7".parse().unwrap();
        let ops = wheel.code.iter().find(|c| c.core).unwrap();
        assert!(ops.sm.contains(&orin) && ops.objects == ["libcudnn_ops.so.9"]);
        assert!(catalog.releases("flashinfer-python").is_some());
        assert!(
            catalog
                .releases("cuda-bindings")
                .is_some_and(|r| r.is_empty())
        );
        assert!(
            catalog.releases("flashinfer").is_none(),
            "the recipe's name"
        );
    }
}
