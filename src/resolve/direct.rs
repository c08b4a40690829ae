//! Files that the stack names in place of an index's: wheels and source distributions.
//!
//! In: the stack's libraries with a `file`. Out: [`DirectFiles`], each in the store, with its digest and what it
//! says of itself. A file that the old lock has is taken by its digest; what an address or a path has otherwise
//! becomes the lock's. Never: runs a file's code, or takes a file with another digest than the stack's.

use super::ResolveError;
use super::old::Old;
use super::requirements::Need;
use super::sdist::{self, Sdist, SdistMetadata, Sdists};
use pep440_rs::Version;
use stackforge_image::layer;
use stackforge_image::store::{Blob, Store, StoreError};
use stackforge_stack::diag::{Code, Explained, chain, codes};
use stackforge_stack::lock::{PythonFile, SourceLock};
use stackforge_stack::spec::{DirectFile, FileKind, Place, Stack};
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::{Download, FetchError, Fetcher};
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Seek as _;
use std::path::{Path, PathBuf};

/// Bytes of one request for a file whose digest is not known.
const PIECE: u64 = 32 << 20;
/// Longest file that is read at once where a server has no ranges, in bytes.
const LONGEST_WHOLE: u64 = 2 << 30;

/// A file that the stack names.
#[derive(Debug, Clone)]
pub(super) struct Direct {
    pub file: PythonFile,
    pub version: Version,
    pub metadata: SdistMetadata,
}

/// The files by distribution.
#[derive(Debug, Default)]
pub(super) struct DirectFiles(BTreeMap<String, Direct>);

impl DirectFiles {
    pub fn get(&self, distribution: &str) -> Option<&Direct> {
        self.0.get(distribution)
    }

    pub fn contains_key(&self, distribution: &str) -> bool {
        self.0.contains_key(distribution)
    }

    /// Returns the source distributions that no recipe builds.
    pub fn sdists(&self, needs: &[Need<'_>]) -> Sdists {
        let plain = needs.iter().filter(|need| !need.compiled());
        let files = plain.filter_map(|need| {
            let direct = self.0.get(&need.distribution)?;
            let sdist = Sdist {
                file: direct.file.clone(),
                metadata: direct.metadata.clone(),
                wheels: None,
            };
            (!direct.file.file.ends_with(".whl")).then(|| (need.distribution.clone(), sdist))
        });
        files.collect()
    }
}

/// Fetches and reads the files that a stack names.
pub(super) struct Reader<'a> {
    pub stack: &'a Stack,
    pub old: &'a Old<'a>,
    /// The store's root.
    pub cache: &'a Path,
    pub offline: bool,
}

/// Why a file cannot be taken.
struct Fault {
    code: Code,
    why: String,
    help: String,
}

impl Fault {
    fn unfit(why: String, help: &str) -> Self {
        Self {
            code: codes::FILE_UNFIT,
            why,
            help: help.to_owned(),
        }
    }

    fn network(why: &str) -> Self {
        Self {
            code: codes::NETWORK,
            why: why.to_owned(),
            help: codes::NETWORK.fix().to_owned(),
        }
    }
}

impl From<FetchError> for Fault {
    fn from(e: FetchError) -> Self {
        match e {
            FetchError::Mismatch { reason, .. } => Self::unfit(
                format!("its content is not what was asked for: {reason}"),
                "correct `sha256`; to take new content in place of what is locked, run `stackforge lock --upgrade`",
            ),
            e => Self {
                code: e.code(),
                why: chain(&e),
                help: Explained::help(&e),
            },
        }
    }
}

impl From<StoreError> for Fault {
    fn from(e: StoreError) -> Self {
        Self {
            code: e.code(),
            why: chain(&e),
            help: Explained::help(&e),
        }
    }
}

impl Reader<'_> {
    pub async fn read(
        &self,
        needs: &[Need<'_>],
        progress: &mut dyn FnMut(&str),
    ) -> Result<DirectFiles, ResolveError> {
        let mut out = DirectFiles::default();
        for need in needs {
            let Some(named) = &need.library.file else {
                continue;
            };
            progress(&format!("reading {}", named.name));
            let direct = self.direct(need, named).await;
            let direct = direct.map_err(|Fault { code, why, help }| ResolveError::File {
                library: need.name().to_owned(),
                file: named.shown(),
                why,
                code,
                help,
            })?;
            out.0.insert(need.distribution.clone(), direct);
        }
        Ok(out)
    }

    async fn direct(&self, need: &Need<'_>, named: &DirectFile) -> Result<Direct, Fault> {
        let store = Store::open(Some(self.cache))?;
        let (sha256, path) = match named.path(Path::new(self.stack.file())) {
            Some(path) => self.of_disk(need, named, &store, &path)?,
            None => self.of_address(need, named, &store).await?,
        };
        let unreadable = |why: String| {
            Fault::unfit(
                format!("it cannot be read as a package: {why}"),
                "it is damaged or no package: fetch or build it again",
            )
        };
        let metadata = match &named.kind {
            FileKind::Wheel(_) => {
                let text =
                    layer::metadata(&path).ok_or_else(|| unreadable("no METADATA".to_owned()))?;
                sdist::of_wheel(&text)
            }
            FileKind::Sdist(..) => {
                sdist::read(&named.name, &path).map_err(|e| unreadable(e.to_string()))?
            }
        };
        let size = std::fs::metadata(&path).map_or(0, |m| m.len());
        Ok(Direct {
            file: PythonFile {
                name: need.distribution.clone(),
                version: named.kind.version().to_string(),
                file: named.name.clone(),
                size,
                sha256,
                via: Vec::new(),
            },
            version: named.kind.version().clone(),
            metadata,
        })
    }

    /// Takes a file of this machine into the store.
    fn of_disk(
        &self,
        need: &Need<'_>,
        named: &DirectFile,
        store: &Store,
        path: &Path,
    ) -> Result<(Digest, PathBuf), Fault> {
        let unreadable = |e: std::io::Error| {
            let help = "its path starts at the stack file's folder";
            Fault::unfit(e.to_string(), help)
        };
        let mut content = File::open(path).map_err(&unreadable)?;
        let digest = Digest::of_reader(&content).map_err(&unreadable)?;
        if let Some(wanted) = named.sha256.as_ref().filter(|d| **d != digest) {
            return Err(Fault::unfit(
                format!("its content has {digest}, the stack says {wanted}"),
                "correct `sha256`, or find out who changed the file",
            ));
        }
        if let Some(locked) = self.locked(need, named).filter(|d| *d != digest) {
            let library = need.name();
            return Err(Fault::unfit(
                format!("its content has {digest}, the lock {locked}"),
                &format!("to take the new content, run `stackforge lock --upgrade {library}`"),
            ));
        }
        // A wheel of gigabytes is not copied at each lock.
        if let Some(path) = store.blob(&digest) {
            return Ok((digest, path));
        }
        content.rewind().map_err(&unreadable)?;
        let blob = store.put(content, Some(&digest))?;
        Ok((digest, blob.path))
    }

    async fn of_address(
        &self,
        need: &Need<'_>,
        named: &DirectFile,
        store: &Store,
    ) -> Result<(Digest, PathBuf), Fault> {
        let Place::Url(url) = &named.place else {
            return Err(Fault::network("it has no address"));
        };
        let known = named.sha256.clone().or_else(|| self.locked(need, named));
        if let Some(sha256) = &known
            && let Some(path) = store.blob(sha256)
        {
            return Ok((sha256.clone(), path));
        }
        if self.offline {
            return Err(Fault {
                code: codes::OFFLINE,
                why: "it is not in the store, and stackforge is offline".to_owned(),
                help: "lock once without `--offline`".to_owned(),
            });
        }
        let fetcher = Fetcher::new(RetryPolicy::default())?;
        if let Some(sha256) = known {
            store.lease([&sha256])?;
            let download = Download {
                name: sha256.hex().to_owned(),
                urls: vec![url.clone()],
                sha256: sha256.clone(),
                size: None,
            };
            let folder = store.dir("blobs/sha256")?;
            let fetched = fetcher.file(&download, &folder, &|_| {}).await?;
            store.verified(&sha256);
            return Ok((sha256, fetched.path));
        }
        let blob = unknown(url, &fetcher, store).await?;
        Ok((blob.digest, blob.path))
    }

    /// Returns the digest that the old lock has of the file, if that may stay.
    fn locked(&self, need: &Need<'_>, named: &DirectFile) -> Option<Digest> {
        if !self.old.has(need) {
            return None;
        }
        let platform = self.old.platform?;
        let mut wheels = platform.wheels.iter();
        let wheel = wheels.find(|w| w.file == named.name).map(|w| &w.sha256);
        let mut builds = platform.builds.iter();
        let build = || {
            builds.find_map(|b| match &b.source {
                SourceLock::Sdist { file, sha256, .. } if *file == named.name => Some(sha256),
                _ => None,
            })
        };
        wheel.or_else(build).cloned()
    }
}

/// Fetches a file of unknown content into the store, in pieces where the server has ranges.
async fn unknown(url: &str, fetcher: &Fetcher, store: &Store) -> Result<Blob, Fault> {
    let mut writer = store.writer()?;
    let (mut have, mut size) = (0, None);
    loop {
        let Some(piece) = fetcher.range(url, have..have + PIECE).await? else {
            if have > 0 {
                return Err(Fault::network("its server stopped serving ranges"));
            }
            let whole = fetcher.get(url, None, LONGEST_WHOLE).await?;
            writer.append(&whole.body)?;
            break;
        };
        if size.is_some_and(|size| size != piece.size) {
            return Err(Fault::network("it was replaced while it was fetched"));
        }
        size = Some(piece.size);
        writer.append(&piece.bytes)?;
        have += piece.bytes.len() as u64;
        if have >= piece.size {
            break;
        }
        if piece.bytes.is_empty() {
            return Err(Fault::network("its server sent nothing"));
        }
    }
    Ok(writer.commit(None)?)
}
