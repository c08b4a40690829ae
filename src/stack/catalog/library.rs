//! Library recipes: `catalog/libraries/*.yaml`.

use super::conditions::Conditions;
use super::imports::Import;
use super::options::BuildOption;
use super::release::Release;
use pep440_rs::{Version, VersionSpecifiers};
use serde::{Deserialize, Serialize};
use stackforge_types::Sm;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub schema: u32,
    pub library: String,
    pub distribution: String,
    pub about: String,
    /// Modules, submodules too, that must import without a GPU.
    pub imports: Vec<Import>,
    /// Modules that import only where a driver is.
    #[serde(default)]
    pub gpu_imports: Vec<Import>,
    pub wheels: WheelSource,
    #[serde(default)]
    pub runtime: Vec<OsRequirement>,
    #[serde(default)]
    pub build: Option<Build>,
    /// Requirements for extensions that are compiled against the library.
    #[serde(default)]
    pub extensions: Option<Extensions>,
    #[serde(default)]
    pub refusals: Vec<Refusal>,
    /// Known faults that do not exclude a target.
    #[serde(default)]
    pub known: Vec<Known>,
    #[serde(default)]
    pub releases: BTreeMap<Version, Release>,
    #[serde(default)]
    pub validate: Vec<Check>,
    pub sources: Vec<String>,
}

impl Recipe {
    /// Returns the recipe of a source distribution that nobody described: a plain PEP 517 build. What it requires
    /// is in the lock.
    pub fn of_sdist(name: &str) -> Self {
        Self {
            schema: 1,
            library: name.to_owned(),
            distribution: name.to_owned(),
            about: String::new(),
            imports: Vec::new(),
            gpu_imports: Vec::new(),
            wheels: WheelSource::None,
            runtime: Vec::new(),
            build: Some(Build {
                source: BuildSource::Sdist,
                requires: Vec::new(),
                needs: Vec::new(),
                toolkit: Vec::new(),
                packages: Vec::new(),
                env: BTreeMap::new(),
                env_when: Vec::new(),
                arch: Vec::new(),
                hard_coded_arch: false,
                jobs: Jobs {
                    variable: "MAX_JOBS".to_owned(),
                    memory_gb: 2.0,
                    threads_variable: None,
                    threads: None,
                    source: "PyTorch's and CMake's builders take MAX_JOBS; the memory is a guess"
                        .to_owned(),
                },
                cxx_standard: None,
                partial_arch: Vec::new(),
                sm_limit: None,
                patches: Vec::new(),
                fetch: Vec::new(),
                metadata: BTreeMap::new(),
                commands: Vec::new(),
                options: Vec::new(),
                local_version: None,
                proven: Vec::new(),
            }),
            extensions: None,
            refusals: Vec::new(),
            known: Vec::new(),
            releases: BTreeMap::new(),
            validate: Vec::new(),
            sources: Vec::new(),
        }
    }
}

/// A check of the validation that a library asks for, by the name of its module in
/// `templates/validate/sfvalidate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    Imports,
    Cuda,
    Triton,
    Compile,
    Attention,
    Options,
    Vllm,
}

impl Check {
    /// Whether it compiles code when the image runs.
    pub fn is_jit(self) -> bool {
        matches!(self, Self::Triton | Self::Compile)
    }
}

/// Whether the index has wheels of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WheelSource {
    Index,
    None,
}

/// OS packages that the library needs at run time.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OsRequirement {
    /// Roles of the base (`c_compiler`, `python_dev`, …) or package names.
    pub packages: Vec<String>,
    /// `always`, or `jit`: left out where the stack says `jit: false`.
    #[serde(default = "always")]
    pub when: String,
    pub why: String,
}

fn always() -> String {
    "always".into()
}

/// How the library is compiled.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    pub source: BuildSource,
    #[serde(default)]
    pub requires: Vec<String>,
    /// Libraries of the stack that must be installed before this one is compiled.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Extras of the CUDA toolkit's wheels.
    #[serde(default)]
    pub toolkit: Vec<String>,
    /// OS packages beyond the C++ compiler and Python's headers, by role or name.
    #[serde(default)]
    pub packages: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables that only some targets need.
    #[serde(default)]
    pub env_when: Vec<EnvWhen>,
    #[serde(default)]
    pub arch: Vec<ArchVariable>,
    /// Whether the build has its own list of SMs, so that only the nvcc filter limits it to the target's.
    #[serde(default)]
    pub hard_coded_arch: bool,
    pub jobs: Jobs,
    /// C++ standard that the build requests by name.
    #[serde(default)]
    pub cxx_standard: Option<CxxStandard>,
    /// Variables with SMs of which the build ignores some.
    #[serde(default)]
    pub partial_arch: Vec<PartialArch>,
    /// Set if the build fails with too many SMs.
    #[serde(default)]
    pub sm_limit: Option<SmLimit>,
    #[serde(default)]
    pub patches: Vec<Patch>,
    /// Repositories that the build would clone by itself, which it cannot: a compile has no network.
    #[serde(default)]
    pub fetch: Vec<Fetch>,
    /// Static metadata by version (`*`: any) so that resolving needs no build.
    #[serde(default)]
    pub metadata: BTreeMap<String, StaticMetadata>,
    /// Commands that replace the PEP 517 build, run in the unpacked source.
    #[serde(default)]
    pub commands: Vec<String>,
    /// Parts that a stack may leave out.
    #[serde(default)]
    pub options: Vec<BuildOption>,
    /// Variable from which the build takes the local version of its wheel. Needed for `options`.
    #[serde(default)]
    pub local_version: Option<String>,
    /// Compiles that ran to the end.
    #[serde(default)]
    pub proven: Vec<Proven>,
}

/// A compile that ran to the end.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Proven {
    pub version: Version,
    pub sm: Vec<Sm>,
    #[serde(default)]
    pub torch: Option<Version>,
    /// CUDA release of nvcc, `13.0`.
    pub cuda: String,
    /// `2026-11-27`
    pub date: String,
    pub minutes: f64,
    pub cores: u32,
    /// Most memory that the whole build used, in GB, if it was measured.
    #[serde(default)]
    pub peak_gb: Option<f64>,
    /// Local version of the wheel, if options left out a part.
    #[serde(default)]
    pub local_version: Option<String>,
    /// What else is known of it: whether it ran on a GPU, for instance.
    #[serde(default)]
    pub note: Option<String>,
}

/// Variables that only some targets need.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EnvWhen {
    pub when: Conditions,
    pub env: BTreeMap<String, String>,
    pub why: String,
    pub source: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildSource {
    Sdist,
    #[serde(untagged)]
    Git {
        git: String,
        #[serde(rename = "ref")]
        git_ref: String,
        #[serde(default)]
        submodules: bool,
    },
}

/// A variable that contains the SMs for the build.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ArchVariable {
    pub variable: String,
    pub format: ArchFormat,
    /// SMs that the variable accepts; others are left out of it.
    #[serde(default)]
    pub only: Vec<Sm>,
    #[serde(default)]
    pub why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArchFormat {
    /// `9.0;11.0`
    Dotted,
    /// `90;110`
    Digits,
    /// `sm_90;sm_110`
    Sm,
    /// `90-real;110-real`
    Cmake,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    pub variable: String,
    /// Most memory that one job needs, in GB.
    pub memory_gb: f64,
    #[serde(default)]
    pub threads_variable: Option<String>,
    #[serde(default)]
    pub threads: Option<u32>,
    pub source: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CxxStandard {
    /// `17`
    pub asks: u32,
    pub source: String,
}

/// Requirements for compiling against a library's headers and with its builder.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Extensions {
    pub cxx_standard: Vec<CxxFloor>,
    pub gcc: Vec<GccCeiling>,
    pub sources: Vec<String>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CxxFloor {
    /// Version of the library itself.
    pub version: VersionSpecifiers,
    /// `20`
    pub needs: u32,
}

/// Newest GCC major version that the library's builder accepts with a CUDA version.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GccCeiling {
    pub version: VersionSpecifiers,
    pub cuda: VersionSpecifiers,
    pub max: u32,
}

/// A variable in which SMs are ignored that its reader does not know.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PartialArch {
    pub variable: String,
    pub knows: Vec<Sm>,
    #[serde(default)]
    pub when: Conditions,
    pub why: String,
    pub source: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SmLimit {
    #[serde(default)]
    pub when: Conditions,
    /// Most SMs that still build in one compile.
    #[serde(default = "one")]
    pub most: usize,
    pub why: String,
    pub source: String,
}

fn one() -> usize {
    1
}

/// A change to the source, made when its conditions hold: `replace` with `with`, or `split`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    pub id: String,
    #[serde(default)]
    pub when: Conditions,
    pub file: String,
    /// A text to replace by `with`.
    #[serde(default)]
    pub replace: Option<String>,
    #[serde(default)]
    pub with: String,
    /// The file becomes several.
    #[serde(default)]
    pub split: Option<Split>,
    pub why: String,
    pub source: String,
}

/// A source file with explicit instantiations of templates is compiled as several, each with its share of them: more
/// of them are compiled at a time, each in less memory, and a compile that was ended has more to go on with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Number of files.
    pub parts: u32,
    /// The file with the build's list of sources: its one line with the file's name stands there for each part then.
    pub listed_in: String,
}

/// A repository that is cloned before the compile, in a folder that a variable names.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fetch {
    pub name: String,
    #[serde(default)]
    pub when: Conditions,
    pub git: String,
    /// A commit, because a tag may move.
    pub revision: String,
    /// Folder inside the clone that the variable names.
    #[serde(default)]
    pub folder: Option<String>,
    pub variable: String,
    /// Source of the fact: the place where the library's build names the repository.
    pub source: String,
}

impl Fetch {
    /// Returns the path of the clone in a compile.
    pub fn path(&self) -> String {
        let folder = self.folder.as_ref().map(|folder| format!("/{folder}"));
        format!("/opt/fetched/{}{}", self.name, folder.unwrap_or_default())
    }
}

/// A target on which the library cannot work.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    #[serde(default)]
    pub when: Conditions,
    pub reason: String,
    pub fix: String,
    pub source: String,
}

/// A fault, or a surprising behaviour, of some releases.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    pub id: String,
    #[serde(default)]
    pub when: Conditions,
    /// Applies only if the stack names the library, not if another library requires it.
    #[serde(default)]
    pub named: bool,
    pub what: String,
    pub fix: String,
    pub source: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StaticMetadata {
    #[serde(default)]
    pub requires_python: Option<String>,
    #[serde(default)]
    pub requires_dist: Vec<String>,
}

impl ArchVariable {
    /// Returns the variable's value for these SMs.
    pub fn value(&self, sms: &[Sm]) -> String {
        sms.iter()
            .filter(|sm| self.only.is_empty() || self.only.contains(&sm.base()))
            .map(|sm| match self.format {
                ArchFormat::Dotted => sm.to_string(),
                ArchFormat::Digits => sm.digits(),
                ArchFormat::Sm => format!("sm_{}", sm.digits()),
                ArchFormat::Cmake => format!("{}-real", sm.digits()),
            })
            .collect::<Vec<_>>()
            .join(";")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Facts;

    #[test]
    fn arch_variables_take_each_form_and_leave_out_what_they_do_not_know() {
        let sms = ["9.0".parse().unwrap(), "11.0".parse().unwrap()];
        let variable = |format, only: &[&str]| ArchVariable {
            variable: "X".into(),
            format,
            only: only.iter().map(|s| s.parse().unwrap()).collect(),
            why: None,
        };
        assert_eq!(variable(ArchFormat::Dotted, &[]).value(&sms), "9.0;11.0");
        assert_eq!(variable(ArchFormat::Digits, &["9.0"]).value(&sms), "90");
        assert_eq!(
            variable(ArchFormat::Cmake, &[]).value(&sms),
            "90-real;110-real"
        );
        assert_eq!(variable(ArchFormat::Sm, &[]).value(&sms), "sm_90;sm_110");
    }

    #[test]
    fn conditions_need_every_fact() {
        let when: Conditions = serde_saphyr::from_str("{ torch: '>=2.14', sm: ['9.0'] }").unwrap();
        let torch = "2.14.1".parse().unwrap();
        let sms = ["9.0".parse().unwrap()];
        let mut facts = Facts {
            torch: Some(&torch),
            sms: &sms,
            ..Facts::default()
        };
        assert!(when.hold(&facts));
        let suffixed = ["9.0a".parse().unwrap()];
        facts.sms = &suffixed;
        assert!(when.hold(&facts), "code for 9.0a is for the same GPU");
        facts.sms = &[];
        assert!(!when.hold(&facts));
        facts = Facts {
            sms: &sms,
            ..Facts::default()
        };
        assert!(!when.hold(&facts), "an unknown torch is not torch >= 2.14");
    }
}
