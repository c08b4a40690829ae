//! Systems on which nothing is unpacked: `Rootfs::begin` refuses there, so this job never runs.

use crate::pull::PullError;
use stackforge_image::store::Store;
use stackforge_types::{Cancel, Digest};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

#[expect(dead_code, reason = "the fields of the job of Linux")]
pub(super) struct Job {
    pub root: PathBuf,
    pub config: Option<Digest>,
    pub layers: Vec<oci_spec::image::Descriptor>,
    pub into: PathBuf,
    pub staged: PathBuf,
    pub gone: PathBuf,
    pub records: Records,
    pub trees: Vec<(PathBuf, bool)>,
    pub whole: BTreeSet<Digest>,
    pub receiver: Receiver<Digest>,
    pub stop: Cancel,
}

impl Job {
    pub fn run(self) -> Result<(), PullError> {
        Ok(())
    }
}

pub(super) struct Records;

impl Records {
    pub fn of(_: &Store, _: &Digest) -> Result<Self, PullError> {
        Ok(Self)
    }
}
