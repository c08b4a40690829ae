//! What a stack file says, and what is known: the part of stackforge that needs neither network nor engine.
//!
//! In: a stack's YAML, the catalog, a lock. Out: variants, targets, findings. The order of the modules is the
//! way of the data: [`diag`] is below all of them, and nothing here opens a connection or runs a program.

pub mod config;
pub mod diag;
pub mod diagnose;
mod embedded;
pub mod fix;
pub mod labels;
pub mod limits;
pub mod lock;
pub mod matrix;
pub mod rules;
mod span;
pub mod spec;
pub mod target;

/// The catalog's types, and the catalog, the templates and the keyrings inside this program.
pub mod catalog {
    pub use crate::embedded::{keyring, load, template, templates_in};
    pub use stackforge_catalog::*;
}
