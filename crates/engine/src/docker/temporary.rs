//! Images that exist for a while only, and what a killed process left of them.

use super::client::Docker;
use crate::{EngineError, Temporary};

impl Docker {
    /// Returns an image name that no other process uses: `start`, a hyphen and a random number. It
    /// stays recorded until [`Docker::remove_temporary`] removes it.
    pub fn temporary(&self, start: &str) -> String {
        let name = format!("{start}-{:016x}", fastrand::u64(..));
        self.begins(&Temporary::Image(name.clone()));
        name
    }

    /// Removes the image of a name from [`Docker::temporary`]. If `done` is not set, the engine may
    /// still create the image, so the name stays recorded.
    ///
    /// # Errors
    /// If a container uses the image, or the engine cannot be asked.
    pub async fn remove_temporary(&self, name: &str, done: bool) -> Result<(), EngineError> {
        self.remove_image(name).await?;
        if done {
            self.is_gone(&Temporary::Image(name.to_owned()));
        }
        Ok(())
    }

    /// Removes an object that a killed process has left in this engine.
    ///
    /// # Errors
    /// If the engine cannot be asked, or the object is in use.
    pub async fn remove_left(&self, left: &Temporary) -> Result<(), EngineError> {
        match left {
            Temporary::Container(name) => self.remove_container(name).await,
            Temporary::Image(name) => {
                self.remove_made_of(name).await?;
                self.remove_image(name).await.map(drop)
            }
        }
    }
}
