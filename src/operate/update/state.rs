//! The state that an update needs after a power cut, and that `--status` reports to a fleet.
//!
//! It is one file, written whole and synced before the step that it announces. A step has ended when the
//! next one is written.

use super::UpdateError;
use super::place::Place;
use serde::{Deserialize, Serialize};
use stackforge_image::store::write_atomically;
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most refused images that are remembered.
const MOST_REFUSED: usize = 100;
/// Times that a device may go down with an image before the image is refused.
pub const MOST_INTERRUPTED: u32 = 3;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The place that this is the state of, as in the settings; earlier versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    pub step: Step,
    /// Whether the service was stopped for a validation and has to be started again.
    #[serde(default)]
    pub paused: bool,
    /// The image that an update gave the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Digest>,
    /// ID of that image in the place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// Number of times that the device went down, by image.
    #[serde(default)]
    pub interrupted: BTreeMap<String, u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Last>,
}

/// The current step of an update.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum Step {
    /// The service has the image that it should have.
    #[default]
    Idle,
    /// A new image is validated beside the current one.
    Validating { image: Digest },
    /// The service gets the new image, or has it and is not yet known to be healthy.
    Trial(Switch),
    /// The service gets the previous image.
    Back(Switch),
}

/// A change from one image to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    pub image: Digest,
    /// ID of the new image in the place.
    pub id: String,
    /// ID of the previous image; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Why the new image is refused, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub image: Digest,
    pub why: String,
    pub time: u64,
}

/// The result of the last run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    pub outcome: Outcome,
    pub said: String,
    /// Time of the run's end, in seconds since 1970.
    pub time: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    UpToDate,
    Updated,
    /// The new image is refused. The service has the previous one.
    Refused,
    /// The update failed on this device: no network, engine or space, or a signal.
    Failed,
    /// A person has to look: the service may not run.
    NeedsHelp,
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

    /// Removes the refusal of an image that was not to blame.
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

/// The directory of the state. Only one run at a time can open it.
pub struct Desk {
    dir: PathBuf,
    _lock: File,
    pub state: State,
}

impl Desk {
    /// Opens the directory without waiting. `None` if another run has it.
    ///
    /// # Errors
    /// [`UpdateError::Foreign`] for a directory that other users can write, or the state of another place.
    pub fn open(dir: &Path, place: &Place) -> Result<Option<Self>, UpdateError> {
        let failed = |e| UpdateError::io("make", dir, e);
        let mut builder = DirBuilder::new();
        // The default mode (0777) would let other users write if the umask is 0.
        builder.recursive(true).mode(0o755);
        builder.create(dir).map_err(failed)?;
        is_own(dir)?;
        let path = dir.join("lock");
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| UpdateError::io("open", &path, e))?;
        // `--status` holds the lock for a moment.
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
        let mut state = read(dir, place)?.unwrap_or_default();
        state.place = Some(place.to_string());
        Ok(Some(Self {
            dir: dir.to_owned(),
            _lock: lock,
            state,
        }))
    }

    pub fn report(&self) -> PathBuf {
        self.dir.join("report.json")
    }

    /// Changes the state and syncs it to disk.
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

/// Fails if other users can write the directory: whoever writes the state decides what is rolled back.
fn is_own(dir: &Path) -> Result<(), UpdateError> {
    let found = std::fs::metadata(dir).map_err(|e| UpdateError::io("read", dir, e))?;
    let foreign = |why: String| {
        let dir = dir.to_owned();
        Err(UpdateError::Foreign { dir, why })
    };
    if found.uid() != rustix::process::geteuid().as_raw() {
        return foreign(format!("it belongs to user {}", found.uid()));
    }
    match found.mode() & 0o022 {
        0 => Ok(()),
        _ => foreign(format!(
            "others may write it (mode {:o})",
            found.mode() & 0o7777
        )),
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("state.json")
}

/// Reads the current state. `None` before the first run.
///
/// # Errors
/// The file cannot be parsed: its step is never guessed.
/// [`UpdateError::Foreign`] if it is the state of another place.
pub fn read(dir: &Path, place: &Place) -> Result<Option<State>, UpdateError> {
    let path = file(dir);
    match std::fs::read(&path) {
        Ok(bytes) => {
            let state: State = serde_json::from_slice(&bytes).map_err(|e| UpdateError::State {
                path,
                message: e.to_string(),
            })?;
            match &state.place {
                Some(other) if other.parse().as_ref() != Ok(place) => Err(UpdateError::Foreign {
                    dir: dir.to_owned(),
                    why: format!("it has the state of {other}, not of {place}"),
                }),
                _ => Ok(Some(state)),
            }
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(UpdateError::io("read", &path, e)),
    }
}

/// Whether a run is under way.
pub fn is_running(dir: &Path) -> bool {
    let lock = File::open(dir.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let (at, place) = (dir.path().join("state"), "rootfs:/srv/app".parse().unwrap());
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
            let mut desk = Desk::open(&at, &place).unwrap().unwrap();
            assert!(Desk::open(&at, &place).unwrap().is_none(), "one at a time");
            assert!(is_running(&at));
            desk.write(|state| state.step = step.clone()).unwrap();
            drop(desk);
            assert!(!is_running(&at));
            assert_eq!(read(&at, &place).unwrap().unwrap().step, step);
        }
        // The same place may be written in another way; a different place is refused.
        let same: Place = "rootfs:/srv//app/".parse().unwrap();
        assert!(Desk::open(&at, &same).unwrap().is_some());
        let other: Place = "rootfs:/srv/other".parse().unwrap();
        for refused in [Desk::open(&at, &other).err(), read(&at, &other).err()] {
            assert!(matches!(refused, Some(UpdateError::Foreign { .. })));
        }
        std::fs::write(at.join("state.json"), "{").unwrap();
        assert!(matches!(
            Desk::open(&at, &place),
            Err(UpdateError::State { .. })
        ));
    }

    #[test]
    fn a_directory_that_others_may_write_keeps_no_state() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let place: Place = "docker:app".parse().unwrap();
        for (mode, accepted) in [
            (0o755, true),
            (0o700, true),
            (0o775, false),
            (0o1777, false),
        ] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(dir.path(), permissions).unwrap();
            let opened = Desk::open(dir.path(), &place);
            if accepted {
                assert!(opened.unwrap().is_some())
            } else {
                assert!(
                    matches!(opened, Err(UpdateError::Foreign { .. })),
                    "{mode:o}"
                )
            }
        }
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
