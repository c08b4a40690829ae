//! stackforge: CUDA machine-learning stacks that work, as container images, from one YAML file.

pub mod build;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod debian;
pub mod device;
pub mod diag;
pub mod doctor;
pub mod emit;
pub mod engine;
pub mod lock;
pub mod matrix;
pub mod plan;
pub mod render;
pub mod resolve;
pub mod rules;
pub mod spec;
pub mod starter;
pub mod store;
pub mod target;
pub mod validate;
pub mod wheel;
