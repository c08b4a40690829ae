//! What wheels take from the system: libraries that their objects need, what packages open by themselves, and modules that
//! Debian packs apart from Python.
//!
//! In: what the chosen wheels hold. Out: [`SystemNeeds`], each file with the distributions that take it. A
//! wheel's metadata says nothing of them; its objects do.

mod extras;

use super::answer::Pins;
use super::contents::{AllContents, Modules, Objects, has_objects};
use stackforge_stack::catalog::{Catalog, Loader};
use stackforge_stack::lock::{BuildLock, LackingLock, PythonFile};
use std::collections::{BTreeMap, BTreeSet};

/// [`Objects`] by the distribution's normalized name.
type AllObjects<'a> = BTreeMap<&'a str, &'a Objects>;

/// What is taken from the system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SystemFile {
    /// A library by its SONAME.
    Library(String),
    /// A program by its name.
    Program(String),
    /// A module of Python that is in an OS package of its own.
    Module { name: String, package: String },
}

impl SystemFile {
    pub fn name(&self) -> &str {
        match self {
            Self::Library(name) | Self::Program(name) | Self::Module { name, .. } => name,
        }
    }
}

/// Distributions by the files that they take from the system.
pub(super) type SystemNeeds = BTreeMap<SystemFile, BTreeSet<String>>;

/// What wheels take from the system.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub needs: SystemNeeds,
    /// Whether every wheel was read.
    pub complete: bool,
    /// Distributions whose extras bring what no OS package has.
    pub lacking: Vec<LackingLock>,
}

impl Taken {
    /// What wheels take that nobody reads.
    pub fn nothing() -> Self {
        Self {
            complete: true,
            ..Self::default()
        }
    }
}

/// Returns the names of those of the wheels that were built for numpy 1.
pub(super) fn for_numpy_1<'a>(all: &'a AllContents) -> impl Iterator<Item = &'a str> {
    let old = all.iter().filter(|(_, c)| c.objects.is_for_numpy_1());
    old.map(|(name, _)| *name)
}

/// Finds out what wheels take from the system, and what those that are built open by themselves.
pub(super) fn taken(
    wheels: &[PythonFile],
    builds: &[BuildLock],
    pins: &Pins,
    contents: &AllContents,
    catalog: &Catalog,
) -> Taken {
    // Some wheels that are said to be for any platform have objects (ten-vad 1.0).
    let objects = wheels.iter().filter_map(|wheel| {
        let contents = contents.get(wheel.name.as_str())?;
        Some((wheel.name.as_str(), &contents.objects))
    });
    let all: AllObjects = objects.collect();
    let is_read = |wheel: &PythonFile| !has_objects(wheel) || all.contains_key(&*wheel.name);
    let loader = &catalog.loader;
    let mut needs = needs(&all, &Requirements::of(pins), loader);
    let of_wheels = wheels.iter().map(|w| (&w.name, &w.via));
    let of_builds = builds.iter().map(|b| (&b.name, &b.via));
    for (name, via) in of_wheels.chain(of_builds) {
        for file in opened(loader, name, via.is_empty()) {
            needs.entry(file).or_default().insert(name.clone());
        }
    }
    for (name, contents) in contents {
        for file in modules_of_os_packages(&contents.modules, catalog) {
            needs.entry(file).or_default().insert((*name).to_owned());
        }
    }
    let lacking = extras::lacking(&needs, &all, catalog);
    Taken {
        needs,
        complete: wheels.iter().all(is_read),
        lacking,
    }
}

/// Returns the distributions that need libraries of no OS package. CUDA's own come with wheels or the base.
pub(super) fn nowhere(needs: &SystemNeeds, loader: &Loader) -> Vec<LackingLock> {
    let mut lacking: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    for (file, distributions) in needs.iter().filter(|(f, _)| !loader.nvidia.has(f.name())) {
        for distribution in distributions {
            lacking
                .entry(distribution)
                .or_default()
                .push(file.name().to_owned());
        }
    }
    let of = |(name, needs): (&String, Vec<String>)| LackingLock {
        name: name.clone(),
        needs,
        extras: Vec::new(),
    };
    lacking.into_iter().map(of).collect()
}

/// Which distributions each distribution requires.
struct Requirements<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> Requirements<'a> {
    fn of(pins: &'a Pins) -> Self {
        let mut out: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, pin) in pins {
            for by in &pin.via {
                out.entry(by).or_default().insert(name);
            }
        }
        Self(out)
    }

    /// Returns a distribution and all that is installed because of it.
    fn with(&self, distribution: &'a str) -> BTreeSet<&'a str> {
        let mut out = BTreeSet::new();
        let mut left = vec![distribution];
        while let Some(name) = left.pop() {
            if out.insert(name) {
                left.extend(self.0.get(name).into_iter().flatten());
            }
        }
        out
    }
}

/// Returns what no wheel has of what the objects need, apart from what the host's driver brings and what is
/// needed by objects that their package can do without. What only a wheel has that a distribution does not
/// require counts as lacking, if it is a common library: nothing says that the other one is imported first.
fn needs<'a>(
    all: &AllObjects<'a>,
    requirements: &Requirements<'a>,
    loader: &Loader,
) -> SystemNeeds {
    let there: BTreeSet<&str> = all.values().flat_map(|objects| objects.names()).collect();
    let mut needs = SystemNeeds::new();
    for (distribution, objects) in all {
        let spared = spared(objects, &there, loader);
        let own = requirements.with(distribution);
        let own = own.iter().filter_map(|name| all.get(name));
        let own: BTreeSet<&str> = own.flat_map(|objects| objects.names()).collect();
        let lacks = |soname: &str| {
            let found = own.contains(soname) || there.contains(soname) && !loader.base.has(soname);
            !found && !loader.host.has(soname) && !soname.contains('/')
        };
        for (path, needed) in objects.needed() {
            if loader.plugins.has(path) || spared.contains(path) {
                continue;
            }
            for soname in needed.filter(|soname| lacks(soname)) {
                let file = SystemFile::Library(soname.to_owned());
                let by = needs.entry(file).or_default();
                by.insert((*distribution).to_owned());
            }
        }
    }
    needs
}

/// Returns the objects that a package does not load, because it has others in their place: for another accelerator,
/// or for another release of a library. Where one of them has all that it needs, it is that one; else those for
/// NVIDIA's GPUs and for processors are taken.
fn spared<'a>(objects: &'a Objects, there: &BTreeSet<&str>, loader: &Loader) -> BTreeSet<&'a str> {
    let mut groups: BTreeMap<(&str, &str), Vec<(&str, bool)>> = BTreeMap::new();
    for (path, mut needed) in objects.needed() {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        if let Some(stem) = loader.accelerators.stem(file) {
            let has = |n: &str| there.contains(n) || loader.host.has(n) || loader.base.has(n);
            let whole = needed.all(has);
            groups
                .entry((folder, stem))
                .or_default()
                .push((path, whole));
        }
    }
    let mut out = BTreeSet::new();
    for group in groups.values().filter(|group| group.len() > 1) {
        let found = group.iter().any(|(_, whole)| *whole);
        let foreign = |path: &str| {
            ["rocm", "hip", "xpu", "npu"]
                .iter()
                .any(|w| path.contains(w))
        };
        let lacking = group.iter().filter(|(_, whole)| !whole);
        out.extend(
            lacking
                .map(|(path, _)| *path)
                .filter(|path| found || foreign(path)),
        );
    }
    out
}

/// Returns what the catalog knows a distribution to open by itself. The programs that it starts are only wanted if
/// the stack names it.
fn opened(loader: &Loader, distribution: &str, named: bool) -> Vec<SystemFile> {
    let Some(opened) = loader.opened.get(distribution) else {
        return Vec::new();
    };
    let libraries = opened.libraries.iter().cloned().map(SystemFile::Library);
    let programs = opened.programs.iter().filter(|_| named);
    libraries
        .chain(programs.cloned().map(SystemFile::Program))
        .collect()
}

/// Returns the modules of Python that a distribution imports at once and that an OS package of their own has.
fn modules_of_os_packages(
    modules: &Modules,
    catalog: &Catalog,
) -> impl Iterator<Item = SystemFile> {
    let wanted = modules.wanted.iter();
    wanted.filter_map(|name| {
        let package = catalog.os_modules.get(name)?.clone();
        let name = name.clone();
        Some(SystemFile::Module { name, package })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn borrowed<'a>(all: &'a BTreeMap<&'a str, Objects>) -> AllObjects<'a> {
        all.iter().map(|(name, objects)| (*name, objects)).collect()
    }

    #[test]
    fn what_no_wheel_brings_is_taken_from_the_system() {
        let loader = stackforge_stack::catalog::load(None).unwrap().loader;
        let objects = |entries: &[(&str, &[&str])]| {
            let mut objects = Objects::default();
            for (path, needed) in entries {
                let needed = needed.iter().map(|n| (*n).to_owned()).collect();
                objects.add(path, needed);
            }
            objects
        };
        let all = BTreeMap::from([
            (
                "lightgbm",
                objects(&[(
                    "lightgbm/lib/lib_lightgbm.so",
                    &["libgomp.so.1", "libc.so.6"],
                )]),
            ),
            (
                "torch",
                objects(&[
                    (
                        "torch/lib/libtorch.so",
                        &["libgomp-24e2ab19.so.1", "libcuda.so.1"],
                    ),
                    ("torch.libs/libgomp-24e2ab19.so.1", &["libc.so.6"]),
                ]),
            ),
            (
                "bitsandbytes",
                objects(&[
                    ("bitsandbytes/libbitsandbytes_cpu.so", &["libgomp.so.1"]),
                    (
                        "bitsandbytes/libbitsandbytes_rocm72.so",
                        &["librocrand.so.1"],
                    ),
                ]),
            ),
            (
                "numba",
                objects(&[("numba/np/ufunc/tbbpool.cpython-311.so", &["libtbb.so.12"])]),
            ),
        ]);
        let none = Pins::new();
        let needs = needs(&borrowed(&all), &Requirements::of(&none), &loader);
        let names: Vec<_> = needs.keys().map(SystemFile::name).collect();
        assert_eq!(names, ["libc.so.6", "libgomp.so.1"]);
        let gomp = &needs[&SystemFile::Library("libgomp.so.1".into())];
        assert_eq!(
            gomp.iter().collect::<Vec<_>>(),
            ["bitsandbytes", "lightgbm"]
        );
    }

    #[test]
    fn modules_that_debian_leaves_out_of_python_are_taken_from_their_package() {
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let wanted = ["os", "tkinter", "typing"].map(str::to_owned).into();
        let own = ["customtkinter".to_owned()].into();
        let modules = Modules { own, wanted };
        let apart: Vec<_> = modules_of_os_packages(&modules, &catalog).collect();
        let [SystemFile::Module { name, package }] = &apart[..] else {
            panic!("{apart:?}");
        };
        assert_eq!((name.as_str(), package.as_str()), ("tkinter", "python3-tk"));
    }

    #[test]
    fn a_common_library_of_a_wheel_is_there_for_those_that_require_it() {
        let loader = stackforge_stack::catalog::load(None).unwrap().loader;
        let object = |path: &str, needed: &str| {
            let mut objects = Objects::default();
            objects.add(path, vec![needed.to_owned()]);
            objects
        };
        let mut torch = object("torch/lib/libc10.so", "libgomp.so.1");
        torch.name("torch/lib/libgomp.so.1");
        let all = BTreeMap::from([
            ("bitsandbytes", object("bitsandbytes/b.so", "libgomp.so.1")),
            (
                "lightgbm",
                object("lightgbm/lib_lightgbm.so", "libgomp.so.1"),
            ),
            ("torch", torch),
            ("torchcodec", object("torchcodec/core.so", "libc10.so")),
        ]);
        let pins = crate::answer::pins(
            "bitsandbytes==1\nlightgbm==1\ntorch==2\n    # via trainer\ntorchcodec==1\ntrainer==1\n    # via bitsandbytes\n",
        );
        let needs = needs(&borrowed(&all), &Requirements::of(&pins), &loader);
        let gomp = &needs[&SystemFile::Library("libgomp.so.1".into())];
        assert_eq!(gomp.iter().collect::<Vec<_>>(), ["lightgbm"]);
        assert_eq!(needs.len(), 1);
    }
}
