//! A suite's `InRelease`: the signed list of its index files.
//!
//! In come its bytes, a keyring and the time; out comes the list of files, read from exactly the
//! text that the signature covers (RFC 9580 section 7: dash-escapes removed, trailing white space
//! dropped). It must never return a field from an unsigned part, of another suite, or of a
//! release past its `Valid-Until`.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pgp::composed::{CleartextSignedMessage, Deserializable, SignedPublicKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Signature, SignatureType};
use pgp::types::KeyDetails;

use super::control::{ControlError, StanzaReader};
use super::package::{is_pool_path, is_sha256};

/// Debian's own is about 150 KiB.
pub const MAX_RELEASE: usize = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error("the keyring holds no readable OpenPGP key")]
    EmptyKeyring,
    #[error("reading the keyring")]
    Keyring(#[source] Box<pgp::errors::Error>),
    #[error("InRelease of `{suite}` is not a clear-signed message")]
    NotSigned {
        suite: String,
        #[source]
        source: Box<pgp::errors::Error>,
    },
    #[error("InRelease of `{suite}` is longer than {MAX_RELEASE} bytes")]
    TooLong { suite: String },
    #[error(
        "InRelease of `{suite}` has no good signature by a key of the keyring; it is signed by {signers}"
    )]
    BadSignature { suite: String, signers: String },
    #[error("InRelease of `{suite}` expired on {until}")]
    Expired { suite: String, until: String },
    #[error("InRelease was asked for `{suite}` and is of `{found}`")]
    OtherSuite { suite: String, found: String },
    #[error("InRelease of `{suite}`: {reason}")]
    Malformed { suite: String, reason: String },
    #[error("InRelease of `{suite}`")]
    Control {
        suite: String,
        #[source]
        source: ControlError,
    },
}

impl ReleaseError {
    pub fn help(&self) -> &'static str {
        match self {
            Self::EmptyKeyring | Self::Keyring(_) => {
                "give the archive's keyring, a binary or armoured file of OpenPGP public keys"
            }
            Self::BadSignature { .. } => {
                "use the keyring of this release; if it is the right one, the mirror or a proxy alters its files"
            }
            Self::Expired { .. } => {
                "the mirror is out of date, or this machine's clock is wrong: use another mirror or set the clock"
            }
            Self::OtherSuite { .. } => {
                "the mirror's configuration points at another distribution or release"
            }
            _ => {
                "the mirror or a proxy answers with something else: open the address in a browser, or use another mirror"
            }
        }
    }
}

/// Public keys that are trusted to sign.
pub struct Keyring(Vec<SignedPublicKey>);

impl Keyring {
    /// One or several keys, binary or armoured, one after the other.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReleaseError> {
        let (keys, _) = SignedPublicKey::from_reader_many(Cursor::new(bytes))
            .map_err(|error| ReleaseError::Keyring(Box::new(error)))?;
        let keys: Vec<_> = keys
            .collect::<Result<_, _>>()
            .map_err(|error| ReleaseError::Keyring(Box::new(error)))?;
        if keys.is_empty() {
            return Err(ReleaseError::EmptyKeyring);
        }
        Ok(Keyring(keys))
    }

    fn verifies(&self, signature: &Signature, text: &[u8], now: SystemTime) -> bool {
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

/// By the primary key or by a subkey that the primary key has bound for signing, neither expired
/// nor revoked.
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

/// An index file that the release vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFile {
    pub size: u64,
    pub sha256: String,
}

/// A verified release.
#[derive(Debug, Clone)]
pub struct Release {
    /// The index files by their path below `dists/SUITE/`.
    pub files: BTreeMap<String, IndexFile>,
    /// Whether index files are also found by their digest, which survives a mirror's update.
    pub by_hash: bool,
    pub architectures: Vec<String>,
}

impl Release {
    /// Verifies and reads the InRelease of `suite`, a suite's or a release's name.
    pub fn verify(
        bytes: &[u8],
        suite: &str,
        keyring: &Keyring,
        now: SystemTime,
    ) -> Result<Self, ReleaseError> {
        let suite = || suite.to_owned();
        if bytes.len() > MAX_RELEASE {
            return Err(ReleaseError::TooLong { suite: suite() });
        }
        let (message, _) =
            CleartextSignedMessage::from_armor(Cursor::new(bytes)).map_err(|error| {
                ReleaseError::NotSigned {
                    suite: suite(),
                    source: Box::new(error),
                }
            })?;
        let text = message.signed_text();
        if !message
            .signatures()
            .iter()
            .any(|signature| keyring.verifies(signature, text.as_bytes(), now))
        {
            return Err(ReleaseError::BadSignature {
                suite: suite(),
                signers: signers(message.signatures()),
            });
        }
        parse(&text, &suite(), now)
    }
}

fn signers(signatures: &[Signature]) -> String {
    let mut names: Vec<String> = signatures
        .iter()
        .flat_map(|signature| {
            let prints = signature
                .issuer_fingerprint()
                .into_iter()
                .map(ToString::to_string);
            let ids = signature
                .issuer_key_id()
                .into_iter()
                .map(ToString::to_string);
            prints.chain(ids).next()
        })
        .collect();
    names.truncate(8);
    if names.is_empty() {
        "no known key".to_owned()
    } else {
        names.join(", ")
    }
}

fn parse(text: &str, suite: &str, now: SystemTime) -> Result<Release, ReleaseError> {
    let malformed = |reason: String| ReleaseError::Malformed {
        suite: suite.to_owned(),
        reason,
    };
    let control = |source| ReleaseError::Control {
        suite: suite.to_owned(),
        source,
    };
    let mut reader = StanzaReader::new(text.as_bytes());
    let stanza = reader
        .next_stanza()
        .map_err(control)?
        .ok_or_else(|| malformed("it is empty".to_owned()))?;
    let named = |field| stanza.get(field).unwrap_or_default();
    if named("Suite") != suite && named("Codename") != suite {
        return Err(ReleaseError::OtherSuite {
            suite: suite.to_owned(),
            found: format!(
                "{} ({})",
                named("Codename").escape_debug(),
                named("Suite").escape_debug()
            ),
        });
    }
    if let Some(until) = stanza.get("Valid-Until") {
        let time = parse_date(until).ok_or_else(|| {
            malformed(format!(
                "`Valid-Until: {}` is no date",
                until.escape_debug()
            ))
        })?;
        if time < now {
            return Err(ReleaseError::Expired {
                suite: suite.to_owned(),
                until: until.to_owned(),
            });
        }
    }
    let list = stanza
        .get("SHA256")
        .ok_or_else(|| malformed("it has no list of SHA256 digests".to_owned()))?;
    let mut files = BTreeMap::new();
    for line in list.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [sha256, size, path] = words[..] else {
            return Err(malformed(format!(
                "`{}` is not digest, size and path",
                line.escape_debug()
            )));
        };
        let size = size
            .parse()
            .map_err(|_| malformed(format!("`{}` is no size", size.escape_debug())))?;
        if !is_sha256(sha256) || !is_pool_path(path) {
            return Err(malformed(format!(
                "`{}` is not digest, size and path",
                line.escape_debug()
            )));
        }
        files.insert(
            path.to_owned(),
            IndexFile {
                size,
                sha256: sha256.to_owned(),
            },
        );
    }
    Ok(Release {
        files,
        by_hash: stanza.get("Acquire-By-Hash") == Some("yes"),
        architectures: named("Architectures")
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect(),
    })
}

/// `Wed, 25 Nov 2026 22:17:41 UTC`, the form that archives use; also with ` +0000` or `GMT`.
fn parse_date(text: &str) -> Option<SystemTime> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [_, day, month, year, clock, "UTC" | "GMT" | "+0000" | "Z"] = words[..] else {
        return None;
    };
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let (day, year): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    let parts: Vec<u64> = clock
        .split(':')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    let [hour, minute, second] = parts[..] else {
        return None;
    };
    if !(1970..10000).contains(&year)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    // Days since 1970-01-01 of a year that starts in March, so that a leap day comes last.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(UNIX_EPOCH + Duration::from_secs(((days * 24 + hour) * 60 + minute) * 60 + second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOOKWORM: &[u8] = include_bytes!("../../images/keyrings/debian-archive-bookworm.gpg");
    const TRIXIE: &[u8] = include_bytes!("../../images/keyrings/debian-archive-trixie.gpg");

    fn body(extra: &str) -> String {
        format!(
            "Suite: stable\nCodename: tiny\n{extra}Acquire-By-Hash: yes\nArchitectures: amd64 arm64\nMD5Sum:\n 0 1 x\nSHA256:\n {} 12 main/binary-amd64/Packages.xz\n",
            "ab".repeat(32)
        )
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn reads_dates() {
        assert_eq!(parse_date("Thu, 01 Jan 1970 00:00:00 UTC"), Some(at(0)));
        assert_eq!(
            parse_date("Thu, 29 Feb 2024 12:34:56 UTC"),
            Some(at(1_709_210_096))
        );
        assert_eq!(
            parse_date("Wed, 25 Nov 2026 22:17:41 UTC"),
            Some(at(1_795_645_061))
        );
        for bad in [
            "",
            "Wed, 25 Nov 2026 22:17 UTC",
            "Wed, 25 Nov 2026 22:17:41 CET",
            "Wed, 0 Foo 1 1:1:1 UTC",
        ] {
            assert_eq!(parse_date(bad), None, "{bad}");
        }
    }

    #[test]
    fn lists_the_files_of_the_right_suite_until_it_expires() {
        let release = parse(&body(""), "tiny", at(9)).unwrap();
        assert_eq!(release.files["main/binary-amd64/Packages.xz"].size, 12);
        assert_eq!(release.files.len(), 1);
        assert!(release.by_hash);
        assert!(parse(&body(""), "stable", at(9)).is_ok());
        assert!(matches!(
            parse(&body(""), "other", at(9)),
            Err(ReleaseError::OtherSuite { .. })
        ));
        let expiring = body("Valid-Until: Thu, 01 Jan 1970 00:01:00 UTC\n");
        assert!(parse(&expiring, "tiny", at(59)).is_ok());
        let error = parse(&expiring, "tiny", at(61)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "InRelease of `tiny` expired on Thu, 01 Jan 1970 00:01:00 UTC"
        );
    }

    #[test]
    fn refuses_lists_that_lie() {
        for (from, to) in [
            ("12 main", "12 ../main"),
            ("12 main", "-1 main"),
            (&"ab".repeat(32), "ab"),
            ("SHA256:", "SHA1:"),
        ] {
            assert!(
                parse(&body("").replace(from, to), "tiny", at(9)).is_err(),
                "{to}"
            );
        }
    }

    #[test]
    fn shipped_keyrings_hold_three_keys_each() {
        for (bytes, prints) in [
            (
                BOOKWORM,
                [
                    "b8b80b5b623eab6ad8775c45b7c5d7d6350947f8",
                    "4d64fec119c2029067d6e791f8d2585b8783d481",
                    "05ab90340c0c5e797f44a8c8254cf3b5aec0a8f0",
                ],
            ),
            (
                TRIXIE,
                [
                    "04b54c3cdca79751b16bc6b5225629df75b188bd",
                    "41587f7db8c774bccf131416762f67a0b2c39de4",
                    "5e04a1e3223a19a20706e20f9904613d4cce68c6",
                ],
            ),
        ] {
            let keyring = Keyring::parse(bytes).unwrap();
            let found: Vec<String> = keyring
                .0
                .iter()
                .map(|key| key.fingerprint().to_string())
                .collect();
            assert_eq!(found, prints);
        }
        assert!(Keyring::parse(b"").is_err());
        assert!(Keyring::parse(&BOOKWORM[..40]).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in any::<String>()) {
            let keyring = Keyring::parse(BOOKWORM).unwrap();
            let armoured = format!("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{text}\n-----BEGIN PGP SIGNATURE-----\n\n{text}\n-----END PGP SIGNATURE-----\n");
            prop_assert!(Release::verify(&bytes, "tiny", &keyring, at(9)).is_err());
            prop_assert!(Release::verify(armoured.as_bytes(), "tiny", &keyring, at(9)).is_err());
            let _ = Keyring::parse(&bytes);
            let _ = parse(&text, "tiny", at(9));
            let _ = parse_date(&text);
        }
    }
}
