//! stackforge: CUDA machine-learning stacks that work, as container images, from one YAML file.

pub mod catalog;
pub mod debian;
pub mod diag;
pub mod lock;
pub mod plan;
pub mod render;
pub mod spec;
pub mod store;
pub mod target;
