//! The known releases of a library: `releases:` of a recipe.
//!
//! Read from wheels and their metadata, never guessed: a release or a wheel that is missing here is unknown,
//! and no rule depends on it.

use pep440_rs::{Version, VersionSpecifiers};
use serde::{Deserialize, Serialize};
use stackforge_types::{Platform, PythonVersion, Sm, string_serde};
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// `Requires-Python`.
    #[serde(default)]
    pub python: Option<VersionSpecifiers>,
    /// Requirements on other libraries that decide compatibility; not all requirements.
    #[serde(default)]
    pub requires: Vec<Pin>,
    /// Wheels; empty if the release has none.
    #[serde(default)]
    pub wheels: Vec<ReleaseWheel>,
    /// Assemblers that it carries and runs, lowest `from` first.
    #[serde(default)]
    pub ptxas: Vec<Ptxas>,
    pub source: String,
}

/// An assembler inside a wheel: what it accepts is what the toolkit of its version accepts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ptxas {
    /// File name below `bin/`.
    pub name: String,
    /// Version as it prints it: `12.9.86`.
    pub version: String,
    /// First SM that it is used for; absent: from the lowest SM.
    #[serde(default)]
    pub from: Option<Sm>,
}

/// A requirement without markers: `torch==2.14.0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Normalized distribution name.
    pub name: String,
    pub versions: VersionSpecifiers,
}

/// Wheels of one platform and one CUDA that carry the same code.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseWheel {
    /// Absent: any platform.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// Python tags: `cp312`, `py3`. Free-threaded ones are left out.
    pub python: Vec<PythonTag>,
    /// The extension modules load in every Python from the tag on.
    #[serde(default)]
    pub abi3: bool,
    /// Minimum glibc of its manylinux tag.
    #[serde(default)]
    pub glibc: Option<Glibc>,
    /// Local version label (`cu126`) of a wheel from another index than the default.
    #[serde(default)]
    pub local: Option<String>,
    /// CUDA that it links or was built with.
    #[serde(default)]
    pub cuda: WheelCuda,
    /// `_GLIBCXX_USE_CXX11_ABI` of its C++ code.
    #[serde(default)]
    pub cxx11_abi: Option<bool>,
    /// Requirements of this wheel beyond its release's, mostly CUDA's own libraries.
    #[serde(default)]
    pub requires: Vec<Pin>,
    /// Device code by object; empty: none, or not read.
    #[serde(default)]
    pub code: Vec<DeviceCode>,
}

/// Device code of objects that carry the same SMs.
///
/// An SM is here if nearly every kernel of the object is built for it. Single kernels for
/// further SMs (row-wise GEMM for 10.3a in torch) are left out: they support no GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCode {
    /// Shared objects, by file name or glob.
    pub objects: Vec<String>,
    /// SMs of the SASS.
    #[serde(default)]
    pub sm: Vec<Sm>,
    #[serde(default)]
    pub ptx: Vec<Sm>,
    /// CUDA of the torch beside which the code is loaded; absent: always loaded.
    #[serde(default)]
    pub cuda: WheelCuda,
    /// Whether the library is useless on a GPU that does not run this code.
    #[serde(default)]
    pub core: bool,
}

/// The CUDA version of a wheel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WheelCuda {
    /// Not known, or nothing in it depends on one.
    #[default]
    Unknown,
    /// Built without CUDA although the library can use it.
    Cpu,
    /// Major, and minor where it is known.
    Version { major: u32, minor: Option<u32> },
}

/// `cp312` or `py3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PythonTag {
    CPython(PythonVersion),
    Any,
}

/// Minor version of glibc 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc(pub u16);

impl Release {
    /// Returns the wheels for a platform, with that local version label or without one.
    pub fn wheels_for<'a, 'l>(
        &'a self,
        platform: Platform,
        local: &'l str,
    ) -> impl Iterator<Item = &'a ReleaseWheel> + use<'a, 'l> {
        self.wheels.iter().filter(move |w| {
            w.platform.is_none_or(|p| p == platform) && w.local.as_deref().unwrap_or("") == local
        })
    }

    /// Returns its requirement on one other library, whether it is a wheel or compiled.
    pub fn asks(&self, name: &str) -> Option<&VersionSpecifiers> {
        versions_of(&self.requires, name)
    }

    /// Returns the requirement of its wheel for a platform on one other library, with that local version label or
    /// without one.
    pub fn asks_as(
        &self,
        platform: Platform,
        local: &str,
        name: &str,
    ) -> Option<&VersionSpecifiers> {
        let wheels = || self.wheels_for(platform, local).find_map(|w| w.asks(name));
        self.asks(name).or_else(wheels)
    }

    /// Returns the requirement of the index's wheel for a platform on one other library.
    pub fn asks_on(&self, platform: Platform, name: &str) -> Option<&VersionSpecifiers> {
        self.asks_as(platform, "", name)
    }

    /// Returns the assembler that it runs for an SM.
    pub fn ptxas_for(&self, sm: Sm) -> Option<&Ptxas> {
        self.ptxas
            .iter()
            .rfind(|p| p.from.is_none_or(|from| from <= sm.base()))
    }
}

fn versions_of<'a>(pins: &'a [Pin], name: &str) -> Option<&'a VersionSpecifiers> {
    pins.iter().find(|p| p.name == name).map(|p| &p.versions)
}

impl ReleaseWheel {
    /// Returns this wheel's requirement on one other library, beyond its release's.
    pub fn asks(&self, name: &str) -> Option<&VersionSpecifiers> {
        versions_of(&self.requires, name)
    }

    /// Returns the code that is loaded beside a torch of that CUDA: code that is always loaded, and of objects
    /// for one CUDA the one of that version, else the newest older one of its major, else the oldest newer one.
    /// An unknown minor version counts as the newest.
    pub fn code_beside(&self, cuda: Option<(u32, Option<u32>)>) -> Vec<&DeviceCode> {
        let own = |code: &DeviceCode| match (&code.cuda, cuda) {
            (WheelCuda::Version { major, minor }, Some((beside, _))) if *major == beside => *minor,
            _ => None,
        };
        let newest = cuda.and_then(|(_, minor)| minor).unwrap_or(u32::MAX);
        let minors = || self.code.iter().filter_map(own);
        let chosen = minors()
            .filter(|minor| *minor <= newest)
            .max()
            .or(minors().min());
        let always = |code: &DeviceCode| code.cuda == WheelCuda::Unknown;
        (self.code.iter())
            .filter(|code| always(code) || (chosen.is_some() && own(code) == chosen))
            .collect()
    }

    /// Whether that Python can load the wheel.
    pub fn loads_in(&self, python: PythonVersion) -> bool {
        self.python.iter().any(|tag| match tag {
            PythonTag::Any => true,
            PythonTag::CPython(p) if self.abi3 => *p <= python,
            PythonTag::CPython(p) => *p == python,
        })
    }
}

string_serde!(Pin);
string_serde!(WheelCuda);
string_serde!(PythonTag);
string_serde!(Glibc);

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, self.versions)
    }
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let at = s
            .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))
            .unwrap_or(s.len());
        let (name, versions) = s.split_at(at);
        let versions = versions
            .parse()
            .map_err(|e| format!("`{s}` is not a name and a specifier: {e}"))?;
        if name.is_empty() {
            return Err(format!("`{s}` names no distribution"));
        }
        Ok(Self {
            name: name.to_owned(),
            versions,
        })
    }
}

impl fmt::Display for WheelCuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Cpu => f.write_str("cpu"),
            Self::Version { major, minor: None } => write!(f, "{major}"),
            Self::Version {
                major,
                minor: Some(minor),
            } => write!(f, "{major}.{minor}"),
        }
    }
}

impl FromStr for WheelCuda {
    type Err = String;

    /// `13.0`, `12`, `cpu`.
    fn from_str(s: &str) -> Result<Self, String> {
        let number = |n: &str| {
            n.parse::<u32>()
                .map_err(|_| format!("`{s}` is not a CUDA version"))
        };
        match (s, s.split_once('.')) {
            ("cpu", _) => Ok(Self::Cpu),
            ("unknown", _) => Ok(Self::Unknown),
            (_, Some((major, minor))) => Ok(Self::Version {
                major: number(major)?,
                minor: Some(number(minor)?),
            }),
            (_, None) => Ok(Self::Version {
                major: number(s)?,
                minor: None,
            }),
        }
    }
}

impl fmt::Display for PythonTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("py3"),
            Self::CPython(p) => write!(f, "cp{}{}", p.major, p.minor),
        }
    }
}

impl FromStr for PythonTag {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let wrong = || format!("`{s}` is not a Python tag such as `cp312` or `py3`");
        if s == "py3" || s == "py2.py3" {
            return Ok(Self::Any);
        }
        let minor = s.strip_prefix("cp3").ok_or_else(wrong)?;
        let minor = minor.parse().map_err(|_| wrong())?;
        Ok(Self::CPython(PythonVersion { major: 3, minor }))
    }
}

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "2.{}", self.0)
    }
}

impl FromStr for Glibc {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        s.strip_prefix("2.")
            .and_then(|minor| minor.parse().ok())
            .map(Self)
            .ok_or_else(|| format!("`{s}` is not a glibc version such as `2.28`"))
    }
}

/// Splits a version into its public part and its local label.
pub fn split_local(version: &Version) -> (Version, String) {
    let label = version
        .local()
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(".");
    (version.clone().without_local(), label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_reads_as_it_is_written() {
        let release: Release = serde_saphyr::from_str(
            "
python: '>=3.11'
requires: [torch==2.14.0, 'triton~=3.8.0']
wheels:
- platform: linux/arm64
  python: [cp310]
  abi3: true
  glibc: '2.28'
  cuda: '13.0'
  code:
  - { objects: [_C.abi3.so], sm: ['9.0', 9.0a, 10.0f], ptx: ['8.0'], core: true }
- { platform: linux/arm64, local: cpu, python: [cp310], cuda: cpu }
source: measured
",
        )
        .unwrap();
        let wheel = release.wheels_for(Platform::LinuxArm64, "").next().unwrap();
        assert!(wheel.loads_in("3.12".parse().unwrap()));
        assert!(!wheel.loads_in("3.9".parse().unwrap()));
        assert_eq!(wheel.glibc, Some(Glibc(28)));
        assert_eq!(release.wheels_for(Platform::LinuxAmd64, "").count(), 0);
        assert_eq!(release.asks("torch").unwrap().to_string(), "==2.14.0");
        assert_eq!(release.wheels[1].cuda, WheelCuda::Cpu);
    }

    #[test]
    fn the_library_of_torchs_cuda_is_the_one_that_is_loaded() {
        let wheel: ReleaseWheel = serde_saphyr::from_str(
            "
python: [py3]
code:
- { objects: [always] }
- { objects: [a], cuda: '12.4' }
- { objects: [b], cuda: '12.8' }
- { objects: [c], cuda: '13.2' }
",
        )
        .unwrap();
        let loaded = |cuda| {
            let code = wheel.code_beside(cuda);
            let names = code.iter().map(|c| c.objects[0].as_str());
            names.collect::<Vec<_>>()
        };
        assert_eq!(loaded(Some((12, Some(8)))), ["always", "b"]);
        assert_eq!(loaded(Some((12, Some(6)))), ["always", "a"]);
        assert_eq!(loaded(Some((12, Some(1)))), ["always", "a"]);
        assert_eq!(loaded(Some((12, None))), ["always", "b"]);
        assert_eq!(loaded(Some((13, Some(4)))), ["always", "c"]);
        assert_eq!(loaded(Some((11, Some(8)))), ["always"]);
        assert_eq!(loaded(None), ["always"]);
    }

    #[test]
    fn local_labels_come_apart() {
        let (public, label) = split_local(&"2.8.3+cu12torch2.8cxx11abiTRUE".parse().unwrap());
        assert_eq!(public.to_string(), "2.8.3");
        assert_eq!(label, "cu12torch2.8cxx11abitrue");
    }

    #[test]
    fn texts_that_are_none_are_refused() {
        assert!("torch".parse::<Pin>().is_ok_and(|p| p.versions.is_empty()));
        assert!("==2".parse::<Pin>().is_err());
        assert!("torch=2".parse::<Pin>().is_err());
        assert!("cp2".parse::<PythonTag>().is_err());
        assert!("3.28".parse::<Glibc>().is_err());
        assert!("thirteen".parse::<WheelCuda>().is_err());
    }
}
