//! Locks OS packages: those of the base, those that the image adds, and those of builder stages.
//!
//! In: names from the base, the stack and the recipes. Out: [`OsPackageLock`]s. They have digests if the
//! archive is Debian's and the base is made here; only names if the base is a registry's image, since only
//! its own apt sources fit it.

mod archive;
mod over;
mod system;

use super::error::OsPackagesError;
use super::requirements::{Need, PackageSource};
use super::sdist::Sdists;
use super::system::{SystemFile, SystemNeeds, Taken};
use super::{LockOptions, ResolveError};
use archive::Archive;
use stackforge_debian::LockedDeb;
use stackforge_debian::index::PackageIndex;
use stackforge_debian::resolve::{Request, resolve};
use stackforge_stack::catalog::{Bootstrap, Catalog, Image, OsRoles};
use stackforge_stack::lock::{OsPackageLock, PlatformLock, PythonFile};
use stackforge_stack::spec::{PythonVersion, Stack};
use stackforge_stack::target::{Base, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use system::{
    built_with, explain, in_no_package, is_runtime, linked, merge, nowhere_before, packages_with,
    reasons, to_add, without_namesake,
};

#[derive(Debug, Default)]
pub(super) struct OsPackages {
    pub base: Vec<OsPackageLock>,
    pub runtime: Vec<OsPackageLock>,
    pub builder: Vec<OsPackageLock>,
    /// Libraries that wheels take from the system and no package has.
    pub nowhere: SystemNeeds,
}

/// Libraries by the development packages that they are built with.
pub(super) type Linked = BTreeMap<String, BTreeSet<String>>;

/// The wanted package names, without their dependencies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub runtime: BTreeSet<String>,
    pub builder: BTreeSet<String>,
    /// Development packages by the libraries that are built with them: their runtime libraries are the image's.
    pub linked: Linked,
    /// Packages of the interpreter. The image's packages include them; a `devel` image needs them too.
    pub python: BTreeSet<String>,
}

/// Returns the wanted names. `plain` are the source distributions without a recipe.
pub(super) fn names(
    stack: &Stack,
    target: &Target<'_>,
    needs: &[Need<'_>],
    plain: &Sdists,
    catalog: &Catalog,
) -> Names {
    let python = stack.python.value;
    let roles = |role: &str| match target.base.image() {
        Some(image) => image.packages.resolve(role, python),
        None => debian_names(python).resolve(role, python),
    };
    let mut out = Names::default();
    out.runtime
        .extend(stack.packages.iter().map(|p| p.value.clone()));
    out.python.extend(roles("python"));
    out.runtime.extend(out.python.clone());
    for required in needs
        .iter()
        .filter_map(|n| n.recipe)
        .flat_map(|r| &r.runtime)
    {
        if stack.jit || required.when != "jit" {
            out.runtime
                .extend(required.packages.iter().flat_map(|p| roles(p)));
        }
    }
    let named = stack.libraries.iter();
    let named = named.map(|library| (library.name.value.as_str(), &library.build_packages));
    let known = plain.iter().filter_map(|(name, sdist)| {
        let known = catalog.source_needs(name, &sdist.file.version)?;
        Some((name.as_str(), &known.packages))
    });
    for (library, packages) in named.chain(known) {
        for package in packages {
            out.builder.insert(package.clone());
            if stack.os_libraries && (package.ends_with("-dev") || is_runtime(package)) {
                let libraries = out.linked.entry(package.clone()).or_default();
                libraries.insert(library.to_owned());
            }
        }
    }
    let compiles = plain.values().any(|sdist| sdist.metadata.compiles);
    if compiles {
        // What a build takes for granted beside a compiler.
        out.builder
            .extend(["make", "pkg-config"].map(str::to_owned));
    }
    let compiled: Vec<&Need<'_>> = needs.iter().filter(|n| n.compiled()).collect();
    if compiles || !compiled.is_empty() {
        for role in ["cxx_compiler", "c_compiler", "python_dev"] {
            out.builder.extend(roles(role));
        }
        if compiled
            .iter()
            .any(|n| matches!(n.source, PackageSource::Git { .. }))
        {
            out.builder.extend(roles("git"));
        }
        for package in compiled
            .iter()
            .filter_map(|n| n.build())
            .flat_map(|b| &b.packages)
        {
            out.builder.extend(roles(package));
        }
    }
    out
}

/// Package names that Debian and Ubuntu share, for a base that the catalog does not describe.
fn debian_names(python: PythonVersion) -> OsRoles {
    let words = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    OsRoles {
        python: BTreeMap::from([(python, words(&["python3", "python3-venv"]))]),
        python_dev: BTreeMap::from([(python, words(&["python3-dev"]))]),
        c_compiler: words(&["gcc", "libc6-dev"]),
        cxx_compiler: words(&["g++"]),
        git: words(&["git"]),
    }
}

/// Whether the packages over a registry's base are locked with digests. A lock by name has at least
/// Python's name.
pub(super) fn was_read(old: &PlatformLock) -> bool {
    old.base.runtime.is_some() && old.packages.iter().all(|p| p.sha256.is_some())
}

/// Whether the packages of builders are locked with digests too.
fn is_by_file(old: &PlatformLock) -> bool {
    was_read(old) && old.builder_packages.iter().all(|p| p.sha256.is_some())
}

/// Returns the old lock's packages, if they still contain everything wanted. Archives drop old versions, so
/// all packages are kept or all are chosen anew. With `pull`, packages that are locked by name are not kept.
pub(super) fn kept_packages(old: &PlatformLock, names: &Names, pull: bool) -> Option<OsPackages> {
    let (base, runtime, builder) = (&old.base.packages, &old.packages, &old.builder_packages);
    if old.base.runtime.is_some() && pull && !is_by_file(old) {
        return None;
    }
    // A lock with digests lists no package that the base already has. Builders' packages were left out if
    // the old lock compiled nothing.
    let asked = names.builder.is_empty() || !old.builds.is_empty();
    let fits = is_by_file(old) && asked
        || names.runtime.iter().all(|n| has(&[base, runtime], n))
            && names.builder.iter().all(|n| has(&[base, builder], n))
            && names.builder.is_empty() == builder.is_empty();
    fits.then(|| OsPackages {
        base: base.clone(),
        runtime: runtime.clone(),
        builder: builder.clone(),
        nowhere: SystemNeeds::new(),
    })
}

/// Locks the packages of a base that is made here by file, those of a registry's by name. What the wheels take
/// from the system is added where the base's archive is known.
pub(super) async fn lock(
    stack: &Stack,
    target: &Target<'_>,
    names: &Names,
    needs: &SystemNeeds,
    options: &LockOptions,
) -> Result<OsPackages, ResolveError> {
    let Some((image, bootstrap)) = made_here(target) else {
        return Ok(OsPackages {
            base: Vec::new(),
            runtime: by_name(&names.runtime),
            builder: by_name(&names.builder),
            nowhere: SystemNeeds::new(),
        });
    };
    if options.offline {
        return Err(OsPackagesError::Offline.into());
    }
    let archive = Archive::of_image(image, bootstrap, stack.platform.value, options)?;
    let index = archive.index().await?;
    let mut packages = closures(&index, bootstrap, names)?;
    let lists = [&packages.base, &packages.runtime];
    let there = |name: &str| has(&lists, name);
    let mut added = linked(&names.linked, &index, there);
    let needs = without_namesake(needs, there);
    let mut nowhere = SystemNeeds::new();
    if !needs.is_empty() {
        let contents = archive.contents().await?;
        merge(&mut added, to_add(&needs, contents.as_ref(), &index, there));
        nowhere = in_no_package(&needs, contents.as_ref());
    }
    if !added.is_empty() {
        let mut names = names.clone();
        names.runtime.extend(added.keys().cloned());
        packages = closures(&index, bootstrap, &names)?;
        explain(&mut packages.runtime, &added);
    }
    packages.nowhere = nowhere;
    Ok(packages)
}

/// If the old lock's packages have everything that the wheels take from the system, and none for what no wheel takes any
/// more, returns what is in no package.
pub(super) async fn fits_needs(
    kept: &OsPackages,
    wanted: &Wanted<'_>,
) -> Result<Option<SystemNeeds>, ResolveError> {
    let needs = &wanted.taken.needs;
    let as_before = || Ok(Some(nowhere_before(needs, &wanted.old.lacking)));
    if wanted.options.offline || !wanted.taken.complete {
        return as_before();
    }
    let taken = needs.iter().flat_map(|(file, by)| reasons(file, by));
    let linked = wanted.names.linked.iter();
    let built = linked.flat_map(|(package, by)| built_with(package, by));
    let now: BTreeSet<String> = taken.chain(built).collect();
    let mut before = kept.runtime.iter().flat_map(|p| &p.reasons);
    if before.any(|reason| !now.contains(reason)) {
        return Ok(None);
    }
    let lists = [&kept.base, &kept.runtime];
    let mut left = without_namesake(needs, |name| has(&lists, name));
    left.retain(|file, _| {
        let name = format!(" {}", file.name());
        let mut reasons = kept.runtime.iter().flat_map(|p| &p.reasons);
        !reasons.any(|reason| reason.ends_with(&name))
    });
    if left.is_empty() {
        return Ok(Some(SystemNeeds::new()));
    }
    let Some((image, bootstrap)) = made_here(wanted.target) else {
        // Only the root file system of a registry's base tells, which the same wheels need not see again.
        let old = wanted.old;
        let same = |w: &PythonFile| old.wheel(&w.name).is_some_and(|o| o.sha256 == w.sha256);
        let fits = !was_read(old) || wanted.wheels.iter().all(same);
        return if fits { as_before() } else { Ok(None) };
    };
    let platform = wanted.stack.platform.value;
    let archive = Archive::of_image(image, bootstrap, platform, wanted.options)?;
    let Some(contents) = archive.contents().await? else {
        return as_before();
    };
    let lacks = |file: &SystemFile| {
        let packages = packages_with(file, Some(&contents), None);
        !packages.is_empty() && !packages.iter().any(|name| has(&lists, name))
    };
    let fits = !left.keys().any(lacks);
    Ok(fits.then(|| in_no_package(&left, Some(&contents))))
}

/// What the packages of an old lock are held against.
pub(super) struct Wanted<'a> {
    pub stack: &'a Stack,
    pub target: &'a Target<'a>,
    pub old: &'a PlatformLock,
    pub names: &'a Names,
    pub taken: &'a Taken,
    pub wheels: &'a [PythonFile],
    pub options: &'a LockOptions,
}

/// Whether the base is made of an archive's packages.
pub(super) fn is_made_here(target: &Target<'_>) -> bool {
    made_here(target).is_some()
}

/// Returns the base's image if it is made of an archive's packages.
fn made_here<'a>(target: &Target<'a>) -> Option<(&'a Image, &'a Bootstrap)> {
    match &target.base {
        Base::Known(image) => Some((image, image.bootstrap.as_ref()?)),
        Base::Raw { .. } => None,
    }
}

/// Whether a package, `NAME` or `NAME=VERSION`, is in one of the lists.
fn has(lists: &[&Vec<OsPackageLock>], wanted: &str) -> bool {
    let name = wanted.split('=').next().unwrap_or(wanted);
    lists.iter().any(|l| l.iter().any(|p| p.name == name))
}

fn by_name(names: &BTreeSet<String>) -> Vec<OsPackageLock> {
    let package = |wanted: &String| {
        let (name, version) = match wanted.split_once('=') {
            Some((name, version)) => (name, Some(version.to_owned())),
            None => (wanted.as_str(), None),
        };
        OsPackageLock {
            version,
            ..OsPackageLock::named(name)
        }
    };
    names.iter().map(package).collect()
}

/// Locks the packages that the root file system of a registry's base lacks, from its distribution's archive,
/// and those that compilers lack in it or in the `devel` image that they run in.
pub(super) async fn lock_over(
    stack: &Stack,
    root: &Path,
    devel: Option<&Path>,
    names: &Names,
    needs: &SystemNeeds,
    options: &LockOptions,
) -> Result<OsPackages, ResolveError> {
    let (runtime, nowhere) =
        lacking(stack, root, &names.runtime, (needs, &names.linked), options).await?;
    let none = (&SystemNeeds::new(), &BTreeMap::new());
    let (builder, _) = match devel {
        Some(devel) => {
            let wanted = names.builder.union(&names.python).cloned().collect();
            lacking(stack, devel, &wanted, none, options).await?
        }
        None => lacking(stack, root, &names.builder, none, options).await?,
    };
    Ok(OsPackages {
        base: Vec::new(),
        runtime,
        builder,
        nowhere,
    })
}

/// Returns the packages that a root file system lacks, and the libraries that no package has.
async fn lacking(
    stack: &Stack,
    root: &Path,
    wanted: &BTreeSet<String>,
    (needs, dev): (&SystemNeeds, &Linked),
    options: &LockOptions,
) -> Result<(Vec<OsPackageLock>, SystemNeeds), ResolveError> {
    if wanted.is_empty() && needs.is_empty() {
        return Ok(Default::default());
    }
    let system = over::System::read(root).map_err(OsPackagesError::from)?;
    let platform = stack.platform.value;
    let archive = Archive::new(system.suites(platform), system.keyring, platform, options)?;
    let index = archive.index().await?;
    let lacked = |wanted: &BTreeSet<String>| {
        let request = Request {
            wanted: wanted.iter().cloned().collect(),
            installed: system.installed.clone(),
            ..Request::default()
        };
        closure(&index, request)
    };
    let mut packages = lacked(wanted)?;
    let there = |name: &str| system.installed.contains_key(name) || has(&[&packages], name);
    let mut needs = without_namesake(needs, there);
    needs.retain(|file, _| !over::has(root, file, platform));
    let mut added = linked(dev, &index, there);
    let mut nowhere = SystemNeeds::new();
    if !needs.is_empty() {
        let contents = archive.contents().await?;
        merge(&mut added, to_add(&needs, contents.as_ref(), &index, there));
        nowhere = in_no_package(&needs, contents.as_ref());
    }
    if !added.is_empty() {
        let wanted = wanted.iter().chain(added.keys()).cloned().collect();
        packages = lacked(&wanted)?;
        explain(&mut packages, &added);
    }
    Ok((packages, nowhere))
}

/// Resolves the base, and over it the image's and the builders' packages separately: a builder stage does
/// not start from the image, so a package of the image recompiles nothing. Compilers always run in a whole
/// system, whatever the base is.
fn closures(
    index: &PackageIndex,
    bootstrap: &Bootstrap,
    names: &Names,
) -> Result<OsPackages, ResolveError> {
    let closure = |wanted: &[String], base: &[OsPackageLock], whole: bool, without: &[String]| {
        let installed = base
            .iter()
            .filter_map(|p| Some((p.name.clone(), p.version.clone()?)))
            .collect();
        let request = Request {
            wanted: wanted.to_vec(),
            installed,
            base: whole,
            without: without.to_vec(),
        };
        self::closure(index, request)
    };
    let essential = bootstrap.essential;
    let base = closure(&bootstrap.include, &[], essential, &bootstrap.exclude)?;
    let listed = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>();
    let whole = !essential && !names.builder.is_empty();
    Ok(OsPackages {
        runtime: closure(&listed(&names.runtime), &base, false, &[])?,
        builder: closure(&listed(&names.builder), &base, whole, &[])?,
        base,
        nowhere: SystemNeeds::new(),
    })
}

fn closure(index: &PackageIndex, request: Request) -> Result<Vec<OsPackageLock>, ResolveError> {
    let debs = resolve(index, &request).map_err(OsPackagesError::from)?;
    Ok(debs.into_iter().map(locked).collect())
}

fn locked(deb: LockedDeb) -> OsPackageLock {
    OsPackageLock {
        name: deb.name,
        version: Some(deb.version),
        architecture: Some(deb.architecture),
        archive: Some(deb.archive),
        path: Some(deb.path),
        size: deb.size,
        sha256: Some(deb.sha256),
        reasons: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_packages_are_kept_only_when_they_hold_all_that_is_wanted() {
        let mut old: PlatformLock =
            toml::from_str("platform = 'linux/amd64'\npython = '3.11'\n[base]\nname = 'b'\n")
                .unwrap();
        old.base.packages = vec![OsPackageLock::named("python3")];
        old.packages = vec![OsPackageLock::named("git")];
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let mut names = Names {
            runtime: set(&["python3", "git=1.2"]),
            builder: set(&[]),
            python: set(&["python3"]),
            linked: Linked::new(),
        };
        assert!(kept_packages(&old, &names, false).is_some());
        names.builder = set(&["git"]);
        assert!(
            kept_packages(&old, &names, false).is_none(),
            "builders had none of their own"
        );
        names.runtime = set(&["curl"]);
        assert!(kept_packages(&old, &names, false).is_none());
    }
}
