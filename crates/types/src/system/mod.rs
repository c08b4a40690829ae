//! What the operating system is asked for in another way on Linux than elsewhere.
//!
//! Both sides have the same items. The other side does without what only Linux's kernel has, and is as strict: it takes
//! more calls for the same answer. What has no other way, namespaces for instance, is not here but refused where it is
//! asked for.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
use elsewhere as own;
#[cfg(target_os = "linux")]
use linux as own;

pub use own::{
    PLACE, begin_to_write, holds_descriptors, holds_own_descriptors, ignores_hangup, linked,
    memory, program, sync, unnamed,
};
pub(crate) use own::{mount, open_whole};
