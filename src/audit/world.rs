//! What an audit looks at: the objects of a tree, the system that they run in, and the catalog.
//!
//! In: a [`Tree`], its [`Inventory`], a [`System`], the catalog. Out: [`World`], which finds objects by path, by
//! SONAME, and along search paths.

use super::inventory::Inventory;
use super::object::Item;
use super::packages::{below, package};
use super::system::System;
use super::tree::{Tree, TreeKind, normal, split};
use stackforge_binary::elf::{Machine, Version, newest};
use stackforge_stack::catalog::{Catalog, Loader};
use std::collections::BTreeMap;

/// The objects, their system, the catalog.
pub struct World<'a> {
    pub catalog: &'a Catalog,
    pub tree: &'a Tree,
    pub items: &'a [Item],
    pub system: &'a System,
    /// Whether the tree is a complete environment, so that a library missing here is missing at run time.
    pub environment: bool,
    /// Indices of objects, by path in the system.
    by_path: BTreeMap<String, usize>,
    by_soname: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> World<'a> {
    pub fn new(
        catalog: &'a Catalog,
        tree: &'a Tree,
        inventory: &'a Inventory,
        system: &'a System,
    ) -> Self {
        let items = &inventory.items;
        let mut by_soname: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            by_soname.entry(item.soname()).or_default().push(index);
        }
        Self {
            catalog,
            tree,
            items,
            system,
            environment: system.is_known() || is_environment(tree),
            by_path: (items.iter().enumerate())
                .map(|(i, item)| (normal(&format!("{}/{}", system.mount, item.path)), i))
                .collect(),
            by_soname,
        }
    }

    pub fn loader(&self) -> &Loader {
        &self.catalog.loader
    }

    /// Returns the objects with this SONAME.
    pub fn named(&self, soname: &str) -> &[usize] {
        self.by_soname.get(soname).map_or(&[], Vec::as_slice)
    }

    /// Returns an object's directory in the system.
    pub(super) fn origin(&self, item: &Item) -> String {
        split(&format!("{}/{}", self.system.mount, item.path))
            .0
            .to_owned()
    }

    /// Returns what is at an absolute path of the system, if it is for that machine.
    pub(super) fn at(&self, path: &str, machine: Machine) -> Option<Found> {
        let mount = &self.system.mount;
        let inside = path.strip_prefix(mount).filter(|p| p.starts_with('/'));
        let real = inside.and_then(|p| Some(format!("{mount}/{}", self.tree.real(p)?)));
        let index = self.by_path.get(real.as_deref().unwrap_or(path)).copied();
        if let Some(index) = index.filter(|i| self.items[*i].object.machine == machine) {
            return Some(Found::Object(index));
        }
        self.system
            .has(path, machine)
            .then(|| Found::System(path.to_owned()))
    }

    /// Whether an absolute path is a directory in which the tree has objects.
    pub fn has_directory(&self, path: &str) -> bool {
        let path = format!("{}/", normal(path).trim_end_matches('/'));
        let next = self.by_path.range(path.clone()..).next();
        next.is_some_and(|(p, _)| p.starts_with(&path))
    }

    pub(super) fn search(
        &self,
        directories: impl Iterator<Item = String>,
        name: &str,
        machine: Machine,
    ) -> Option<Found> {
        let directories: Vec<String> = directories.collect();
        // Also look in the folders for newer CPUs: a library may exist only there.
        let variants = self.loader().directories.variants(machine.name());
        std::iter::once("").chain(variants).find_map(|variant| {
            let mut paths = (directories.iter()).map(|d| normal(&format!("{d}/{variant}/{name}")));
            paths.find_map(|path| self.at(&path, machine))
        })
    }

    /// Returns the directories that are searched for every object of a machine.
    pub fn directories(&self, machine: Machine) -> Vec<String> {
        let configured = self.system.configured.iter().cloned();
        configured
            .chain(self.loader().directories.for_machine(machine.name()))
            .collect()
    }

    /// Returns the newest symbol version with this prefix that the base's library defines.
    pub fn defines(&self, name: &str, prefix: &str, machine: Machine) -> Option<Version> {
        if !self.system.is_known() {
            return None;
        }
        match self.search(self.directories(machine).into_iter(), name, machine)? {
            Found::Object(index) => newest(&self.items[index].object.defines, prefix),
            Found::System(path) => newest(&self.system.defines(&path), prefix),
        }
    }

    /// Returns an object with this SONAME that is on no search path, preferably of the same package.
    pub(super) fn unsearched(&self, item: &Item, soname: &str) -> Option<usize> {
        let same = |i: &usize| self.items[*i].object.machine == item.object.machine;
        let named = || self.named(soname).iter().copied().filter(same);
        let own = named().find(|i| package(&self.items[*i].path) == package(&item.path));
        own.or_else(|| named().next())
    }

    /// Whether a package also works if this object cannot be loaded.
    pub fn is_optional(&self, path: &str) -> bool {
        self.loader().plugins.has(below(path))
    }
}

/// What is at a path.
pub(super) enum Found {
    Object(usize),
    System(String),
}

/// Whether a directory is one that Python imports from.
fn is_environment(tree: &Tree) -> bool {
    let torch = |path: &str| {
        let top = path.split('/').next().unwrap_or("");
        top.starts_with("torch-") && top.ends_with(".dist-info")
    };
    let inside = |path: &str| path.contains("site-packages/") || path.contains("dist-packages/");
    let named = ["site-packages", "dist-packages"]
        .iter()
        .any(|n| tree.name.trim_end_matches('/').ends_with(n));
    tree.kind == TreeKind::Directory && (named || tree.paths.iter().any(|p| torch(p) || inside(p)))
}
