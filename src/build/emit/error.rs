//! Errors of writing a pipeline, and what to do about them.

use crate::render::RenderError;
use stackforge_stack::diag::{Code, Explained, codes};
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    #[error("`{path}` is not a path inside the repository")]
    OutsideRepository { path: String },
    #[error("{service} runs at most {limit} jobs of one matrix; {found} variants {of}")]
    TooMany {
        service: &'static str,
        limit: usize,
        found: usize,
        of: String,
    },
    #[error("`{reference}` is not a reference for an image")]
    Reference { reference: String },
    #[error("the stack has no lock, and a pod has nothing but what the ConfigMap holds")]
    NoLock,
    #[error("stack, lock and catalog take {found} KiB; a ConfigMap holds {limit} KiB")]
    TooLarge { found: usize, limit: usize },
    #[error("a pod has nothing but what the ConfigMap holds, and the stack needs {}", files.join(", "))]
    LocalFiles { files: Vec<String> },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Render(#[from] RenderError),
}

impl Explained for EmitError {
    fn code(&self) -> Code {
        match self {
            Self::OutsideRepository { .. }
            | Self::TooMany { .. }
            | Self::TooLarge { .. }
            | Self::LocalFiles { .. } => codes::BAD_VALUE,
            Self::Reference { .. } => codes::BAD_REFERENCE,
            Self::NoLock => codes::LOCK_MISSING,
            Self::Read { .. } => codes::UNREADABLE,
            Self::Render(e) => e.code(),
        }
    }

    fn help(&self) -> String {
        let help = match self {
            Self::OutsideRepository { .. } => {
                "run stackforge at the top of the repository and name the file from there"
            }
            Self::TooMany { .. } => {
                "split the stack in two, or emit `slurm` or `kubernetes`, which take more"
            }
            Self::Reference { .. } => {
                "`publish.repository` and `cache.registry` are repositories without tag or digest; a \
                 variant's name is its tag, which has at most 128 characters"
            }
            Self::NoLock => "run `stackforge lock` first",
            Self::TooLarge { .. } => "split the stack into several with fewer variants each",
            Self::LocalFiles { .. } => {
                "name an https address in place of a path, and write constraints into the stack"
            }
            Self::Read { .. } => "the files of the catalog's directory are UTF-8 text",
            Self::Render(e) => return e.help(),
        };
        help.to_owned()
    }
}
