//! Why a file cannot be read as what people have instead of a stack.

use super::files::MAX_BYTES;
use stackforge_stack::diag::{Code, Explained, codes};
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error("cannot read `{shown}`{}", named_by(.by))]
    Unreadable {
        shown: String,
        /// The line that names the file, as `FILE:LINE`.
        by: Option<String>,
        source: io::Error,
    },
    #[error("`{shown}` is a directory")]
    Directory { shown: String, inside: Vec<String> },
    #[error("`{shown}`{} is larger than {MAX_BYTES} bytes", named_by(.by))]
    TooLarge { shown: String, by: Option<String> },
    #[error("`{shown}`{} is not text: {what}", named_by(.by))]
    NotText {
        shown: String,
        by: Option<String>,
        what: String,
    },
    #[error("`{shown}` is included by itself, at {by}")]
    Cycle { shown: String, by: String },
    #[error("{by} includes more files than are read")]
    TooMany { by: String },
    #[error("`{shown}` is {what}")]
    OtherKind {
        shown: String,
        what: &'static str,
        help: &'static str,
    },
    #[error("{at}: {message}")]
    Invalid {
        at: String,
        message: String,
        what: &'static str,
    },
    #[error("`{shown}` names no library that a stack could install")]
    Nothing { shown: String },
}

fn named_by(by: &Option<String>) -> String {
    match by {
        Some(by) => format!(", which {by} names,"),
        None => String::new(),
    }
}

impl Explained for ConvertError {
    fn code(&self) -> Code {
        match self {
            Self::Unreadable { .. } | Self::Directory { .. } | Self::NotText { .. } => {
                codes::UNREADABLE
            }
            Self::TooLarge { .. } | Self::TooMany { .. } => codes::FOREIGN_TOO_LARGE,
            Self::Cycle { .. } | Self::Invalid { .. } => codes::FOREIGN_INVALID,
            Self::OtherKind { .. } => codes::FOREIGN_KIND,
            Self::Nothing { .. } => codes::NOTHING_TO_TAKE,
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Unreadable { by: None, .. } => {
                "name a requirements file, a pyproject.toml, a Dockerfile or a conda environment.yml"
                    .to_owned()
            }
            Self::Unreadable { by: Some(_), .. } => {
                "put the file there, or remove the line that names it".to_owned()
            }
            Self::Directory { inside, .. } if inside.is_empty() => {
                "name a file in it".to_owned()
            }
            Self::Directory { inside, .. } => format!("name a file in it: {}", inside.join(", ")),
            Self::TooLarge { .. } => {
                "check that the path names such a file; those that people write are far smaller"
                    .to_owned()
            }
            Self::NotText { .. } => "write the file as UTF-8".to_owned(),
            Self::Cycle { .. } => "remove one of the lines that include each other".to_owned(),
            Self::TooMany { .. } => "write the lines into fewer files".to_owned(),
            Self::OtherKind { help, .. } => (*help).to_owned(),
            Self::Invalid { what, .. } => format!("correct it as {what}"),
            Self::Nothing { .. } => {
                "add the libraries that the image needs to it, or start with `stackforge init --gpu NAME`"
                    .to_owned()
            }
        }
    }
}
