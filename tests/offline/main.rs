//! What needs no engine, no network and no other program: `make check` runs it.

#[path = "../support/mod.rs"]
mod support;

mod coherent;
mod crash;
mod deploy;
mod diagnose;
mod diagnostics;
mod docs;
mod doctor;
mod documents;
mod emit;
mod errors;
mod fetch;
mod fixes;
mod from;
mod hostile;
mod incompatibilities;
mod limits;
mod locks;
mod matrix;
mod one_finding;
mod output;
mod package;
mod proposals;
mod rules;
mod run;
mod sboms;
mod schema;
mod stacks;
mod stock;
mod store;
