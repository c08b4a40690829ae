//! A clear-signed text.

use std::io::Cursor;
use std::time::SystemTime;

use pgp::composed::CleartextSignedMessage;
use pgp::packet::Signature;

use crate::keyring::Keyring;

/// The file is not a clear-signed message.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NotSigned(Box<pgp::errors::Error>);

/// A clear-signed text whose signatures nobody has checked yet.
pub struct SignedText {
    text: String,
    signatures: Vec<Signature>,
}

impl SignedText {
    /// Parses a clear-signed message.
    ///
    /// # Errors
    /// If the bytes are not a clear-signed message, or other text stands before or after it.
    pub fn parse(bytes: &[u8]) -> Result<Self, NotSigned> {
        let (message, _) = CleartextSignedMessage::from_armor(Cursor::new(bytes))
            .map_err(|error| NotSigned(Box::new(error)))?;
        Ok(Self {
            text: message.signed_text(),
            signatures: message.signatures().to_vec(),
        })
    }

    /// Returns the text, with lines that end with CR and LF, if a key of the keyring has signed it, and signature and key are valid at `now`.
    pub fn verified(&self, keyring: &Keyring, now: SystemTime) -> Option<&str> {
        self.signatures
            .iter()
            .any(|signature| keyring.verifies(signature, self.text.as_bytes(), now))
            .then_some(self.text.as_str())
    }

    /// Returns the fingerprints or IDs of the keys that the signatures name, for display: nothing has checked them.
    pub fn signers(&self) -> Vec<String> {
        self.signatures.iter().filter_map(signer).collect()
    }
}

fn signer(signature: &Signature) -> Option<String> {
    let prints = signature.issuer_fingerprint();
    let ids = signature.issuer_key_id();
    let prints = prints.into_iter().map(ToString::to_string);
    prints
        .chain(ids.into_iter().map(ToString::to_string))
        .next()
}
