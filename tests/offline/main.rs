//! What needs neither an engine nor the network: `make check` runs it.

#[path = "../support/mod.rs"]
mod support;

mod coherent;
mod diagnose;
mod diagnostics;
mod doctor;
mod errors;
mod help;
mod incompatibilities;
mod matrix;

mod one_finding;
mod output;
mod rules;
mod schema;
mod stacks;
