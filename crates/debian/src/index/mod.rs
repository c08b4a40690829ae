//! The packages that an archive offers for one architecture, over several suites.
//!
//! The input is `Packages` files that were verified before; the output is a lookup by name, newest
//! version first, and by virtual name. All texts are in one buffer and a package is a row of spans into
//! it, so the 63 000 packages of a Debian release need tens of megabytes, not hundreds.

use std::collections::BTreeMap;
use std::io::BufRead;

use super::control::{ControlError, StanzaReader};
use super::package::{LockedDeb, is_package_name, is_pool_path, is_word};
use super::relation::{Relation, parse_relations};
use super::version;
use stackforge_types::Digest;

/// Why an index cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A file does not parse.
    #[error("index of archive `{archive}`")]
    Control {
        /// Kind of the archive.
        archive: String,
        /// What is wrong with it.
        #[source]
        source: ControlError,
    },
    /// A package lacks a field, or the field is malformed.
    #[error("index of archive `{archive}`: package `{package}` has no valid field `{field}`")]
    Field {
        /// Kind of the archive.
        archive: String,
        /// Name of the package, if it has one.
        package: String,
        /// The field.
        field: &'static str,
    },
    /// The texts exceed the 32 bits of a span.
    #[error("the indices hold more than 4 GiB of text")]
    TooLong,
}

#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: u32,
    length: u32,
}

const FIELDS: [&str; 10] = [
    "Package",
    "Version",
    "Architecture",
    "Filename",
    "Priority",
    "Pre-Depends",
    "Depends",
    "Provides",
    "Conflicts",
    "Breaks",
];

#[derive(Debug)]
struct Record {
    spans: [Span; FIELDS.len()],
    size: u64,
    sha256: Digest,
    archive: u16,
    essential: bool,
}

/// Collects packages, then sorts them once.
#[derive(Debug)]
pub struct IndexBuilder {
    architecture: String,
    text: String,
    records: Vec<Record>,
    archives: Vec<String>,
}

impl IndexBuilder {
    /// Creates an index without packages for `architecture`, in Debian's spelling.
    pub fn new(architecture: &str) -> Self {
        IndexBuilder {
            architecture: architecture.to_owned(),
            text: String::new(),
            records: Vec::new(),
            archives: Vec::new(),
        }
    }

    /// Adds the packages of one `Packages` file of the archive kind `archive`. Packages of other
    /// architectures are left out.
    ///
    /// # Errors
    /// If the file is malformed. Packages that were added before the error stay.
    pub fn add(&mut self, archive: &str, packages: impl BufRead) -> Result<(), IndexError> {
        let position = match self.archives.iter().position(|known| known == archive) {
            Some(position) => position,
            None => {
                self.archives.push(archive.to_owned());
                self.archives.len() - 1
            }
        };
        let archive_number = u16::try_from(position).map_err(|_| IndexError::TooLong)?;
        let control = |source| IndexError::Control {
            archive: archive.to_owned(),
            source,
        };
        let mut reader = StanzaReader::new(packages);
        while let Some(stanza) = reader.next_stanza().map_err(control)? {
            let mut values = [""; FIELDS.len()];
            let (mut size, mut sha256, mut essential) = ("", "", false);
            for (name, value) in stanza.iter() {
                match FIELDS.iter().position(|field| *field == name) {
                    Some(field) => values[field] = value,
                    None if name == "Size" => size = value,
                    None if name == "SHA256" => sha256 = value,
                    None if name == "Essential" => essential = value == "yes",
                    None => {}
                }
            }
            if values[2] != self.architecture && values[2] != "all" {
                continue;
            }
            let wrong = |field| IndexError::Field {
                archive: archive.to_owned(),
                package: values[0].escape_debug().to_string(),
                field,
            };
            let valid = [
                is_package_name(values[0]),
                version::Version::parse(values[1]).is_ok(),
                is_word(values[2]),
                is_pool_path(values[3]),
            ];
            if let Some(field) = valid.iter().position(|valid| !valid) {
                return Err(wrong(FIELDS[field]));
            }
            let size = size.parse().map_err(|_| wrong("Size"))?;
            let sha256 = Digest::from_hex(sha256).map_err(|_| wrong("SHA256"))?;
            let mut spans = [Span::default(); FIELDS.len()];
            for (span, value) in spans.iter_mut().zip(values) {
                let start = u32::try_from(self.text.len()).map_err(|_| IndexError::TooLong)?;
                let length = u32::try_from(value.len()).map_err(|_| IndexError::TooLong)?;
                *span = Span { start, length };
                self.text.push_str(value);
            }
            self.records.push(Record {
                spans,
                size,
                sha256,
                archive: archive_number,
                essential,
            });
        }
        Ok(())
    }

    /// Sorts the packages.
    pub fn finish(self) -> PackageIndex {
        let mut index = PackageIndex {
            architecture: self.architecture,
            text: self.text,
            records: self.records,
            archives: self.archives,
            sorted: Vec::new(),
            provided: BTreeMap::new(),
        };
        let mut sorted: Vec<u32> = (0..index.records.len() as u32).collect();
        // The sort is stable: of two entries with one version, the suite that was added first stays
        // first.
        sorted.sort_by(|a, b| {
            let (a, b) = (index.package(*a), index.package(*b));
            a.name()
                .cmp(b.name())
                .then_with(|| version::compare(b.version(), a.version()))
        });
        sorted.dedup_by(|a, b| {
            let (a, b) = (index.package(*a), index.package(*b));
            a.name() == b.name() && version::compare(b.version(), a.version()).is_eq()
        });
        index.sorted = sorted;
        let mut provided: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let mut previous = "";
        for &number in &index.sorted {
            let package = index.package(number);
            // Only the newest version of a package is a provider.
            if package.name() == previous {
                continue;
            }
            previous = package.name();
            for (name, _) in package.provides() {
                provided.entry(name.to_owned()).or_default().push(number);
            }
        }
        index.provided = provided;
        index
    }
}

/// Verified packages of one architecture.
#[derive(Debug)]
pub struct PackageIndex {
    architecture: String,
    text: String,
    records: Vec<Record>,
    archives: Vec<String>,
    sorted: Vec<u32>,
    provided: BTreeMap<String, Vec<u32>>,
}

impl PackageIndex {
    /// Returns the packages' architecture, in Debian's spelling.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    fn package(&self, number: u32) -> Package<'_> {
        Package {
            index: self,
            record: &self.records[number as usize],
        }
    }

    /// Iterates over every version of a package, newest first.
    pub fn versions(&self, name: &str) -> impl Iterator<Item = Package<'_>> + use<'_> {
        let start = self
            .sorted
            .partition_point(|number| self.package(*number).name() < name);
        let end = start
            + self.sorted[start..].partition_point(|number| self.package(*number).name() == name);
        self.sorted[start..end]
            .iter()
            .map(|number| self.package(*number))
    }

    /// Returns the newest version of the package with exactly this name. `None` for a virtual name.
    pub fn newest(&self, name: &str) -> Option<Package<'_>> {
        self.versions(name).next()
    }

    /// Iterates over the newest version of each package, sorted by name.
    pub fn packages(&self) -> impl Iterator<Item = Package<'_>> {
        let mut previous = "";
        self.sorted
            .iter()
            .map(|number| self.package(*number))
            .filter(move |package| {
                std::mem::replace(&mut previous, package.name()) != package.name()
            })
    }

    /// Iterates over the packages that provide a virtual name, sorted by name.
    pub fn providers(&self, name: &str) -> impl Iterator<Item = Package<'_>> + use<'_> {
        self.provided
            .get(name)
            .into_iter()
            .flatten()
            .map(|number| self.package(*number))
    }
}

/// One version of one package.
#[derive(Debug, Clone, Copy)]
pub struct Package<'a> {
    index: &'a PackageIndex,
    record: &'a Record,
}

/// How important a package is for a system, most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// `required`.
    Required,
    /// `important`.
    Important,
    /// `standard`.
    Standard,
    /// `optional` and everything else.
    Optional,
}

impl<'a> Package<'a> {
    fn field(&self, field: usize) -> &'a str {
        let Span { start, length } = self.record.spans[field];
        &self.index.text[start as usize..start as usize + length as usize]
    }

    /// Returns the field `Package`.
    pub fn name(&self) -> &'a str {
        self.field(0)
    }

    /// Returns the field `Version`.
    pub fn version(&self) -> &'a str {
        self.field(1)
    }

    /// Returns the field `Priority`.
    pub fn priority(&self) -> Priority {
        match self.field(4) {
            "required" => Priority::Required,
            "important" => Priority::Important,
            "standard" => Priority::Standard,
            _ => Priority::Optional,
        }
    }

    /// Whether the field `Essential` is `yes`.
    pub fn essential(&self) -> bool {
        self.record.essential
    }

    /// Returns the field `Pre-Depends`, empty if it is missing.
    pub fn pre_depends(&self) -> &'a str {
        self.field(5)
    }

    /// Returns the field `Depends`, empty if it is missing.
    pub fn depends(&self) -> &'a str {
        self.field(6)
    }

    /// Returns the field `Conflicts`, empty if it is missing.
    pub fn conflicts(&self) -> &'a str {
        self.field(8)
    }

    /// Returns the field `Breaks`, empty if it is missing.
    pub fn breaks(&self) -> &'a str {
        self.field(9)
    }

    /// Returns the virtual names that the package provides, each with its version if it has one. Empty
    /// if the list is malformed.
    pub fn provides(&self) -> Vec<(&'a str, Option<&'a str>)> {
        let provides = self.field(7);
        if provides.is_empty() {
            return Vec::new();
        }
        parse_relations(provides, &self.index.architecture)
            .unwrap_or_default()
            .into_iter()
            .flatten()
            .map(|alternative| {
                let version = alternative
                    .version
                    .filter(|(relation, _)| *relation == Relation::Equal);
                (alternative.name, version.map(|(_, version)| version))
            })
            .collect()
    }

    /// Returns the package as a lock names it.
    pub fn locked(&self) -> LockedDeb {
        LockedDeb {
            name: self.name().to_owned(),
            version: self.version().to_owned(),
            architecture: self.field(2).to_owned(),
            archive: self.index.archives[usize::from(self.record.archive)].clone(),
            path: self.field(3).to_owned(),
            size: self.record.size,
            sha256: self.record.sha256.clone(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
