//! Every object of a tree, read once, on all cores.
//!
//! In: a [`Tree`] with its [`Contents`]; of images, what [`super::image`] reads with [`read`]. Out:
//! [`Item`]s by path, and what could not be read. What is no ELF object is
//! passed over. Of symbols only those are kept that tie an extension to torch: names of what it
//! asks for, hashes of what is exported.

use super::code::Code;
use super::finding::Finding;
use super::packed::{Packed, is_wheel};
use super::stream::{Passed, Wishes, pass};
use super::torch::Ties;
use super::tree::{Contents, Tree, TreeError};
use crate::diag::{Diagnostic, codes};
use stackforge_binary::elf::{self, ElfError, Kind, Machine, Object};
use stackforge_binary::fatbin::{self, FatbinError};
use stackforge_binary::source::{ReadError, Source, array};
use std::cmp::Reverse;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Objects that pass by at a time may have 64 MiB each.
pub const MOST_WORKERS: usize = 8;

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
    /// In wheels that are files of the tree, below the path of the wheel.
    pub packed: Packed,
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
        // The largest first: a wheel's largest object may take as long as all the others.
        let mut order: Vec<usize> = (0..tree.paths.len()).collect();
        order.sort_by_key(|&file| Reverse(contents.work(file)));
        let next = AtomicUsize::new(0);
        let found = Mutex::new(Self::default());
        let work = || {
            while let Some(&file) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let path = &tree.paths[file];
                let looked = look(path, file, contents);
                // A worker that panicked would have stopped the scope; what it held is whole.
                let mut all = found.lock().unwrap_or_else(|e| e.into_inner());
                match looked {
                    Ok(Looked::Other) => {}
                    Ok(Looked::Object(item)) => all.items.push(*item),
                    Ok(Looked::Wheel(packed)) => all.add_packed(packed.at(path)),
                    Err(e) => all.damaged.push((path.clone(), e.to_string())),
                }
            }
        };
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..workers.min(MOST_WORKERS).min(order.len()) {
                scope.spawn(work);
            }
        });
        let mut found: Self = found.into_inner().unwrap_or_else(|e| e.into_inner());
        found.sort();
        found
    }

    pub fn add_packed(&mut self, packed: Packed) {
        self.packed.items.extend(packed.items);
        self.packed.damaged.extend(packed.damaged);
    }

    pub fn sort(&mut self) {
        for items in [&mut self.items, &mut self.packed.items] {
            items.sort_by(|a, b| a.path.cmp(&b.path));
        }
        self.damaged.sort();
        self.packed.damaged.sort();
    }

    /// What is damaged; in a wheel that is not installed it harms nobody yet.
    pub fn findings(&self) -> Vec<Finding> {
        type Say = fn(crate::diag::Code, String) -> Diagnostic;
        let tell = |say: Say, (path, why): &(String, String)| {
            let message = format!("`{path}` cannot be read: {why}");
            Finding::new(path, say(codes::OBJECT_DAMAGED, message))
        };
        let installed = self.damaged.iter().map(|d| tell(Diagnostic::error, d));
        let packed = self.packed.damaged.iter();
        installed
            .chain(packed.map(|d| tell(Diagnostic::warning, d)))
            .collect()
    }
}

enum Looked {
    Other,
    Object(Box<Item>),
    /// A file of the tree, not the tree itself.
    Wheel(Packed),
}

impl From<Option<Item>> for Looked {
    fn from(item: Option<Item>) -> Self {
        item.map_or(Self::Other, |item| Self::Object(Box::new(item)))
    }
}

/// What is compressed is inflated once, as it passes. One that was laid out oddly, or is damaged, is
/// read again by going back and forth, which says exactly what is wrong with it.
fn look(path: &str, file: usize, contents: &Contents) -> Result<Looked, Unreadable> {
    if let Some(disk) = contents.on_disk(file).filter(|_| is_wheel(path)) {
        let packed = Packed::read(path, || std::fs::File::open(disk));
        return Ok(Looked::Wheel(packed.map_err(|source| TreeError::Read {
            path: disk.to_owned(),
            source,
        })?));
    }
    let mut whole = true;
    if let Some(mut content) = contents.once(file)? {
        let size = content.size();
        match pass(path, size, &mut content, Wishes::default()) {
            Ok(Passed::Other) => return Ok(Looked::Other),
            Ok(Passed::Object(item)) => return Ok(Looked::Object(item)),
            Ok(Passed::Again(_) | Passed::Damaged(_)) => {}
            Err(_) => whole = false,
        }
    }
    let mut source = contents.open(file)?;
    let item = read(path, &mut *source)?;
    if !whole {
        // The damage lies where nothing is read: the last byte is not given before all is checked.
        let last = source.size().saturating_sub(1);
        array::<1>(&mut *source, last).map_err(|e| unreadable(path, e))?;
    }
    Ok(item.into())
}

fn unreadable(path: &str, error: ReadError) -> Unreadable {
    Unreadable::Elf(ElfError {
        object: path.to_owned(),
        offset: error.offset(),
        problem: elf::Problem::Read(error),
    })
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

#[cfg(test)]
mod tests;
