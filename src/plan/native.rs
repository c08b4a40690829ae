//! Turns a Docker engine's plan into the native engine's: the same compiles and checks, but layers that are
//! assembled from files.
//!
//! A layer's key is over everything that decides its bytes and nothing else, so that stacks share equal layers.

use super::make::{BYTECODE, Inputs, chain, templates_digest};
use super::{
    Bytecode, Environment, HOME, LayerWheel, Op, OpKind, Packages, Plan, Step, StepId,
    StitchedLayer, Validate,
};
use stackforge_debian::{configure, finish};
use stackforge_image::layer::{Limits, Part, group};
use stackforge_image::pack::Compression;
use stackforge_stack::lock::{OsPackageLock, PythonFile};
use stackforge_types::Digest;
use std::collections::BTreeMap;

/// Increased when the same inputs make other layers.
const FORMAT: u32 = 2;

/// Compression level of members that are stored in the wheel, and of tar headers.
pub const LEVEL: u32 = 6;

/// What the native engine's layers depend on besides the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Native {
    /// How layers that are not made of wheels are compressed.
    pub compression: Compression,
    /// Latest time of the image's files and documents, in seconds since 1970.
    pub epoch: u32,
    /// Format of what pruning leaves.
    pub pruner: u32,
    /// Format of byte code files.
    pub bytecode: u32,
}

impl Plan {
    /// Returns the native engine's plan of the same image. `size` returns the size of a locked wheel in bytes,
    /// which decides the layer that it goes to; one of unknown size counts as small. `runs` says whether this
    /// machine runs the image's interpreter, which makes byte code.
    #[must_use]
    pub fn native(
        &self,
        native: &Native,
        runs: bool,
        size: &dyn Fn(&PythonFile) -> Option<u64>,
    ) -> Self {
        let bytecode = self.step(&StepId::Bytecode).is_some();
        let mut layers = Layers {
            plan: self,
            native,
            size,
            bytecode: bytecode.then_some(runs),
            slim: BTreeMap::new(),
            done: Vec::new(),
        };
        let has_compiles = self.compiles().next().is_some();
        for step in &self.steps {
            match &step.op {
                Op::Base(_) => layers.base(step),
                Op::Tools(_) if has_compiles => layers.push_step(step, vec![StepId::Base]),
                Op::Compile(compile) => {
                    let needed = compile.after.iter().map(|l| StepId::compile(l));
                    let all = [StepId::Base, StepId::Tools].into_iter().chain(needed);
                    layers.push_step(step, all.collect());
                }
                Op::Runtime(runtime) => layers.slim.clone_from(&runtime.slim),
                _ => {}
            }
        }
        layers.packages(self.packages());
        layers.system_bytecode();
        layers.environment();
        layers.wheels();
        layers.last();
        Self {
            steps: layers.done,
            ..self.clone()
        }
    }
}

/// Says that layers may still change: a large wheel has a layer of its own.
fn unknown_sizes(wheels: usize) -> String {
    let them = if wheels == 1 {
        "the size of 1 wheel is".to_owned()
    } else {
        format!("the sizes of {wheels} wheels are")
    };
    format!("{them} not in the lock: what is large gets a layer of its own once it is fetched")
}

struct Layers<'a> {
    plan: &'a Plan,
    native: &'a Native,
    size: &'a dyn Fn(&PythonFile) -> Option<u64>,
    /// Whether the interpreter runs that makes byte code. `None` if the image has none.
    bytecode: Option<bool>,
    slim: BTreeMap<String, Vec<String>>,
    done: Vec<Step>,
}

impl Layers<'_> {
    fn push_step(&mut self, step: &Step, after: Vec<StepId>) {
        let mut step = step.clone();
        step.after = after;
        self.done.push(step);
    }

    fn add(&mut self, id: StepId, op: Op, inputs: Inputs, after: Vec<StepId>) {
        let kind = match &op {
            Op::Validate(_) => OpKind::Validate,
            Op::Image(_) | Op::Service(_) => OpKind::Image,
            _ => OpKind::Layer,
        };
        let mut step = Step::new(id, kind, op, inputs);
        step.after = after;
        self.done.push(step);
    }

    fn inputs(&self) -> Inputs {
        Inputs::from([
            ("format".into(), FORMAT.to_string()),
            ("epoch".into(), self.native.epoch.to_string()),
        ])
    }

    fn packed(&self) -> Inputs {
        let mut inputs = self.inputs();
        let compression = format!("{:?}", self.native.compression);
        inputs.insert("compression".into(), compression);
        inputs
    }

    /// Returns the inputs that decide a layer of OS packages.
    fn debian(&self, packages: &[OsPackageLock]) -> Inputs {
        let mut inputs = self.packed();
        inputs.insert("platform".into(), self.plan.platform.to_string());
        let scripts = Digest::of(finish::SCRIPTS.as_bytes());
        inputs.insert("finish".into(), format!("{} {scripts}", finish::VERSION));
        // A script that is not understood is run.
        let run = [configure::CONFIGURE, configure::INSTALL].concat();
        inputs.insert("scripts".into(), Digest::of(run.as_bytes()).to_string());
        for (place, package) in packages.iter().enumerate() {
            let sha256 = package.sha256.as_ref().map_or("", Digest::hex);
            inputs.insert(format!("package:{place:04}"), sha256.to_owned());
        }
        inputs
    }

    fn base(&mut self, step: &Step) {
        let base = self.plan.base();
        if base.bootstrap {
            let inputs = self.debian(&base.lock.packages);
            self.add(StepId::Base, step.op.clone(), inputs, Vec::new());
            if let Some(own) = self.done.last_mut() {
                own.kind = step.kind;
                own.note.clone_from(&step.note);
            }
        } else {
            self.push_step(step, Vec::new());
        }
    }

    fn packages(&mut self, packages: &[OsPackageLock]) {
        if packages.is_empty() {
            return;
        }
        let mut inputs = self.debian(packages);
        inputs.extend(self.done.first().map(chain));
        let op = Op::Packages(Packages {
            packages: packages.to_vec(),
        });
        self.add(StepId::Packages, op, inputs, vec![StepId::Base]);
    }

    fn environment(&mut self) {
        let environment = Environment::at(HOME, self.plan.python);
        let mut inputs = self.packed();
        let text = serde_json::to_string(&environment).unwrap_or_default();
        inputs.insert("content".into(), Digest::of(text.as_bytes()).to_string());
        let op = Op::Environment(environment);
        self.add(StepId::Environment, op, inputs, Vec::new());
    }

    /// Adds the layers of wheels: one for each large wheel, a few for the others. How large a compiled wheel will
    /// be is not known, so each has its own.
    fn wheels(&mut self) {
        let drop = |name: &str| self.slim.get(name).cloned().unwrap_or_default();
        let normalized = stackforge_types::wheel::normalized;
        let locked = self.plan.wheels().map(|file| LayerWheel {
            name: file.name.clone(),
            version: file.version.clone(),
            requested: file.via.is_empty(),
            drop: drop(&normalized(&file.name)),
            file: Some(file.clone()),
        });
        let compiled = self.plan.compiles().map(|c| LayerWheel {
            name: c.library.clone(),
            version: c.version.clone(),
            file: None,
            requested: true,
            drop: drop(&normalized(&c.library)),
        });
        let wheels: Vec<LayerWheel> = locked.chain(compiled).collect();
        let limits = Limits::default();
        let sizes: Vec<Option<u64>> = wheels
            .iter()
            .map(|wheel| match &wheel.file {
                Some(file) => (self.size)(file),
                None => Some(limits.large),
            })
            .collect();
        let parts: Vec<Part<'_>> = wheels
            .iter()
            .zip(&sizes)
            .map(|(wheel, size)| Part {
                name: &wheel.name,
                size: size.unwrap_or(0),
            })
            .collect();
        for group in group(&parts, &limits) {
            self.layer(group.iter().map(|&place| wheels[place].clone()).collect());
            let unknown = group.iter().filter(|&&place| sizes[place].is_none());
            if let (unknown @ 1.., Some(step)) = (unknown.count(), self.done.last_mut()) {
                step.note = Some(unknown_sizes(unknown));
            }
            if let Some(runs) = self.bytecode {
                self.layer_bytecode(runs);
            }
        }
    }

    fn layer(&mut self, wheels: Vec<LayerWheel>) {
        let plan = self.plan;
        let mut inputs = self.inputs();
        inputs.insert("python".into(), plan.python.to_string());
        inputs.insert("level".into(), LEVEL.to_string());
        let pure = |wheel: &LayerWheel| {
            let file = wheel.file.as_ref();
            file.is_some_and(|f| f.file.ends_with("-any.whl"))
        };
        let prunes = plan.image().prune && !wheels.iter().all(pure);
        if prunes {
            let sms: Vec<String> = plan.sm.iter().map(ToString::to_string).collect();
            let how = format!("{} {}", self.native.pruner, sms.join(" "));
            inputs.insert("prune".into(), how);
        }
        let mut after = vec![];
        for wheel in &wheels {
            let how = if wheel.requested { " requested" } else { "" };
            let without = wheel
                .drop
                .iter()
                .map(|d| format!(" -{d}"))
                .collect::<String>();
            let what = match (&wheel.file, plan.compile(&wheel.name)) {
                (Some(file), _) => file.sha256.to_string(),
                (None, Some(step)) => {
                    after.push(step.id.clone());
                    format!("step:{}", step.key)
                }
                (None, None) => String::new(),
            };
            inputs.insert(
                format!("wheel:{}", wheel.name),
                format!("{} {what}{how}{without}", wheel.version),
            );
        }
        let first = wheels.first().map(|w| w.name.clone()).unwrap_or_default();
        let id = match wheels.len() {
            1 => StepId::Wheel(first),
            _ => StepId::SmallWheels(first),
        };
        let prune = prunes.then(|| plan.sm.clone());
        self.add(
            id,
            Op::Layer(StitchedLayer { wheels, prune }),
            inputs,
            after,
        );
    }

    /// Adds the byte code of Python's own library and of that of OS packages.
    fn system_bytecode(&mut self) {
        if let Some(runs) = self.bytecode {
            let name = format!("python{}", self.plan.python);
            self.bytecode_of(StepId::Base, name, runs);
        }
    }

    /// Adds the byte code of the layer that was added last, right above it: what changes above that layer changes
    /// no layer below.
    fn layer_bytecode(&mut self, runs: bool) {
        let Some(layer) = self.done.last() else {
            return;
        };
        let name = match &layer.id {
            StepId::Wheel(name) => name.clone(),
            StepId::SmallWheels(first) => format!("{first}…"),
            _ => return,
        };
        self.bytecode_of(layer.id.clone(), name, runs);
    }

    fn bytecode_of(&mut self, of: StepId, name: String, runs: bool) {
        let mut inputs = self.inputs();
        inputs.insert("python".into(), self.plan.python.to_string());
        inputs.insert("level".into(), LEVEL.to_string());
        inputs.insert("normal".into(), self.native.bytecode.to_string());
        inputs.insert("script".into(), templates_digest(BYTECODE));
        // The user's own script is among the user's templates.
        let base = self.plan.step(&StepId::Base);
        let own = base.and_then(|step| step.inputs.get_key_value("templates"));
        inputs.extend(own.map(|(name, digest)| (name.clone(), digest.clone())));
        let is_below = |s: &&Step| s.id == StepId::Base || s.id == StepId::Packages || s.id == of;
        let below: Vec<&Step> = self.done.iter().filter(is_below).collect();
        inputs.extend(below.iter().map(|step| chain(step)));
        let after = below.iter().map(|step| step.id.clone()).collect();
        if !runs {
            inputs.insert("interpreter".into(), "none".into());
        }
        let of = Some(of);
        let op = Op::Bytecode(Bytecode { of, runs });
        self.add(StepId::LayerBytecode(name), op, inputs, after);
        if let (false, Some(step)) = (runs, self.done.last_mut()) {
            let platform = self.plan.platform;
            step.note = Some(format!(
                "none: no program of {platform} runs on this machine"
            ));
        }
    }

    /// Adds the validation and the image itself.
    fn last(&mut self) {
        let layers = |s: &&Step| s.kind == OpKind::Layer || s.id == StepId::Base;
        let below: Vec<(StepId, (String, String))> = (self.done.iter().filter(layers))
            .map(|s| (s.id.clone(), chain(s)))
            .collect();
        let of = |id: &StepId| {
            self.plan
                .step(id)
                .map(|s| s.inputs.clone())
                .unwrap_or_default()
        };
        let mut inputs = of(&StepId::Validate);
        inputs.retain(|name, _| !name.starts_with("step:"));
        inputs.extend(below.iter().map(|(_, chain)| chain.clone()));
        let op = Op::Validate(Validate {
            spec: self.plan.validation().clone(),
        });
        let after = below.into_iter().map(|(id, _)| id).collect();
        self.add(StepId::Validate, op, inputs, after);
        let image = self.plan.image();
        let mut inputs = self.packed();
        inputs.insert("plan".into(), self.plan.environment.to_string());
        if image.prune {
            inputs.insert("prune".into(), self.native.pruner.to_string());
        }
        if self.bytecode == Some(false) {
            inputs.insert("bytecode".into(), "none".into());
        }
        let op = Op::Image(image.clone());
        self.add(StepId::Image, op, inputs, vec![StepId::Validate]);
        self.own();
    }

    /// Adds the layer of the user's own files, and the image with it.
    fn own(&mut self) {
        let own = self.plan.steps.iter();
        for step in own.filter(|s| s.op.is_own()) {
            let after = self.done.last().map(|s| s.id.clone());
            // Its wheel is the same from either engine.
            if matches!(step.op, Op::Project(_)) {
                self.push_step(step, after.into_iter().collect());
                continue;
            }
            let image = self.done.iter().find(|s| s.id == StepId::Image);
            let mut inputs = step.inputs.clone();
            inputs.retain(|name, _| !name.starts_with("step:"));
            inputs.extend(self.packed());
            inputs.extend(self.done.last().map(chain));
            if step.id == StepId::App {
                inputs.extend(image.map(chain));
            }
            self.add(
                step.id.clone(),
                step.op.clone(),
                inputs,
                after.into_iter().collect(),
            );
        }
    }
}
