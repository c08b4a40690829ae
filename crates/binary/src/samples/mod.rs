//! Small ELF objects and zip archives that are made byte by byte, so that a test can make each field
//! wrong on its own, and shared objects that the C compiler makes. They are compiled for tests only: in
//! this crate, and with the feature `samples` in crates that use it.

pub mod archive;
pub mod compiled;
pub mod object;
