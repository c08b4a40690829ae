//! stackforge: CUDA machine-learning stacks that work, as container images, from one YAML file.
pub mod engine;
