//! Groups variants that are locked together: those with one platform, base and Python.

use super::{Expansion, Variant};
use crate::spec::Stack;

impl Variant {
    /// Whether both install the same files. SM and instruction set only change what is compiled from them.
    fn shares_files(&self, other: &Stack) -> bool {
        self.platform == other.platform.value
            && self.base == other.base.value
            && self.python == other.python.value
    }
}

impl Expansion {
    /// Returns a stack for each section of the lock, with the GPUs of all its variants, in the order of the
    /// variants.
    pub fn sections(&self) -> Vec<Stack> {
        let mut sections: Vec<Stack> = Vec::new();
        for variant in &self.variants {
            let Some(section) = sections.iter_mut().find(|s| variant.shares_files(s)) else {
                let mut section = variant.stack.clone();
                if section.variant.take().is_some() {
                    section.isa = None;
                }
                sections.push(section);
                continue;
            };
            for gpu in &variant.stack.gpus {
                if !section.gpus.iter().any(|g| g.value == gpu.value) {
                    section.gpus.push(gpu.clone());
                }
            }
        }
        sections
    }

    /// Returns the section that a variant is locked in.
    pub fn section_of(&self, variant: &Variant) -> Option<Stack> {
        let sections = self.sections();
        sections.into_iter().find(|s| variant.shares_files(s))
    }
}
