//! How torch, and what its indexes have for each CUDA, comes into a stack.

use super::Question;
use super::base::{label, pinned, pypi_cuda};
use crate::convert::{Item, Known, TorchIndex};
use pep440_rs::Version;
use stackforge_stack::spec::Platform;

/// How torch and what its indexes have for each CUDA comes.
pub(super) struct Torch {
    /// torch's index of the file.
    pub index: Option<(String, TorchIndex)>,
    /// Whether PyPI's wheel of the torch that is wanted is for the CUDA that is wanted.
    pub of_pypi: bool,
}

impl Torch {
    pub fn of(question: &Question<'_>, platform: Platform) -> Self {
        let (found, known) = (question.found, question.known);
        let of_libraries = found.libraries.iter().filter_map(|item| match item {
            Item::Take(asked) => asked.index.as_deref(),
            Item::Note(_) => None,
        });
        let of_file = found.indexes.iter().filter_map(|item| match item {
            Item::Take(index) => Some(index.value.as_str()),
            Item::Note(_) => None,
        });
        let mut all = of_file.chain(of_libraries).filter_map(|url| {
            let index = known.torch_index(url)?;
            Some((url.to_owned(), index))
        });
        let index = all.find(|(_, index)| !index.label.is_empty());
        let torch = pinned(found, "torch");
        let local = torch.as_ref().and_then(|v| local_cuda(v, known));
        let wanted = local.or_else(|| index.as_ref().and_then(|i| i.1.cuda.clone()));
        let own = torch.and_then(|v| {
            let public = Version::new(v.release().iter().copied());
            pypi_cuda(question.catalog, "torch", &public, platform)
        });
        Self {
            of_pypi: wanted.is_some() && wanted == own,
            index,
        }
    }
}

/// Returns the CUDA of a version's local label: `12.8` of `2.9.1+cu128`.
fn local_cuda(version: &Version, known: &Known) -> Option<String> {
    known.cuda_of_label(&label(version)?)
}
