//! Writes a layer: files in order of their paths, RECORDs, the table of contents, the footer.
//!
//! In: a [`Spec`] and wheels. Out: the layer's bytes, in order and in one pass, and their digests. RECORDs
//! come last because they list what was read before them.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::thread::{self, Scope};

use flate2::Crc;

use super::content::{Content, Part, Role, Worker};
use super::error::LayerError;
use super::gzip::{self, Compressor};
use super::install::{self, Install, Plan};
use super::layout::{self, Entry, Job};
use super::record::{self, Sha256};
use super::spec::{Spec, Stitched};
use super::sums::{Piece, Sums};
use super::tar::{self, Attributes, HeaderKind};
use super::toc::{self, Chunk, Toc};
use super::tree::{File, Tree};
use super::{installed, ordered, scripts};
use crate::oci::Layer;
use crate::pack::Compression;
use stackforge_binary::source::Source;
use stackforge_types::Digest;

/// More threads would wait for the digests and hold memory.
const MAX_THREADS: usize = 16;

/// Folders and modules beside packages that belong to no distribution, though many install one by mistake:
/// flashinfer-python 0.6 and torch-c-dlpack-ext 0.1 both have a `build_backend.py`.
const NOBODYS: [&str; 11] = [
    "test",
    "tests",
    "doc",
    "docs",
    "example",
    "examples",
    "benchmark",
    "benchmarks",
    "build_backend.py",
    "conftest.py",
    "setup.py",
];

/// Checks that no two wheels, which may be in different layers, have different files of one name. Texts and
/// folders such as `tests` beside the packages are not checked.
///
/// # Errors
/// [`LayerError::Collision`], [`LayerError::FileAndFolder`], and those of a wheel that cannot be installed.
pub fn disjoint<S: Source + Clone>(
    spec: &Spec,
    installs: &[Install<'_, S>],
) -> Result<(), LayerError> {
    let plan = Plan {
        scheme: &spec.scheme,
        python: &spec.python,
    };
    let mut tree = Tree::default();
    for (place, install) in installs.iter().enumerate() {
        let site = format!("{}/", plan.site_packages(install.wheel));
        let mut files = plan.files(install, place)?;
        files.retain(|file| !file.path.strip_prefix(&site).is_some_and(is_nobodys));
        tree.add(place, files, installs, &|_| false)?;
    }
    tree.check(installs)
}

/// Whether a path below `site-packages` belongs to no package: it is such a module or in such a folder, or a text
/// such as a licence.
fn is_nobodys(path: &str) -> bool {
    match path.split_once('/') {
        Some((folder, _)) => NOBODYS.contains(&folder),
        None => {
            let is_module = [".py", ".pth", ".so"].iter().any(|end| path.ends_with(end));
            NOBODYS.contains(&path) || !is_module
        }
    }
}

/// Writes the layer. It does not depend on the order of the wheels.
///
/// # Errors
/// If wheels collide, one is damaged or its RECORD is false, the scheme is not absolute, or `out` fails.
/// Bytes written by then are not a valid layer.
pub fn write<S: Source + Clone + Send + Sync>(
    spec: &Spec,
    installs: &[Install<'_, S>],
    out: impl Write,
) -> Result<Stitched, LayerError> {
    write_watched(spec, installs, out, |_| {})
}

/// As [`write`](self::write()); `on_plain` gets the layer's tar too, from its start to its end, in pieces. Those of
/// large files have at most 1 MiB. After an error the tar is not complete.
///
/// # Errors
/// As [`write`](self::write()).
pub fn write_watched<S: Source + Clone + Send + Sync>(
    spec: &Spec,
    installs: &[Install<'_, S>],
    out: impl Write,
    on_plain: impl FnMut(&Arc<Vec<u8>>),
) -> Result<Stitched, LayerError> {
    let tree = tree(spec, installs)?;
    of_tree(spec, &tree, installs, out, on_plain)
}

/// Returns the files and folders that the wheels install.
pub(super) fn tree<S: Source + Clone>(
    spec: &Spec,
    installs: &[Install<'_, S>],
) -> Result<Tree, LayerError> {
    spec.scheme.check()?;
    scripts::check_python(&spec.python)?;
    let plan = Plan {
        scheme: &spec.scheme,
        python: &spec.python,
    };
    let mut tree = Tree::default();
    let mut order: Vec<usize> = (0..installs.len()).collect();
    order.sort_by(|a, b| installs[*a].wheel.file.cmp(&installs[*b].wheel.file));
    for place in order {
        let install = &installs[place];
        let site = format!("{}/", plan.site_packages(install.wheel));
        let is_nobodys = |path: &str| path.strip_prefix(&site).is_some_and(is_nobodys);
        tree.add(place, plan.files(install, place)?, installs, &is_nobodys)?;
    }
    tree.check(installs)?;
    Ok(tree)
}

/// Writes the layer of a tree, which was made of `installs`.
pub(super) fn of_tree<S: Source + Clone + Send + Sync>(
    spec: &Spec,
    tree: &Tree,
    installs: &[Install<'_, S>],
    out: impl Write,
    on_plain: impl FnMut(&Arc<Vec<u8>>),
) -> Result<Stitched, LayerError> {
    let plan = Plan {
        scheme: &spec.scheme,
        python: &spec.python,
    };
    let landmark = File {
        mode: 0o644,
        size: layout::LANDMARK.len() as u64,
        content: install::Content::Bytes(layout::LANDMARK.to_vec()),
        owners: Vec::new(),
    };
    let entries = layout::entries(tree, &landmark);
    let jobs = layout::jobs(&entries, installs);
    thread::scope(|scope| {
        let mut writer = Writer::start(scope, spec, out, on_plain);
        let (chunks, digests) = writer.contents(scope, &entries, &jobs)?;
        let installed = installed::check(&entries, &digests, installs)?;
        let mut toc = toc::Toc::of(&entries, &chunks, &digests, spec.epoch);
        for (path, record) in installed.records(&plan, installs) {
            writer.record(&path, record.into_bytes(), &mut toc)?;
        }
        let toc_digest = writer.toc(&toc)?;
        let files = tree.files.len() as u64;
        let mut layer = writer.finish()?;
        layer.annotations = annotations(&toc_digest, layer.plain_size);
        Ok(Stitched {
            layer,
            toc_digest,
            files,
            unlisted: installed.unlisted,
            misstated: installed.misstated,
        })
    })
}

/// Annotations of the layer in an image's manifest, for snapshotters that read layers lazily.
fn annotations(toc: &Digest, plain_size: u64) -> BTreeMap<String, String> {
    BTreeMap::from([
        (
            "containerd.io/snapshot/stargz/toc.digest".to_owned(),
            toc.to_string(),
        ),
        (
            "io.containers.estargz.uncompressed-size".to_owned(),
            plain_size.to_string(),
        ),
    ])
}

struct Writer<'scope, W: Write, F> {
    out: BufWriter<W>,
    on_plain: F,
    compressor: Compressor,
    epoch: u32,
    level: u32,
    threads: usize,
    /// Bytes of the layer and of the tar so far.
    offset: u64,
    plain: u64,
    /// Zeros to write after the last content.
    padding: &'static [u8],
    layer: Sums<'scope>,
    tar: Sums<'scope>,
}

impl<'scope, W: Write, F: FnMut(&Arc<Vec<u8>>)> Writer<'scope, W, F> {
    fn start<'env>(scope: &'scope Scope<'scope, 'env>, spec: &Spec, out: W, on_plain: F) -> Self {
        Self {
            out: BufWriter::with_capacity(1 << 20, out),
            on_plain,
            compressor: Compressor::new(spec.level),
            epoch: spec.epoch,
            level: spec.level,
            threads: spec.threads.min(MAX_THREADS),
            offset: 0,
            plain: 0,
            padding: &[],
            layer: Sums::start(scope),
            tar: Sums::start(scope),
        }
    }

    /// Writes all but RECORDs; returns each content's chunks, and the digest of each file with content.
    fn contents<'env, S: Source + Clone + Send + Sync>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        entries: &[Entry<'_>],
        jobs: &[Job<'_, S>],
    ) -> Result<(Vec<Chunk>, Vec<Sha256>), LayerError> {
        let mut files = Sums::start(scope);
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut inside = false;
        // Checksum of a file that is compressed here in chunks.
        let mut crc = Crc::new();
        let (epoch, level) = (self.epoch, self.level);
        ordered::run(
            jobs,
            self.threads,
            || Worker::new(level),
            |worker, job, parts| {
                let head = layout::head(entries, &job.entries, epoch);
                let wanted = worker.head(head, parts)?;
                match &job.content {
                    Some(content) if wanted => worker.content(content, parts),
                    _ => Ok(()),
                }
            },
            |job, part: Part| {
                let plain = Arc::new(part.plain);
                if matches!(part.role, Role::Head) {
                    return self.put(part.gzip, plain);
                }
                if !inside {
                    chunks.push(Chunk {
                        offset: self.offset,
                        range: job.chunk.clone(),
                        digest: None,
                    });
                }
                files.put(Piece::Bytes(Arc::clone(&plain)))?;
                self.put(part.gzip, plain)?;
                let Role::End(own) = part.role else {
                    inside = true;
                    return Ok(());
                };
                inside = false;
                if let (Some((digest, own)), Some(chunk)) = (own, chunks.last_mut()) {
                    chunk.digest = Some(digest);
                    crc.combine(&own);
                }
                if job.last {
                    if let Some(Content::Stored(wheel, member, ..)) = job.content {
                        wheel.check_crc(member, crc.sum())?;
                    }
                    crc.reset();
                    files.put(Piece::End)?;
                }
                Ok(())
            },
        )?;
        Ok((chunks, files.finish()?))
    }

    fn put(&mut self, gzip: Vec<u8>, plain: Arc<Vec<u8>>) -> Result<(), LayerError> {
        self.out.write_all(&gzip).map_err(LayerError::Write)?;
        self.offset += gzip.len() as u64;
        self.plain += plain.len() as u64;
        self.layer.put(Piece::Bytes(Arc::new(gzip)))?;
        (self.on_plain)(&plain);
        self.tar.put(Piece::Bytes(plain))
    }

    /// Writes `plain` as a gzip member of its own.
    fn member(&mut self, plain: Vec<u8>) -> Result<(), LayerError> {
        let mut gzip = Vec::new();
        (self.compressor.member(&plain, &mut gzip)).map_err(LayerError::Write)?;
        self.put(gzip, Arc::new(plain))
    }

    fn record(&mut self, path: &str, text: Vec<u8>, toc: &mut Toc) -> Result<(), LayerError> {
        let size = text.len() as u64;
        let digest = record::sha256(&text);
        let mut head = self.padding.to_vec();
        let mode = 0o644;
        let mtime = self.epoch;
        tar::header(
            &mut head,
            path,
            HeaderKind::File(size),
            Attributes { mode, mtime },
        );
        self.member(head)?;
        toc.add_file(path, mode, size, self.offset, &digest);
        self.padding = tar::padding(size);
        self.member(text)
    }

    /// Writes the table of contents with the tar's end, and the footer.
    fn toc(&mut self, toc: &Toc) -> Result<Digest, LayerError> {
        if !self.padding.is_empty() {
            self.member(self.padding.to_vec())?;
        }
        let json = toc.json().map_err(|e| LayerError::Write(e.into()))?;
        let digest = Digest::of(&json);
        let size = json.len() as u64;
        let attributes = Attributes {
            mode: 0o644,
            mtime: self.epoch,
        };
        let mut member = Vec::new();
        tar::header(&mut member, toc::NAME, HeaderKind::File(size), attributes);
        member.extend_from_slice(&json);
        member.extend_from_slice(tar::padding(size));
        member.extend_from_slice(&tar::END);
        let offset = self.offset;
        self.member(member)?;
        self.put(gzip::footer(offset).to_vec(), Arc::default())?;
        Ok(digest)
    }

    fn finish(mut self) -> Result<Layer, LayerError> {
        self.out.flush().map_err(LayerError::Write)?;
        let digest = |mut sums: Sums<'_>| {
            sums.put(Piece::End)?;
            let digests = sums.finish()?;
            let first = digests.first().ok_or(LayerError::Thread)?;
            Ok::<_, LayerError>(Digest::from_hash(first))
        };
        // Members of a wheel are deflate streams, so the layer is gzip.
        Ok(Layer::new(
            Compression::GZIP.media_type(),
            digest(self.layer)?,
            digest(self.tar)?,
            self.offset,
            self.plain,
        ))
    }
}
