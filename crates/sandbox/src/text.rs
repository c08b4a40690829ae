//! Serializes paths and words of arbitrary bytes as JSON.
//!
//! Each byte becomes the character with its number, so bytes that are not UTF-8 survive and ASCII stays
//! short.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

fn write(text: &OsStr) -> String {
    text.as_bytes().iter().map(|b| char::from(*b)).collect()
}

fn read(text: &str) -> Option<OsString> {
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    bytes.map(OsString::from_vec)
}

/// One path or word.
pub(crate) mod one {
    use super::*;

    pub(crate) fn serialize<T: AsRef<OsStr>, S: Serializer>(
        text: &T,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.serialize_str(&write(text.as_ref()))
    }

    pub(crate) fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(
        d: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(d)?;
        read(&text)
            .map(T::from)
            .ok_or_else(|| D::Error::custom("not bytes"))
    }
}

/// Several paths or words.
pub(crate) mod list {
    use super::*;

    pub(crate) fn serialize<T: AsRef<OsStr>, S: Serializer>(
        all: &[T],
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_seq(all.iter().map(|t| write(t.as_ref())))
    }

    pub(crate) fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Vec<T>, D::Error> {
        Vec::<String>::deserialize(d)?
            .iter()
            .map(|t| {
                read(t)
                    .map(T::from)
                    .ok_or_else(|| D::Error::custom("not bytes"))
            })
            .collect()
    }
}

/// A map of names and values.
pub(crate) mod map {
    use super::*;
    use std::collections::BTreeMap;

    type Map = BTreeMap<OsString, OsString>;

    pub(crate) fn serialize<S: Serializer>(all: &Map, s: S) -> Result<S::Ok, S::Error> {
        let all: Vec<(String, String)> = all.iter().map(|(k, v)| (write(k), write(v))).collect();
        all.serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Map, D::Error> {
        Vec::<(String, String)>::deserialize(d)?
            .iter()
            .map(|(k, v)| Some((read(k)?, read(v)?)))
            .collect::<Option<Map>>()
            .ok_or_else(|| D::Error::custom("not bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive() {
        let all: Vec<u8> = (0..=255).collect();
        let text = OsString::from_vec(all);
        assert_eq!(read(&write(&text)), Some(text));
        assert_eq!(read("€"), None);
    }
}
