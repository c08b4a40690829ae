//! The messages between the caller and the re-executed process, over one socket.
//!
//! A request is two lengths of eight bytes each, little endian, then JSON, then the program's standard
//! input. Replies are JSON, one value per line. If the caller closes its end, everything is stopped.

use std::io::{self, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::probe::Tried;
use super::{Outcome, Sandbox, text};

/// First argument of the re-executed process.
pub(crate) const NAME: &str = "stackforge-sandbox";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    Run(Box<Sandbox>),
    Probe,
    /// Removes a directory, with the IDs that a run has.
    Remove(#[serde(with = "text::one")] PathBuf),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    Ended(Outcome),
    Failed(Fault),
    Tried(Tried),
    Removed,
}

/// A step that failed, and its error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub stage: Stage,
    pub doing: String,
    pub errno: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    Namespaces,
    Overlay,
    Program,
    Setup,
}

impl Fault {
    pub(crate) fn new(stage: Stage, doing: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Fault {
            stage,
            doing: doing.into(),
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// Returns a function for `map_err`.
    pub(crate) fn at<E: Into<io::Error>>(
        stage: Stage,
        doing: impl Into<String>,
    ) -> impl FnOnce(E) -> Fault {
        let doing = doing.into();
        move |e| Fault::new(stage, doing, e)
    }

    /// Returns a function for `map_err`, for errors while the sandbox is being set up.
    pub(crate) fn setup<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Fault {
        Fault::at(Stage::Setup, doing)
    }
}

pub(crate) fn request(task: &Task, stdin: &[u8]) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(task)?;
    let mut out = Vec::with_capacity(16 + json.len() + stdin.len());
    out.extend((json.len() as u64).to_le_bytes());
    out.extend((stdin.len() as u64).to_le_bytes());
    out.extend(json);
    out.extend(stdin);
    Ok(out)
}

pub(crate) fn read_request(from: &mut impl Read) -> io::Result<(Task, Vec<u8>)> {
    let mut length = || {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)
            .map(|()| u64::from_le_bytes(bytes))
    };
    let (json, stdin) = (length()?, length()?);
    let mut text = Vec::new();
    from.by_ref().take(json).read_to_end(&mut text)?;
    let mut input = Vec::new();
    from.take(stdin).read_to_end(&mut input)?;
    if input.len() as u64 != stdin {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((serde_json::from_slice(&text)?, input))
}
