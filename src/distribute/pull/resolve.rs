//! Resolves a reference to the manifest of one image.
//!
//! In: a reference and what is wanted of it. Out: [`Resolved`]: what has to be fetched and, for an index,
//! why this variant was chosen. Only manifests and the configuration are fetched.

use super::choose::{Choice, Machine, Reason, choose, doubt};
use super::{PullError, Settings};
use crate::evidence::{self, Signed, Trust};
use crate::publish::{Facts, PushedImage, index};
use bytes::Bytes;
use stackforge_image::oci::{self, parse};
use stackforge_image::store::Store;
use stackforge_stack::labels;
use stackforge_stack::spec::Platform;
use stackforge_transfer::registry::{
    Descriptor, Manifest, Reference, Registry, Repository, Target,
};
use stackforge_types::Digest;

/// Most levels of indexes that are followed.
const DEEPEST: usize = 3;

/// Which image is wanted, if the reference is an index.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// The image for a platform. With `only`, a single image for another platform is refused.
    Platform { platform: Platform, only: bool },
    /// The variant that suits a device best.
    Machine(Machine),
    /// The variant with this name, even if it does not suit the device.
    Variant(String),
}

/// An image of a registry whose layers are not fetched yet.
pub struct Resolved {
    pub(super) registry: Registry,
    pub repository: Repository,
    pub manifest: Manifest,
    /// Digest of what the reference names: the manifest, or an index that leads to it.
    pub named: Digest,
    /// The choice among an index's variants, if there was one.
    pub choice: Option<Choice>,
    /// Why the only image does not run here, by its labels.
    pub doubt: Option<String>,
    pub(super) config: Bytes,
    /// Bytes of the configuration that were downloaded.
    pub(super) fetched: u64,
    /// The configuration, then the layers, the lowest first.
    pub(super) blobs: Vec<Descriptor>,
    pub(super) layers: Vec<oci_spec::image::Descriptor>,
}

/// Finds the image of a reference.
pub async fn resolve(
    reference: &Reference,
    wanted: &Wanted,
    settings: &Settings<'_>,
) -> Result<Resolved, PullError> {
    let registry = settings.connect(reference)?;
    let repository = reference.repository();
    let mut manifest = registry.manifest(repository, &reference.target()).await?;
    let named = manifest.digest.clone();
    let mut choice = None;
    for _ in 0..DEEPEST {
        if !is_index(&manifest) {
            break;
        }
        let (digest, chosen) = pick(reference, &manifest, wanted, settings.store)?;
        choice = choice.or(chosen);
        manifest = registry
            .manifest(repository, &Target::Digest(digest))
            .await?;
    }
    let parsed = parse::manifest("the manifest", &manifest.bytes)?;
    let mut blobs = Vec::new();
    for part in [parsed.config()].into_iter().chain(parsed.layers()) {
        let annotations = part.annotations().clone().unwrap_or_default();
        blobs.push(Descriptor {
            annotations: annotations.into_iter().collect(),
            ..Descriptor::of_blob(parse::digest(part)?, part.size())
        });
    }
    let mut resolved = Resolved {
        registry,
        repository: repository.clone(),
        manifest,
        named,
        choice,
        doubt: None,
        config: Bytes::new(),
        fetched: 0,
        blobs,
        layers: parsed.layers().clone(),
    };
    resolved.configured(wanted, settings).await?;
    Ok(resolved)
}

fn pick(
    reference: &Reference,
    manifest: &Manifest,
    wanted: &Wanted,
    store: &Store,
) -> Result<(Digest, Option<Choice>), PullError> {
    let variants = || index::variants(&manifest.bytes);
    // This also refuses a manifest that is not an index.
    parse::index("the index", &manifest.bytes)?;
    match wanted {
        Wanted::Platform { platform, .. } => {
            let chosen = oci::choose(store.root(), &manifest.bytes, Some(*platform));
            match chosen {
                // Container engines take the first entry of a platform.
                Err(oci::OciError::Several(_)) => {
                    let first = variants();
                    let first = first.iter().find(|v| v.platform == Some(*platform));
                    let first = first.map(|v| v.digest.clone());
                    Ok((first.map_or_else(|| chosen, Ok)?, None))
                }
                chosen => Ok((chosen?, None)),
            }
        }
        Wanted::Machine(machine) => {
            let variants = variants();
            let choice = choose(machine, &variants);
            match &choice.taken {
                Some(chosen) => Ok((variants[chosen.place].digest.clone(), Some(choice))),
                None => Err(PullError::NoVariant {
                    reference: reference.to_string(),
                    others: choice.others,
                }),
            }
        }
        Wanted::Variant(name) => {
            let variants = variants();
            let place = variants.iter().position(|v| v.name.as_ref() == Some(name));
            let Some(place) = place else {
                return Err(PullError::NoSuchVariant {
                    reference: reference.to_string(),
                    variant: name.chars().take(100).collect(),
                    available: variants.iter().map(|v| v.shown()).collect(),
                });
            };
            let choice = Choice {
                taken: Some(Reason {
                    place,
                    variant: name.clone(),
                    named: true,
                    why: "asked for by its name".to_owned(),
                }),
                others: Vec::new(),
            };
            Ok((variants[place].digest.clone(), Some(choice)))
        }
    }
}

fn is_index(manifest: &Manifest) -> bool {
    manifest.media_type.ends_with("image.index.v1+json")
        || manifest.media_type.ends_with("manifest.list.v2+json")
}

impl Wanted {
    /// The only acceptable platform, if there is one.
    fn platform(&self) -> Option<Platform> {
        match self {
            Self::Platform { platform, only } => only.then_some(*platform),
            Self::Machine(machine) => machine.platform,
            Self::Variant(_) => None,
        }
    }
}

impl Resolved {
    /// Reads the configuration. Fails if it is for another platform.
    async fn configured(
        &mut self,
        wanted: &Wanted,
        settings: &Settings<'_>,
    ) -> Result<(), PullError> {
        let what = "the configuration";
        let Some(blob) = self.blobs.first() else {
            return Ok(());
        };
        // Do not store it yet: resolving alone must not write to the store.
        let path = settings.store.blob_path(&blob.digest);
        let small = blob.size <= oci::MOST_JSON;
        let here = small.then(|| std::fs::read(path).ok()).flatten();
        let here = here.filter(|bytes| Digest::of(bytes) == blob.digest);
        self.config = match here {
            Some(bytes) => bytes.into(),
            None => {
                let read = self
                    .registry
                    .small_blob(&self.repository, blob, oci::MOST_JSON);
                let bytes = read.await?;
                self.fetched = bytes.len() as u64;
                bytes
            }
        };
        let (config, _) = parse::config(what, &self.config)?;
        oci::check_platform(&config, wanted.platform())?;
        if let (None, Wanted::Machine(machine)) = (&self.choice, wanted) {
            let labels = config.config().as_ref().and_then(|c| c.labels().clone());
            let labels = labels.unwrap_or_default().into_iter().collect();
            let platform = format!("{}/{}", config.os(), config.architecture());
            self.doubt = doubt(machine, platform.parse().ok(), &Facts::read(&labels));
        }
        Ok(())
    }

    /// Returns what a key has signed of the image or of the index that it was chosen from.
    pub async fn verify(
        &self,
        reference: &Reference,
        trust: &Trust,
    ) -> Result<Vec<Signed>, PullError> {
        let mut digests = vec![&self.named, &self.manifest.digest];
        digests.dedup();
        let signed = evidence::verify_any(&self.registry, reference, &digests, trust).await?;
        // The variant's name in an index is covered only by a signature of the index.
        let by_index = signed.iter().any(|one| one.digest == self.named);
        let chosen = self.choice.as_ref().and_then(|c| c.taken.as_ref());
        match (chosen, self.label(labels::VARIANT)) {
            (Some(chosen), Some(image)) if !by_index && chosen.named && chosen.variant != image => {
                Err(PullError::OtherVariant {
                    reference: reference.to_string(),
                    index: chosen.variant.clone(),
                    image,
                })
            }
            _ => Ok(signed),
        }
    }

    /// Returns the image by digest, with what its configuration and its entry in an index say of it. `None` if it is
    /// for a platform that stacks are not for.
    pub fn image(&self, reference: &Reference) -> Option<PushedImage> {
        let config = self.configuration()?;
        let platform = format!("{}/{}", config.os(), config.architecture());
        let settings = config.config().as_ref();
        let labels = settings.and_then(|c| c.labels().clone());
        let user = settings.and_then(|c| c.user().clone());
        Some(PushedImage {
            repository: PushedImage::repository_of(reference),
            digest: self.manifest.digest.clone(),
            platform: platform.parse().ok()?,
            labels: labels.unwrap_or_default().into_iter().collect(),
            user: user.filter(|user| !user.is_empty()),
        })
    }

    fn configuration(&self) -> Option<oci_spec::image::ImageConfiguration> {
        let (config, _) = parse::config("the configuration", &self.config).ok()?;
        Some(config)
    }

    fn label(&self, name: &str) -> Option<String> {
        let config = self.configuration()?;
        config
            .config()
            .as_ref()?
            .labels()
            .as_ref()?
            .get(name)
            .cloned()
    }

    /// Returns the creation time in the configuration.
    pub(super) fn created(&self) -> Option<String> {
        self.configuration()?.created().clone()
    }

    /// Returns the bytes of all blobs.
    pub fn size(&self) -> u64 {
        let sizes = self.blobs.iter().map(|blob| blob.size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Returns the blobs that the store lacks.
    pub fn missing(&self, store: &Store) -> Vec<&Descriptor> {
        let is_stored = |blob: &&Descriptor| {
            let file = std::fs::metadata(store.blob_path(&blob.digest));
            file.is_ok_and(|file| file.len() == blob.size)
        };
        self.blobs.iter().filter(|blob| !is_stored(blob)).collect()
    }

    /// Returns the bytes that are still to be fetched, without those of interrupted downloads.
    pub fn bytes_left(&self, store: &Store) -> u64 {
        let left = |blob: &&Descriptor| {
            let part = store.part(&blob.digest).ok();
            let part = part.and_then(|part| std::fs::metadata(part).ok());
            blob.size.saturating_sub(part.map_or(0, |part| part.len()))
        };
        let left = self.missing(store).iter().map(left).collect::<Vec<u64>>();
        left.into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the bytes of the layers' tars, as far as annotations state them.
    pub fn plain_size(&self) -> u64 {
        let stated = |blob: &Descriptor| {
            let text = blob
                .annotations
                .get("io.containers.estargz.uncompressed-size");
            text.and_then(|text| text.parse::<u64>().ok())
        };
        let sizes = self
            .blobs
            .iter()
            .map(|blob| stated(blob).unwrap_or(blob.size));
        sizes.fold(0, u64::saturating_add)
    }
}
