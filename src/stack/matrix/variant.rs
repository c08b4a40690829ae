//! One variant, and what is known of its builds before anything is locked.

use crate::catalog::{Catalog, DistributionKind, Facts, Recipe, WheelSource};
use crate::spec::{From, IsaName, Library, Platform, PythonVersion, Sm, Stack, Wanted};
use pep440_rs::{Operator, Version};
use serde::Serialize;
use std::collections::BTreeMap;
use std::str::FromStr;

/// A combination that can work.
#[derive(Debug, Clone, Serialize)]
pub struct Variant {
    pub name: String,
    pub platform: Platform,
    pub python: PythonVersion,
    pub base: String,
    /// CUDA of the base, major and minor.
    pub cuda: Option<String>,
    /// `90`: as in `sm_90`.
    pub sm: Vec<String>,
    pub isa: Option<IsaName>,
    pub isa_flags: Vec<String>,
    /// Libraries that are compiled whatever the index has.
    pub compiled: Vec<Compiled>,
    /// What the most demanding of them needs; absent where nothing is compiled.
    pub jobs: Option<JobNeeds>,
    /// The variant as a stack of its own.
    #[serde(skip)]
    pub stack: Stack,
}

/// A library that is compiled, and the environment of its build without the jobs.
#[derive(Debug, Clone, Serialize)]
pub struct Compiled {
    pub library: String,
    pub env: BTreeMap<String, String>,
    /// Variables in it that only some targets get.
    #[serde(skip)]
    pub exceptions: Vec<String>,
}

/// How many jobs run at once is decided where the build runs: from its memory and this.
#[derive(Debug, Clone, Serialize)]
pub struct JobNeeds {
    pub library: String,
    /// Memory that one job needs at its worst.
    pub memory_gb: f64,
    /// The stack's own limit.
    pub max: Option<u32>,
}

impl Variant {
    pub(super) fn of(stack: Stack, catalog: &Catalog) -> Self {
        let sms = super::combine::sms(&stack, catalog);
        let isa = stack.isa.as_ref().and_then(|i| catalog.isa(&i.value));
        let cuda = super::combine::cuda(&stack, catalog);
        let known = Known {
            torch: stack.library("torch").and_then(exact),
            cuda: cuda.as_deref().and_then(|c| Version::from_str(c).ok()),
            python: Version::from_str(&stack.python.value.to_string()).ok(),
            platform: stack.platform.value.to_string(),
            sms: &sms,
        };
        let mut compiled = Vec::new();
        let mut jobs: Option<JobNeeds> = None;
        for library in &stack.libraries {
            let recipe = catalog.recipe(library.name.value.as_str());
            let Some(build) = recipe
                .filter(|r| is_compiled(library, r))
                .and_then(|r| r.build.as_ref())
            else {
                continue;
            };
            let own = exact(library);
            let facts = known.facts(own.as_ref());
            let parts = build.chosen_parts(&facts, &library.option_values());
            let made = build.environment(&facts, isa, &parts, &library.env, library.jobs);
            let exceptions = build.env_when.iter().filter(|e| e.when.hold(&facts));
            compiled.push(Compiled {
                library: library.name.value.to_string(),
                exceptions: exceptions.flat_map(|e| e.env.keys().cloned()).collect(),
                env: made.variables,
            });
            if jobs
                .as_ref()
                .is_none_or(|j| j.memory_gb < build.jobs.memory_gb)
            {
                jobs = Some(JobNeeds {
                    library: library.name.value.to_string(),
                    memory_gb: build.jobs.memory_gb,
                    max: made.max_jobs,
                });
            }
        }
        Self {
            name: stack.name().to_owned(),
            platform: stack.platform.value,
            python: stack.python.value,
            base: stack.base.value.clone(),
            cuda,
            sm: sms.iter().map(Sm::digits).collect(),
            isa: stack.isa.as_ref().map(|i| i.value.clone()),
            isa_flags: isa.map(|i| i.flags.clone()).unwrap_or_default(),
            compiled,
            jobs,
            stack,
        }
    }
}

/// What conditions are decided by before a lock says more.
struct Known<'a> {
    torch: Option<Version>,
    cuda: Option<Version>,
    python: Option<Version>,
    platform: String,
    sms: &'a [Sm],
}

impl Known<'_> {
    fn facts<'a>(&'a self, version: Option<&'a Version>) -> Facts<'a> {
        Facts {
            torch: self.torch.as_ref(),
            cuda: self.cuda.as_ref(),
            version,
            python: self.python.as_ref(),
            platform: Some(&self.platform),
            from: Some(DistributionKind::Source),
            sms: self.sms,
        }
    }
}

/// Whether no wheel can come in its place.
fn is_compiled(library: &Library, recipe: &Recipe) -> bool {
    match library.from {
        From::Source => true,
        From::Wheel => false,
        From::Auto => {
            recipe.wheels == WheelSource::None || library.git.is_some() || library.git_ref.is_some()
        }
    }
}

/// The one version that the stack asks for.
fn exact(library: &Library) -> Option<Version> {
    match &library.version {
        Wanted::Auto => None,
        Wanted::Specifier(s) => s
            .iter()
            .find(|s| *s.operator() == Operator::Equal)
            .map(|s| s.version().clone()),
    }
}
