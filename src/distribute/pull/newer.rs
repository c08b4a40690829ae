//! Compares the ages of images, so that an older one never replaces a newer one of the same name.
//!
//! In: an image whose signature was verified. Out: permission to take it, and a record in the store of what
//! was taken. An image's age is covered by its digest, and so by the signature. If both signatures have a
//! time, the times decide, so signing an older image again makes it the newest. If the previous one has
//! none, both creation times decide, and the new one has to be later. The image that was taken last is never
//! too old.

use super::PullError;
use super::resolve::Resolved;
use crate::evidence::Signed;
use serde::{Deserialize, Serialize};
use stackforge_image::store::{Store, write_atomically};
use stackforge_types::Digest;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What is known about the age of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Age {
    name: String,
    digest: Digest,
    /// Time of the newest signature, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signed: Option<u64>,
    /// Creation time in the configuration, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<String>,
}

impl Age {
    /// Returns the age of an image for `name`, given its verified signatures.
    pub fn of(name: &str, resolved: &Resolved, signed: &[Signed]) -> Self {
        Self {
            name: name.to_owned(),
            digest: resolved.manifest.digest.clone(),
            signed: signed.iter().filter_map(|one| one.time).max(),
            created: resolved.created().filter(|time| time.ends_with('Z')),
        }
    }

    /// Fails if the image is older than the one that was taken under its name before.
    pub fn check(&self, store: &Store) -> Result<(), PullError> {
        let path = path(store, &self.name)?;
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(PullError::io("read", &path, e)),
        };
        let damaged = |e: serde_json::Error| PullError::io("read", &path, e.into());
        let before: Self = serde_json::from_slice(&text).map_err(damaged)?;
        self.compare(&before).map_err(|why| PullError::Older {
            name: self.name.clone(),
            why,
        })
    }

    /// Records that the name has this image. If it had it before, the newest signature's time stays.
    pub fn remember(&self, store: &Store) -> Result<(), PullError> {
        let path = path(store, &self.name)?;
        let known = std::fs::read(&path).ok();
        let known = known.and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        let known = known.filter(|known| known.digest == self.digest);
        let newest = Self {
            signed: self.signed.max(known.and_then(|known| known.signed)),
            ..self.clone()
        };
        let text = serde_json::to_vec_pretty(&newest).unwrap_or_default();
        let above = path.parent().map(Path::to_owned).unwrap_or_default();
        write_atomically(&path, &text)
            .and_then(|()| File::open(above)?.sync_all())
            .map_err(|e| PullError::io("write", &path, e))
    }

    fn compare(&self, before: &Self) -> Result<(), String> {
        if self.digest == before.digest {
            return Ok(());
        }
        match (self.signed, before.signed, &self.created, &before.created) {
            (Some(now), Some(then), _, _) if now >= then => Ok(()),
            (Some(now), Some(then), _, _) => Err(format!(
                "it was signed {} before the one that is here",
                ago(then - now)
            )),
            // The time may have been left out on purpose, to pass off an older image.
            (None, Some(_), _, _) => Err("no signature says when it was made".to_owned()),
            (_, _, Some(now), Some(then)) if seconds(now) > seconds(then) => Ok(()),
            (_, _, Some(now), Some(then)) => Err(format!(
                "it was made at {now}, and the one before at {then}"
            )),
            _ => Err("nothing that is signed says when it was made".to_owned()),
        }
    }
}

/// Returns the part of a timestamp that has a fixed length, without fractions of a second.
fn seconds(time: &str) -> &str {
    time.get(..19).unwrap_or(time)
}

fn ago(seconds: u64) -> String {
    let (number, unit) = match seconds {
        0..120 => (seconds, "seconds"),
        120..7200 => (seconds / 60, "minutes"),
        7200..172_800 => (seconds / 3600, "hours"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{number} {unit}")
}

fn path(store: &Store, name: &str) -> Result<PathBuf, PullError> {
    let file = format!("{}.json", Digest::of(name.as_bytes()).hex());
    Ok(store.dir("signed")?.join(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(image: &str, signed: Option<u64>, created: Option<&str>) -> Age {
        Age {
            name: "a.example/b:1".to_owned(),
            digest: Digest::of(image.as_bytes()),
            signed,
            created: created.map(str::to_owned),
        }
    }

    #[test]
    fn an_older_image_is_refused_by_what_both_say() {
        let made = |time: &str| age(time, None, Some(time));
        let before = age("x", Some(1000), Some("2026-01-01T00:00:00Z"));
        let untimed = age("x", None, Some("2026-01-01T00:00:00Z"));
        let takes = |now: &Age| now.compare(&before).is_ok();
        let follows = |now: &Age| now.compare(&untimed).is_ok();
        assert!(takes(&age("x", None, None)), "the same image");
        assert!(takes(&age("y", Some(1000), None)) && takes(&age("y", Some(2000), None)));
        assert!(!takes(&age("y", Some(999), Some("2027-01-01T00:00:00Z"))));
        assert!(
            !takes(&made("2027-01-01T00:00:00Z")),
            "its time was left out"
        );
        assert!(follows(&made("2026-01-01T00:00:01.5Z")));
        assert!(!follows(&made("2026-01-01T00:00:00.5Z")));
        assert!(!follows(&made("2025-12-31T23:59:59Z")));
        assert!(!takes(&age("y", None, None)));
        let why = age("y", Some(1), None).compare(&before).unwrap_err();
        assert_eq!(why, "it was signed 16 minutes before the one that is here");
    }

    #[test]
    fn what_was_taken_is_remembered_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let new = age("new", Some(2), None);
        let old = age("old", Some(1), None);
        old.check(&store).unwrap();
        new.remember(&store).unwrap();
        assert!(matches!(old.check(&store), Err(PullError::Older { .. })));
        // An index that was signed earlier leads to the same image, which is always taken.
        age("new", Some(0), None).remember(&store).unwrap();
        assert!(matches!(old.check(&store), Err(PullError::Older { .. })));
        let other = Age {
            name: "a.example/b:2".to_owned(),
            ..old
        };
        other.check(&store).unwrap();
    }
}
