//! What is left to do when the files of an image are there. The disk writes them meanwhile.

#[cfg(target_os = "linux")]
use super::records::{Directory, Records};
use crate::pull::PullError;
#[cfg(target_os = "linux")]
use stackforge_image::unpack::update::Record;
use std::path::PathBuf;

#[derive(Default)]
pub(super) struct Rest {
    /// Directories that are removed, if they are there.
    pub used: Vec<PathBuf>,
    /// The record of the files.
    #[cfg(target_os = "linux")]
    pub record: Option<(Records, Directory, Record)>,
}

impl Rest {
    pub fn finish(self) -> Result<(), PullError> {
        #[cfg(target_os = "linux")]
        if let Some((records, directory, record)) = &self.record {
            records.write(directory, record);
        }
        for used in self.used {
            if used.symlink_metadata().is_ok() {
                stackforge_types::remove(&used).map_err(|e| PullError::io("remove", &used, e))?;
            }
        }
        Ok(())
    }
}
