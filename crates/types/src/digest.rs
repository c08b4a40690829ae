//! The digest of a blob or file, and its two spellings: `sha256:HEX`, and bare hex digits.

use super::{Malformed, Sha256, malformed};
use std::fmt;
use std::io;
use std::str::FromStr;

/// Bytes of one read.
const PIECE: usize = 1 << 20;

/// `sha256:` and 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

impl Digest {
    /// The SHA-256 of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hash(&Sha256::digest(bytes))
    }

    /// Returns the digest of all that `content` still has.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_reader(mut content: impl io::Read) -> io::Result<Self> {
        let mut hash = Sha256::new();
        let mut piece = vec![0; PIECE];
        loop {
            match content.read(&mut piece) {
                Ok(0) => return Ok(Self::from_hash(&hash.finalize())),
                Ok(count) => hash.update(&piece[..count]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The digest whose value is `hash`, the 32 bytes that SHA-256 gave.
    pub fn from_hash(hash: &[u8]) -> Self {
        use std::fmt::Write as _;
        let mut s = String::with_capacity(7 + hash.len() * 2);
        s.push_str("sha256:");
        for b in hash {
            // Writing to a String cannot fail.
            let _ = write!(s, "{b:02x}");
        }
        Self(s)
    }

    /// Parses a digest that is written without `sha256:`, as in locks, indexes and the names of blobs.
    ///
    /// # Errors
    /// If `hex` is not exactly 64 lower-case hex digits.
    pub fn from_hex(hex: &str) -> Result<Self, Malformed> {
        if is_hex(hex) {
            Ok(Self(format!("sha256:{hex}")))
        } else {
            Err(malformed(hex, "a sha256 digest: 64 lower-case hex digits"))
        }
    }

    /// The 64 hex digits, without `sha256:`.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    /// First twelve hex digits, for people and tags.
    pub fn short(&self) -> &str {
        &self.hex()[..12]
    }
}

fn is_hex(text: &str) -> bool {
    let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.len() == 64 && text.bytes().all(digit)
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Digest {
    type Err = Malformed;

    fn from_str(s: &str) -> Result<Self, Malformed> {
        match s.strip_prefix("sha256:") {
            Some(hex) if is_hex(hex) => Ok(Self(s.to_owned())),
            _ => Err(malformed(s, "a sha256 digest")),
        }
    }
}

crate::string_serde!(Digest);

/// Serializes a digest as its 64 hex digits, for `#[serde(with = "stackforge_types::digest::hex")]`.
pub mod hex {
    use super::Digest;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    /// Writes [`Digest::hex`].
    pub fn serialize<S: Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(digest.hex())
    }

    /// Reads with [`Digest::from_hex`].
    ///
    /// # Errors
    /// If the text is not a digest; the error says what was found.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        Digest::from_hex(&text).map_err(D::Error::custom)
    }

    /// The same for `Option<Digest>`. A field also needs `#[serde(default)]` if it may be missing.
    pub mod option {
        use super::Digest;
        use serde::de::Error as _;
        use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

        /// Writes [`Digest::hex`], or nothing.
        pub fn serialize<S: Serializer>(
            digest: &Option<Digest>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            digest.as_ref().map(Digest::hex).serialize(serializer)
        }

        /// Reads with [`Digest::from_hex`].
        ///
        /// # Errors
        /// If there is text that is not a digest; the error says what was found.
        pub fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Digest>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            let digest = text.as_deref().map(Digest::from_hex).transpose();
            digest.map_err(D::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Locked {
        #[serde(with = "hex")]
        sha256: Digest,
        #[serde(default, skip_serializing_if = "Option::is_none", with = "hex::option")]
        old: Option<Digest>,
    }

    #[test]
    fn hex_is_written_as_it_was_read() {
        let digits = "0123456789abcdef".repeat(4);
        for text in [
            format!("{{\"sha256\":\"{digits}\"}}"),
            format!("{{\"sha256\":\"{digits}\",\"old\":\"{digits}\"}}"),
        ] {
            let locked: Locked = serde_json::from_str(&text).unwrap();
            assert_eq!(locked.sha256.to_string(), format!("sha256:{digits}"));
            assert_eq!(serde_json::to_string(&locked).unwrap(), text);
        }
    }

    #[test]
    fn hex_is_64_lower_case_digits() {
        for bad in [
            String::new(),
            "a".repeat(63),
            "a".repeat(65),
            "A".repeat(64),
            "g".repeat(64),
            format!("sha256:{}", "a".repeat(64)),
            format!(" {}", "a".repeat(63)),
            "é".repeat(32),
        ] {
            let error = Digest::from_hex(&bad).unwrap_err();
            assert_eq!(error.found, bad, "the whole text is in the message");
            for field in ["sha256", "old"] {
                let good = "a".repeat(64);
                let text = format!("{{\"sha256\":\"{good}\",\"old\":\"{good}\"}}");
                let text = text.replace(
                    &format!("\"{field}\":\"{good}"),
                    &format!("\"{field}\":\"{bad}"),
                );
                let error = serde_json::from_str::<Locked>(&text).unwrap_err();
                let found = format!("`{bad}` is not a sha256 digest");
                assert!(error.to_string().starts_with(&found), "{error}");
            }
        }
    }

    proptest! {
        #[test]
        fn parsers_never_panic(s in "\\PC*") {
            let _ = s.parse::<Digest>();
            let _ = Digest::from_hex(&s);
        }

        #[test]
        fn both_spellings_are_one_digest(hash: [u8; 32]) {
            let digest = Digest::from_hash(&hash);
            prop_assert_eq!(Digest::from_hex(digest.hex()), Ok(digest.clone()));
            prop_assert_eq!(digest.to_string().parse(), Ok(digest));
        }
    }
}
