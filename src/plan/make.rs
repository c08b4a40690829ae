//! Assembles the graph of a plan.

use super::compile::compile;
use super::{Compile, Kind, Parts, Plan, Step, StepId, source_text, wheel_layers};
use stackforge_stack::catalog::{Catalog, Image, Recipe, templates_in};
use stackforge_stack::diag::{Code, Explained, codes};
use stackforge_stack::lock::{OsPackageLock, PlatformLock, PythonFile};
use stackforge_stack::rules::{Case, Checked};
use stackforge_stack::spec::Stack;
use stackforge_stack::target::{Base, Target};
use stackforge_types::Digest;
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

/// Returns the plan of a stack that was checked with its lock.
pub fn plan(checked: &Checked<'_>) -> Result<Plan, PlanError> {
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
        let recipe = catalog
            .recipe(&build.name)
            .ok_or_else(|| PlanError::NoRecipe {
                library: build.name.clone(),
            })?;
        let home = toolkit_home(catalog, lock, recipe, &build.requires)?;
        let made = compile(
            lock,
            build,
            recipe,
            stack.library(&build.name),
            (&target.sms, isa),
            home,
        );
        compiles.push(made.ok_or_else(|| PlanError::NoRecipe {
            library: build.name.clone(),
        })?);
    }
    let python_packages = match &target.base {
        Base::Known(image) => image.packages.resolve("python", lock.python),
        Base::Raw { .. } => Vec::new(),
    };
    let validation = validation(stack, target, catalog, lock);
    let bootstrap = lock.base.runtime.is_none();
    let parts = Parts {
        about: stack.about.clone(),
        base: lock.base.clone(),
        bootstrap,
        shell: target.base.image().is_none_or(Image::has_shell),
        tools: lock.tools.clone(),
        layers,
        compiles,
        runtime_packages: lock.packages.clone(),
        builder_packages: lock.builder_packages.clone(),
        slim: slim(lock, catalog),
        prune: stack.prune,
        python_packages,
        validation,
        devices: checked.case.devices(),
        cxx11_abi: checked.torch_abi(),
    };
    let mut libraries = checked.decisions();
    for library in &mut libraries {
        if let Some(compile) = parts.compiles.iter().find(|c| c.library == library.library) {
            library.reason = format!("{}; {}", library.reason, compile.how);
        }
    }
    let mut plan = Plan {
        stack: stack.stack.value.to_string(),
        variant: stack.name().to_owned(),
        platform: lock.platform,
        python: lock.python,
        cuda: lock.cuda.clone(),
        sm: target.sms.clone(),
        isa: isa.map(|i| i.name.clone()),
        libraries,
        steps: Vec::new(),
        parts,
    };
    steps(&mut plan, stack.jit, catalog.templates.as_ref());
    Ok(plan)
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

/// Returns the globs by which the catalog removes files from the locked wheels.
fn slim(lock: &PlatformLock, catalog: &Catalog) -> BTreeMap<String, Vec<String>> {
    let names = lock
        .wheels
        .iter()
        .map(|w| stackforge_types::wheel::normalized(&w.name));
    let rules = names.map(|name| (catalog.slim.of(&name), name));
    let some = rules.filter(|(drop, _)| !drop.is_empty());
    some.map(|(drop, name)| (name, drop)).collect()
}

/// Returns the spec for the validation programs.
fn validation(
    stack: &Stack,
    target: &Target<'_>,
    catalog: &Catalog,
    lock: &PlatformLock,
) -> serde_json::Value {
    let mut checks = vec!["imports"];
    let mut libraries = Vec::new();
    for library in &stack.libraries {
        let name = library.name.value.as_str();
        let recipe = target.recipes.get(name);
        let distribution = recipe.map_or(name, |r| r.distribution.as_str());
        let version = lock
            .wheel(distribution)
            .map(|w| &w.version)
            .or_else(|| lock.build(name).map(|b| &b.version));
        let imports = match recipe {
            Some(r) => r.imports.clone(),
            None => Vec::new(),
        };
        for check in recipe.iter().flat_map(|r| &r.validate) {
            let known = ["cuda", "triton", "compile", "attention", "vllm"]
                .into_iter()
                .find(|k| k == check);
            checks.extend(known.filter(|k| !checks.contains(k)));
        }
        libraries.push(serde_json::json!({
            "name": name,
            "distribution": distribution,
            "version": version,
            "imports": imports,
            "gpu_imports": recipe.map(|r| r.gpu_imports.clone()).unwrap_or_default(),
        }));
    }
    if !stack.jit {
        checks.retain(|c| !["triton", "compile"].contains(c));
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

type Inputs = BTreeMap<String, String>;

fn steps(plan: &mut Plan, jit: bool, own_templates: Option<&Digest>) {
    let parts = &plan.parts;
    let mut steps: Vec<Step> = vec![base_step(plan, own_templates)];
    let mut last = chain(&steps[0]);
    let mut from = last.clone();
    for (n, layer) in parts.layers.iter().enumerate() {
        let mut inputs = wheels(&layer.wheels);
        inputs.insert("python".into(), plan.python.to_string());
        inputs.insert("script".into(), templates_digest("steps/wheels.sh"));
        inputs.insert("environment".into(), templates_digest("steps/venv.sh"));
        inputs.extend([last.clone()]);
        let step = Step::new(StepId::Wheels(layer.group), Kind::Layer, inputs);
        last = chain(&step);
        if n < parts.below_builders().len() {
            from = last.clone();
        }
        steps.push(step);
    }
    let mut runtime = Inputs::from([last.clone()]);
    for compile in &parts.compiles {
        let step = compile_step(plan, compile, &from, &steps);
        runtime.extend([chain(&step)]);
        steps.push(step);
    }
    for package in &parts.runtime_packages {
        runtime.insert(format!("package:{}", package.name), package_text(package));
    }
    if parts.bootstrap {
        let install = stackforge_debian::configure::INSTALL;
        runtime.insert("install".into(), Digest::of(install.as_bytes()).to_string());
    }
    runtime.insert("jit".into(), jit.to_string());
    for (script, file) in [
        ("packages", "packages.sh"),
        ("compiled", "compiled.sh"),
        ("forget", "forget.sh"),
        ("slim", "slim.py"),
    ] {
        runtime.insert(
            format!("script:{script}"),
            templates_digest(&format!("steps/{file}")),
        );
    }
    let slim = serde_json::to_string(&parts.slim).unwrap_or_default();
    runtime.insert("slim".into(), Digest::of(slim.as_bytes()).to_string());
    if parts.prune {
        let sms: Vec<String> = plan.sm.iter().map(ToString::to_string).collect();
        runtime.insert("prune".into(), sms.join(" "));
    }
    let step = Step::new(StepId::Runtime, Kind::Layer, runtime);
    let mut validate = Inputs::from([chain(&step)]);
    steps.push(step);
    validate.insert("programs".into(), templates_digest("validate"));
    validate.insert(
        "spec".into(),
        Digest::of(parts.validation.to_string().as_bytes()).to_string(),
    );
    let step = Step::new(StepId::Validate, Kind::Validate, validate);
    let mut image = Inputs::from([chain(&step)]);
    steps.push(step);
    image.insert("stack".into(), plan.variant.clone());
    image.insert("about".into(), parts.about.clone().unwrap_or_default());
    image.insert("template".into(), templates_digest("Dockerfile.hbs"));
    steps.push(Step::new(StepId::Image, Kind::Image, image));
    plan.steps = steps;
}

fn chain(step: &Step) -> (String, String) {
    (format!("step:{}", step.id), step.key.to_string())
}

fn base_step(plan: &Plan, own_templates: Option<&Digest>) -> Step {
    let base = &plan.parts.base;
    let mut inputs = Inputs::from([
        ("base".into(), base.name.clone()),
        ("platform".into(), plan.platform.to_string()),
    ]);
    for (role, image) in [("runtime", &base.runtime), ("devel", &base.devel)] {
        if let Some(image) = image {
            let digest = image
                .digest
                .as_ref()
                .map_or("unpinned".to_owned(), ToString::to_string);
            inputs.insert(role.into(), format!("{} {digest}", image.reference));
        }
    }
    for package in &base.packages {
        inputs.insert(format!("package:{}", package.name), package_text(package));
    }
    if plan.parts.bootstrap {
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
    if plan.parts.locks_packages() {
        for package in &plan.parts.runtime_packages {
            inputs.insert(format!("package:{}", package.name), package_text(package));
        }
        let install = stackforge_debian::configure::INSTALL;
        inputs.insert("install".into(), Digest::of(install.as_bytes()).to_string());
    }
    // The user's own templates may change any step, so every key depends on their digest.
    if let Some(digest) = own_templates {
        inputs.insert("templates".into(), digest.to_string());
    }
    let mut step = Step::new(StepId::Base, Kind::Image, inputs);
    if plan.parts.bootstrap {
        step.note = Some(format!(
            "bootstrapped from {} Debian packages",
            base.packages.len()
        ));
    } else if base.runtime.as_ref().is_some_and(|r| r.digest.is_none()) {
        step.note = Some(
            "not pinned by digest: its registry did not answer when the stack was locked".into(),
        );
    }
    step
}

fn compile_step(plan: &Plan, compile: &Compile, from: &(String, String), steps: &[Step]) -> Step {
    let mut inputs = Inputs::from([
        from.clone(),
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
        let text = format!("{} {} → {}", patch.file, patch.replace, patch.with);
        inputs.insert(format!("patch:{}", patch.id), text);
    }
    for (n, command) in compile.commands.iter().enumerate() {
        inputs.insert(format!("command:{n}"), command.clone());
    }
    inputs.extend(
        wheels(&compile.requires)
            .into_iter()
            .map(|(name, value)| (name.replacen("wheel:", "requires:", 1), value)),
    );
    for package in &plan.parts.builder_packages {
        inputs.insert(format!("package:{}", package.name), package_text(package));
    }
    for name in &compile.after {
        if let Some(step) = steps.iter().find(|s| s.id.library() == Some(name.as_str())) {
            inputs.extend([chain(step)]);
        }
    }
    let mut step = Step::new(StepId::compile(&compile.library), Kind::Compile, inputs);
    step.note = Some(format!(
        "{} {}, {}",
        compile.library, compile.version, compile.how
    ));
    step
}

fn wheels(files: &[PythonFile]) -> Inputs {
    files
        .iter()
        .map(|w| {
            (
                format!("wheel:{}", w.name),
                format!("{} sha256:{}", w.version, w.sha256),
            )
        })
        .collect()
}

fn package_text(p: &OsPackageLock) -> String {
    match (&p.version, &p.sha256) {
        (Some(version), Some(sha256)) => format!("{version} sha256:{sha256}"),
        _ => "unpinned".to_owned(),
    }
}

/// Returns the digest of the templates below a path, so that a changed script changes the step's key.
fn templates_digest(path: &str) -> String {
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
