//! Recovers the image names that can still be read in a damaged `index.json`.

use super::error::StoreError;
use super::handle::Store;
use super::images::{digest, is_name, name_of};
use serde_json::Value;
use stackforge_types::Digest;
use std::collections::BTreeMap;

/// The result of reading a damaged index.
#[derive(Debug, Default)]
pub(super) struct Salvaged {
    /// New index entries, made from the images' own documents.
    pub entries: Vec<Value>,
    pub names: Vec<String>,
    /// Names of incomplete images.
    pub lost: Vec<String>,
}

impl Store {
    /// Searches the text of an index for named images.
    pub(super) fn salvage(&self, text: &[u8]) -> Result<Salvaged, StoreError> {
        let mut out = Salvaged::default();
        for (name, manifest) in named(text) {
            match self.named_entry(&name, &manifest) {
                Ok(entry) => {
                    out.entries.push(entry);
                    out.names.push(name);
                }
                Err(StoreError::Missing(_)) => out.lost.push(name),
                Err(e) => return Err(e),
            }
        }
        Ok(out)
    }
}

/// Objects in the text that are entries with a name, at any depth. If two have the same name, the last one
/// counts.
fn named(text: &[u8]) -> BTreeMap<String, Digest> {
    let mut found = BTreeMap::new();
    let mut at = 0;
    while let Some(next) = text[at..].iter().position(|byte| *byte == b'{') {
        at += next;
        let mut objects = serde_json::Deserializer::from_slice(&text[at..]).into_iter::<Value>();
        let object = objects.next().and_then(Result::ok).unwrap_or_default();
        let name = name_of(&object).filter(|name| is_name(name));
        match name.zip(digest(&object)) {
            Some((name, digest)) => {
                found.insert(name.to_owned(), digest);
                at += objects.byte_offset();
            }
            // It is the index or an object around entries: search inside it.
            None => at += 1,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_are_found_before_and_behind_the_damage() {
        let entry = |name: &str| {
            let digest = Digest::of(name.as_bytes());
            json!({ "digest": digest, "annotations": { super::super::images::REF_NAME: name } })
        };
        let names = ["a:1", "b:1", "c:1"];
        let index = json!({ "schemaVersion": 2, "manifests": names.map(entry) }).to_string();
        let read = |text: &str| {
            let found = named(text.as_bytes());
            for (name, digest) in &found {
                assert_eq!(*digest, Digest::of(name.as_bytes()));
            }
            found.into_keys().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(read(&index), "a:1 b:1 c:1");
        let middle = index.find("b:1").unwrap();
        assert_eq!(read(&index[..middle]), "a:1");
        assert_eq!(read(&index[middle..]), "c:1");
        let torn = format!("{}\0\0\0{}", &index[..middle], &index[middle + 3..]);
        assert_eq!(read(&torn), "a:1 c:1");
        assert_eq!(read(&index.replace("manifests", "x")), "a:1 b:1 c:1");
        assert_eq!(read(&"{\"a\":".repeat(10_000)), "");
        assert_eq!(read(""), "");
    }
}
