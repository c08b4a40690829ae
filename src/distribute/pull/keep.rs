//! Keeps the previous images of a name: the current one until the new one is complete, and some for
//! longer.
//!
//! In the store `NAME~1` is the previous image and `NAME~2` the one before that.

use super::PullError;
use stackforge_image::oci::{self, Image};
use stackforge_image::store::Store;
use stackforge_transfer::registry::{Reference, Target};
use stackforge_types::{Digest, Platform};

/// Returns the name of a registry's image in the store. It always has a tag.
pub fn name(reference: &Reference) -> String {
    match reference.target() {
        Target::Tag(tag) => format!("{}/{}:{tag}", reference.host(), reference.repository()),
        Target::Digest(digest) => {
            let short: String = digest.hex().chars().take(12).collect();
            let tag = reference.tag().map(ToString::to_string);
            let tag = tag.unwrap_or_else(|| format!("sha256-{short}"));
            format!("{}/{}:{tag}", reference.host(), reference.repository())
        }
    }
}

/// Gives `name` to a complete image of the store; the current image becomes `NAME~1`.
pub fn rotate(store: &Store, name: &str, digest: &Digest, keep: u32) -> Result<(), PullError> {
    let refs = store.refs()?;
    let of = |wanted: &str| {
        let found = refs.iter().find(|r| r.name.as_deref() == Some(wanted));
        found.map(|r| r.digest.clone())
    };
    let current = of(name);
    if current.as_ref() != Some(digest) {
        let place = |n: u32| format!("{name}~{n}");
        let mut older = current;
        for n in 1..=keep {
            let Some(image) = older.take() else { break };
            older = of(&place(n));
            // An image whose blobs were removed cannot be gone back to.
            if store.tag(&place(n), &image).is_err() {
                store.untag(&place(n))?;
            }
        }
    }
    let prefix = format!("{name}~");
    for old in refs.iter().filter_map(|r| r.name.as_deref()) {
        let number = old
            .strip_prefix(&prefix)
            .and_then(|n| n.parse::<u32>().ok());
        if number.is_some_and(|n| n > keep) {
            store.untag(old)?;
        }
    }
    store.tag(name, digest)?;
    Ok(())
}

/// Returns the store's image of a name, with or without `:latest`. `None` if there is none.
///
/// # Errors
/// If the store cannot be read, or the image is damaged.
pub fn stored(
    store: &Store,
    name: &str,
    platform: Option<Platform>,
) -> Result<Option<Image>, PullError> {
    let refs = store.refs()?;
    let full = format!("{name}:latest");
    let of = |name: &str| refs.iter().find(|r| r.name.as_deref() == Some(name));
    let Some(found) = of(name).or_else(|| of(&full)) else {
        return Ok(None);
    };
    let digest = found.digest.to_string();
    Ok(Some(oci::open(store.root(), Some(&digest), platform)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_has_a_name_with_a_tag() {
        let digest = Digest::of(b"x");
        let named = |text: &str| name(&text.parse().unwrap());
        assert_eq!(named("a.example/b"), "a.example/b:latest");
        assert_eq!(named("a.example/b:1"), "a.example/b:1");
        assert_eq!(named(&format!("a.example/b:1@{digest}")), "a.example/b:1");
        let short = &digest.hex()[..12];
        assert_eq!(
            named(&format!("a.example/b@{digest}")),
            format!("a.example/b:sha256-{short}")
        );
    }
}
