//! What was read of one wheel, and where it is kept: by the wheel's digest, for its content never changes.

use serde::{Deserialize, Serialize};
use stackforge_types::Digest;
use stackforge_types::wheel::normalized;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Changed when more, or something else, is read.
const FORMAT: u32 = 6;

/// A wheel's objects.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Objects {
    format: u32,
    /// File names of all objects, also of those that were not read.
    names: BTreeSet<String>,
    /// NEEDED of each object or program that was read, by its path in the wheel.
    needed: BTreeMap<String, Vec<String>>,
    /// Distributions that each extra of the wheel requires.
    extras: BTreeMap<String, BTreeSet<String>>,
    /// Whether an extension module loads the C API of numpy 1 and not that of numpy 2.
    numpy_1: bool,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            format: FORMAT,
            names: BTreeSet::new(),
            needed: BTreeMap::new(),
            extras: BTreeMap::new(),
            numpy_1: false,
        }
    }
}

impl Objects {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub fn needed(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &str>)> {
        let entries = self.needed.iter();
        entries.map(|(path, needed)| (path.as_str(), needed.iter().map(String::as_str)))
    }

    pub fn extras(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.extras
    }

    pub fn is_for_numpy_1(&self) -> bool {
        self.numpy_1
    }

    /// Takes note of a module that was built for numpy 1.
    pub fn add_for_numpy_1(&mut self) {
        self.numpy_1 = true;
    }

    /// Reads the extras in a wheel's METADATA.
    pub fn metadata(&mut self, text: &str) {
        let lines = text.lines().take_while(|line| !line.is_empty());
        for line in lines.filter_map(|line| line.strip_prefix("Requires-Dist: ")) {
            let Some((what, condition)) = line.split_once(';') else {
                continue;
            };
            let end = what.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
            let name = normalized(&what[..end.unwrap_or(what.len())]);
            let mut words = condition.split(['"', '\'']);
            while let Some(before) = words.next() {
                let of_extra = before.trim_end().ends_with("==") && before.contains("extra");
                if let Some(value) = words.next()
                    && of_extra
                {
                    self.extras
                        .entry(value.to_owned())
                        .or_default()
                        .insert(name.clone());
                }
            }
        }
    }

    /// Adds the name of an object.
    pub fn name(&mut self, path: &str) {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.names.insert(name.to_owned());
    }

    pub fn add(&mut self, path: &str, needed: Vec<String>) {
        self.name(path);
        self.needed.insert(path.to_owned(), needed);
    }

    /// Returns what was read before of the wheel with this digest.
    pub fn kept(folder: &Path, sha256: &Digest) -> Option<Self> {
        let text = std::fs::read(folder.join(format!("{}.json", sha256.hex()))).ok()?;
        let objects: Self = serde_json::from_slice(&text).ok()?;
        (objects.format == FORMAT).then_some(objects)
    }

    /// Keeps it. A store that takes no more costs time at the next run alone.
    pub fn keep(&self, folder: &Path, sha256: &Digest) {
        if let Err(error) = self.write(folder, sha256) {
            tracing::debug!(%error, "what a wheel's objects need is not kept");
        }
    }

    fn write(&self, folder: &Path, sha256: &Digest) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let part = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&part, self)?;
        part.persist(folder.join(format!("{}.json", sha256.hex())))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_by_its_digest() {
        let dir = tempfile::tempdir().unwrap();
        let digest = Digest::of(b"a wheel");
        let mut objects = Objects::default();
        objects.add("a/b.so", vec!["libc.so.6".into()]);
        objects.name("c/d.so.1");
        objects.metadata(
            "Requires-Dist: numpy>=1\nRequires-Dist: nvidia-cublas-cu12~=12.0 ; extra == 'cuda'\nRequires-Dist: cuda-toolkit[cublas]==13.* ; (python_version >= \"3.9\") and extra == \"ctk\"\n\nRequires-Dist: no; extra == 'x'\n",
        );
        objects.keep(dir.path(), &digest);
        let kept = Objects::kept(dir.path(), &digest).unwrap();
        assert_eq!(kept.names().collect::<Vec<_>>(), ["b.so", "d.so.1"]);
        assert_eq!(kept, objects);
        let extras: Vec<_> = kept.extras().iter().collect();
        assert_eq!(extras[0].0, "ctk");
        assert!(extras[0].1.contains("cuda-toolkit"));
        assert!(extras[1].0 == "cuda" && extras[1].1.contains("nvidia-cublas-cu12"));
        assert_eq!(extras.len(), 2);
        assert!(Objects::kept(dir.path(), &Digest::of(b"another")).is_none());
    }
}
