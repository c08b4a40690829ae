//! Readers of bytes that nobody vouches for: ELF objects, CUDA fat binaries, zip archives, tar streams.

pub mod elf;
pub mod fatbin;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod source;
pub mod tar;
pub mod zip;
