//! What the objects of a wheel need, as far as they were read.

use serde::{Deserialize, Serialize};
use stackforge_types::wheel::distribution_of;
use std::collections::{BTreeMap, BTreeSet};

/// A wheel's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Objects {
    /// File names of all objects, also of those that were not read.
    names: BTreeSet<String>,
    /// NEEDED of each object or program that was read, by its path in the wheel.
    needed: BTreeMap<String, Vec<String>>,
    /// Distributions that each extra of the wheel requires.
    extras: BTreeMap<String, BTreeSet<String>>,
    /// Whether an extension module loads the C API of numpy 1 and not that of numpy 2.
    numpy_1: bool,
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
            let name = distribution_of(what);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_are_read_with_what_they_require() {
        let mut objects = Objects::default();
        objects.metadata(
            "Requires-Dist: numpy>=1\nRequires-Dist: nvidia-cublas-cu12~=12.0 ; extra == 'cuda'\nRequires-Dist: cuda-toolkit[cublas]==13.* ; (python_version >= \"3.9\") and extra == \"ctk\"\n\nRequires-Dist: no; extra == 'x'\n",
        );
        let extras: Vec<_> = objects.extras().iter().collect();
        assert_eq!(extras[0].0, "ctk");
        assert!(extras[0].1.contains("cuda-toolkit"));
        assert!(extras[1].0 == "cuda" && extras[1].1.contains("nvidia-cublas-cu12"));
        assert_eq!(extras.len(), 2);
    }
}
