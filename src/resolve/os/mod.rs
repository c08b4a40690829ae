//! Locks OS packages: those of the base, those that the image adds, and those of builder stages.
//!
//! In: names from the base, the stack and the recipes. Out: [`OsPackageLock`]s. They have digests if the
//! archive is Debian's and the base is made here; only names if the base is a registry's image, since only
//! its own apt sources fit it.

mod over;

pub use over::NoSystem;

use super::error::OsPackagesError;
use super::requirements::{Need, Way};
use super::{LockOptions, ResolveError};
use stackforge_debian::LockedDeb;
use stackforge_debian::archive::{Source, Suite, fetch_index};
use stackforge_debian::index::PackageIndex;
use stackforge_debian::keyring::Keyring;
use stackforge_debian::mirror::Mirrors;
use stackforge_debian::resolve::{Request, resolve};
use stackforge_stack::catalog::{Bootstrap, OsRoles, keyring};
use stackforge_stack::lock::{OsPackageLock, PlatformLock};
use stackforge_stack::spec::{PythonVersion, Stack};
use stackforge_stack::target::{Base, Target};
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::Fetcher;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

#[derive(Debug, Default)]
pub(super) struct OsPackages {
    pub base: Vec<OsPackageLock>,
    pub runtime: Vec<OsPackageLock>,
    pub builder: Vec<OsPackageLock>,
}

/// The wanted package names, without their dependencies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub runtime: BTreeSet<String>,
    pub builder: BTreeSet<String>,
    /// Packages of the interpreter. The image's packages include them; a `devel` image needs them too.
    pub python: BTreeSet<String>,
}

pub(super) fn names(stack: &Stack, target: &Target<'_>, needs: &[Need<'_>]) -> Names {
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
    let compiled: Vec<&Need<'_>> = needs.iter().filter(|n| n.compiled()).collect();
    if !compiled.is_empty() {
        for role in ["cxx_compiler", "c_compiler", "python_dev"] {
            out.builder.extend(roles(role));
        }
        if compiled.iter().any(|n| matches!(n.way, Way::Git { .. })) {
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
pub(super) fn kept(old: &PlatformLock, names: &Names, pull: bool) -> Option<OsPackages> {
    let has = |lists: &[&Vec<OsPackageLock>], name: &String| {
        let name = name.split('=').next().unwrap_or(name);
        lists.iter().any(|l| l.iter().any(|p| p.name == name))
    };
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
    })
}

pub(super) async fn lock(
    stack: &Stack,
    target: &Target<'_>,
    names: &Names,
    options: &LockOptions,
) -> Result<OsPackages, ResolveError> {
    if let Base::Known(image) = &target.base
        && let Some(bootstrap) = &image.bootstrap
    {
        if options.offline {
            return Err(OsPackagesError::Offline.into());
        }
        let suites = bootstrap.suites.iter().map(|name| Suite {
            archive: archive_of(&image.os.id, name),
            name: name.clone(),
            components: bootstrap.components.clone(),
        });
        // The catalog was checked when it was built, so the keyring exists.
        let key = keyring(&bootstrap.keyring).unwrap_or_default();
        let keyring = Keyring::parse(key).map_err(OsPackagesError::from)?;
        let suites: Vec<Suite> = suites.collect();
        let index = index(stack, &suites, &keyring, options).await?;
        return closures(&index, bootstrap, names);
    }
    Ok(OsPackages {
        base: Vec::new(),
        runtime: by_name(&names.runtime),
        builder: by_name(&names.builder),
    })
}

fn by_name(names: &BTreeSet<String>) -> Vec<OsPackageLock> {
    let package = |wanted: &String| {
        let (name, version) = match wanted.split_once('=') {
            Some((name, version)) => (name, Some(version.to_owned())),
            None => (wanted.as_str(), None),
        };
        OsPackageLock {
            name: name.to_owned(),
            version,
            architecture: None,
            archive: None,
            path: None,
            size: 0,
            sha256: None,
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
    options: &LockOptions,
) -> Result<OsPackages, ResolveError> {
    let runtime = lacking(stack, root, &names.runtime, options).await?;
    let builder = match devel {
        Some(devel) => {
            let wanted = names.builder.union(&names.python).cloned().collect();
            lacking(stack, devel, &wanted, options).await?
        }
        None => lacking(stack, root, &names.builder, options).await?,
    };
    Ok(OsPackages {
        base: Vec::new(),
        runtime,
        builder,
    })
}

async fn lacking(
    stack: &Stack,
    root: &Path,
    wanted: &BTreeSet<String>,
    options: &LockOptions,
) -> Result<Vec<OsPackageLock>, ResolveError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let system = over::System::read(root).map_err(OsPackagesError::from)?;
    let suites = system.suites(stack.platform.value);
    let index = index(stack, &suites, &system.keyring, options).await?;
    let request = Request {
        wanted: wanted.iter().cloned().collect(),
        installed: system.installed,
        ..Request::default()
    };
    closure(&index, request)
}

async fn index(
    stack: &Stack,
    suites: &[Suite],
    keyring: &Keyring,
    options: &LockOptions,
) -> Result<PackageIndex, ResolveError> {
    let mirrors = Mirrors::discover(&options.debian_mirrors).map_err(OsPackagesError::from)?;
    let fetcher = Fetcher::new(RetryPolicy::default()).map_err(OsPackagesError::from)?;
    let cache = options.cache.join("indices");
    std::fs::create_dir_all(&cache).map_err(|source| ResolveError::Io {
        doing: "create",
        path: cache.clone(),
        source,
    })?;
    let source = Source {
        fetcher: &fetcher,
        mirrors: &mirrors,
        keyring,
        cache: &cache,
        now: SystemTime::now(),
    };
    let index = fetch_index(source, suites, stack.platform.value.arch()).await;
    Ok(index.map_err(OsPackagesError::from)?)
}

/// Returns the archive of a suite: Debian has a separate archive for security suites.
fn archive_of(os: &str, suite: &str) -> String {
    match os {
        "debian" if suite.ends_with("-security") => "debian-security".to_owned(),
        other => other.to_owned(),
    }
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str) -> OsPackageLock {
        OsPackageLock {
            name: name.into(),
            version: None,
            architecture: None,
            archive: None,
            path: None,
            size: 0,
            sha256: None,
        }
    }

    #[test]
    fn old_packages_are_kept_only_when_they_hold_all_that_is_wanted() {
        let mut old: PlatformLock =
            toml::from_str("platform = 'linux/amd64'\npython = '3.11'\n[base]\nname = 'b'\n")
                .unwrap();
        old.base.packages = vec![package("python3")];
        old.packages = vec![package("git")];
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let mut names = Names {
            runtime: set(&["python3", "git=1.2"]),
            builder: set(&[]),
            python: set(&["python3"]),
        };
        assert!(kept(&old, &names, false).is_some());
        names.builder = set(&["git"]);
        assert!(
            kept(&old, &names, false).is_none(),
            "builders had none of their own"
        );
        names.runtime = set(&["curl"]);
        assert!(kept(&old, &names, false).is_none());
    }

    #[test]
    fn security_suites_have_their_own_archive_in_debian() {
        assert_eq!(archive_of("debian", "bookworm-security"), "debian-security");
        assert_eq!(archive_of("debian", "bookworm-updates"), "debian");
        assert_eq!(archive_of("ubuntu", "noble-security"), "ubuntu");
    }
}
