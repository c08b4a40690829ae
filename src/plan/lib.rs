//! The plan: which steps make the image, and the key of each.
//!
//! In: a [`Stack`](stackforge_stack::spec::Stack), its [`Target`](stackforge_stack::target::Target) and its lock.
//! Out: [`Plan`], a graph of [`Step`]s in build order, each with its operation ([`Op`]): [`plan`] makes a Docker
//! engine's, [`Plan::native`] turns it into the native engine's. A step's key is the sha256 of
//! everything that can change its output and of nothing else: no clock, host name,
//! directory or number of cores. Needs neither network nor engine.

mod compile;
mod id;
mod layers;
mod make;
mod native;
mod op;
mod own;
pub mod project;
mod proven;

pub use compile::{Cloned, Compile};
pub use id::{StepId, WheelGroup};
pub use layers::{below_builders, wheel_layers};
pub use make::{PlanError, plan};
pub use native::{LEVEL, Native};
pub use op::{
    Added, App, AppFile, AppSource, Base, Bytecode, Environment, HOME, Image, LayerWheel, Member,
    Op, Packages, Project, Runtime, Service, StitchedLayer, Tools, Validate, WheelLayer,
};
pub use own::Own;
use serde::Serialize;
use stackforge_stack::lock::{OsPackageLock, PythonFile, SourceLock};
use stackforge_stack::rules::Decision;
use stackforge_types::printable;
use stackforge_types::wheel::normalized;
use stackforge_types::{Digest, IsaName, Platform, PythonVersion, Sm};
use std::collections::BTreeMap;

/// Increased when a step's meaning changes in a way that its inputs do not show.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    pub stack: String,
    pub variant: String,
    pub platform: Platform,
    pub python: PythonVersion,
    pub cuda: Option<String>,
    pub sm: Vec<Sm>,
    /// Instruction set that libraries are compiled for.
    pub isa: Option<IsaName>,
    /// For each library of the stack, whether its wheel is compiled, and why.
    pub libraries: Vec<Decision>,
    /// The key of the image by what is in it, whichever engine makes it.
    pub identity: Digest,
    /// The same of the image without the app: the Python environment. Equal to `identity` if there is no app.
    #[serde(skip)]
    pub environment: Digest,
    /// Every step, each after those that it depends on. An engine does these and nothing else.
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OpKind {
    Fetch,
    Compile,
    Layer,
    Image,
    Validate,
}

#[derive(Debug, Clone, Serialize)]
pub struct Step {
    pub id: StepId,
    pub kind: OpKind,
    pub key: Digest,
    /// Whether the store records its output as existing.
    pub cached: bool,
    /// Everything that can change the output, by name.
    pub inputs: BTreeMap<String, String>,
    /// Steps of this plan that have to be done before.
    pub after: Vec<StepId>,
    pub op: Op,
    /// The reason for doing the step this way, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Step {
    fn new(id: StepId, kind: OpKind, op: Op, inputs: BTreeMap<String, String>) -> Self {
        let canonical = serde_json::json!({
            "format": FORMAT,
            "kind": kind,
            "step": id,
            "inputs": inputs,
        });
        Self {
            id,
            kind,
            key: Digest::of(canonical.to_string().as_bytes()),
            cached: false,
            inputs,
            after: Vec::new(),
            op,
            note: None,
        }
    }
}

impl Plan {
    pub fn step(&self, id: &StepId) -> Option<&Step> {
        self.steps.iter().find(|s| s.id == *id)
    }

    /// Returns the step that compiles a library.
    pub fn compile(&self, library: &str) -> Option<&Step> {
        self.steps.iter().find(|s| s.id.library() == Some(library))
    }

    /// Returns the key of the whole image.
    pub fn key(&self) -> &Digest {
        &self.identity
    }

    /// Returns the key under which this engine's image is recorded.
    pub fn image_key(&self) -> &Digest {
        // `plan` and `native` end every plan with its image step.
        &self.steps[self.steps.len() - 1].key
    }

    /// Whether [`Plan::native`] made it.
    pub fn is_native(&self) -> bool {
        self.step(&StepId::Environment).is_some()
    }

    /// Returns the base.
    pub fn base(&self) -> &Base {
        let base = self.steps.iter().find_map(|s| match &s.op {
            Op::Base(base) => Some(base),
            _ => None,
        });
        base.unwrap_or_else(|| unreachable!("every plan begins with its base"))
    }

    /// Returns the installers, and the OS packages of compilers. `None` if the engine needs none.
    pub fn tools(&self) -> Option<&Tools> {
        self.steps.iter().find_map(|s| match &s.op {
            Op::Tools(tools) => Some(tools),
            _ => None,
        })
    }

    /// Returns the groups of wheels that a Docker engine installs.
    pub fn groups(&self) -> Vec<&WheelLayer> {
        let groups = self.steps.iter().filter_map(|s| match &s.op {
            Op::Wheels(layer) => Some(layer),
            _ => None,
        });
        groups.collect()
    }

    /// Returns the locked wheels of the image.
    pub fn wheels(&self) -> impl Iterator<Item = &PythonFile> {
        self.steps.iter().flat_map(|s| match &s.op {
            Op::Wheels(layer) => layer.wheels.iter().collect(),
            Op::Layer(layer) => layer
                .wheels
                .iter()
                .filter_map(|w| w.file.as_ref())
                .collect(),
            _ => Vec::new(),
        })
    }

    /// Returns what is compiled, each library after those that it needs.
    pub fn compiles(&self) -> impl Iterator<Item = &Compile> {
        self.steps.iter().filter_map(|s| match &s.op {
            Op::Compile(compile) => Some(compile.as_ref()),
            _ => None,
        })
    }

    /// Returns the OS packages that the image adds to its base.
    pub fn packages(&self) -> &[OsPackageLock] {
        let all = self.steps.iter().map(|s| match &s.op {
            Op::Base(base) => base.packages.as_slice(),
            Op::Runtime(runtime) => &runtime.packages,
            Op::Packages(packages) => &packages.packages,
            _ => &[],
        });
        all.into_iter().find(|p| !p.is_empty()).unwrap_or_default()
    }

    /// Returns the spec of the validation.
    pub fn validation(&self) -> &serde_json::Value {
        self.steps
            .iter()
            .find_map(|s| match &s.op {
                Op::Validate(validate) => Some(&validate.spec),
                _ => None,
            })
            .unwrap_or(&serde_json::Value::Null)
    }

    /// Returns what the image step knows.
    pub fn image(&self) -> &Image {
        let image = self.steps.iter().find_map(|s| match &s.op {
            Op::Image(image) => Some(image),
            _ => None,
        });
        image.unwrap_or_else(|| unreachable!("every plan ends with its image"))
    }

    /// Returns the layer of the user's own files. `None` if the stack has none.
    pub fn app(&self) -> Option<(&Step, &App)> {
        self.steps.iter().find_map(|s| match &s.op {
            Op::App(app) => Some((s, app.as_ref())),
            _ => None,
        })
    }

    /// Returns how the app's own project is built. `None` if it is not installed.
    pub fn project(&self) -> Option<(&Step, &Project)> {
        self.steps.iter().find_map(|s| match &s.op {
            Op::Project(project) => Some((s, project.as_ref())),
            _ => None,
        })
    }

    /// Returns what makes a service of the image. `None` if the stack says nothing of it.
    pub fn service(&self) -> Option<&Service> {
        self.steps.iter().find_map(|s| match &s.op {
            Op::Service(service) => Some(service.as_ref()),
            _ => None,
        })
    }

    /// Returns the plan of the image without the app and its configuration.
    #[must_use]
    pub fn of_environment(&self) -> Self {
        let own = |step: &&Step| !step.op.is_own();
        Self {
            steps: self.steps.iter().filter(own).cloned().collect(),
            identity: self.environment.clone(),
            ..self.clone()
        }
    }

    /// Returns the names of compiled libraries in rounds. A library is in the first round after all those that
    /// it needs.
    pub fn rounds(&self) -> Vec<Vec<&str>> {
        let compiles: Vec<&Compile> = self.compiles().collect();
        rounds(&compiles)
    }

    /// Returns the normalized name and version of each distribution that the image has to hold.
    pub fn installed(&self) -> impl Iterator<Item = (String, &str)> {
        let wheels = self
            .wheels()
            .map(|w| (normalized(&w.name), w.version.as_str()));
        wheels.chain(
            self.compiles()
                .map(|c| (normalized(&c.library), c.version.as_str())),
        )
    }

    /// Returns the text of `spec.json`: what the image promises and the validation checks.
    pub fn promise(&self) -> String {
        promise(self.validation())
    }

    /// Returns the tag of a bootstrapped base in the engine. `None` for a base from a registry.
    pub fn base_tag(&self) -> Option<String> {
        let base = self.step(&StepId::Base).filter(|_| self.base().bootstrap)?;
        Some(format!(
            "stackforge/base:{}-{}-{}",
            self.base().lock.name,
            self.platform.arch(),
            base.key.short()
        ))
    }

    /// Marks the steps as cached of which `done` holds.
    pub fn mark_cached(&mut self, done: impl Fn(&Self, &Step) -> bool) {
        let cached: Vec<bool> = self.steps.iter().map(|step| done(self, step)).collect();
        for (step, cached) in self.steps.iter_mut().zip(cached) {
            step.cached = cached;
        }
    }

    /// Returns the graph in Graphviz's language.
    pub fn dot(&self) -> String {
        let mut out = String::from("digraph plan {\n  rankdir=LR;\n  node [shape=box];\n");
        for step in &self.steps {
            let style = if step.cached { "filled" } else { "solid" };
            let id = graphviz(&step.id);
            out.push_str(&format!(
                "  \"{id}\" [label=\"{id}\\n{}\", style={style}];\n",
                step.key.short()
            ));
            for from in &step.after {
                out.push_str(&format!("  \"{}\" -> \"{id}\";\n", graphviz(from)));
            }
        }
        out.push_str("}\n");
        out
    }
}

/// Returns a step's name as the inside of a quoted string of Graphviz's language. A wheel's name comes from
/// the lock, so it is made printable.
fn graphviz(id: &StepId) -> String {
    let name = id.to_string();
    printable::line(&name)
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
}

/// Puts compiles into rounds. A library is in the first round after all those that it needs.
fn rounds<'a>(compiles: &[&'a Compile]) -> Vec<Vec<&'a str>> {
    let mut rounds: Vec<Vec<&str>> = Vec::new();
    let mut left: Vec<&Compile> = compiles.to_vec();
    while !left.is_empty() {
        let waits = |c: &&Compile| {
            let known = |name: &String| left.iter().any(|l| l.library == *name);
            c.after.iter().any(known)
        };
        let (later, mut now): (Vec<&Compile>, Vec<&Compile>) =
            left.iter().copied().partition(waits);
        if now.is_empty() {
            // A dependency cycle has no first library: put all that is left into one round.
            now.clone_from(&later);
        }
        left.retain(|c| !now.iter().any(|n| n.library == c.library));
        rounds.push(now.iter().map(|c| c.library.as_str()).collect());
    }
    rounds
}

/// Returns a validation spec as the text of a file. The validation's report names the text's digest.
pub fn promise(spec: &serde_json::Value) -> String {
    // Cannot fail: maps with string keys always serialize.
    serde_json::to_string_pretty(spec).unwrap_or_default() + "\n"
}

/// Returns a compile step's source as a plan names it.
pub fn source_text(source: &SourceLock) -> String {
    match source {
        SourceLock::Sdist { file, sha256, .. } => format!("{file} {sha256}"),
        SourceLock::Git { url, revision } => format!("{url} {revision}"),
    }
}
