//! Records of temporary objects in an engine. They are written before the object is made, so that a
//! later process can remove what a killed process left.

use std::fmt;
use std::str::FromStr;

/// An object in an engine with a unique name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Temporary {
    /// A container with this name.
    Container(String),
    /// An image with this name.
    Image(String),
}

/// Keeps the records of one process. A record that cannot be written does not stop the work.
pub trait Notes: Send + Sync {
    /// Records that `what` is about to be made.
    fn begins(&self, what: &Temporary);
    /// Records that `what` does not exist any more.
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
