//! Who owns what is unpacked.

/// Owner of the unpacked files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The owners in the layer, which only root can set.
    Kept,
    /// The user that unpacks.
    Mine,
}

impl Owner {
    /// The owner that this process can set.
    pub fn of_process() -> Self {
        if rustix::process::geteuid().is_root() {
            Self::Kept
        } else {
            Self::Mine
        }
    }
}
