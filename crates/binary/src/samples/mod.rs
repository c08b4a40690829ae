//! Small ELF objects and zip archives made byte by byte, so that a test can make each field wrong on
//! its own. Compiled for tests only: here, and with the feature `samples` in crates above.

pub mod archive;
pub mod object;
