//! The plan: which steps make the image, and the key of each.
//!
//! In: a [`Stack`](stackforge_stack::spec::Stack), its [`Target`](stackforge_stack::target::Target) and its lock.
//! Out: [`Plan`], a graph of [`Step`]s in build order. A step's key is the sha256 of
//! everything that can change its output and of nothing else: no clock, host name,
//! directory or number of cores. Needs neither network nor engine.

mod compile;
mod id;
mod layers;
mod make;
pub mod project;

pub use compile::{Cloned, Compile};
pub use id::{StepId, WheelGroup};
pub use layers::{WheelLayer, wheel_layers};
pub use make::{PlanError, plan};
use serde::Serialize;
use stackforge_stack::lock::{BaseLock, OsPackageLock, PythonFile, SourceLock};
use stackforge_stack::rules::Decision;
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
    pub steps: Vec<Step>,
    #[serde(skip)]
    pub parts: Parts,
}

/// Inputs of rendering beyond the graph.
#[derive(Debug, Clone)]
pub struct Parts {
    pub about: Option<String>,
    pub base: BaseLock,
    pub bootstrap: bool,
    /// Whether the base has a shell to run a Dockerfile's steps.
    pub shell: bool,
    pub tools: Vec<PythonFile>,
    pub layers: Vec<WheelLayer>,
    pub compiles: Vec<Compile>,
    pub runtime_packages: Vec<OsPackageLock>,
    pub builder_packages: Vec<OsPackageLock>,
    /// Globs of files that the image leaves out of its wheels, by distribution.
    pub slim: BTreeMap<String, Vec<String>>,
    /// Whether wheels are stripped of symbols, debug information and device code that none of the plan's SMs
    /// runs.
    pub prune: bool,
    /// Names of the OS packages that install Python in a base without it.
    pub python_packages: Vec<String>,
    pub validation: serde_json::Value,
    /// SMs of devices that exist on the platform; code may also be compiled for others.
    pub devices: Vec<Sm>,
    /// C++11 ABI of the locked torch, if the catalog knows it.
    pub cxx11_abi: Option<bool>,
}

impl Parts {
    /// Whether the base comes from a registry and the lock has a digest for every OS package that the image
    /// adds to it. Docker installs those packages before anything else.
    pub fn locks_packages(&self) -> bool {
        !self.bootstrap && self.runtime_packages.iter().all(|p| p.sha256.is_some())
    }

    /// Returns the wheel layers that builders start from: all but the libraries, unless there is nothing else.
    /// So a new version of an unrelated wheel recompiles nothing.
    pub fn below_builders(&self) -> &[WheelLayer] {
        let others = |layer: &WheelLayer| layer.group != WheelGroup::Libraries;
        let last = self.layers.iter().rposition(others).unwrap_or(0);
        &self.layers[..self.layers.len().min(last + 1)]
    }

    /// Returns the names of compiled libraries in rounds. A library is in the first round after all those that
    /// it needs.
    pub fn rounds(&self) -> Vec<Vec<&str>> {
        let mut rounds: Vec<Vec<&str>> = Vec::new();
        let mut left: Vec<&Compile> = self.compiles.iter().collect();
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Fetch,
    Compile,
    Layer,
    Image,
    Validate,
}

#[derive(Debug, Clone, Serialize)]
pub struct Step {
    pub id: StepId,
    pub kind: Kind,
    pub key: Digest,
    /// Whether the store records its output as existing.
    pub cached: bool,
    /// Everything that can change the output, by name.
    pub inputs: BTreeMap<String, String>,
    /// The reason for doing the step this way, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Step {
    pub fn new(id: StepId, kind: Kind, inputs: BTreeMap<String, String>) -> Self {
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
        // `plan` ends every plan with its image step.
        &self.steps[self.steps.len() - 1].key
    }

    /// Returns the normalized name and version of each distribution that the image has to hold.
    pub fn installed(&self) -> impl Iterator<Item = (String, &str)> {
        let wheels = self.parts.layers.iter().flat_map(|layer| &layer.wheels);
        let wheels = wheels.map(|w| (normalized(&w.name), w.version.as_str()));
        let compiles = self.parts.compiles.iter();
        wheels.chain(compiles.map(|c| (normalized(&c.library), c.version.as_str())))
    }

    /// Returns the text of `spec.json`: what the image promises and the validation checks.
    pub fn promise(&self) -> String {
        promise(&self.parts.validation)
    }

    /// Returns the tag of a bootstrapped base in the engine. `None` for a base from a registry.
    pub fn base_tag(&self) -> Option<String> {
        let base = self.step(&StepId::Base).filter(|_| self.parts.bootstrap)?;
        Some(format!(
            "stackforge/base:{}-{}-{}",
            self.parts.base.name,
            self.platform.arch(),
            base.key.short()
        ))
    }

    /// Marks the steps whose key satisfies `done` as cached.
    pub fn mark_cached(&mut self, done: impl Fn(&Digest) -> bool) {
        for step in &mut self.steps {
            step.cached = done(&step.key);
        }
    }

    /// Returns the graph in Graphviz's language.
    pub fn dot(&self) -> String {
        let mut out = String::from("digraph plan {\n  rankdir=LR;\n  node [shape=box];\n");
        for step in &self.steps {
            let style = if step.cached { "filled" } else { "solid" };
            out.push_str(&format!(
                "  {:?} [label=\"{}\\n{}\", style={style}];\n",
                step.id.to_string(),
                step.id,
                step.key.short()
            ));
            for name in step.inputs.keys() {
                if let Some(from) = name.strip_prefix("step:") {
                    out.push_str(&format!("  {from:?} -> {:?};\n", step.id.to_string()));
                }
            }
        }
        out.push_str("}\n");
        out
    }
}

/// Returns a validation spec as the text of a file. The validation's report names the text's digest.
pub fn promise(spec: &serde_json::Value) -> String {
    // Cannot fail: maps with string keys always serialize.
    serde_json::to_string_pretty(spec).unwrap_or_default() + "\n"
}

/// Returns a compile step's source as a plan names it.
pub fn source_text(source: &SourceLock) -> String {
    match source {
        SourceLock::Sdist { file, sha256, .. } => format!("{file} sha256:{sha256}"),
        SourceLock::Git { url, revision } => format!("{url} {revision}"),
    }
}
