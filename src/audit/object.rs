//! One object of a tree: what is read of it.
//!
//! In: a file. Out: an [`Item`], if a loader or driver would load the file. Only the symbols that tie an extension
//! to torch are kept: names of those that it needs, hashes of those that it exports.

use super::code::Code;
use super::ties::Ties;
use super::tree::{TreeError, split};
use stackforge_binary::elf::{self, ElfError, Machine, Object, ObjectType};
use stackforge_binary::fatbin::{self, FatbinError};
use stackforge_binary::source::{ReadError, Source, array};
use std::ops::Range;

/// An object of the tree.
#[derive(Debug)]
pub struct Item {
    /// Path of the object in the tree.
    pub path: String,
    pub object: Object,
    pub code: Code,
    pub ties: Ties,
}

impl Item {
    /// Returns the name by which NEEDED entries refer to the object.
    pub fn soname(&self) -> &str {
        let own = self.object.soname.as_deref();
        own.unwrap_or_else(|| split(&self.path).1)
    }
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
    /// Returns the byte range that the source had not kept, if that was the error.
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

/// Reads a file as an object. `None` if no loader or driver would load it.
pub fn read(path: &str, source: &mut dyn Source) -> Result<Option<Item>, Unreadable> {
    if source.size() < 4 {
        return Ok(None);
    }
    match array::<4>(source, 0) {
        Ok(magic) if magic == elf::MAGIC => {}
        Ok(_) => return Ok(None),
        // A member that cannot be inflated from its start is damaged, whatever its type.
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
        // Skip other ELF files: firmware, and programs of 32-bit systems.
        Err(e) if matches!(e.problem, elf::Problem::Class) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let loads = match object.machine {
        Machine::X86_64 | Machine::Aarch64 => {
            matches!(object.kind, ObjectType::Shared | ObjectType::Executable)
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
