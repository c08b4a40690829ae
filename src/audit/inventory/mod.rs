//! Reads every object of a tree once, on all cores.
//!
//! In: a [`Tree`] with its [`Contents`]; for images [`super::image`] calls [`read`]. Out: [`Item`]s by path, and
//! the files that could not be read. Files that are not ELF objects are skipped.

use super::finding::Finding;
use super::object::{Item, Unreadable, read};
use super::packed::{Packed, is_wheel};
use super::stream::{KeepRanges, Passed, pass};
use super::tree::{Contents, Tree, TreeError};
use stackforge_binary::elf::{self, ElfError};
use stackforge_binary::source::{ReadError, array};
use stackforge_stack::diag::{Diagnostic, codes};
use std::cmp::Reverse;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Most parallel workers: each may keep 64 MiB of an object.
pub const MOST_WORKERS: usize = 8;

#[derive(Debug, Default)]
pub struct Inventory {
    /// Objects in the order of their paths.
    pub items: Vec<Item>,
    /// Damaged files: path and reason.
    pub damaged: Vec<(String, String)>,
    /// Objects of wheels that are files of the tree; their paths begin with the wheel's.
    pub packed: Packed,
}

impl Inventory {
    pub fn of(tree: &Tree, contents: &Contents) -> Self {
        // Largest file first: it may take as long as all others together.
        let mut order: Vec<usize> = (0..tree.paths.len()).collect();
        order.sort_by_key(|&file| Reverse(contents.work(file)));
        let next = AtomicUsize::new(0);
        let found = Mutex::new(Self::default());
        let work = || {
            while let Some(&file) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let path = &tree.paths[file];
                let probed = look(path, file, contents);
                // A panicking worker would have ended the scope, so the data is complete.
                let mut all = found.lock().unwrap_or_else(|e| e.into_inner());
                match probed {
                    Ok(ProbeResult::Other) => {}
                    Ok(ProbeResult::Object(item)) => all.items.push(*item),
                    Ok(ProbeResult::Wheel(packed)) => all.add_packed(packed.at(path)),
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

    /// Reports damaged objects. In a wheel that is not installed, damage is only a warning.
    pub fn findings(&self) -> Vec<Finding> {
        type MakeDiagnostic = fn(stackforge_stack::diag::Code, String) -> Diagnostic;
        let finding = |diagnostic: MakeDiagnostic, (path, why): &(String, String)| {
            let message = format!("`{path}` cannot be read: {why}");
            Finding::new(path, diagnostic(codes::OBJECT_DAMAGED, message))
        };
        let installed = self.damaged.iter().map(|d| finding(Diagnostic::error, d));
        let packed = self.packed.damaged.iter();
        installed
            .chain(packed.map(|d| finding(Diagnostic::warning, d)))
            .collect()
    }
}

enum ProbeResult {
    Other,
    Object(Box<Item>),
    /// A wheel that is a file of the tree, not the target itself.
    Wheel(Packed),
}

impl From<Option<Item>> for ProbeResult {
    fn from(item: Option<Item>) -> Self {
        item.map_or(Self::Other, |item| Self::Object(Box::new(item)))
    }
}

/// Reads one file. Compressed content is inflated once, as a stream. An object with an unusual layout or with
/// damage is read again with random access, which reports the exact damage.
fn look(path: &str, file: usize, contents: &Contents) -> Result<ProbeResult, Unreadable> {
    if let Some(disk) = contents.on_disk(file).filter(|_| is_wheel(path)) {
        let packed = Packed::read(path, || std::fs::File::open(disk));
        return Ok(ProbeResult::Wheel(packed.map_err(|source| {
            TreeError::Read {
                path: disk.to_owned(),
                source,
            }
        })?));
    }
    let mut whole = true;
    if let Some(mut content) = contents.once(file)? {
        let size = content.size();
        match pass(path, size, &mut content, KeepRanges::default()) {
            Ok(Passed::Other) => return Ok(ProbeResult::Other),
            Ok(Passed::Object(item)) => return Ok(ProbeResult::Object(item)),
            Ok(Passed::Again(_) | Passed::Damaged(_)) => {}
            Err(_) => whole = false,
        }
    }
    let mut source = contents.open(file)?;
    let item = read(path, &mut *source)?;
    if !whole {
        // The damage is in a part that was not read. Reading the last byte forces the whole check.
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

#[cfg(test)]
mod tests;
