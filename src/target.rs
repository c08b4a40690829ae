//! What a stack means once its names are looked up: base, SMs, recipes.
//!
//! In: a [`Stack`] and the [`Catalog`]. Out: a [`Target`], or every finding at once. No
//! network, no engine, no lock.

use crate::catalog::{Catalog, Facts, Image, Recipe, WheelSource};
use crate::diag::{Diagnostic, Report, codes, nearest};
use crate::spec::nouns::Digest;
use crate::spec::{At, From, Library, Sm, Stack, Wanted};
use pep440_rs::Version;
use std::collections::BTreeMap;
use std::str::FromStr;

/// A stack with its names resolved.
#[derive(Debug, Clone)]
pub struct Target<'a> {
    pub base: Base<'a>,
    /// SMs that the image must run on, in ascending order.
    pub sms: Vec<Sm>,
    /// Recipes of the stack's libraries; those without one are plain wheels.
    pub recipes: BTreeMap<&'a str, &'a Recipe>,
}

#[derive(Debug, Clone)]
pub enum Base<'a> {
    /// One of images/.
    Known(&'a Image),
    /// A reference with digest that the stack gave.
    Raw { reference: String, digest: Digest },
}

impl Base<'_> {
    pub fn image(&self) -> Option<&Image> {
        match self {
            Base::Known(image) => Some(image),
            Base::Raw { .. } => None,
        }
    }
}

impl<'a> Target<'a> {
    /// Looks up every name of the stack.
    pub fn of(stack: &'a Stack, catalog: &'a Catalog) -> Result<Self, Report> {
        let mut findings = Vec::new();
        let base = base(stack, catalog, &mut findings);
        let sms = sms(stack, catalog, &mut findings);
        if let Some(Base::Known(image)) = &base {
            base_rules(stack, image, catalog, &sms, &mut findings);
        }
        let mut recipes = BTreeMap::new();
        for library in &stack.libraries {
            let name = library.name.value.as_str();
            let recipe = catalog.recipe(name);
            if let Some(recipe) = recipe {
                recipes.insert(name, recipe);
            }
            library_rules(stack, library, recipe, base.as_ref(), &sms, &mut findings);
        }
        match base {
            Some(base) if findings.is_empty() => Ok(Self { base, sms, recipes }),
            _ => Err(Report::new(stack.source.clone(), findings)),
        }
    }
}

fn base<'a>(
    stack: &Stack,
    catalog: &'a Catalog,
    findings: &mut Vec<Diagnostic>,
) -> Option<Base<'a>> {
    let At { value, span } = &stack.base;
    if let Some(image) = catalog.images.get(value) {
        return Some(Base::Known(image));
    }
    let pinned = value
        .split_once('@')
        .filter(|_| crate::spec::image_reference(value))
        .and_then(|(reference, digest)| Some((reference.to_owned(), digest.parse().ok()?)));
    if let Some((reference, digest)) = pinned {
        return Some(Base::Raw { reference, digest });
    }
    let names = catalog.images.keys().map(String::as_str);
    let help = match nearest(value, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "use one of {}, or an image reference pinned by digest (`NAME@sha256:…`)",
            names.collect::<Vec<_>>().join(", ")
        ),
    };
    findings.push(
        Diagnostic::error(codes::UNKNOWN_BASE, format!("unknown base `{value}`"))
            .at(*span)
            .help(help),
    );
    None
}

fn sms(stack: &Stack, catalog: &Catalog, findings: &mut Vec<Diagnostic>) -> Vec<Sm> {
    let mut sms = Vec::new();
    for At { value, span } in &stack.gpus {
        let Some(sm) = catalog.sm(value) else {
            let names = catalog.gpus.iter().map(|g| g.name.as_str());
            let help = match nearest(value, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "use a name from catalog/gpus.yaml, or an SM such as `sm_90`".to_owned(),
            };
            findings.push(
                Diagnostic::error(codes::UNKNOWN_GPU, format!("unknown GPU `{value}`"))
                    .at(*span)
                    .help(help),
            );
            continue;
        };
        if let Some(gpu) = catalog.gpu(value)
            && !gpu.platforms.contains(&stack.platform.value)
        {
            findings.push(
                Diagnostic::error(
                    codes::GPU_PLATFORM,
                    format!("`{value}` does not exist on {}", stack.platform.value),
                )
                .at(*span)
                .help(format!(
                    "set `target.platform` to {}",
                    list(gpu.platforms.iter())
                )),
            );
        }
        if !sms.contains(&sm) {
            sms.push(sm);
        }
    }
    sms.sort();
    sms
}

fn base_rules(
    stack: &Stack,
    image: &Image,
    catalog: &Catalog,
    sms: &[Sm],
    findings: &mut Vec<Diagnostic>,
) {
    if !image.python.contains(&stack.python.value) {
        findings.push(
            Diagnostic::error(
                codes::BASE_WITHOUT_PYTHON,
                format!(
                    "base `{}` has no Python {}",
                    image.image, stack.python.value
                ),
            )
            .at(stack.python.span)
            .help(format!("it has {}", list(image.python.iter()))),
        );
    }
    if !image.platforms.contains(&stack.platform.value) {
        findings.push(
            Diagnostic::error(
                codes::BASE_PLATFORM,
                format!(
                    "base `{}` does not exist for {}",
                    image.image, stack.platform.value
                ),
            )
            .at(stack.base.span)
            .help(format!("it exists for {}", list(image.platforms.iter()))),
        );
    }
    let Some(toolkit) = image.cuda.as_deref().and_then(|c| catalog.toolkit(c)) else {
        return;
    };
    for sm in sms.iter().filter(|sm| !toolkit.sms.contains(&sm.base())) {
        let facts = catalog.sms.iter().find(|f| f.sm == sm.base());
        let range = facts.map_or_else(String::new, |f| match &f.cuda.last {
            Some(last) => format!("sm_{} needs CUDA {} to {last}", sm.digits(), f.cuda.first),
            None => format!("sm_{} needs CUDA {} or newer", sm.digits(), f.cuda.first),
        });
        findings.push(
            Diagnostic::error(
                codes::SM_NOT_IN_TOOLKIT,
                format!(
                    "CUDA {} of base `{}` cannot make code for sm_{}",
                    toolkit.version,
                    image.image,
                    sm.digits()
                ),
            )
            .at(stack.base.span)
            .help(range),
        );
    }
}

fn library_rules(
    stack: &Stack,
    library: &Library,
    recipe: Option<&Recipe>,
    base: Option<&Base<'_>>,
    sms: &[Sm],
    findings: &mut Vec<Diagnostic>,
) {
    let name = &library.name.value;
    let own_source = library.git.is_some();
    let buildable = recipe.is_some_and(|r| r.build.is_some());
    if library.from == From::Source && !buildable {
        findings.push(
            Diagnostic::error(
                codes::NO_SOURCE_RECIPE,
                format!("no recipe builds `{name}` from source"),
            )
            .at(library.name.span)
            .help(if own_source {
                "`git` needs a recipe too: add one under `.stackforge/libraries/`"
            } else {
                "use `from: wheel`, or add a recipe under `.stackforge/libraries/`"
            }),
        );
    }
    let Some(recipe) = recipe else { return };
    if library.from == From::Wheel && recipe.wheels == WheelSource::None {
        findings.push(
            Diagnostic::error(codes::SOURCE_ONLY, format!("`{name}` has no wheels"))
                .at(library.name.span)
                .help("use `from: source` or `from: auto`"),
        );
    }
    let exact = |w: &Wanted| match w {
        Wanted::Specifier(s) => s
            .iter()
            .find(|s| *s.operator() == pep440_rs::Operator::Equal)
            .map(|s| s.version().clone()),
        Wanted::Auto => None,
    };
    let version = exact(&library.version);
    let torch = stack.library("torch").and_then(|t| exact(&t.version));
    let cuda = base
        .and_then(Base::image)
        .and_then(|i| i.cuda.as_deref())
        .and_then(|c| Version::from_str(c).ok());
    let python = Version::from_str(&stack.python.value.to_string()).ok();
    let platform = stack.platform.value.to_string();
    let facts = Facts {
        torch: torch.as_ref(),
        cuda: cuda.as_ref(),
        version: version.as_ref(),
        python: python.as_ref(),
        platform: Some(&platform),
        from: None,
        sms,
    };
    for refusal in recipe.refusals.iter().filter(|r| r.when.hold(&facts)) {
        findings.push(
            Diagnostic::error(
                codes::LIBRARY_REFUSED,
                format!("`{name}`: {}", refusal.reason),
            )
            .at(library.name.span)
            .help(refusal.fix.clone()),
        );
    }
}

fn list<T: std::fmt::Display>(items: impl Iterator<Item = T>) -> String {
    items
        .map(|i| format!("`{i}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
