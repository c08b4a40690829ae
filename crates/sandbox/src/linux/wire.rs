//! The messages between the caller and the re-executed process, over one socket.
//!
//! A request is two lengths of eight bytes each, little endian, then JSON, then the program's standard
//! input. Replies are JSON, one value per line. If the caller closes its end, everything is stopped. To an
//! attached program the caller sends signals afterwards, one number of one byte each.

use std::io::{self, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::fault::Fault;
use super::identity::Identity;
use super::outcome::{Applied, Outcome};
use super::request::{Archive, Sandbox};
use super::text;

/// First argument of the re-executed process.
pub(crate) const NAME: &str = "stackforge-sandbox";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    Run(Box<Sandbox>),
    /// Runs a program on the caller's streams, whose descriptors follow the request, or on a terminal of its
    /// own, whose other end the caller gets.
    Attach(Box<Sandbox>, Attached),
    Probe,
    /// Writes a directory as a tar, with the IDs that a run has.
    Archive(Archive),
    /// Removes a directory, with the IDs that a run has.
    Remove(#[serde(with = "text::one")] PathBuf),
}

/// What an attached program reads from and writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Attached {
    Streams,
    Terminal { rows: u16, columns: u16 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    Ended(Outcome),
    Failed(Fault),
    Tried(Tried),
    Removed,
    Archived,
}

/// How far the probing process got.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tried {
    pub identity: Identity,
    pub namespaces: Option<Fault>,
    pub overlay: Option<Fault>,
    pub limits: Applied,
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
