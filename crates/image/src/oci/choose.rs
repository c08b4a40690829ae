//! Chooses a manifest of an index.

use std::collections::{HashMap, HashSet};
use std::str::FromStr as _;

use oci_spec::image::{Arch, Descriptor, ImageIndex, MediaType, Os};

use super::error::OciError;
use super::parse::{self, Leads, malformed};
use super::place::Files;
use stackforge_types::{Digest, Platform};

/// Most levels of nested indexes that are read.
const DEEPEST: usize = 4;
const MOST_MANIFESTS: usize = 10_000;
const MOST_INDEXES: usize = 100;

/// Annotations that name an image: OCI's, and what containerd and Docker add.
const NAMES: [&str; 2] = [
    "org.opencontainers.image.ref.name",
    "io.containerd.image.name",
];

/// A manifest with the names of the entries that lead to it.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub descriptor: Descriptor,
    pub digest: Digest,
    names: Vec<String>,
}

pub(super) fn choose(
    files: &Files,
    index: &ImageIndex,
    reference: Option<&str>,
    platform: Option<Platform>,
) -> Result<Choice, OciError> {
    let wanted: Option<Digest> = reference.and_then(|r| r.parse().ok());
    let mut walk = Walk::new(files);
    let mut entries: Vec<&Descriptor> = index.manifests().iter().collect();
    if let (Some(reference), None) = (reference, &wanted) {
        entries.retain(|entry| names(entry).any(|name| is_named(name, reference)));
        if entries.is_empty() {
            let mut available: Vec<String> = index
                .manifests()
                .iter()
                .flat_map(names)
                .map(str::to_owned)
                .collect();
            available.sort();
            available.dedup();
            return Err(no_reference(reference, available));
        }
    }
    for entry in entries {
        let names: Vec<String> = names(entry).map(str::to_owned).collect();
        walk.visit(entry, &names, wanted.as_ref(), false, 0)?;
    }
    let Walk {
        mut found, skipped, ..
    } = walk;
    if found.is_empty() {
        return Err(match reference.filter(|_| wanted.is_some()) {
            Some(reference) => no_reference(reference, everything(files, index)?),
            None => malformed("index.json", none(skipped)),
        });
    }
    let available: Vec<String> = found.iter().map(Choice::describe).collect();
    if let Some(platform) = platform {
        // An entry without a platform may match; the configuration decides.
        found.retain(|choice| choice.fits(platform) != Some(false));
    }
    match (found.pop(), platform) {
        (None, Some(platform)) => Err(OciError::NoPlatform {
            platform,
            available,
        }),
        (Some(only), _) if found.is_empty() => Ok(only),
        (only, _) => {
            found.extend(only);
            Err(OciError::Several(
                found.iter().map(Choice::describe).collect(),
            ))
        }
    }
}

/// Descriptions of all images that could have been named.
fn everything(files: &Files, index: &ImageIndex) -> Result<Vec<String>, OciError> {
    let mut walk = Walk::new(files);
    for entry in index.manifests() {
        walk.visit(entry, &[], None, false, 0)?;
    }
    Ok(walk.found.iter().map(|c| c.digest.to_string()).collect())
}

fn no_reference(reference: &str, available: Vec<String>) -> OciError {
    OciError::NoReference {
        reference: reference.chars().take(200).collect(),
        available,
    }
}

fn none(skipped: Vec<String>) -> String {
    if skipped.is_empty() {
        return "names no image".to_owned();
    }
    let types: Vec<String> = skipped
        .iter()
        .map(|s| s.escape_debug().to_string())
        .collect();
    format!("names no image, only {}", types.join(", "))
}

fn names(entry: &Descriptor) -> impl Iterator<Item = &str> {
    NAMES
        .iter()
        .filter_map(|name| entry.annotations().as_ref()?.get(*name))
        .map(|name| familiar(name))
}

/// The short form of a name: containerd stores Docker Hub's names in full.
fn familiar(name: &str) -> &str {
    match name.strip_prefix("docker.io/") {
        Some(path) => path.strip_prefix("library/").unwrap_or(path),
        None => name,
    }
}

/// Whether an entry's name matches `reference`, with `:latest` or without.
fn is_named(name: &str, reference: &str) -> bool {
    let reference = familiar(reference);
    name == reference || name.strip_suffix(":latest") == Some(reference)
}

struct Walk<'a> {
    files: &'a Files,
    /// Indexes that were read, and whether their entries were wanted.
    seen: HashSet<(Digest, bool)>,
    found: Vec<Choice>,
    /// Index into `found` of each manifest.
    places: HashMap<Digest, usize>,
    /// A few media types of entries that are not images.
    skipped: Vec<String>,
}

impl<'a> Walk<'a> {
    fn new(files: &'a Files) -> Self {
        Self {
            files,
            seen: HashSet::new(),
            found: Vec::new(),
            places: HashMap::new(),
            skipped: Vec::new(),
        }
    }

    /// Collects the manifests at or below `entry`; with `wanted`, only those at or below the entry with that
    /// digest.
    fn visit(
        &mut self,
        entry: &Descriptor,
        names: &[String],
        wanted: Option<&Digest>,
        inside: bool,
        depth: usize,
    ) -> Result<(), OciError> {
        let digest = parse::digest(entry)?;
        let inside = inside || wanted.is_none_or(|wanted| *wanted == digest);
        match parse::leads(entry) {
            Leads::Manifest if is_attestation(entry) => Ok(()),
            Leads::Manifest => {
                if !inside {
                    return Ok(());
                }
                self.found(entry, digest, names)
            }
            Leads::Index => {
                if depth == DEEPEST {
                    let problem = format!("lies more than {DEEPEST} indexes deep");
                    return Err(malformed(&format!("index {digest}"), problem));
                }
                if !self.seen.insert((digest.clone(), inside)) {
                    return Ok(());
                }
                if self.seen.len() > MOST_INDEXES {
                    return Err(malformed("index.json", "leads to too many indexes"));
                }
                let what = format!("index {digest}");
                let bytes = self.files.blob(&digest)?;
                let bytes = bytes.verified(&what, &digest, entry.size())?;
                let index = parse::index(&what, &bytes)?;
                for entry in index.manifests() {
                    self.visit(entry, names, wanted, inside, depth + 1)?;
                }
                Ok(())
            }
            Leads::Elsewhere => {
                let media_type = entry.media_type().to_string();
                if self.skipped.len() < 5 && !self.skipped.contains(&media_type) {
                    self.skipped.push(media_type);
                }
                Ok(())
            }
        }
    }

    fn found(
        &mut self,
        entry: &Descriptor,
        digest: Digest,
        names: &[String],
    ) -> Result<(), OciError> {
        if let Some(at) = self.places.get(&digest) {
            self.found[*at].names.extend_from_slice(names);
            return Ok(());
        }
        if self.found.len() == MOST_MANIFESTS {
            return Err(malformed("index.json", "leads to too many manifests"));
        }
        self.places.insert(digest.clone(), self.found.len());
        self.found.push(Choice {
            descriptor: entry.clone(),
            digest,
            names: names.to_vec(),
        });
        Ok(())
    }
}

/// Whether an entry is an attestation that BuildKit stores beside an image.
fn is_attestation(entry: &Descriptor) -> bool {
    let unknown = entry.platform().as_ref().is_some_and(|p| {
        p.os().to_string() == "unknown" && p.architecture().to_string() == "unknown"
    });
    let annotated = entry.annotations().as_ref();
    unknown
        || annotated.is_some_and(|a| a.contains_key("vnd.docker.reference.type"))
        || entry.artifact_type().is_some()
}

impl Choice {
    pub(super) fn of(digest: &Digest, size: u64) -> Result<Self, OciError> {
        let text = digest.to_string();
        let digest_of = oci_spec::image::Digest::from_str(&text);
        let parsed = digest_of.map_err(|_| OciError::Algorithm(text))?;
        Ok(Self {
            descriptor: Descriptor::new(MediaType::ImageManifest, size, parsed),
            digest: digest.clone(),
            names: Vec::new(),
        })
    }

    /// Whether the entry is for a platform. `None` if it names none.
    fn fits(&self, wanted: Platform) -> Option<bool> {
        let platform = self.descriptor.platform().as_ref()?;
        Some(is(platform.os(), platform.architecture(), wanted))
    }

    /// The manifest's names, platform and digest, for messages.
    pub(super) fn describe(&self) -> String {
        let mut out = self.names.join(", ");
        if let Some(platform) = self.descriptor.platform() {
            let variant = platform.variant().as_deref().unwrap_or_default();
            if !out.is_empty() {
                out.push(' ');
            }
            out += &format!("{}/{}", platform.os(), platform.architecture());
            if !variant.is_empty() {
                out += &format!("/{variant}");
            }
        }
        if out.is_empty() {
            return self.digest.to_string();
        }
        format!("{out} ({})", self.digest)
    }
}

pub(super) fn is(os: &Os, arch: &Arch, wanted: Platform) -> bool {
    format!("{os}/{arch}") == wanted.to_string()
}
