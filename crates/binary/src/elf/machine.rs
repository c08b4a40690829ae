//! The machine that an object is for, and the kind of object that it is.

/// The machine that an object's code runs on (`e_machine`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
    /// An NVIDIA GPU: the object is a cubin.
    Cuda,
    /// Another machine, by its number in the ELF registry.
    Other(u16),
}

impl Machine {
    /// Returns the machine's name as in `x86_64-linux-gnu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Cuda => "cuda",
            Self::Other(_) => "other",
        }
    }

    /// Returns the machine's `e_machine`.
    pub fn number(self) -> u16 {
        match self {
            Self::X86_64 => object::elf::EM_X86_64,
            Self::Aarch64 => object::elf::EM_AARCH64,
            Self::Cuda => object::elf::EM_CUDA,
            Self::Other(number) => number,
        }
    }
}

/// The type of an object (`e_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectType {
    /// An input of the linker.
    Relocatable,
    /// A program for a fixed address.
    Executable,
    /// A shared library, or a program for any address.
    Shared,
    /// Another `e_type`.
    Other(u16),
}
