//! stackforge: CUDA machine-learning stacks that work, as container images, from one YAML file.

pub mod audit;
pub mod build;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod device;
pub mod diag;
pub mod diagnose;
pub mod doctor;
pub mod emit;
pub mod evidence;
pub mod labels;
pub mod lock;
pub mod matrix;
pub mod plan;
pub mod prune;
pub mod publish;
pub mod pull;
pub mod render;
pub mod resolve;
pub mod rules;
pub mod spec;
pub mod starter;
pub mod target;
pub mod update;
pub mod validate;
