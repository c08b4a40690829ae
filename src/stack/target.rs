//! A stack whose names were looked up: base, SMs, recipes.
//!
//! In: a [`Stack`] and the [`Catalog`]. Out: a [`Target`], or all unknown names. Whether the stack can work
//! is decided by `rules`.

use crate::catalog::{Catalog, Image, Recipe};
use crate::diag::{Diagnostic, Report, codes};
use crate::spec::{At, Sm, Stack};
use stackforge_types::Digest;
use std::collections::BTreeMap;

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
    /// A base in images/.
    Known(&'a Image),
    /// The stack's own reference, with a digest.
    Raw { reference: String, digest: Digest },
}

impl<'a> Base<'a> {
    pub fn image(&self) -> Option<&'a Image> {
        match self {
            Base::Known(image) => Some(image),
            Base::Raw { .. } => None,
        }
    }
}

/// glibc 2's minor version if the base's is not known: that of the oldest system for which current wheels
/// are made (manylinux_2_28).
const GLIBC: u16 = 28;

impl<'a> Target<'a> {
    /// Returns the minor version of the base's glibc.
    pub fn glibc(&self) -> u16 {
        self.base.image().and_then(Image::glibc).unwrap_or(GLIBC)
    }

    /// Looks up every name of the stack.
    pub fn of(stack: &'a Stack, catalog: &'a Catalog) -> Result<Self, Report> {
        let mut findings = Vec::new();
        let base = base(stack, catalog, &mut findings);
        let sms = sms(stack, catalog, &mut findings);
        let mut recipes = BTreeMap::new();
        for library in &stack.libraries {
            let name = library.name.value.as_str();
            if let Some(recipe) = catalog.recipe(name) {
                recipes.insert(name, recipe);
            }
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
        .filter(|_| stackforge_types::reference::image_reference(value))
        .and_then(|(reference, digest)| Some((reference.to_owned(), digest.parse().ok()?)));
    if let Some((reference, digest)) = pinned {
        return Some(Base::Raw { reference, digest });
    }
    let names = catalog.images.keys().map(String::as_str);
    let unknown =
        Diagnostic::error(codes::UNKNOWN_BASE, format!("unknown base `{value}`")).at(*span);
    let helped = unknown.suggest(value, *span, names.clone()).or_help(|| {
        format!(
            "use one of {}, or an image reference pinned by digest (`NAME@sha256:…`)",
            names.collect::<Vec<_>>().join(", ")
        )
    });
    findings.push(helped);
    None
}

fn sms(stack: &Stack, catalog: &Catalog, findings: &mut Vec<Diagnostic>) -> Vec<Sm> {
    let mut sms = Vec::new();
    for At { value, span } in &stack.gpus {
        let Some(sm) = catalog.sm(value) else {
            let names = catalog.gpus.iter().map(|g| g.name.as_str());
            let unknown =
                Diagnostic::error(codes::UNKNOWN_GPU, format!("unknown GPU `{value}`")).at(*span);
            let other = "use a name from catalog/gpus.yaml, or an SM such as `sm_90`";
            let helped = unknown.suggest(value, *span, names);
            findings.push(helped.or_help(|| other.to_owned()));
            continue;
        };
        if !sms.contains(&sm) {
            sms.push(sm);
        }
    }
    sms.sort();
    sms
}
