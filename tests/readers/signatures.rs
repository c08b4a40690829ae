//! Signatures that a registry has, and keys that a person names.

use std::sync::LazyLock;

use stackforge_distribute::evidence::{PrivateKey, PublicKey, read_statement, signatures};
use stackforge_transfer::registry::Manifest;
use stackforge_types::Digest;

/// Signatures of one input that are verified, which takes long.
const MOST: usize = 4;

static KEY: LazyLock<PublicKey> = LazyLock::new(|| PrivateKey::generate().public());

/// A statement, an image of signatures, or one signature: none is of a key that nobody has.
pub fn signature(bytes: &[u8]) {
    if let Ok(signed) = read_statement(bytes) {
        serde_json::to_value(&signed).expect("it was read");
    }
    let manifest = Manifest {
        digest: Digest::of(bytes),
        bytes: bytes.to_vec().into(),
        media_type: String::new(),
    };
    let kept = signatures(&manifest);
    assert!(kept.len() <= 200);
    for one in &kept {
        assert!(one.signature.len() <= bytes.len());
    }
    let kept = kept.iter().map(|one| one.signature.as_slice());
    for signature in kept.take(MOST).chain([bytes]) {
        assert!(!KEY.has_signed(b"x", signature));
    }
}

/// A key is private or public, and signs or is written so that it is read again.
pub fn key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let private = PrivateKey::from_pem("k", text);
    if let Ok(public) = PublicKey::from_pem("k", text) {
        assert!(private.is_err(), "it is one of both");
        let written = public.to_pem().expect("it was read");
        assert!(public.fingerprint().is_some());
        assert_eq!(PublicKey::from_pem("k", &written).ok(), Some(public));
    }
    if let Ok(private) = private {
        let signature = private.sign(b"x");
        let public = private.public();
        assert!(public.has_signed(b"x", &signature));
        assert!(!public.has_signed(b"y", &signature));
    }
}
