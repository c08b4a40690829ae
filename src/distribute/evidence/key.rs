//! Keys: ECDSA on P-256, in PEM.
//!
//! In: PKCS#8 or SEC1 for a private key, as stackforge and openssl write them, SPKI for a public one.
//! Out: DER signatures over the SHA-256 of a text. Encrypted keys are not supported. A private key is never
//! printed, and is cleared from memory when it is dropped.

use super::error::KeyError;
use p256::ecdsa::signature::{Signer as _, Verifier as _};
use p256::ecdsa::{Signature, SigningKey, VerifyingKey};
use p256::elliptic_curve::rand_core::OsRng;
use p256::pkcs8::{
    DecodePrivateKey as _, DecodePublicKey as _, EncodePrivateKey as _, EncodePublicKey as _,
    LineEnding,
};
use stackforge_image::store::save_new;
use stackforge_types::Digest;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Prefix of the name of an environment variable that holds a key, as in cosign.
const VARIABLE: &str = "env://";
/// Longest key file, in bytes. The PEM of a P-256 key has some 250.
const LARGEST: usize = 64 << 10;

pub struct PrivateKey(SigningKey);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").finish_non_exhaustive()
    }
}

impl PrivateKey {
    pub fn generate() -> Self {
        Self(SigningKey::random(&mut OsRng))
    }

    /// Reads a key from a file, or from `env://NAME`.
    pub fn read(place: &str) -> Result<Self, KeyError> {
        Self::from_pem(place, &text(place)?)
    }

    pub fn from_pem(name: &str, text: &str) -> Result<Self, KeyError> {
        let (label, block) = block(name, text)?;
        let wrong = || kind(name, label);
        let key = match label {
            "PRIVATE KEY" => SigningKey::from_pkcs8_pem(block).map_err(|_| wrong())?,
            "EC PRIVATE KEY" => p256::SecretKey::from_sec1_pem(block)
                .map_err(|_| wrong())?
                .into(),
            "PUBLIC KEY" => return Err(KeyError::Public { name: name.into() }),
            _ => return Err(wrong()),
        };
        Ok(Self(key))
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(*self.0.verifying_key())
    }

    /// Returns the signature in DER. It is deterministic (RFC 6979).
    pub fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        let signature: Signature = self.0.sign(bytes);
        signature.to_der().as_bytes().to_vec()
    }

    /// Writes `NAME.key`, readable by its owner only, and `NAME.pub`. Fails if one of them exists.
    pub fn write(&self, name: &Path) -> Result<[PathBuf; 2], KeyError> {
        let broken = |path: &Path| KeyError::Write {
            path: path.to_owned(),
            source: std::io::Error::other("the key cannot be encoded"),
        };
        let files = [".key", ".pub"].map(|end| {
            let mut path = name.as_os_str().to_owned();
            path.push(end);
            PathBuf::from(path)
        });
        let private = self.0.to_pkcs8_pem(LineEnding::LF);
        let private = private.map_err(|_| broken(&files[0]))?;
        let public = Zeroizing::new(self.public().to_pem().ok_or_else(|| broken(&files[1]))?);
        let write = |path: &PathBuf, text: &str, mode| {
            save_new(path, text.as_bytes(), mode).map_err(|source| KeyError::Write {
                path: path.clone(),
                source,
            })
        };
        write(&files[0], &private, 0o600)?;
        if let Err(e) = write(&files[1], &public, 0o644) {
            // A remaining half of the pair would make the next try fail.
            let _ = std::fs::remove_file(&files[0]);
            return Err(e);
        }
        Ok(files)
    }
}

impl PublicKey {
    /// Reads a key from a file, or from `env://NAME`.
    pub fn read(place: &str) -> Result<Self, KeyError> {
        Self::from_pem(place, &text(place)?)
    }

    pub fn from_pem(name: &str, text: &str) -> Result<Self, KeyError> {
        let (label, block) = block(name, text)?;
        match label {
            "PUBLIC KEY" => VerifyingKey::from_public_key_pem(block)
                .map(Self)
                .map_err(|_| kind(name, label)),
            "PRIVATE KEY" | "EC PRIVATE KEY" => Err(KeyError::Private { name: name.into() }),
            _ => Err(kind(name, label)),
        }
    }

    pub fn to_pem(&self) -> Option<String> {
        self.0.to_public_key_pem(LineEnding::LF).ok()
    }

    /// Returns the SHA-256 of the key's SPKI, by which people compare keys.
    pub fn fingerprint(&self) -> Option<Digest> {
        let der = self.0.to_public_key_der().ok()?;
        Some(Digest::of(der.as_bytes()))
    }

    pub fn has_signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        Signature::from_der(signature)
            .is_ok_and(|signature| self.0.verify(bytes, &signature).is_ok())
    }
}

fn text(place: &str) -> Result<Zeroizing<String>, KeyError> {
    if let Some(variable) = place.strip_prefix(VARIABLE) {
        return std::env::var(variable)
            .map(Zeroizing::new)
            .map_err(|_| KeyError::Variable {
                name: place.to_owned(),
                variable: variable.to_owned(),
            });
    }
    let path = Path::new(place);
    let mut text = Zeroizing::new(Vec::new());
    File::open(path)
        // A device file may be endless.
        .and_then(|file| file.take(LARGEST as u64 + 1).read_to_end(&mut text))
        .map_err(|source| KeyError::Read {
            path: path.to_owned(),
            source,
        })?;
    let text = std::str::from_utf8(&text).map_err(|_| KeyError::NoPem { name: place.into() })?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn kind(name: &str, label: &str) -> KeyError {
    KeyError::Kind {
        name: name.to_owned(),
        label: label.chars().take(40).collect(),
    }
}

/// Returns the label and text of the first block that is a key: openssl writes the curve's block before it.
fn block<'a>(name: &str, text: &'a str) -> Result<(&'a str, &'a str), KeyError> {
    const BEGIN: &str = "-----BEGIN ";
    const DASHES: &str = "-----";
    let none = || KeyError::NoPem { name: name.into() };
    if text.len() > LARGEST {
        return Err(none());
    }
    let mut rest = text;
    loop {
        let start = rest.find(BEGIN).ok_or_else(none)?;
        let block = &rest[start..];
        let after = &block[BEGIN.len()..];
        let label = after.split(DASHES).next().unwrap_or_default();
        let end = format!("-----END {label}-----");
        let length = block.find(&end).ok_or_else(none)? + end.len();
        let block = &block[..length];
        match label {
            "EC PARAMETERS" => rest = &rest[start + length..],
            "ENCRYPTED SIGSTORE PRIVATE KEY" | "ENCRYPTED COSIGN PRIVATE KEY" => {
                return Err(KeyError::Cosign { name: name.into() });
            }
            "ENCRYPTED PRIVATE KEY" => return Err(KeyError::Encrypted { name: name.into() }),
            "EC PRIVATE KEY" if block.contains("Proc-Type: 4,ENCRYPTED") => {
                return Err(KeyError::Encrypted { name: name.into() });
            }
            _ => return Ok((label, block)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pair_that_was_written_signs_and_verifies() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("pair.v1");
        let [private, public] = PrivateKey::generate().write(&name).unwrap();
        assert!(public.ends_with("pair.v1.pub"));
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&private).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        let key = PrivateKey::read(private.to_str().unwrap()).unwrap();
        let own = PublicKey::read(public.to_str().unwrap()).unwrap();
        assert_eq!(key.public(), own);
        let signature = key.sign(b"x");
        assert!(own.has_signed(b"x", &signature));
        assert!(!own.has_signed(b"y", &signature));
        assert!(!PrivateKey::generate().public().has_signed(b"x", &signature));
        let again = PrivateKey::generate().write(&name);
        assert!(matches!(again, Err(KeyError::Write { .. })), "{again:?}");
        let swapped = PublicKey::read(private.to_str().unwrap());
        assert!(matches!(swapped, Err(KeyError::Private { .. })));
        let swapped = PrivateKey::read(public.to_str().unwrap());
        assert!(matches!(swapped, Err(KeyError::Public { .. })));
        assert!(!format!("{key:?}").contains(char::is_numeric));
    }

    #[test]
    fn what_is_not_read_says_why() {
        let read = |label: &str| {
            let text = format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
            PrivateKey::from_pem("k", &text).unwrap_err()
        };
        let cosign = read("ENCRYPTED SIGSTORE PRIVATE KEY");
        assert!(matches!(cosign, KeyError::Cosign { .. }), "{cosign}");
        let encrypted = read("ENCRYPTED PRIVATE KEY");
        assert!(matches!(encrypted, KeyError::Encrypted { .. }));
        for label in ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"] {
            assert!(matches!(read(label), KeyError::Kind { .. }), "{label}");
        }
        for text in ["", "AAAA", "-----BEGIN PRIVATE KEY-----\nAAAA"] {
            let error = PrivateKey::from_pem("k", text).unwrap_err();
            assert!(matches!(error, KeyError::NoPem { .. }), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(
            label in "(EC |PUBLIC |ENCRYPTED |PRIVATE |KEY|PARAMETERS|-){0,4}",
            body in "[A-Za-z0-9+/=\n-]{0,80}",
            noise in "\\PC{0,20}",
        ) {
            for text in [
                format!("{noise}-----BEGIN {label}-----\n{body}\n-----END {label}-----"),
                format!("{noise}-----BEGIN {label}{body}"),
            ] {
                let _ = PrivateKey::from_pem("k", &text);
                let _ = PublicKey::from_pem("k", &text);
            }
        }

        #[test]
        fn no_signature_panics(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let key = PrivateKey::generate().public();
            prop_assert!(!key.has_signed(b"x", &bytes));
        }
    }
}
