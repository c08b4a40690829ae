//! What an update has to know after a power cut, and what a fleet asks for.
//!
//! One file, written whole and synced before the step that it announces. A step is over when the next
//! one is written.

use super::UpdateError;
use crate::spec::nouns::Digest;
use crate::store::write_atomically;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Images that are remembered as refused.
const MOST_REFUSED: usize = 100;
/// Times that a device may go down with an image before the image is refused.
pub const MOST_INTERRUPTED: u32 = 3;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub step: Step,
    /// The service was stopped, and has to run again whatever happens.
    #[serde(default)]
    pub paused: bool,
    /// The image that an update gave the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Digest>,
    /// What the place calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// Times that the device went down with an image.
    #[serde(default)]
    pub interrupted: BTreeMap<String, u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Last>,
}

/// Where an update stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum Step {
    /// The service has the image that it is to have.
    #[default]
    Idle,
    /// A new image is tried beside it.
    Validating { image: Digest },
    /// The service gets the new image, or has it, and is not known to be well.
    Trial(Switch),
    /// The service gets the image before.
    Back(Switch),
}

/// From one image to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    pub image: Digest,
    /// What the place calls the new image.
    pub id: String,
    /// What it calls the one before; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What is wrong with the new one, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub image: Digest,
    pub why: String,
    pub time: u64,
}

/// How the last run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    pub outcome: Outcome,
    pub said: String,
    /// Seconds since 1970.
    pub time: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    UpToDate,
    Updated,
    /// The new image is not taken. The service has the one before.
    Refused,
    /// This device could not do it now: no network, engine or space, or it was stopped.
    Failed,
    /// A person has to look: the service may not run.
    NeedsHelp,
}

impl Outcome {
    /// The exit code of the run, and of `--status` after it.
    pub fn exit(self) -> u8 {
        match self {
            Self::UpToDate | Self::Updated => 0,
            Self::Refused => 1,
            Self::Failed => 3,
            Self::NeedsHelp => 4,
        }
    }
}

impl State {
    pub fn is_refused(&self, image: &Digest) -> Option<&Refused> {
        self.refused.iter().find(|refused| refused.image == *image)
    }

    pub fn refuse(&mut self, image: &Digest, why: &str) {
        self.refused.retain(|refused| refused.image != *image);
        self.refused.push(Refused {
            image: image.clone(),
            why: why.to_owned(),
            time: now(),
        });
        let more = self.refused.len().saturating_sub(MOST_REFUSED);
        self.refused.drain(..more);
        self.interrupted.remove(&image.to_string());
    }

    /// It is not the image that was to blame.
    pub fn pardon(&mut self, image: &Digest) {
        self.refused.retain(|refused| refused.image != *image);
    }

    pub fn interrupt(&mut self, image: &Digest) {
        *self.interrupted.entry(image.to_string()).or_default() += 1;
    }
}

pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The directory of the state; one run at a time has it.
pub struct Desk {
    dir: PathBuf,
    _lock: File,
    pub state: State,
}

impl Desk {
    /// Opens it, and waits for nobody: absent where another run is under way.
    pub fn open(dir: &Path) -> Result<Option<Self>, UpdateError> {
        let failed = |e| UpdateError::io("make", dir, e);
        std::fs::create_dir_all(dir).map_err(failed)?;
        let path = dir.join("lock");
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| UpdateError::io("open", &path, e))?;
        // `--status` looks at the lock for a moment.
        let mut tries = 5;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tries > 0 => tries -= 1,
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(UpdateError::io("lock", &path, e)),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let state = read(dir)?.unwrap_or_default();
        Ok(Some(Self {
            dir: dir.to_owned(),
            _lock: lock,
            state,
        }))
    }

    pub fn report(&self) -> PathBuf {
        self.dir.join("report.json")
    }

    /// Changes the state, which is on disk when this returns.
    pub fn write(&mut self, change: impl FnOnce(&mut State)) -> Result<(), UpdateError> {
        let mut next = self.state.clone();
        change(&mut next);
        let path = file(&self.dir);
        let text = serde_json::to_string_pretty(&next).unwrap_or_default() + "\n";
        write_atomically(&path, text.as_bytes())
            .and_then(|()| File::open(&self.dir)?.sync_all())
            .map_err(|e| UpdateError::io("write", &path, e))?;
        self.state = next;
        Ok(())
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("state.json")
}

/// The state as it is; absent before the first run.
///
/// # Errors
/// A file that does not parse: what it knew of a step under way is not guessed.
pub fn read(dir: &Path) -> Result<Option<State>, UpdateError> {
    let path = file(dir);
    match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|e| UpdateError::State {
                path,
                message: e.to_string(),
            }),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(UpdateError::io("read", &path, e)),
    }
}

/// Whether a run has the state now.
pub fn under_way(dir: &Path) -> bool {
    let lock = File::open(dir.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let image = Digest::of(b"x");
        let switch = Switch {
            image: image.clone(),
            id: "sha256:1".to_owned(),
            before: None,
            why: None,
        };
        for step in [
            Step::Idle,
            Step::Validating {
                image: image.clone(),
            },
            Step::Trial(switch.clone()),
            Step::Back(switch),
        ] {
            let mut desk = Desk::open(dir.path()).unwrap().unwrap();
            assert!(Desk::open(dir.path()).unwrap().is_none(), "one at a time");
            assert!(under_way(dir.path()));
            desk.write(|state| state.step = step.clone()).unwrap();
            drop(desk);
            assert!(!under_way(dir.path()));
            assert_eq!(read(dir.path()).unwrap().unwrap().step, step);
        }
        std::fs::write(dir.path().join("state.json"), "{").unwrap();
        assert!(matches!(
            Desk::open(dir.path()),
            Err(UpdateError::State { .. })
        ));
    }

    #[test]
    fn refusals_are_remembered_and_do_not_grow_for_ever() {
        let mut state = State::default();
        for n in 0..200_u32 {
            let image = Digest::of(&n.to_le_bytes());
            state.interrupt(&image);
            state.refuse(&image, "it does not validate");
        }
        assert_eq!(state.refused.len(), MOST_REFUSED);
        assert!(
            state
                .is_refused(&Digest::of(&199_u32.to_le_bytes()))
                .is_some()
        );
        assert!(state.interrupted.is_empty());
    }
}
