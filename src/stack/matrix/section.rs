//! Groups variants that are locked together: those with one platform, base and Python.

use super::{Expansion, Variant};
use crate::spec::Stack;

/// A section of the lock as a stack: it has the GPUs of all variants that are locked in it, and no
/// instruction set.
#[derive(Debug, Clone)]
pub struct Section(Stack);

impl Section {
    /// Returns the only section of a file without a matrix.
    pub fn of(stack: &Stack) -> Self {
        Self(stack.clone())
    }

    pub fn stack(&self) -> &Stack {
        &self.0
    }
}

impl Variant {
    /// Whether both install the same files. SM and instruction set only change what is compiled from them.
    fn shares_files(&self, other: &Stack) -> bool {
        self.platform == other.platform.value
            && self.base == other.base.value
            && self.python == other.python.value
    }
}

impl Expansion {
    /// Returns the sections of the lock, in the order of the variants.
    pub fn sections(&self) -> Vec<Section> {
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
        sections.into_iter().map(Section).collect()
    }

    /// Returns the section that a variant is locked in.
    pub fn section_of(&self, variant: &Variant) -> Option<Section> {
        let sections = self.sections();
        sections
            .into_iter()
            .find(|s| variant.shares_files(s.stack()))
    }
}
