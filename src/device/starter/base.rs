//! Chooses GPU, platform, base and Python for what a file asks for.

use super::{Question, instead, knows, no_base, no_gpu, sm_of};
use crate::Device;
use crate::convert::{Found, Item, Known, Wants};
use crate::doctor;
use pep440_rs::{Operator, Version, VersionSpecifiers};
use stackforge_stack::catalog::{Catalog, Image, WheelCuda, numbers};
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::spec::{Platform, PythonVersion, Sm};
use std::cmp::Reverse;
use std::str::FromStr as _;

/// Where the stack is to run.
pub(super) struct Place<'a> {
    pub gpus: Vec<String>,
    pub platform: Platform,
    sms: Vec<Sm>,
    /// Bases that the machine runs, if the stack is for a machine.
    bases: Option<Vec<&'a Image>>,
}

/// A base with a Python of it.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub image: &'a Image,
    pub python: PythonVersion,
    /// Whether that Python is one that the file asks for.
    pub fits: bool,
}

impl<'a> Place<'a> {
    /// By the GPU that the user names, else the file's, else the machine's.
    ///
    /// # Errors
    /// If none of them says a GPU.
    pub fn of(
        catalog: &'a Catalog,
        found: &Found,
        gpu: Option<&str>,
        device: &dyn Fn() -> Device,
    ) -> Result<Self, Diagnostic> {
        if let Some(gpu) = gpu {
            return Self::for_gpus(catalog, found, vec![gpu.to_owned()]);
        }
        let mut named = found.gpus.clone();
        named.retain(|gpu| catalog.sm(gpu).is_some());
        if named.is_empty() {
            named.extend(jetson(catalog, found));
        }
        if !named.is_empty() {
            return Self::for_gpus(catalog, found, named);
        }
        let device = device();
        let gpus = device.identified(catalog);
        let sms: Vec<Sm> = gpus.iter().filter_map(|g| g.sm).collect();
        let mut names: Vec<String> = gpus.iter().filter_map(|g| g.target()).collect();
        names.dedup();
        let platform = device.platform.filter(|_| !sms.is_empty());
        let Some(platform) = platform else {
            return Err(no_gpu(catalog, &device));
        };
        let bases = Some(doctor::bases(catalog, &device, &sms));
        Ok(Self {
            gpus: names,
            platform,
            sms,
            bases,
        })
    }

    fn for_gpus(
        catalog: &'a Catalog,
        found: &Found,
        gpus: Vec<String>,
    ) -> Result<Self, Diagnostic> {
        let mut sms = Vec::new();
        for gpu in &gpus {
            sms.push(sm_of(catalog, gpu)?);
        }
        let mut platforms: Vec<Platform> = match gpus.first().and_then(|g| catalog.gpu(g)) {
            Some(gpu) => gpu.platforms.clone(),
            None => sms
                .first()
                .and_then(|sm| catalog.sm_facts(*sm))
                .map(|f| f.platforms.clone())
                .unwrap_or_default(),
        };
        if found.platform.is_some_and(|p| platforms.contains(&p)) {
            platforms.retain(|p| Some(*p) == found.platform);
        }
        let platform = platforms.first().copied().unwrap_or(Platform::LinuxAmd64);
        Ok(Self {
            gpus,
            platform,
            sms,
            bases: None,
        })
    }

    /// Returns the bases that can be, the nearest to what the file asks for first.
    ///
    /// # Errors
    /// If the catalog has none for the GPU.
    pub fn candidates(&self, question: &Question<'a>) -> Result<Vec<Candidate<'a>>, Diagnostic> {
        let (catalog, known, found) = (question.catalog, question.known, question.found);
        let of_jetson = |image: &&Image| {
            let mut releases = catalog
                .jetson
                .iter()
                .filter(|r| self.sms.iter().any(|sm| r.gpus.contains(&sm.base())))
                .peekable();
            match releases.peek() {
                // Which JetPack a board has is not known: its long-lived one, whose bases no other GPU takes.
                Some(_) => releases.any(|r| r.bases.first() == Some(&image.image)),
                None => image.l4t.is_none(),
            }
        };
        let images: Vec<&Image> = match (question.base, &self.bases) {
            (Some(base), _) => catalog.images.get(base).into_iter().collect(),
            (None, Some(bases)) => bases.clone(),
            (None, None) => catalog.images.values().filter(of_jetson).collect(),
        };
        let fits = |image: &&Image| {
            image.platforms.contains(&self.platform)
                && image.has_shell()
                && (image.cuda.is_none() || knows(catalog, image, &self.sms))
        };
        let of_torch = older_python(found, known);
        let asked = found
            .python
            .as_ref()
            .map(|p| &p.value)
            .or(of_torch.as_ref());
        let mut all: Vec<Candidate<'a>> = images
            .into_iter()
            .filter(fits)
            .filter_map(|image| python(image, asked))
            .collect();
        let Some(sm) = self.sms.first().filter(|_| all.is_empty()) else {
            let cuda = wanted_cuda(catalog, known, found, self.platform);
            let far = |c: &Candidate<'_>| Distance {
                instead: instead::count(question, self.platform, c),
                ..far(c, found, asked, cuda.as_deref())
            };
            all.sort_by_cached_key(far);
            let fitting = all.iter().any(|c| c.fits);
            all.retain(|c| c.fits || !fitting);
            return Ok(all);
        };
        Err(match question.base {
            Some(base) => other_base(base, *sm, self.platform),
            None => no_base(*sm, Some(self.platform)),
        })
    }
}

fn other_base(base: &str, sm: Sm, platform: Platform) -> Diagnostic {
    let text = format!("base `{base}` is not for sm_{} on {platform}", sm.digits());
    Diagnostic::error(codes::UNKNOWN_BASE, text)
        .help("leave out `--base` for the nearest base that is, or name another GPU")
}

/// Returns the GPU of the Jetson that an L4T image is for.
fn jetson(catalog: &Catalog, found: &Found) -> Option<String> {
    let l4t = &found.l4t.as_ref()?.value;
    // Earlier releases than the catalog has are for Orin too, and no later ones are known.
    let release = catalog.jetson_release(l4t).or(catalog.jetson.first())?;
    let gpu = catalog.gpus.iter().find(|g| release.gpus.contains(&g.sm));
    gpu.map(|gpu| gpu.name.clone())
}

/// Returns the base with the newest Python that is asked for, else with the nearest.
fn python<'a>(image: &'a Image, asked: Option<&VersionSpecifiers>) -> Option<Candidate<'a>> {
    let newest = *image.python.last()?;
    let Some(asked) = asked else {
        return Some(Candidate {
            image,
            python: newest,
            fits: true,
        });
    };
    let fits = |python: &&PythonVersion| admits(asked, **python);
    if let Some(python) = image.python.iter().rev().find(fits) {
        return Some(Candidate {
            image,
            python: *python,
            fits: true,
        });
    }
    Some(Candidate {
        image,
        python: newest,
        fits: false,
    })
}

/// Whether a release of that Python is among the versions.
fn admits(asked: &VersionSpecifiers, python: PythonVersion) -> bool {
    // A patch release may be named or excluded, so several are tried.
    (0..40).any(|patch| {
        let version = Version::new([u64::from(python.major), u64::from(python.minor), patch]);
        asked.contains(&version)
    })
}

/// Returns the Pythons that the torch that the file pins has wheels for, if not those of today.
fn older_python(found: &Found, known: &Known) -> Option<VersionSpecifiers> {
    let newest = known.python_of_torch(&pinned(found, "torch")?)?;
    VersionSpecifiers::from_str(&format!("<={newest}.9999")).ok()
}

/// Returns the CUDA version that is wanted: the file's, else that of the torch that it pins.
fn wanted_cuda(
    catalog: &Catalog,
    known: &Known,
    found: &Found,
    platform: Platform,
) -> Option<String> {
    let of_file = found.cuda.as_ref().map(|c| c.value.clone());
    of_file.or_else(|| {
        let torch = pinned(found, "torch")?;
        let of_label = label(&torch).and_then(|label| known.cuda_of_label(&label));
        of_label.or_else(|| pypi_cuda(catalog, "torch", &torch.only_release(), platform))
    })
}

/// Returns a version's local label: `cu128` of `2.9.1+cu128`.
pub(super) fn label(version: &Version) -> Option<String> {
    let text = version.to_string();
    text.split_once('+').map(|(_, label)| label.to_owned())
}

/// Returns the one version that the file pins a library to.
pub(super) fn pinned(found: &Found, name: &str) -> Option<Version> {
    found.libraries.iter().find_map(|item| match item {
        Item::Take(asked) if asked.name == name => match &asked.wants {
            Wants::Versions(versions) => exact(versions).cloned(),
            _ => None,
        },
        _ => None,
    })
}

/// Returns the one version that specifiers admit.
pub(super) fn exact(versions: &VersionSpecifiers) -> Option<&Version> {
    match versions.iter().as_slice() {
        [one] if *one.operator() == Operator::Equal => Some(one.version()),
        _ => None,
    }
}

/// Returns the CUDA of a release's wheel on PyPI, major and minor version. `None` if that is not known.
pub(super) fn pypi_cuda(
    catalog: &Catalog,
    distribution: &str,
    version: &Version,
    platform: Platform,
) -> Option<String> {
    let release = catalog.releases(distribution)?.get(version)?;
    let mut wheels = release.wheels_for(platform, "");
    wheels.find_map(|wheel| match wheel.cuda {
        WheelCuda::Version { major, minor } => Some(format!("{major}.{}", minor.unwrap_or(0))),
        WheelCuda::Cpu | WheelCuda::Unknown => None,
    })
}

/// How far a base is from what is asked for; the derived order compares the fields one after the other.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Distance {
    no_l4t: bool,
    /// Minor versions of Python.
    python: u64,
    /// Requirements of which it has no wheel.
    instead: usize,
    other_cuda_major: bool,
    /// Debian in place of Ubuntu, if nothing else is asked for.
    other_family: bool,
    /// Whether a plain image would get CUDA, or one with CUDA would get it from wheels alone.
    other_place_of_cuda: bool,
    cuda_minor: u32,
    other_os: bool,
    newest_cuda: Reverse<Vec<u32>>,
    newest_os: Reverse<Vec<u32>>,
}

fn far(
    candidate: &Candidate<'_>,
    found: &Found,
    python: Option<&VersionSpecifiers>,
    cuda: Option<&str>,
) -> Distance {
    let image = candidate.image;
    let asked = python.filter(|_| !candidate.fits);
    let asked = asked.and_then(|p| p.iter().next()?.version().release().get(1).copied());
    let own = image.cuda.as_deref().map(numbers);
    let wanted = cuda.map(numbers);
    let minor = |v: &[u32]| v.get(1).copied().unwrap_or(0);
    let same_major = wanted
        .as_ref()
        .zip(own.as_ref())
        .map(|(a, b)| a.first() == b.first());
    let minors = wanted
        .as_ref()
        .zip(own.as_ref())
        .map(|(a, b)| minor(a).abs_diff(minor(b)));
    let os = found.os.as_ref();
    Distance {
        no_l4t: found.l4t.is_some() && image.l4t.is_none(),
        python: asked.map_or(0, |minor| minor.abs_diff(u64::from(candidate.python.minor))),
        instead: 0,
        other_cuda_major: same_major == Some(false),
        other_family: wanted.is_none() && os.is_some_and(|os| os.id != image.os.id),
        other_place_of_cuda: match &wanted {
            Some(_) => own.is_none(),
            None => found.from.is_some() && own.is_some(),
        },
        cuda_minor: minors.unwrap_or(0),
        other_os: os.is_some_and(|os| os.id != image.os.id || os.release != image.os.version),
        newest_cuda: Reverse(own.unwrap_or_default()),
        newest_os: Reverse(numbers(&image.os.version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minor_version_is_admitted_by_any_of_its_patches() {
        let python = |text: &str| PythonVersion::from_str(text).unwrap();
        let asked = |text: &str| VersionSpecifiers::from_str(text).unwrap();
        assert!(admits(&asked(">=3.10,<3.13"), python("3.12")));
        assert!(admits(&asked(">3.11"), python("3.11")), "3.11.1 is above");
        assert!(admits(&asked("==3.11.7"), python("3.11")));
        assert!(!admits(&asked("==3.9.*"), python("3.10")));
    }
}
