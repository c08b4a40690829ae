//! A library compiled from source: the inputs of its builder stage.

use super::{WheelGroup, below_builders, proven, wheel_layers};
use pep440_rs::Version;
use serde::Serialize;
use stackforge_stack::catalog::{
    Build, DistributionKind, Edit, Facts, Isa, OptionParts, Patch, Recipe, Split, local_version,
};
use stackforge_stack::lock::{BuildLock, PlatformLock, PythonFile, SourceLock};
use stackforge_stack::spec::{Library, Sm};
use stackforge_types::wheel::distribution_of;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

#[derive(Debug, Clone, Serialize)]
pub struct Compile {
    pub library: String,
    /// Version of the wheel.
    pub version: String,
    pub source: SourceLock,
    /// Build requirements beyond the image's wheels.
    pub requires: Vec<PythonFile>,
    /// Locked wheels that are installed while it is compiled, by name; `requires` replaces those of the same name.
    pub below: Vec<String>,
    /// Compiled libraries that must be installed before this one is compiled.
    pub after: Vec<String>,
    /// Environment of the build, with the variables for architectures and without those for jobs.
    pub env: BTreeMap<String, String>,
    /// SMs that the nvcc filter limits the build to: `90;110`.
    pub sms: String,
    pub jobs: JobLimits,
    /// In the order in which they are made.
    pub patches: Vec<SourceChange>,
    /// Repositories that are cloned beside the source before the build.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fetch: Vec<Cloned>,
    pub commands: Vec<String>,
    /// All options of the library with the parts that are kept and left out. Empty if nothing is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<OptionParts>,
    /// CUDA's directory below site-packages; absent if the base has the toolkit.
    pub toolkit_home: Option<String>,
    /// Description for people: `compiling for sm_110, patch cxx20`.
    pub how: String,
    /// The nearest compile of this recipe that ran to the end, for people. No key depends on it.
    pub proven: Option<String>,
}

/// Bounds on parallel compilers. The number is decided where the build runs, from its cores and memory,
/// so it is not part of the key.
#[derive(Debug, Clone, Serialize)]
pub struct JobLimits {
    pub variable: String,
    /// Most memory that one job needs, in MiB.
    pub memory_mib: u64,
    pub threads_variable: Option<String>,
    pub threads: u32,
    /// The stack's own limit on jobs.
    pub max: Option<u32>,
}

/// One commit of a repository, cloned into a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cloned {
    pub url: String,
    pub revision: String,
    /// Path below the folder of the library's clones.
    pub folder: String,
}

impl Compile {
    /// Returns the version of the source: the wheel's, without what its options add.
    pub fn source_version(&self) -> &str {
        let local = local_version(&self.options);
        let whole = local.and_then(|local| self.version.strip_suffix(&local));
        whole.map_or(&self.version, |whole| whole.trim_end_matches(['+', '.']))
    }

    /// Returns every clone that the library needs, its own source first.
    pub fn clones(&self) -> Vec<Cloned> {
        let own = match &self.source {
            SourceLock::Git { url, revision } => Some(Cloned {
                url: url.clone(),
                revision: revision.clone(),
                folder: "git".to_owned(),
            }),
            SourceLock::Sdist { .. } => None,
        };
        own.into_iter().chain(self.fetch.iter().cloned()).collect()
    }
}

/// A change to the source.
#[derive(Debug, Clone, Serialize)]
pub struct SourceChange {
    pub id: String,
    pub file: String,
    #[serde(flatten)]
    pub change: Change,
}

/// What a change does to its file, as the program that makes it reads it.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Change {
    Replace { replace: String, with: String },
    RemoveLines { remove_lines: String },
    Split { split: Split },
}

impl SourceChange {
    fn of_recipe(patch: &Patch) -> Self {
        let change = match &patch.split {
            Some(split) => Change::Split {
                split: split.clone(),
            },
            None => Change::Replace {
                replace: patch.replace.clone().unwrap_or_default(),
                with: patch.with.clone(),
            },
        };
        Self {
            id: patch.id.clone(),
            file: patch.file.clone(),
            change,
        }
    }

    fn of_option(n: usize, (option, edit): (String, Edit)) -> Self {
        let change = match edit.remove_lines {
            Some(remove_lines) => Change::RemoveLines { remove_lines },
            None => Change::Replace {
                replace: edit.replace.unwrap_or_default(),
                with: edit.with,
            },
        };
        Self {
            id: format!("{option}-{}-{n}", edit.part.unwrap_or_default()),
            file: edit.file,
            change,
        }
    }

    /// Returns the text that decides what it does, for keys.
    pub(super) fn input(&self) -> String {
        match &self.change {
            Change::Replace { replace, with } => format!("{} {replace} → {with}", self.file),
            Change::RemoveLines { remove_lines } => {
                format!("{} without lines of {remove_lines}", self.file)
            }
            Change::Split { split } => {
                format!(
                    "{} in {} parts in {}",
                    self.file, split.parts, split.listed_in
                )
            }
        }
    }

    /// Says it for a person.
    fn describe(&self) -> String {
        match &self.change {
            Change::Split { split } => {
                let name = self.file.rsplit('/').next().unwrap_or(&self.file);
                format!("{name} in {} parts", split.parts)
            }
            _ => format!("patch {}", self.id),
        }
    }
}

/// Returns what a builder stage installs: the locked build requirements, and those that the image has too
/// but in a layer that builders do not start from.
fn requires(lock: &PlatformLock, build: &BuildLock, recipe: &Build) -> Vec<PythonFile> {
    let later = wheel_layers(&lock.wheels)
        .into_iter()
        .find(|l| l.group == WheelGroup::Libraries)
        .map(|l| l.wheels)
        .unwrap_or_default();
    let mut wanted: BTreeSet<String> = recipe.requires.iter().map(|r| distribution_of(r)).collect();
    wanted.extend(build.requires.iter().map(|w| w.name.clone()));
    loop {
        let before = wanted.len();
        for wheel in &later {
            if wheel.via.iter().any(|v| wanted.contains(v)) {
                wanted.insert(wheel.name.clone());
            }
        }
        if wanted.len() == before {
            break;
        }
    }
    // What the build requires itself may be of another version than the image's.
    let own: BTreeSet<&str> = build.requires.iter().map(|w| w.name.as_str()).collect();
    let later = later
        .into_iter()
        .filter(|w| wanted.contains(&w.name) && !own.contains(w.name.as_str()));
    let mut files: Vec<PythonFile> = build.requires.iter().cloned().chain(later).collect();
    files.sort();
    files
}

/// Combines what the recipe, the lock and the stack say about one build.
pub(super) fn compile(
    lock: &PlatformLock,
    build: &BuildLock,
    recipe: &Recipe,
    library: Option<&Library>,
    (sms, isa): (&[Sm], Option<&Isa>),
    toolkit_home: Option<String>,
) -> Option<Compile> {
    let recipe_build = recipe.build.as_ref()?;
    let version_of = |name: &str| {
        let text = lock
            .wheel(name)
            .map(|w| &w.version)
            .or_else(|| lock.build(name).map(|b| &b.version))?;
        Version::from_str(text).ok()
    };
    let torch = version_of("torch");
    let own = Version::from_str(&build.version).ok();
    let cuda = lock.cuda.as_deref().and_then(|c| Version::from_str(c).ok());
    let python = Version::from_str(&lock.python.to_string()).ok();
    let platform = lock.platform.to_string();
    let facts = Facts {
        torch: torch.as_ref(),
        cuda: cuda.as_ref(),
        version: own.as_ref(),
        python: python.as_ref(),
        platform: Some(&platform),
        from: Some(DistributionKind::Source),
        sms,
    };
    let chosen = |id: &str| match library.map(|l| l.patches.as_slice()) {
        Some(ids) if !ids.is_empty() => ids.iter().any(|i| i == id),
        _ => true,
    };
    let mut patches: Vec<SourceChange> = recipe_build
        .patches
        .iter()
        .filter(|p| p.when.hold(&facts) && chosen(&p.id))
        .map(SourceChange::of_recipe)
        .collect();
    let values = library.map(Library::option_values).unwrap_or_default();
    let options = recipe_build.chosen_parts(&facts, &values);
    let how = describe(recipe_build, sms, isa, &patches, &options);
    let edits = recipe_build.option_edits(&options).into_iter().enumerate();
    patches.extend(edits.map(|(n, edit)| SourceChange::of_option(n, edit)));
    // A file's parts have what the other changes made of it.
    patches.sort_by_key(|p| matches!(p.change, Change::Split { .. }));
    let fetch = recipe_build
        .fetch
        .iter()
        .filter(|f| f.when.hold(&facts))
        .map(|f| Cloned {
            url: f.git.clone(),
            revision: f.revision.clone(),
            folder: format!("fetched/{}", f.name),
        })
        .collect();
    let none = BTreeMap::new();
    let environment = recipe_build.environment(
        &facts,
        isa,
        &options,
        library.map_or(&none, |l| &l.env),
        library.and_then(|l| l.jobs),
    );
    let jobs = JobLimits {
        variable: recipe_build.jobs.variable.clone(),
        memory_mib: (recipe_build.jobs.memory_gb * 1024.0).ceil() as u64,
        threads_variable: recipe_build.jobs.threads_variable.clone(),
        threads: recipe_build.jobs.threads.unwrap_or(1),
        max: environment.max_jobs,
    };
    Some(Compile {
        library: build.name.clone(),
        version: match local_version(&options) {
            Some(local) => format!("{}{}{local}", build.version, before_local(&build.version)),
            None => build.version.clone(),
        },
        source: build.source.clone(),
        requires: requires(lock, build, recipe_build),
        below: below_builders(&wheel_layers(&lock.wheels))
            .iter()
            .flat_map(|layer| layer.wheels.iter().map(|w| w.name.clone()))
            .collect(),
        after: recipe_build
            .needs
            .iter()
            .filter(|n| lock.build(n).is_some())
            .cloned()
            .collect(),
        env: environment.variables,
        sms: digits(sms).join(";"),
        jobs,
        patches,
        fetch,
        commands: recipe_build.commands.clone(),
        proven: Some(proven::nearest(
            recipe_build,
            &build.version,
            sms,
            (torch.as_ref(), lock.cuda.as_deref()),
            &options,
        )),
        options,
        toolkit_home,
        how,
    })
}

fn digits(sms: &[Sm]) -> Vec<String> {
    sms.iter().map(Sm::digits).collect()
}

/// Returns what stands between a version and another part of its local version.
fn before_local(version: &str) -> char {
    if version.contains('+') { '.' } else { '+' }
}

/// Says for a person how a library is compiled.
fn describe(
    recipe: &Build,
    sms: &[Sm],
    isa: Option<&Isa>,
    patches: &[SourceChange],
    options: &[OptionParts],
) -> String {
    let names: Vec<String> = digits(sms).iter().map(|d| format!("sm_{d}")).collect();
    let mut how = format!("compiling for {}", names.join(", "));
    if let Some(isa) = isa {
        how.push_str(&format!(" and {}", isa.name));
    }
    for cut in options.iter().filter(|o| !o.is_whole()) {
        how.push_str(&format!(", {cut}"));
    }
    for patch in patches {
        how.push_str(&format!(", {}", patch.describe()));
    }
    if recipe.hard_coded_arch {
        how.push_str(", its own arch list held back by the nvcc filter");
    }
    how
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackforge_stack::lock::Lock;

    #[test]
    fn a_build_gets_the_version_that_it_requires_and_the_rest_from_the_image() {
        let text = include_str!("../../stacks/mamba-cuda13.lock");
        let lock = Lock::from_toml(text).unwrap();
        let platform = &lock.platforms[0];
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let recipe = catalog.recipes["causal-conv1d"].build.as_ref().unwrap();
        let mut build = platform.builds[0].clone();
        let versions = |build: &BuildLock| -> Vec<String> {
            let files = requires(platform, build, recipe).into_iter();
            let files = files.filter(|file| file.name == "packaging");
            files.map(|file| file.version).collect()
        };
        let of_image = platform.wheel("packaging").unwrap();
        assert_eq!(versions(&build), [of_image.version.as_str()]);
        for other in ["0.1", "99.0"] {
            build.requires.retain(|w| w.name != "packaging");
            build.requires.push(PythonFile {
                version: other.to_owned(),
                ..of_image.clone()
            });
            assert_eq!(versions(&build), [other]);
        }
    }
}
