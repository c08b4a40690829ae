//! What the thread that unpacks layers is given.

#[cfg(not(target_os = "linux"))]
use super::elsewhere::Records;
#[cfg(target_os = "linux")]
use super::records::Records;
use stackforge_types::{Cancel, Digest};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "nothing is unpacked there")
)]
pub(super) struct Job {
    pub root: PathBuf,
    pub config: Option<Digest>,
    pub layers: Vec<oci_spec::image::Descriptor>,
    pub into: PathBuf,
    /// For files of layers that are read before the tree is built; missing.
    pub staged: PathBuf,
    /// For a tree that is removed while its files move to the new one; missing.
    pub gone: PathBuf,
    pub records: Records,
    /// Directories of earlier images, and whether each is removed in any case.
    pub trees: Vec<(PathBuf, bool)>,
    pub whole: BTreeSet<Digest>,
    pub receiver: Receiver<Digest>,
    /// Cancelled when the files are not wanted any more.
    pub stop: Cancel,
}

#[cfg(not(target_os = "linux"))]
impl Job {
    /// Unpacks nothing: `Rootfs::begin` refuses on such a system.
    pub fn run(self) -> Result<super::rest::Rest, crate::pull::PullError> {
        Ok(super::rest::Rest::default())
    }
}
