//! Text that is clear-signed with OpenPGP, read only if a trusted key signed it.
//!
//! The input is a keyring's bytes and a signed file's bytes; the output is exactly the text that a good signature
//! covers (RFC 9580 section 7: dash-escapes removed, trailing white space dropped, lines that end with CR and LF). This crate knows nothing of
//! archives. It must never return text that no key of the keyring has signed.

mod keyring;
mod text;

pub use keyring::{Keyring, KeyringError};
pub use text::{NotSigned, SignedText};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
