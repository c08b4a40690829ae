//! The bill of materials of an image: every wheel, package, source and base, with digest and licence.
//!
//! In: a plan, and the store for facts that only the files contain. Out: a [`Bill`], from which SBOMs and
//! provenance are written. It holds what the lock names, and nothing of clock or host. A licence is read
//! from a file in the store, and unknown if the store lacks the file.

use super::licence::{self, Licence};
use super::purl;
use stackforge_image::store::Store;
use stackforge_plan::{Compile, Plan};
use stackforge_stack::catalog::Os;
use stackforge_stack::lock::{OsPackageLock, PinnedImage, PythonFile, SourceLock};
use stackforge_types::Digest;
use std::collections::BTreeSet;

/// The relation of an item to the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The image's base.
    Base,
    /// Part of the image.
    Content,
    /// Source of something in the image that was compiled.
    Source,
    /// Used in the build, and not part of the image.
    Tool,
}

#[derive(Debug, Clone)]
pub struct Item {
    /// Unique in the bill: letters, digits, `.` and `-`.
    pub id: String,
    pub name: String,
    pub version: String,
    pub role: Role,
    pub file: Option<String>,
    pub sha256: Option<Digest>,
    pub purl: String,
    /// URL and revision of a git source.
    pub git: Option<(String, String)>,
    pub licence: Licence,
    /// Names of the distributions that require it.
    pub via: Vec<String>,
    /// ID of the source that it was compiled from.
    pub made_from: Option<String>,
}

/// The image that the evidence is about.
#[derive(Debug, Clone)]
pub struct Subject {
    /// `HOST/REPOSITORY`.
    pub name: String,
    pub digest: Digest,
}

pub struct Bill<'a> {
    pub plan: &'a Plan,
    pub items: Vec<Item>,
    /// Time of the documents, in seconds since 1970.
    pub epoch: u32,
    /// `None` before the image exists.
    pub image: Option<Subject>,
}

impl<'a> Bill<'a> {
    pub fn of(plan: &'a Plan, os: Option<&Os>, store: &Store, epoch: u32) -> Self {
        let base = &plan.base().lock;
        let mut bill = Collector {
            store,
            os,
            items: Vec::new(),
            seen: BTreeSet::new(),
        };
        if let Some(base) = &base.runtime {
            bill.base(base, Role::Base);
        }
        bill.packages(&base.packages, Role::Content);
        bill.packages(plan.packages(), Role::Content);
        bill.files(plan.wheels(), Role::Content);
        for compile in plan.compiles() {
            bill.compiled(plan, compile);
        }
        if plan.compiles().next().is_some() {
            if let Some(devel) = &base.devel {
                bill.base(devel, Role::Tool);
            }
            if let Some(tools) = plan.tools() {
                bill.packages(&tools.packages, Role::Tool);
                bill.files(&tools.installers, Role::Tool);
            }
            for compile in plan.compiles() {
                bill.files(&compile.requires, Role::Tool);
            }
        }
        Self {
            plan,
            items: bill.items,
            epoch,
            image: None,
        }
    }

    /// Returns how many items in the image have no licence that could be read.
    pub fn without_licence(&self) -> usize {
        let content = self.items.iter().filter(|i| i.role == Role::Content);
        content.filter(|i| i.licence == Licence::Unknown).count()
    }

    /// Returns the item of a distribution.
    pub fn python(&self, name: &str) -> Option<&Item> {
        let start = "pkg:pypi/";
        let mut named = self.items.iter().filter(|i| i.name == name);
        named.find(|i| i.role == Role::Content && i.purl.starts_with(start))
    }
}

struct Collector<'a> {
    store: &'a Store,
    os: Option<&'a Os>,
    items: Vec<Item>,
    seen: BTreeSet<String>,
}

impl Collector<'_> {
    /// Adds an item and returns its ID. An item that is already there keeps its first role.
    fn add(&mut self, mut item: Item) -> String {
        item.id = id(&item.purl);
        let id = item.id.clone();
        if self.seen.insert(id.clone()) {
            self.items.push(item);
        }
        id
    }

    fn base(&mut self, image: &PinnedImage, role: Role) {
        let digest = image.digest.as_ref();
        self.add(Item {
            name: image.reference.clone(),
            version: digest.map(Digest::to_string).unwrap_or_default(),
            role,
            sha256: digest.cloned(),
            purl: purl::image(&image.reference, digest),
            ..empty()
        });
    }

    fn packages(&mut self, packages: &[OsPackageLock], role: Role) {
        for package in packages {
            let path = package.sha256.as_ref().and_then(|d| self.store.blob(d));
            let file = package.path.as_deref().and_then(|p| p.rsplit('/').next());
            self.add(Item {
                name: package.name.clone(),
                version: package.version.clone().unwrap_or_default(),
                role,
                file: file.map(str::to_owned),
                sha256: package.sha256.clone(),
                purl: purl::deb(package, self.os),
                licence: path.map(|p| licence::of_deb(&p)).unwrap_or_default(),
                ..empty()
            });
        }
    }

    fn files<'p>(&mut self, files: impl IntoIterator<Item = &'p PythonFile>, role: Role) {
        for file in files {
            let path = self.store.blob(&file.sha256);
            self.add(Item {
                name: file.name.clone(),
                version: file.version.clone(),
                role,
                file: Some(file.file.clone()),
                sha256: Some(file.sha256.clone()),
                purl: purl::pypi(&file.name, &file.version, Some(&file.file)),
                licence: path.map(|p| licence::of_wheel(&p)).unwrap_or_default(),
                via: file.via.clone(),
                ..empty()
            });
        }
    }

    /// Adds a source, and the wheel that was compiled from it if the store knows the wheel.
    fn compiled(&mut self, plan: &Plan, compile: &Compile) {
        let (name, version) = (&compile.library, compile.source_version());
        let source = Item {
            name: name.clone(),
            version: version.to_owned(),
            role: Role::Source,
            ..empty()
        };
        let source = match &compile.source {
            SourceLock::Sdist { file, sha256, .. } => Item {
                file: Some(file.clone()),
                sha256: Some(sha256.clone()),
                purl: purl::pypi(name, version, Some(file)),
                ..source
            },
            SourceLock::Git { url, revision } => Item {
                purl: purl::git(name, version, url, revision),
                git: Some((url.clone(), revision.clone())),
                ..source
            },
        };
        let made_from = self.add(source);
        for cloned in &compile.fetch {
            let own = cloned.folder.rsplit('/').next().unwrap_or(&cloned.folder);
            let (url, revision) = (&cloned.url, &cloned.revision);
            self.add(Item {
                name: own.to_owned(),
                version: revision.clone(),
                role: Role::Source,
                purl: purl::git(own, revision, url, revision),
                git: Some((url.clone(), revision.clone())),
                ..empty()
            });
        }
        let step = plan.compile(name);
        let action = step.and_then(|step| self.store.action(&step.key));
        let wheel = action.and_then(|a| a.outputs.get("wheel").cloned());
        let path = wheel.as_ref().and_then(|wheel| self.store.blob(wheel));
        let version = &compile.version;
        self.add(Item {
            name: name.clone(),
            version: version.clone(),
            role: Role::Content,
            sha256: wheel,
            purl: purl::pypi(name, version, None),
            licence: path.map(|p| licence::of_wheel(&p)).unwrap_or_default(),
            made_from: Some(made_from),
            ..empty()
        });
    }
}

fn empty() -> Item {
    Item {
        id: String::new(),
        name: String::new(),
        version: String::new(),
        role: Role::Content,
        file: None,
        sha256: None,
        purl: String::new(),
        git: None,
        licence: Licence::Unknown,
        via: Vec::new(),
        made_from: None,
    }
}

/// Replaces the characters of a purl that an SPDX identifier cannot have. The result is as unique as the purl.
fn id(purl: &str) -> String {
    let plain: String = purl
        .trim_start_matches("pkg:")
        .split('?')
        .next()
        .unwrap_or_default()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect();
    let digest = Digest::of(purl.as_bytes());
    format!("{plain}-{}", &digest.hex()[..8])
}
