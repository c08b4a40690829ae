//! What is made in an engine for a while and has to go again: noted before it is made, so that a later
//! process can remove what one that was killed left.

use std::fmt;
use std::str::FromStr;

/// Something in an engine, by a name that nothing else has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Temporary {
    /// A container of this name.
    Container(String),
    /// An image of this name.
    Image(String),
}

/// Keeps notes of one process. A note that cannot be kept stops no work.
pub trait Notes: Send + Sync {
    /// `what` is about to be made.
    fn begins(&self, what: &Temporary);
    /// `what` is not there any more.
    fn is_gone(&self, what: &Temporary);
}

impl fmt::Display for Temporary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container(name) => write!(f, "container {name}"),
            Self::Image(name) => write!(f, "image {name}"),
        }
    }
}

impl FromStr for Temporary {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.split_once(' ') {
            Some(("container", name)) => Ok(Self::Container(name.to_owned())),
            Some(("image", name)) => Ok(Self::Image(name.to_owned())),
            _ => Err(()),
        }
    }
}
