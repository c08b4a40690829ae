//! Turns packages' scripts into their effects, in the order in which dpkg would reach them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::deb::Deb;
use super::super::rootfs::Watch;
use super::alternatives::{self, Alternative};
use super::error::{FinishError, UnknownScript};
use super::known::{self, Effect};
use super::loader_cache::{self, Libraries};
use super::script;
use super::system::{Root, System};
use super::{accounts, certificates, database, pam, services, shells};

/// Directories whose files finishing reads. The largest file that is kept has [`MAX_KEPT`] bytes.
const READ: [&str; 12] = [
    "etc/init.d/",
    "etc/ld.so.conf",
    "etc/login.defs",
    "usr/lib/systemd/system/",
    "usr/share/base-files/",
    "usr/share/base-passwd/",
    "usr/share/ca-certificates/",
    "usr/share/debianutils/shells",
    "usr/share/libc-bin/",
    "usr/share/pam-configs/",
    "usr/share/pam/",
    "usr/share/readline/",
];
const MAX_KEPT: u64 = 1 << 20;
/// Largest shared object that is held while its SONAME is read, in bytes. Debian's are smaller.
const MAX_LIBRARY: u64 = 256 << 20;

/// The effects of all scripts.
pub(super) struct Plan {
    /// Effects with the package whose script has them, in the order of packages.
    effects: Vec<(String, Effect)>,
    triplet: Option<&'static str>,
    loader: &'static str,
    architecture: String,
    packages: BTreeMap<String, String>,
    below: BTreeSet<String>,
}

impl Plan {
    /// Reads every script. The error names all scripts that are not understood.
    pub(super) fn of(
        packages: &[Deb],
        below: &[String],
        architecture: &str,
    ) -> Result<Self, FinishError> {
        let mut plan = Plan {
            effects: Vec::new(),
            triplet: script::triplet(architecture),
            loader: match architecture {
                "arm64" => "/lib/ld-linux-aarch64.so.1",
                _ => "/lib64/ld-linux-x86-64.so.2",
            },
            architecture: architecture.to_owned(),
            packages: packages
                .iter()
                .map(|deb| (deb.name().to_owned(), deb.version().to_owned()))
                .collect(),
            below: below.iter().cloned().collect(),
        };
        let mut unknown = Vec::new();
        for deb in packages {
            for name in ["preinst", "postinst"] {
                let Some(file) = deb.control_files.get(name) else {
                    continue;
                };
                match plan.understand(deb, name, &file.content) {
                    Ok(effects) => plan
                        .effects
                        .extend(effects.into_iter().map(|e| (deb.name().to_owned(), e))),
                    Err(script) => unknown.push(script),
                }
            }
        }
        if unknown.is_empty() {
            Ok(plan)
        } else {
            Err(FinishError::Scripts(unknown))
        }
    }

    fn has(&self, package: &str) -> bool {
        self.packages.contains_key(package) || self.below.contains(package)
    }

    fn understand(
        &self,
        deb: &Deb,
        name: &'static str,
        content: &[u8],
    ) -> Result<Vec<Effect>, UnknownScript> {
        let text = String::from_utf8_lossy(content);
        let unknown = |line: String, digest: String| UnknownScript {
            package: deb.name().to_owned(),
            script: name,
            line,
            digest,
        };
        let parsed = script::parse(&text, &|package| self.has(package))
            .map_err(|error| unknown(error.line, "a section of debhelper's".to_owned()))?;
        let mut effects = parsed.effects;
        if script::is_empty(&parsed.rest) {
            return Ok(effects);
        }
        let digest = script::digest(&parsed.rest, deb.version(), &self.architecture);
        let line = || {
            let does = |line: &&str| !script::is_empty(line);
            let line = parsed.rest.lines().find(does).unwrap_or_default();
            line.trim().chars().take(120).collect::<String>()
        };
        let Some(known) = known::effects(deb.name(), name, &digest) else {
            return Err(unknown(line(), digest));
        };
        for effect in known {
            effects.push(match effect {
                Effect::Alternatives => Effect::Alternative(
                    Alternative::commands(&parsed.rest)
                        .ok_or_else(|| unknown(line(), digest.clone()))?,
                ),
                other => other.clone(),
            });
        }
        Ok(effects)
    }

    /// Applies what has to exist before the packages' own files.
    pub(super) fn before(&self, system: &mut System<'_>) {
        for (_, effect) in &self.effects {
            if let Effect::Migrate { path, to } = effect {
                system.migrate(path.trim_start_matches('/'), to);
            }
        }
    }

    /// Applies what comes once all files exist. `day` counts from 1970-01-01.
    pub(super) fn after(
        &self,
        system: &mut System<'_>,
        keeper: &Keeper,
        day: u64,
    ) -> Result<(), FinishError> {
        let mut last = BTreeSet::new();
        // base-passwd's preinst runs before every postinst.
        if self.effects.iter().any(|(_, e)| *e == Effect::Accounts) {
            accounts::masters(system)?;
        }
        for (package, effect) in &self.effects {
            self.apply(system, package, effect, day, &mut last)?;
        }
        // These run once for all packages, or again if a package triggers them.
        if last.contains(&Last::Shadow) {
            accounts::shadow(system, day)?;
        }
        if last.contains(&Last::Shells) || (keeper.shells && system.exists("/var/lib/shells.state"))
        {
            shells::update(system)?;
        }
        if last.contains(&Last::Certificates) {
            certificates::update(system)?;
        }
        if last.contains(&Last::Pam) {
            pam::update(system)?;
        }
        if last.contains(&Last::LoaderCache)
            || (!keeper.libraries.is_empty() && system.exists("/etc/ld.so.cache"))
        {
            let generator = self.packages.get("libc-bin").map(|version| {
                let release = version.split('-').next().unwrap_or_default();
                format!("ldconfig (Debian GLIBC {version}) stable release version {release}")
            });
            loader_cache::update(system, &keeper.libraries, self.triplet, generator)?;
        }
        if self.packages.contains_key("dpkg") {
            // No package's script may start a service in a container.
            let content = b"#!/bin/sh\nexit 101\n".to_vec();
            system.file("/usr/sbin/policy-rc.d", 0o755, 0, content)?;
        }
        Ok(())
    }

    fn path(&self, path: &str) -> String {
        path.replace("{triplet}", self.triplet.unwrap_or_default())
            .replace("{loader}", self.loader)
    }

    fn apply(
        &self,
        system: &mut System<'_>,
        package: &str,
        effect: &Effect,
        day: u64,
        last: &mut BTreeSet<Last>,
    ) -> Result<(), FinishError> {
        match effect {
            Effect::Copy { from, to } => system.copy(from, to),
            Effect::Directory { path, mode, gid } => {
                if system.is_directory(path) {
                    return Ok(());
                }
                system.directory(path, octal(mode.as_deref(), 0o755), *gid)
            }
            Effect::File {
                path,
                content,
                mode,
                gid,
            } => {
                if system.exists(path) {
                    return Ok(());
                }
                let mode = octal(mode.as_deref(), 0o644);
                system.file(path, mode, *gid, content.clone().into_bytes())
            }
            Effect::Link { path, to } => {
                if system.exists(path) {
                    return Ok(());
                }
                system.link(path, to)
            }
            Effect::Divert { path, to } => {
                if !self.has("dpkg") {
                    return Ok(());
                }
                database::divert(system, &self.path(path), &self.path(to), package)
            }
            Effect::User { name, home } => accounts::system_user(system, name, home, day),
            Effect::Alternative(all) => alternatives::install(system, all),
            Effect::Unit(unit) if self.has("init-system-helpers") => services::enable(system, unit),
            Effect::Init(name) if self.has("init-system-helpers") => {
                services::defaults(system, name)
            }
            Effect::NativeArchitecture => {
                let content = format!("{}\n", self.architecture).into_bytes();
                system.file("/var/lib/dpkg/arch-native", 0o644, 0, content)
            }
            // These were applied before, or are read from the script itself.
            Effect::Accounts
            | Effect::Migrate { .. }
            | Effect::Alternatives
            | Effect::Unit(_)
            | Effect::Init(_) => Ok(()),
            Effect::Shadow => later(last, Last::Shadow),
            Effect::Shells => later(last, Last::Shells),
            Effect::LoaderCache => later(last, Last::LoaderCache),
            Effect::Certificates => later(last, Last::Certificates),
            Effect::Pam => later(last, Last::Pam),
        }
    }

    /// Whether the finished system has dpkg, and therefore its database.
    pub(super) fn has_dpkg(&self, root: Option<&dyn Root>) -> bool {
        self.packages.contains_key("dpkg")
            || root.is_some_and(|root| root.node("var/lib/dpkg/status").is_some())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Last {
    Shadow,
    Shells,
    Certificates,
    Pam,
    LoaderCache,
}

fn later(last: &mut BTreeSet<Last>, what: Last) -> Result<(), FinishError> {
    last.insert(what);
    Ok(())
}

fn octal(mode: Option<&str>, default: u32) -> u32 {
    mode.and_then(|mode| u32::from_str_radix(mode, 8).ok())
        .unwrap_or(default)
}

/// Keeps the files that finishing reads, while the packages' files are written.
pub(super) struct Keeper {
    copied: BTreeSet<String>,
    kept: BTreeMap<String, (u32, Vec<u8>)>,
    libraries: Libraries,
    /// Whether a package offers a shell.
    shells: bool,
}

impl Keeper {
    pub(super) fn new(plan: &Plan) -> Self {
        let copied = plan.effects.iter().filter_map(|(_, effect)| match effect {
            Effect::Copy { from, .. } => Some(from.trim_start_matches('/').to_owned()),
            _ => None,
        });
        Keeper {
            copied: copied.collect(),
            kept: BTreeMap::new(),
            libraries: Libraries::new(),
            shells: false,
        }
    }

    pub(super) fn take_kept(&mut self) -> BTreeMap<String, (u32, Vec<u8>)> {
        std::mem::take(&mut self.kept)
    }
}

impl Watch for Keeper {
    fn wants(&self, path: &str, size: u64) -> bool {
        if loader_cache::is_library(path.rsplit('/').next().unwrap_or_default()) {
            return size <= MAX_LIBRARY;
        }
        size <= MAX_KEPT
            && (self.copied.contains(path) || READ.iter().any(|folder| path.starts_with(folder)))
    }

    fn show(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        if content.starts_with(&stackforge_binary::elf::MAGIC) {
            if let Some(library) = loader_cache::identify(path, &content) {
                self.libraries.insert(path.to_owned(), library);
            }
            return;
        }
        self.shells |= path.starts_with("usr/share/debianutils/shells.d/");
        self.kept.insert(path.to_owned(), (mode, content));
    }
}
