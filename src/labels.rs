//! What an image of stackforge says of itself: keys of its labels and annotations.
//!
//! A key never changes its meaning: images that are published stay, and older programs read newer ones.

/// What all of them begin with.
pub const PREFIX: &str = "io.stackforge.";

/// Name of the stack.
pub const STACK: &str = "io.stackforge.stack";
/// Name of the variant, where the stack has a matrix.
pub const VARIANT: &str = "io.stackforge.variant";
/// Key of the plan that made it; of a step, in the shared cache.
pub const KEY: &str = "io.stackforge.key";
/// Name of the base in the catalog, or the reference that the stack gave.
pub const BASE: &str = "io.stackforge.base";
/// `3.11`
pub const PYTHON: &str = "io.stackforge.python";
/// CUDA release, `13.0`.
pub const CUDA: &str = "io.stackforge.cuda";
/// Instruction set that it is tuned for.
pub const ISA: &str = "io.stackforge.isa";
/// SMs that its code runs on, separated by commas.
pub const SM: &str = "io.stackforge.sm";
/// SMs whose PTX every library has, which newer GPUs compile.
pub const PTX: &str = "io.stackforge.ptx";
/// SMs that are left in wheels of which device code was left out.
pub const PRUNED: &str = "io.stackforge.pruned";
/// Oldest driver that runs it.
pub const DRIVER: &str = "io.stackforge.driver";
/// Oldest driver that compiles its PTX.
pub const JIT_DRIVER: &str = "io.stackforge.driver.jit";
/// Jetson Linux release that it needs.
pub const L4T: &str = "io.stackforge.l4t";
/// Version of the rules that said where it runs.
pub const RULES: &str = "io.stackforge.rules";
/// What the audit counted.
pub const AUDIT: &str = "io.stackforge.audit";
/// On an index of one variant: the tag of the index that it belongs to.
pub const INDEX: &str = "io.stackforge.index";
/// Library whose compiled wheel it is, in the shared cache.
pub const LIBRARY: &str = "io.stackforge.library";
