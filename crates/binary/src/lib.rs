//! Readers of untrusted bytes: ELF objects, CUDA fat binaries, zip archives, tar streams, Python's byte
//! code.
//!
//! In: a [`source::Source`], which gives bytes at any offset, or a stream. Out: headers as plain types,
//! and content on request. What two programs could read differently is an error, memory does not grow
//! with what a header claims, and nothing is unpacked to disk or run. An error names what was read, the
//! offset in bytes and the problem. [`tar::Writer`] is the only writer: what it writes, [`tar::Reader`]
//! reads.

pub mod elf;
pub mod fatbin;
pub mod pyc;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod source;
pub mod tar;
pub mod zip;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
