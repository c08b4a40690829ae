//! The keys of labels and annotations of stackforge's images.
//!
//! A key never changes its meaning: published images stay, and older programs read newer images.

/// Prefix of all keys.
pub const PREFIX: &str = "io.stackforge.";

/// Name of the stack.
pub const STACK: &str = "io.stackforge.stack";
/// Name of the variant, if the stack has a matrix.
pub const VARIANT: &str = "io.stackforge.variant";
/// Key of the plan that made the image; in the shared cache, key of the step.
pub const KEY: &str = "io.stackforge.key";
/// Name of the base in the catalog, or the reference that the stack gave.
pub const BASE: &str = "io.stackforge.base";
/// `3.11`
pub const PYTHON: &str = "io.stackforge.python";
/// CUDA release, `13.0`.
pub const CUDA: &str = "io.stackforge.cuda";
/// Instruction set that libraries are compiled for.
pub const ISA: &str = "io.stackforge.isa";
/// Versions of compiled libraries of which a part was left out, `flash-attn 2.8.3+nobackward`, separated by commas.
pub const OPTIONS: &str = "io.stackforge.options";
/// SMs that its code runs on, separated by commas.
pub const SM: &str = "io.stackforge.sm";
/// SMs for which every library has PTX; drivers of newer GPUs compile it.
pub const PTX: &str = "io.stackforge.ptx";
/// SMs whose device code was kept when wheels were pruned.
pub const PRUNED: &str = "io.stackforge.pruned";
/// `none` if the image should have byte code of its Python files, and nothing could make it where it was built.
pub const BYTECODE: &str = "io.stackforge.bytecode";
/// Oldest driver that runs the image.
pub const DRIVER: &str = "io.stackforge.driver";
/// Oldest driver that compiles the image's PTX.
pub const JIT_DRIVER: &str = "io.stackforge.driver.jit";
/// L4T releases that the image needs.
pub const L4T: &str = "io.stackforge.l4t";
/// Version of stackforge whose rules checked the image.
pub const RULES: &str = "io.stackforge.rules";
/// Number of the audit's findings.
pub const AUDIT: &str = "io.stackforge.audit";
/// On an index of one variant: the tag of the index that it belongs to.
pub const INDEX: &str = "io.stackforge.index";
/// Library of the compiled wheel, in the shared cache.
pub const LIBRARY: &str = "io.stackforge.library";
