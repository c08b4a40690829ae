//! OpenPGP public keys that are trusted to sign.
//!
//! A signature is accepted if it was made with SHA-256 or stronger by a primary key of the keyring, or
//! by a subkey that this key has bound for signing, and neither key nor signature has expired or been
//! revoked at the given time.

use std::io::Cursor;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pgp::composed::{Deserializable, SignedPublicKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Signature, SignatureType};
use pgp::types::KeyDetails;

/// Why a keyring cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The keyring has no keys.
    #[error("the keyring holds no OpenPGP key")]
    Empty,
    /// The file is not a series of OpenPGP public keys.
    #[error("reading the keyring")]
    Malformed(#[source] Box<pgp::errors::Error>),
}

impl KeyringError {
    /// Returns what to do about it, as a sentence without its full stop.
    pub fn help(&self) -> &'static str {
        "give a keyring, a binary or armoured file of OpenPGP public keys"
    }
}

/// Public keys that are trusted to sign.
pub struct Keyring(Vec<SignedPublicKey>);

impl Keyring {
    /// Parses one or several keys, binary or armoured, one after the other.
    ///
    /// # Errors
    /// If a key is malformed, or there are no keys.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyringError> {
        if bytes.trim_ascii().is_empty() {
            return Err(KeyringError::Empty);
        }
        let (keys, _) = SignedPublicKey::from_reader_many(Cursor::new(bytes))
            .map_err(|error| KeyringError::Malformed(Box::new(error)))?;
        let keys: Vec<_> = keys
            .collect::<Result<_, _>>()
            .map_err(|error| KeyringError::Malformed(Box::new(error)))?;
        if keys.is_empty() {
            return Err(KeyringError::Empty);
        }
        Ok(Keyring(keys))
    }

    /// Returns the fingerprints of the primary keys, in the keyring's order.
    pub fn fingerprints(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|key| key.fingerprint().to_string())
            .collect()
    }

    /// Whether a key of the keyring made this signature of `text`, and both are still valid.
    pub(crate) fn verifies(&self, signature: &Signature, text: &[u8], now: SystemTime) -> bool {
        let strong = matches!(
            signature.hash_alg(),
            Some(
                HashAlgorithm::Sha256
                    | HashAlgorithm::Sha384
                    | HashAlgorithm::Sha512
                    | HashAlgorithm::Sha3_256
                    | HashAlgorithm::Sha3_512
            )
        );
        let kind = matches!(
            signature.typ(),
            Some(SignatureType::Text | SignatureType::Binary)
        );
        let Some(created) = signature.created().map(|time| u64::from(time.as_secs())) else {
            return false;
        };
        let expired = signature
            .signature_expiration_time()
            .is_some_and(|span| is_over(created, u64::from(span.as_secs()), now));
        strong
            && kind
            && !expired
            && self
                .0
                .iter()
                .any(|key| key_verifies(key, signature, text, now))
    }
}

fn is_over(start: u64, span: u64, now: SystemTime) -> bool {
    span != 0 && UNIX_EPOCH + Duration::from_secs(start.saturating_add(span)) < now
}

/// Whether the primary key, or a subkey that it has bound for signing, made the signature, and the key
/// has neither expired nor been revoked.
fn key_verifies(
    key: &SignedPublicKey,
    signature: &Signature,
    text: &[u8],
    now: SystemTime,
) -> bool {
    let alive = |created: u64, bindings: &mut dyn Iterator<Item = &Signature>| {
        let newest = bindings.max_by_key(|binding| binding.created().map(|time| time.as_secs()));
        newest.is_some_and(|binding| {
            !binding
                .key_expiration_time()
                .is_some_and(|span| is_over(created, u64::from(span.as_secs()), now))
        })
    };
    let primary = &key.primary_key;
    let mut certifications = key
        .details
        .users
        .iter()
        .flat_map(|user| {
            user.signatures.iter().filter(|s| {
                s.verify_certification(primary, pgp::types::Tag::UserId, &user.id)
                    .is_ok()
            })
        })
        .chain(
            key.details
                .direct_signatures
                .iter()
                .filter(|s| s.verify_key(primary).is_ok()),
        );
    if !key.details.revocation_signatures.is_empty()
        || !alive(
            u64::from(primary.created_at().as_secs()),
            &mut certifications,
        )
    {
        return false;
    }
    if signature.verify(primary, text).is_ok() {
        return true;
    }
    key.public_subkeys.iter().any(|subkey| {
        let revoked = subkey
            .signatures
            .iter()
            .any(|s| s.typ() == Some(SignatureType::SubkeyRevocation));
        let mut bindings = subkey.signatures.iter().filter(|s| s.key_flags().sign());
        !revoked
            && alive(u64::from(subkey.key.created_at().as_secs()), &mut bindings)
            && subkey.verify_bindings(primary).is_ok()
            && signature.verify(&subkey.key, text).is_ok()
    })
}
