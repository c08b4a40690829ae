//! Writes a first stack: for a GPU, with torch and Triton, or of what a file asks for.
//!
//! In: the catalog, a GPU's name or a device, and what [`crate::convert`] found in a file. Out: [`Starter`], whose text
//! passes `check`, or the diagnostic that says why there is none. Of the bases that a file's libraries may stand on, the
//! nearest on which `check` finds no error is taken. Reads and writes no file.

mod base;
mod instead;
mod keys;
mod libraries;
mod out;
mod text;
mod torch;
mod unfit;
mod yaml;

use crate::Device;
use crate::convert::{ConvertError, Found, ImageKeys, Known};
use crate::doctor;
use base::{Candidate, Place};
use stackforge_resolve::{Loosened, Published};
use stackforge_stack::catalog::{Catalog, Image, numbers};
use stackforge_stack::diag::{Diagnostic, Explained as _, Severity, codes, nearest};
use stackforge_stack::rules::{self, Case, Machine, Picks};
use stackforge_stack::spec::{self, Platform, Sm};
use stackforge_stack::target::Target;
use std::path::Path;

pub use instead::Instead;

#[derive(Debug)]
pub struct Starter {
    /// Name of the stack.
    pub name: String,
    pub text: String,
    /// Number of things in the file that the stack has only as comments.
    pub notes: usize,
    /// Requirements that it has with another version, since theirs have no wheel for its Python.
    pub instead: Vec<Instead>,
    /// Errors that `check` finds in it on every base.
    pub errors: Vec<Diagnostic>,
}

/// The input of a stack that a file asks for.
pub struct Question<'a> {
    pub catalog: &'a Catalog,
    pub known: &'a Known,
    pub found: &'a Found,
    /// What the indexes list; nothing where they were not asked, and then every requirement stays as it is.
    pub published: &'a Published,
    /// Releases in place of pinned ones that do not go together, by names of distributions.
    pub loosened: &'a Loosened,
    pub gpu: Option<&'a str>,
    /// Name of the base; any if `None`.
    pub base: Option<&'a str>,
    /// The machine that the stack is for, if nothing else says a GPU.
    pub device: &'a dyn Fn() -> Device,
    /// Name of the stack if the file says none.
    pub name: &'a str,
    /// Folder of the stack file, which paths of its own start at.
    pub folder: &'a Path,
}

/// Returns a stack of what a file asks for.
///
/// # Errors
/// If nothing says a GPU, no base is for it, the named base is unknown, or the file names no library.
pub fn of_file(question: &Question<'_>) -> Result<Starter, Diagnostic> {
    let (catalog, found) = (question.catalog, question.found);
    if let Some(base) = question.base
        && !catalog.images.contains_key(base)
    {
        return Err(unknown_base(catalog, base));
    }
    let place = Place::of(catalog, found, question.gpu, question.device)?;
    let candidates = place.candidates(question)?;
    let mut best: Option<Starter> = None;
    for candidate in &candidates {
        let starter = on(question, &place, candidate)?;
        let better = best
            .as_ref()
            .is_none_or(|b| starter.errors.len() < b.errors.len());
        let done = starter.errors.is_empty();
        if better {
            best = Some(starter);
        }
        if done {
            break;
        }
    }
    let nearest = candidates
        .first()
        .filter(|_| best.as_ref().is_some_and(|b| !b.errors.is_empty()));
    let mut starter = match (nearest, best) {
        // If no base is right, the one that the file asks for is.
        (Some(nearest), _) => on(question, &place, nearest)?,
        (None, Some(best)) => return Ok(best),
        (None, None) => return Err(no_base_at_all(found)),
    };
    starter.text = text::refused(&starter.errors) + &starter.text;
    Ok(starter)
}

fn unknown_base(catalog: &Catalog, base: &str) -> Diagnostic {
    let names = || catalog.images.keys().map(String::as_str);
    let unknown = Diagnostic::error(codes::UNKNOWN_BASE, format!("unknown base `{base}`"));
    match nearest(base, names()) {
        Some(near) => unknown.help(format!("did you mean `{near}`?")),
        None => unknown.help(format!(
            "use one of {}",
            names().collect::<Vec<_>>().join(", ")
        )),
    }
}

fn no_base_at_all(found: &Found) -> Diagnostic {
    let text = format!("no base of the catalog is for what `{}` asks", found.shown);
    Diagnostic::error(codes::UNKNOWN_BASE, text).help("name another GPU with `--gpu`")
}

/// Writes the stack on one base, and judges it.
fn on(
    question: &Question<'_>,
    place: &Place<'_>,
    candidate: &Candidate<'_>,
) -> Result<Starter, Diagnostic> {
    let written = text::of_file(question, place, candidate);
    if written.libraries == 0 {
        let shown = question.found.shown.clone();
        return Err(ConvertError::Nothing { shown }.diagnostic());
    }
    let (text, unfit) = unfit::commented(written.text);
    let errors = errors(question.catalog, &text)?;
    Ok(Starter {
        name: written.name,
        text,
        notes: written.notes + unfit,
        instead: written.instead,
        errors,
    })
}

/// Returns the errors that `check` finds in a stack.
///
/// # Errors
/// If the text is not a stack: it is larger than one can be.
fn errors(catalog: &Catalog, text: &str) -> Result<Vec<Diagnostic>, Diagnostic> {
    let first = |report: stackforge_stack::diag::Report| {
        let first = report.diagnostics.into_iter().next();
        first.unwrap_or_else(|| Diagnostic::error(codes::TOO_LARGE, "the stack cannot be read"))
    };
    let file = spec::read("the stack", text).map_err(first)?;
    let stack = &file.pattern;
    let target = Target::of(stack, catalog).map_err(first)?;
    let case = Case {
        stack,
        target,
        catalog,
        lock: None,
        machine: Machine::default(),
        picks: Picks::default(),
    };
    let mut findings = rules::check(case).findings;
    findings.retain(|f| f.severity == Severity::Error);
    Ok(findings)
}

/// Returns the SM of a GPU's name.
pub fn sm_of(catalog: &Catalog, gpu: &str) -> Result<Sm, Diagnostic> {
    catalog.sm(gpu).ok_or_else(|| {
        let names = catalog.gpus.iter().map(|g| g.name.as_str());
        let d = Diagnostic::error(codes::UNKNOWN_GPU, format!("unknown GPU `{gpu}`"));
        match nearest(gpu, names) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None => d,
        }
    })
}

/// Returns a stack for a GPU of the catalog or for an SM such as `sm_90`.
pub fn for_gpu(catalog: &Catalog, gpu: &str) -> Result<Starter, Diagnostic> {
    let sm = sm_of(catalog, gpu)?;
    let platforms = match catalog.gpu(gpu) {
        Some(gpu) => &gpu.platforms,
        None => catalog
            .sms
            .iter()
            .find(|f| f.sm == sm.base())
            .map(|f| &f.platforms)
            .ok_or_else(|| no_base(sm, None))?,
    };
    let platform = platforms.first().copied();
    let platform = platform.unwrap_or(Platform::LinuxAmd64);
    let image = catalog
        .images
        .values()
        .filter(|i| i.l4t.is_none() && i.platforms.contains(&platform))
        .filter(|i| i.cuda.is_some() && knows(catalog, i, &[sm]))
        .max_by_key(|i| (i.cuda.as_deref().map(numbers), numbers(&i.os.version)))
        .ok_or_else(|| no_base(sm, Some(platform)))?;
    Ok(write(&[gpu.to_owned()], platform, image))
}

/// Returns a stack for the GPUs of a device, on a base that its driver runs.
pub fn for_device(catalog: &Catalog, device: &Device) -> Result<Starter, Diagnostic> {
    let gpus = device.identified(catalog);
    let sms: Vec<Sm> = gpus.iter().filter_map(|g| g.sm).collect();
    let mut names: Vec<String> = gpus.iter().filter_map(|g| g.target()).collect();
    names.dedup();
    let (Some(sm), Some(platform)) = (sms.first(), device.platform) else {
        return Err(no_gpu(catalog, device));
    };
    let image = doctor::bases(catalog, device, &sms)
        .into_iter()
        .find(|i| i.cuda.is_some() && knows(catalog, i, &sms));
    match image {
        Some(image) => Ok(write(&names, platform, image)),
        None => Err(match (&device.l4t, &device.driver) {
            (Some(l4t), _) => Diagnostic::error(
                codes::JETSON_RELEASE,
                format!("no base of the catalog runs on L4T {l4t}"),
            )
            .help("`stackforge doctor` says more"),
            (None, Some(driver)) => Diagnostic::error(
                codes::OLD_DRIVER,
                format!(
                    "driver {} runs no base of the catalog that knows sm_{}",
                    driver.version().unwrap_or("of this machine"),
                    sm.digits()
                ),
            )
            .help(format!(
                "update the driver, or write a stack for elsewhere: `stackforge init --gpu {}`",
                names.first().map_or("h100", String::as_str)
            )),
            (None, None) => no_base(*sm, Some(platform)),
        }),
    }
}

/// Whether the base's toolkit compiles for all of the SMs.
fn knows(catalog: &Catalog, image: &Image, sms: &[Sm]) -> bool {
    let toolkit = image.cuda.as_deref().and_then(|c| catalog.toolkit(c));
    toolkit.is_some_and(|t| sms.iter().all(|sm| t.sms.contains(&sm.base())))
}

fn no_gpu(catalog: &Catalog, device: &Device) -> Diagnostic {
    let what = if device.pci.is_empty() {
        "this machine has no NVIDIA GPU"
    } else {
        "this machine's NVIDIA GPU has no driver that could name it"
    };
    // One product for each SM that CUDA still supports, the newest first.
    let current = catalog.sms.iter().rev().filter(|f| f.cuda.last.is_none());
    let names: Vec<&str> = current
        .filter_map(|f| catalog.gpus.iter().find(|g| g.sm == f.sm))
        .map(|g| g.name.as_str())
        .collect();
    Diagnostic::error(codes::NO_GPU, what).help(format!(
        "give `--gpu NAME`: {}, or another of catalog/gpus.yaml",
        names.join(", ")
    ))
}

fn no_base(sm: Sm, platform: Option<Platform>) -> Diagnostic {
    let place = platform.map(|p| format!(" on {p}")).unwrap_or_default();
    Diagnostic::error(
        codes::UNKNOWN_BASE,
        format!("no base of the catalog is for sm_{}{place}", sm.digits()),
    )
    .help("write the stack by hand with your own base image")
}

fn write(gpus: &[String], platform: Platform, image: &Image) -> Starter {
    let python = image
        .python
        .last()
        .map(ToString::to_string)
        .unwrap_or_default();
    let name = gpus.join("-").replace('_', "-");
    let libraries = match image.starter.as_slice() {
        [] => "  torch: \">=2.13\"\n  triton: auto          # the version that torch pins\n\
               # vllm: \">=0.32\"\n\
               # flash-attn: { version: \"2.8.3.post2\", from: source }\n"
            .to_owned(),
        own => own.iter().map(|line| format!("  {line}\n")).collect(),
    };
    let gpus = gpus.join(", ");
    Starter {
        text: format!(
            "stack: {name}\n\
             about: torch and Triton for {gpus}\n\
             base: {}\n\
             target:\n  platform: {platform}\n  gpu: [{gpus}]\n\
             python: \"{python}\"\n\
             libraries:\n{libraries}{}",
            image.image,
            keys::image(&ImageKeys::default()),
        ),
        name,
        notes: 0,
        instead: Vec::new(),
        errors: Vec::new(),
    }
}
