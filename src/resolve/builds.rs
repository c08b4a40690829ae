//! Locks compiled libraries: their order, sources, build requirements and CUDA toolkit.
//!
//! In: the joint resolution. Out: [`BuildLock`]s in build order. Build requirements never change a version
//! in the image.

use super::ResolveError;
use super::answer::{Pins, pin_lines};
use super::git;
use super::offer::Offer;
use super::project::Question;
use super::python::Resolver;
use super::requirements::{Need, PackageSource};
use super::sdist::Sdist;
use pep440_rs::Version;
use stackforge_stack::catalog::{Catalog, Image};
use stackforge_stack::lock::{BuildLock, PlatformLock, PythonFile, SourceLock, with_requirements};
use stackforge_stack::spec::Library;
use stackforge_stack::spec::service::Project;
use stackforge_types::wheel::{distribution_of, normalized};
use std::collections::BTreeSet;

/// The last setuptools with `pkg_resources`, which many build scripts import without a word in their metadata. Builds
/// that want another get it.
const SETUPTOOLS: &str = "setuptools==80.9.0";

/// The packaging that setuptools needs where it takes the environment's: it calls what packaging 22.0 brought. Up to 70 it
/// has one of its own. Source: `setuptools/_core_metadata.py` of 70.3.0, 71.0.0 and 80.10.2, `packaging/utils.py` of 21.3
/// and 22.0.
const PACKAGING: &str = "packaging>=22";

/// The known facts when builds are locked.
pub(super) struct BuildFacts<'a> {
    pub catalog: &'a Catalog,
    pub image: Option<&'a Image>,
    /// CUDA version of the image's libraries, major and minor.
    pub cuda: Option<&'a str>,
    pub pins: &'a Pins,
    pub old: Option<&'a PlatformLock>,
    /// Libraries whose requirements are the same as in the old lock.
    pub unchanged: BTreeSet<&'a str>,
    pub offline: bool,
}

/// A question for the files of build requirements.
struct Asked<'a> {
    /// Whose they are.
    of: &'a str,
    requirements: &'a [String],
    held: &'a Pins,
    /// Those of the old lock.
    old: &'a [PythonFile],
    /// Whether these are preferred.
    kept: bool,
    /// Whether nothing but this question says what the build requires, as a recipe would.
    alone: bool,
}

/// The source of nvcc for a build.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Toolkit {
    NotNeeded,
    /// The base's devel image has nvcc.
    Base,
    /// A wheel with this requirement brings nvcc.
    Wheels(String),
}

/// Returns the compiled libraries, each after those that its recipe needs.
pub(super) fn ordered<'n, 'a>(needs: &'n [Need<'a>]) -> Result<Vec<&'n Need<'a>>, ResolveError> {
    let mut waiting: Vec<&Need<'_>> = needs.iter().filter(|n| n.compiled()).collect();
    waiting.sort_by_key(|n| n.name());
    let mut out: Vec<&Need<'_>> = Vec::new();
    while !waiting.is_empty() {
        let blocked = |n: &&Need<'_>| {
            let needed = n.build().map(|b| b.needs.as_slice()).unwrap_or_default();
            needed
                .iter()
                .any(|need| waiting.iter().any(|w| w.name() == need))
        };
        let Some(at) = waiting.iter().position(|n| !blocked(n)) else {
            let names: Vec<&str> = waiting.iter().map(|n| n.name()).collect();
            return Err(ResolveError::Circle(names.join(", ")));
        };
        out.push(waiting.remove(at));
    }
    Ok(out)
}

/// Returns the major and minor number of a version.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|p| p.parse().ok());
    Some((parts.next()??, parts.next()??))
}

impl BuildFacts<'_> {
    /// Whether the base's devel image can compile for this CUDA version: the same major, and not older. With
    /// another major version than torch's, torch's extension builder refuses the toolkit.
    fn base_fits(&self) -> bool {
        let of_base = self
            .image
            .filter(|i| i.reference.is_some())
            .and_then(|i| minor(i.cuda.as_deref()?));
        match (of_base, self.cuda.and_then(minor)) {
            (Some(base), Some(wanted)) => base.0 == wanted.0 && base.1 >= wanted.1,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    pub fn toolkit(&self, need: &Need<'_>) -> Result<Toolkit, ResolveError> {
        let parts = need
            .build()
            .map(|b| b.toolkit.as_slice())
            .unwrap_or_default();
        if parts.is_empty() {
            return Ok(Toolkit::NotNeeded);
        }
        if self.base_fits() {
            return Ok(Toolkit::Base);
        }
        let none = |why: String| ResolveError::NoToolkit {
            library: need.name().to_owned(),
            why,
        };
        let cuda = self
            .cuda
            .ok_or_else(|| none("nothing in the stack says which CUDA".into()))?;
        let wheels = self
            .catalog
            .toolkit(cuda)
            .and_then(|t| t.wheels.as_ref())
            .filter(|w| w.compiler)
            .ok_or_else(|| {
                none(format!(
                    "neither the base nor the index has nvcc of CUDA {cuda}"
                ))
            })?;
        // The constraints already pin a release that is in the image.
        let version = match self.pins.get(&normalized(&wheels.package)) {
            Some(pin) => format!("=={}", pin.version),
            None => format!("=={cuda}.*"),
        };
        Ok(Toolkit::Wheels(format!(
            "{}[{}]{version}",
            wheels.package,
            parts.join(",")
        )))
    }

    pub async fn lock(
        &self,
        resolver: &Resolver<'_>,
        need: &Need<'_>,
        sdist: Option<&PythonFile>,
    ) -> Result<BuildLock, ResolveError> {
        let toolkit = self.toolkit(need)?;
        let pin = &self.pins[&need.distribution];
        let version = pin.version.to_string();
        let source = match (&need.source, sdist) {
            (PackageSource::Git { url, reference }, _) => SourceLock::Git {
                revision: self
                    .revision(
                        need,
                        url,
                        &reference.replace("{version}", &version),
                        &version,
                    )
                    .await?,
                url: url.clone(),
            },
            (_, Some(file)) => SourceLock::Sdist {
                file: file.file.clone(),
                sha256: file.sha256.clone(),
                size: file.size,
            },
            (_, None) => {
                return Err(ResolveError::NoFile {
                    name: need.name().to_owned(),
                    version,
                    target: "a build from source".to_owned(),
                });
            }
        };
        let mut requirements = need.build().map(|b| b.requires.clone()).unwrap_or_default();
        requirements.extend(need.library.build_requires.iter().cloned());
        let brings_toolkit = matches!(toolkit, Toolkit::Wheels(_));
        if let Toolkit::Wheels(line) = toolkit {
            requirements.push(line);
        }
        let asked = |held| Asked {
            alone: !need.library.build_requires.is_empty(),
            ..self.asked(need.name(), &requirements, held)
        };
        let mut requires = self.requires(resolver, asked(self.pins)).await;
        // Some library of the image may bring headers of a newer toolkit, which its compiler does not go with.
        if brings_toolkit && matches!(requires, Err(ResolveError::Unsatisfiable { .. })) {
            let held = self.pins.iter().filter(|(name, _)| !is_compiler(name));
            let held: Pins = held.map(|(n, p)| (n.clone(), p.clone())).collect();
            requires = self.requires(resolver, asked(&held)).await.or(requires);
        }
        Ok(BuildLock {
            name: need.name().to_owned(),
            version,
            source,
            requires: requires?,
            via: pin.locked_via(),
        })
    }

    /// Locks the build of a distribution without a recipe.
    pub async fn lock_sdist(
        &self,
        resolver: &Resolver<'_>,
        name: &str,
        sdist: &Sdist,
        library: Option<&Library>,
    ) -> Result<BuildLock, ResolveError> {
        let pin = &self.pins[name];
        let mut requirements = sdist.metadata.build_requires.clone();
        requirements.extend(
            library
                .iter()
                .flat_map(|l| l.build_requires.iter().cloned()),
        );
        let version = pin.version.to_string();
        let known = self.catalog.source_needs(name, &version);
        requirements.extend(known.iter().flat_map(|k| k.requires.iter().cloned()));
        // As pip isolates builds, one may want another version than the image has.
        let asked = |held| Asked {
            alone: true,
            ..self.asked(name, &requirements, held)
        };
        let requires = match self.requires(resolver, asked(self.pins)).await {
            Err(ResolveError::Unsatisfiable { .. }) => {
                let none = Pins::new();
                let requires = self.requires(resolver, asked(&none)).await;
                requires.map_err(|e| e.with_offer(sdist.wheels.clone().map(Offer::Releases)))
            }
            done => done,
        };
        Ok(BuildLock {
            name: name.to_owned(),
            version,
            source: SourceLock::Sdist {
                file: sdist.file.file.clone(),
                sha256: sdist.file.sha256.clone(),
                size: sdist.file.size,
            },
            requires: requires?,
            via: pin.locked_via(),
        })
    }

    /// Locks what the build of the app's own project requires.
    pub async fn lock_project(
        &self,
        resolver: &Resolver<'_>,
        project: &Project,
    ) -> Result<Vec<PythonFile>, ResolveError> {
        let old = self.old.map(|old| old.app_requires.as_slice());
        let asked = |held| Asked {
            of: "the app",
            requirements: &project.requires,
            held,
            old: old.unwrap_or_default(),
            kept: old.is_some(),
            alone: false,
        };
        // As pip isolates builds, one may want another version than the image has.
        match self.requires(resolver, asked(self.pins)).await {
            Err(ResolveError::Unsatisfiable { .. }) => {
                let none = Pins::new();
                self.requires(resolver, asked(&none)).await
            }
            done => done,
        }
    }

    /// What a library's build requires, beside pins that it is held to.
    fn asked<'q>(&'q self, name: &'q str, requirements: &'q [String], held: &'q Pins) -> Asked<'q> {
        let old = self.old.and_then(|o| o.build(name));
        Asked {
            of: name,
            requirements,
            held,
            old: old.map(|b| b.requires.as_slice()).unwrap_or_default(),
            kept: old.is_some() && self.unchanged.contains(name),
            alone: false,
        }
    }

    /// Returns a source's revision. An unchanged library keeps that of the old lock: a moved tag is not followed
    /// silently.
    async fn revision(
        &self,
        need: &Need<'_>,
        url: &str,
        reference: &str,
        version: &str,
    ) -> Result<String, ResolveError> {
        let old = self.old.and_then(|o| o.build(need.name()));
        if let Some(old) = old
            && self.unchanged.contains(need.name())
            && old.version == version
            && let SourceLock::Git {
                url: old_url,
                revision,
            } = &old.source
            && old_url == url
        {
            return Ok(revision.clone());
        }
        git::revision(need.name(), url, reference, self.offline).await
    }

    /// Returns the files of build requirements that are not there when it is built. Of what is held, they have these
    /// versions. A plan adds what a recipe names and the image has in a layer above builders.
    async fn requires(
        &self,
        resolver: &Resolver<'_>,
        asked: Asked<'_>,
    ) -> Result<Vec<PythonFile>, ResolveError> {
        let Asked {
            of,
            requirements,
            held,
            old,
            kept,
            alone,
        } = asked;
        if requirements.is_empty() {
            return Ok(Vec::new());
        }
        let preferences = if kept {
            let files = old.iter();
            files
                .map(|f| format!("{}=={}", f.name, f.version))
                .collect()
        } else {
            vec![SETUPTOOLS.to_owned()]
        };
        let mut question = Question {
            requirements: requirements.to_vec(),
            constraints: pin_lines(held),
            preferences,
            ..Question::default()
        };
        let unsatisfiable = |explanation| ResolveError::Unsatisfiable {
            of: if held.is_empty() {
                format!("the build requirements of `{of}`")
            } else {
                format!("the build requirements of `{of}` beside the image's wheels")
            },
            explanation,
            offers: Vec::new(),
        };
        let mut pins = resolver.versions(&question).await?.map_err(unsatisfiable)?;
        if has_old_packaging(self.pins, &pins) {
            question.requirements.push(PACKAGING.to_owned());
            question
                .constraints
                .retain(|line| distribution_of(line) != "packaging");
            if let Ok(newer) = resolver.versions(&question).await? {
                pins = newer;
            }
        }
        // As a plan reads it in the lock.
        let via: Vec<(&str, Vec<String>)> = self
            .pins
            .iter()
            .map(|(name, pin)| (name.as_str(), pin.locked_via()))
            .collect();
        let below = with_requirements("torch", via.iter().map(|(name, via)| (*name, via)));
        pins.retain(|name, pin| {
            let above = alone && !below.is_empty() && !below.contains(name.as_str());
            let of_image = self.pins.get(name);
            above || of_image.is_none_or(|image| image.version != pin.version)
        });
        let known = |name: &str, version: String| {
            old.iter().any(|f| f.name == name && f.version == version)
        };
        if self.offline
            && let Some((name, _)) = pins.iter().find(|(n, p)| !known(n, p.version.to_string()))
        {
            return Err(ResolveError::OfflineChoice(name.clone()));
        }
        if pins.is_empty() {
            return Ok(Vec::new());
        }
        let files = resolver.files(&pins).await?;
        pins.iter()
            .map(|(name, pin)| {
                let mut file = files.wheel(name, &resolver.settings.target)?;
                file.via = pin.locked_via();
                Ok(file)
            })
            .collect()
    }
}

/// Whether a build's setuptools takes a packaging that is too old for it. `pins`: what the build requires.
fn has_old_packaging(image: &Pins, pins: &Pins) -> bool {
    let of = |name: &str| Some(&pins.get(name).or_else(|| image.get(name))?.version);
    let (Some(setuptools), Some(packaging)) = (of("setuptools"), of("packaging")) else {
        return false;
    };
    *setuptools >= Version::new([71]) && *packaging < Version::new([22])
}

/// Whether a distribution has parts of CUDA's compiler: programs and headers that no image loads.
fn is_compiler(name: &str) -> bool {
    let parts = [
        "nvidia-cuda-cccl",
        "nvidia-cuda-crt",
        "nvidia-cuda-nvcc",
        "nvidia-nvvm",
    ];
    let of_major = |part: &str| {
        let rest = name.strip_prefix(part);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("-cu"))
    };
    parts.into_iter().any(of_major)
}

/// Returns the CUDA version of the resolved libraries, major and minor.
pub(super) fn cuda_of(pins: &Pins) -> Option<String> {
    let runtime = |name: &&String| {
        *name == "nvidia-cuda-runtime" || name.starts_with("nvidia-cuda-runtime-cu")
    };
    let pin = pins
        .get("cuda-toolkit")
        .or_else(|| pins.keys().find(runtime).map(|n| &pins[n]))?;
    match pin.version.release() {
        [major, minor, ..] => Some(format!("{major}.{minor}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::pins;
    use super::*;

    #[test]
    fn cuda_comes_from_the_toolkit_or_the_runtime() {
        assert_eq!(
            cuda_of(&pins(
                "cuda-toolkit==13.0.3.0\nnvidia-cuda-runtime==13.0.96\n"
            ))
            .as_deref(),
            Some("13.0")
        );
        assert_eq!(
            cuda_of(&pins("nvidia-cuda-runtime-cu12==12.8.90\n")).as_deref(),
            Some("12.8")
        );
        assert_eq!(cuda_of(&pins("six==1.17.0\n")), None);
    }

    #[test]
    fn headers_and_compilers_are_no_libraries_of_an_image() {
        assert!(is_compiler("nvidia-cuda-cccl") && is_compiler("nvidia-cuda-nvcc-cu12"));
        assert!(!is_compiler("nvidia-cuda-runtime") && !is_compiler("nvidia-cuda-cccl-extra"));
    }

    #[test]
    fn setuptools_of_today_needs_a_packaging_of_today() {
        let old = |image: &str, build: &str| has_old_packaging(&pins(image), &pins(build));
        assert!(old("packaging==21.3\nsetuptools==80.10.2\n", ""));
        assert!(old("packaging==20.9\n", "setuptools==71.0.0\n"));
        assert!(!old("packaging==21.3\nsetuptools==70.3.0\n", ""));
        assert!(!old("packaging==22.0\nsetuptools==80.10.2\n", ""));
        assert!(!old(
            "packaging==21.3\n",
            "setuptools==80.9.0\npackaging==26.0\n"
        ));
        assert!(!old("", "setuptools==80.9.0\n") && !old("packaging==21.3\n", ""));
    }

    #[test]
    fn versions_have_a_major_and_a_minor() {
        assert_eq!(minor("13.0.0"), Some((13, 0)));
        assert_eq!(minor("12"), None);
    }
}
