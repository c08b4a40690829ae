//! Every object of a tree, read once, on all cores.
//!
//! In: a [`Tree`] with its [`Contents`]; of images, what [`super::image`] reads with [`read`]. Out:
//! [`Item`]s by path, and what could not be read. What is no ELF object is
//! passed over. Of symbols only those are kept that tie an extension to torch: names of what it
//! asks for, hashes of what is exported.

use super::code::Code;
use super::finding::Finding;
use super::torch::Ties;
use super::tree::{Contents, Tree, TreeError};
use crate::diag::{Diagnostic, codes};
use crate::elf::{self, ElfError, Kind, Machine, Object};
use crate::fatbin::{self, FatbinError};
use crate::source::{ReadError, Source, array};
use std::num::NonZero;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[derive(Debug)]
pub struct Item {
    /// In the tree.
    pub path: String,
    pub object: Object,
    pub code: Code,
    pub ties: Ties,
}

#[derive(Debug, Default)]
pub struct Inventory {
    /// By path.
    pub items: Vec<Item>,
    /// Path and reason.
    pub damaged: Vec<(String, String)>,
}

#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Open(#[from] TreeError),
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error(transparent)]
    Code(#[from] FatbinError),
}

impl Unreadable {
    /// Bytes that the source had not kept.
    pub fn absent(&self) -> Option<Range<u64>> {
        let read = match self {
            Self::Elf(ElfError {
                problem: elf::Problem::Read(e),
                ..
            }) => e,
            Self::Code(FatbinError {
                problem: fatbin::Problem::Read(e),
                ..
            }) => e,
            _ => return None,
        };
        match read {
            ReadError::Absent { offset, wanted } => Some(*offset..offset + wanted),
            _ => None,
        }
    }
}

impl Inventory {
    pub fn of(tree: &Tree, contents: &Contents) -> Self {
        let next = AtomicUsize::new(0);
        let found = Mutex::new(Self::default());
        let work = || {
            while let Some((index, path)) = {
                let index = next.fetch_add(1, Ordering::Relaxed);
                tree.paths.get(index).map(|p| (index, p))
            } {
                let source = contents.open(index);
                let read = source
                    .map_err(Unreadable::from)
                    .and_then(|mut s| read(path, &mut *s));
                // A worker that panicked would have stopped the scope; what it held is whole.
                let mut all = found.lock().unwrap_or_else(|e| e.into_inner());
                match read {
                    Ok(item) => all.items.extend(item),
                    Err(e) => all.damaged.push((path.clone(), e.to_string())),
                }
            }
        };
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..workers.min(tree.paths.len()) {
                scope.spawn(work);
            }
        });
        let mut found: Self = found.into_inner().unwrap_or_else(|e| e.into_inner());
        found.sort();
        found
    }

    pub fn sort(&mut self) {
        self.items.sort_by(|a, b| a.path.cmp(&b.path));
        self.damaged.sort();
    }

    pub fn findings(&self) -> Vec<Finding> {
        let tell = |(path, why): &(String, String)| {
            let message = format!("`{path}` cannot be read: {why}");
            Finding::new(path, Diagnostic::error(codes::OBJECT_DAMAGED, message))
        };
        self.damaged.iter().map(tell).collect()
    }
}

/// The object that a file is, if it is one that a loader or driver loads.
pub fn read(path: &str, source: &mut dyn Source) -> Result<Option<Item>, Unreadable> {
    if source.size() < 4 {
        return Ok(None);
    }
    match array::<4>(source, 0) {
        Ok(magic) if magic == elf::MAGIC => {}
        Ok(_) => return Ok(None),
        // A member whose very start does not inflate is damaged, whatever it was.
        Err(e) => {
            let problem = elf::Problem::Read(e);
            return Err(Unreadable::Elf(ElfError {
                object: path.to_owned(),
                offset: 0,
                problem,
            }));
        }
    }
    let object = match Object::read(path, source, &fatbin::SECTIONS) {
        Ok(object) => object,
        // Firmware, and programs of 32-bit systems.
        Err(e) if matches!(e.problem, elf::Problem::Class) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let loads = match object.machine {
        Machine::X86_64 | Machine::Aarch64 => {
            matches!(object.kind, Kind::Shared | Kind::Executable)
        }
        Machine::Cuda => true,
        Machine::Other(_) => false,
    };
    if !loads {
        return Ok(None);
    }
    let ties = Ties::read(&object, source)?;
    let code = Code::read(&object, source)?;
    Ok(Some(Item {
        path: path.to_owned(),
        object,
        code,
        ties,
    }))
}
