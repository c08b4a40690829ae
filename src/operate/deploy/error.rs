//! Why nothing is written that starts a service.

use stackforge_distribute::pull::PullError;
use stackforge_engine::EngineError;
use stackforge_stack::diag::{Code, Explained, codes};

#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Pull(#[from] PullError),
    /// `help` is the commands that push it.
    #[error("no digest is known of {}: {why}", list(names))]
    NotPushed {
        names: Vec<String>,
        why: &'static str,
        help: String,
    },
    /// `better` is the variant that serves the same GPUs. `None` if there are no GPUs.
    #[error("no node would start `{variant}`: {}", no_node(better.as_deref()))]
    NoNode {
        variant: String,
        better: Option<String>,
    },
    #[error("`{reference}` is not an image of this stack: {why}")]
    Foreign { reference: String, why: String },
    #[error("the stack says nothing that `{0}` starts")]
    NoCommand(String),
}

fn no_node(better: Option<&str>) -> String {
    match better {
        Some(better) => {
            format!("`{better}` serves the same GPUs, and nodes say no more of themselves")
        }
        None => "its labels name no GPU that the catalog knows".to_owned(),
    }
}

/// Names of which the message lists a few.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = (names.iter().take(SHOWN))
        .map(|name| format!("`{name}`"))
        .collect();
    let shown = shown.join(", ");
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

impl Explained for DeployError {
    fn code(&self) -> Code {
        match self {
            Self::Engine(e) => e.code(),
            Self::Pull(e) => e.code(),
            Self::NotPushed { .. } => codes::NOT_PUSHED,
            Self::NoNode { .. } => codes::NO_NODE,
            Self::Foreign { .. } => codes::FOREIGN_IMAGE,
            Self::NoCommand(_) => codes::NO_COMMAND,
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Engine(e) => Explained::help(e),
            Self::Pull(e) => e.help(),
            Self::NotPushed { help, .. } => help.clone(),
            Self::NoNode { better: None, .. } => {
                "`stackforge inspect IMAGE` shows the labels; `--gpus 0` asks for no GPU".to_owned()
            }
            Self::NoCommand(_) => {
                "set `image.cmd` or `image.entrypoint`, build and push".to_owned()
            }
            other => other.code().fix().to_owned(),
        }
    }
}
