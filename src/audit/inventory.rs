//! Every object of a tree, read once, on all cores.
//!
//! In: a [`Tree`]. Out: [`Item`]s by path, and what could not be read. What is no ELF object is
//! passed over. Of symbols only those are kept that tie an extension to torch: names of what it
//! asks for, hashes of what is exported.

use super::code::Code;
use super::finding::Finding;
use super::torch::Ties;
use super::tree::{File, Tree, TreeError};
use crate::diag::{Diagnostic, codes};
use crate::elf::{self, ElfError, Kind, Machine, Object};
use crate::fatbin::{self, FatbinError};
use crate::source::{Source, array};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[derive(Debug)]
pub struct Item {
    /// In the tree.
    pub path: String,
    /// Of its file in the tree.
    pub file: usize,
    pub object: Object,
    pub code: Code,
    pub ties: Ties,
}

#[derive(Debug, Default)]
pub struct Inventory {
    /// By path.
    pub items: Vec<Item>,
    /// Path and reason.
    damaged: Vec<(String, String)>,
}

#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    Open(#[from] TreeError),
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error(transparent)]
    Code(#[from] FatbinError),
}

impl Inventory {
    pub fn of(tree: &Tree) -> Self {
        let next = AtomicUsize::new(0);
        let found = Mutex::new(Self::default());
        let work = || {
            while let Some((index, file)) = {
                let index = next.fetch_add(1, Ordering::Relaxed);
                tree.files.get(index).map(|f| (index, f))
            } {
                let read = read(index, file);
                // A worker that panicked would have stopped the scope; what it held is whole.
                let mut all = found.lock().unwrap_or_else(|e| e.into_inner());
                match read {
                    Ok(item) => all.items.extend(item),
                    Err(e) => all.damaged.push((file.path.clone(), e.to_string())),
                }
            }
        };
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..workers.min(tree.files.len()) {
                scope.spawn(work);
            }
        });
        let mut found = found.into_inner().unwrap_or_else(|e| e.into_inner());
        found.items.sort_by(|a, b| a.path.cmp(&b.path));
        found.damaged.sort();
        found
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
fn read(index: usize, file: &File) -> Result<Option<Item>, Unreadable> {
    let mut source = file.open()?;
    if source.size() < 4 {
        return Ok(None);
    }
    match array::<4>(&mut source, 0) {
        Ok(magic) if magic == elf::MAGIC => {}
        Ok(_) => return Ok(None),
        // A member whose very start does not inflate is damaged, whatever it was.
        Err(e) => {
            let problem = elf::Problem::Read(e);
            return Err(Unreadable::Elf(ElfError {
                object: file.path.clone(),
                offset: 0,
                problem,
            }));
        }
    }
    let object = match Object::read(&file.path, &mut source, &fatbin::SECTIONS) {
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
    let ties = Ties::read(&object, &mut source)?;
    let code = Code::read(&object, &mut *source)?;
    Ok(Some(Item {
        path: file.path.clone(),
        file: index,
        object,
        code,
        ties,
    }))
}
