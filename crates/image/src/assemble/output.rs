//! Writes an image as files: a layout in a directory, or an archive that Docker also loads.
//!
//! In: an [`Assembled`], and the directory of a store that holds its blobs. Out: files that image tools
//! read. The index is written last and by renaming, so a reader never sees an image without its blobs; an
//! image of the same name is replaced, others stay.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::draft::{Assembled, MANIFEST};
use super::error::AssembleError;
use crate::store::LayoutLock;
use stackforge_binary::tar::{Attributes, Format, Writer};
use stackforge_types::Digest;
use stackforge_types::reference::canonical;

const LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
const NAME: &str = "org.opencontainers.image.ref.name";
/// Annotation with the image's full name for containerd, which takes no short names:
/// `docker.io/library/NAME:TAG`.
const FULL_NAME: &str = "io.containerd.image.name";

type Result<T> = std::result::Result<T, AssembleError>;

/// Adds an image to the layout at `directory`, which is created if it is missing. Blobs are hard-linked if
/// both directories are on one file system, else copied. Writers of one layout wait for each other.
///
/// # Errors
/// [`AssembleError::NoLayout`] for a directory with other content, and an error for an index that cannot be
/// read, as overwriting it would lose the images that it names.
pub fn layout(image: &Assembled, name: &str, blobs: &Path, directory: &Path) -> Result<()> {
    let _held = filled(image, blobs, directory)?;
    let index = directory.join("index.json");
    let before = match fs::read(&index) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(io_at("read", &index)(e)),
        Ok(bytes) => Some(document(&bytes).map_err(io_at("read", &index))?),
    };
    let document = index_with(before, image, name);
    write(&index, document.to_string().as_bytes())
}

/// Parses an index whose entries are to be kept.
fn document(bytes: &[u8]) -> io::Result<Value> {
    let document: Value = serde_json::from_slice(bytes).map_err(io::Error::other)?;
    if document["manifests"].is_array() {
        Ok(document)
    } else {
        Err(io::Error::other("it has no list of manifests"))
    }
}

/// Does all of [`layout`] except naming the image: its blobs are there, but the index does not list it.
///
/// # Errors
/// If a blob is not below `blobs`, or `directory` cannot be written or is not a layout.
pub fn unnamed(image: &Assembled, blobs: &Path, directory: &Path) -> Result<()> {
    filled(image, blobs, directory).map(drop)
}

/// Removes a name from the layout at `directory`, whichever image it names; the image's blobs stay.
///
/// # Errors
/// For an index that cannot be read or written.
pub fn unname(directory: &Path, name: &str) -> Result<()> {
    let _held = LayoutLock::hold(directory).map_err(io_at("open", directory))?;
    let index = directory.join("index.json");
    let bytes = fs::read(&index).map_err(io_at("read", &index))?;
    let mut document = document(&bytes).map_err(io_at("read", &index))?;
    if let Some(manifests) = document["manifests"].as_array_mut() {
        manifests.retain(|entry| !is_named(entry, name));
    }
    write(&index, document.to_string().as_bytes())
}

fn filled(image: &Assembled, blobs: &Path, directory: &Path) -> Result<LayoutLock> {
    fs::create_dir_all(directory).map_err(io_at("create", directory))?;
    let held = LayoutLock::hold(directory).map_err(io_at("open", directory))?;
    let own = directory.join("blobs/sha256");
    let marker = directory.join("oci-layout");
    if !marker.exists() {
        if !held.is_new() {
            return Err(AssembleError::NoLayout(directory.to_owned()));
        }
        // Written first: without it the next run would take the directory of a killed run for something
        // else.
        write(&marker, LAYOUT.as_bytes())?;
    }
    held.sweep();
    fs::create_dir_all(&own).map_err(io_at("create", &own))?;
    for layer in &image.layers {
        place(&layer.digest, layer.size, blobs, &own)?;
    }
    write(&own.join(image.config_digest.hex()), &image.config)?;
    write(&own.join(image.digest.hex()), &image.manifest)?;
    Ok(held)
}

/// The index `before` with the image's entry added.
fn index_with(before: Option<Value>, image: &Assembled, name: &str) -> Value {
    let mut index = before.unwrap_or(json!({}));
    let mut manifests = match index["manifests"].take() {
        Value::Array(manifests) => manifests,
        _ => Vec::new(),
    };
    manifests.retain(|m| !is_named(m, name) || is_of_other(m, image));
    for other in &mut manifests {
        let same_tag = other["annotations"][NAME] == tag(name) && !is_of_other(other, image);
        // A tag names one image; an image of another repository keeps its full name.
        if same_tag && let Some(annotations) = other["annotations"].as_object_mut() {
            annotations.remove(NAME);
        }
    }
    manifests.push(entry(image, name));
    index["schemaVersion"] = 2.into();
    index["mediaType"] = "application/vnd.oci.image.index.v1+json".into();
    index["manifests"] = manifests.into();
    index
}

/// Whether an entry already has the image's name: by its full name, or by its tag if it has no full name.
fn is_named(entry: &Value, name: &str) -> bool {
    let annotations = &entry["annotations"];
    match annotations[FULL_NAME].as_str() {
        Some(known) => known == full(name),
        None => annotations[NAME] == tag(name),
    }
}

fn is_of_other(entry: &Value, image: &Assembled) -> bool {
    entry["platform"]["architecture"] != image.platform.arch()
}

fn entry(image: &Assembled, name: &str) -> Value {
    json!({
        "mediaType": MANIFEST,
        "digest": image.digest,
        "size": image.manifest.len(),
        "platform": { "architecture": image.platform.arch(), "os": "linux" },
        "annotations": { NAME: tag(name), FULL_NAME: full(name) },
    })
}

/// The full form of a name. Text that is not a reference is returned unchanged.
fn full(name: &str) -> String {
    canonical(name).unwrap_or_else(|| name.to_owned())
}

/// The tag of `REPOSITORY:TAG`: a layout names its images by tag.
fn tag(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map_or("latest", |(_, tag)| tag)
}

fn place(digest: &Digest, size: u64, from: &Path, to: &Path) -> Result<()> {
    let (source, target) = (from.join(digest.hex()), to.join(digest.hex()));
    // A hard link to the blob is the blob itself; an older copy may be damaged.
    let is_blob = |existing: &fs::Metadata| match fs::metadata(&source) {
        Ok(source) if source.dev() == existing.dev() => source.ino() == existing.ino(),
        _ => is_sound(&target, digest),
    };
    // A symbolic link does not count: its target is not the layout's own file.
    let existing = fs::symlink_metadata(&target)
        .ok()
        .filter(fs::Metadata::is_file);
    if existing.is_some_and(|existing| existing.len() == size && is_blob(&existing)) {
        return Ok(());
    }
    let _ = fs::remove_file(&target);
    if fs::hard_link(&source, &target).is_ok() {
        return Ok(());
    }
    let temporary = target.with_extension("part");
    fs::copy(&source, &temporary)
        .and_then(|_| File::open(&temporary)?.sync_all())
        .map_err(io_at("copy a layer to", &temporary))?;
    fs::rename(&temporary, &target).map_err(io_at("rename", &target))
}

/// Whether a copy's bytes have the digest that it is named by.
fn is_sound(path: &Path, digest: &Digest) -> bool {
    let found = File::open(path).and_then(Digest::of_reader);
    found.is_ok_and(|found| found == *digest)
}

/// Whether a file of the layout itself, not a link out of it, has the content.
fn has(path: &Path, content: &[u8]) -> bool {
    let own = fs::symlink_metadata(path)
        .is_ok_and(|existing| existing.is_file() && existing.len() == content.len() as u64);
    own && fs::read(path).is_ok_and(|existing| existing == content)
}

/// Replaces a file atomically, unless it already has the content.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    if has(path, content) {
        return Ok(());
    }
    crate::store::write_atomically(path, content).map_err(io_at("write", path))
}

/// Writes an archive with the image under each of `names`: an OCI layout that `docker load` also takes.
/// Layers for which `wanted` is false are left out, because the loading engine has them.
///
/// # Errors
/// If a blob is not below `blobs`, or `out` fails.
pub fn archive(
    image: &Assembled,
    names: &[String],
    blobs: &Path,
    wanted: impl Fn(usize) -> bool,
    out: impl Write,
) -> io::Result<()> {
    let mut tar = Writer::new(
        Format::UstarOldFiles,
        BufWriter::with_capacity(1 << 20, out),
    );
    let path = |digest: &Digest| format!("blobs/sha256/{}", digest.hex());
    let layers: Vec<String> = image.layers.iter().map(|l| path(&l.digest)).collect();
    let docker = json!([{
        "Config": path(&image.config_digest),
        "RepoTags": names,
        "Layers": layers,
    }]);
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": names.iter().map(|name| entry(image, name)).collect::<Vec<_>>(),
    });
    add(&mut tar, "oci-layout", LAYOUT.as_bytes())?;
    add(&mut tar, "index.json", index.to_string().as_bytes())?;
    add(&mut tar, "manifest.json", docker.to_string().as_bytes())?;
    for name in ["blobs", "blobs/sha256"] {
        tar.directory(name, Attributes::new(0o755))?;
    }
    add(&mut tar, &path(&image.digest), &image.manifest)?;
    add(&mut tar, &path(&image.config_digest), &image.config)?;
    let mut written = std::collections::BTreeSet::new();
    for (n, layer) in image.layers.iter().enumerate() {
        if !wanted(n) || !written.insert(&layer.digest) {
            continue;
        }
        let file = File::open(blobs.join(layer.digest.hex()))?;
        if file.metadata()?.size() != layer.size {
            let damaged = format!("blob {} has another size", layer.digest);
            return Err(io::Error::new(io::ErrorKind::InvalidData, damaged));
        }
        let content = file.take(layer.size);
        tar.file(
            &path(&layer.digest),
            Attributes::new(0o644),
            layer.size,
            content,
        )?;
    }
    tar.finish()?.flush()
}

fn add<W: Write>(tar: &mut Writer<W>, name: &str, bytes: &[u8]) -> io::Result<()> {
    tar.file(name, Attributes::new(0o644), bytes.len() as u64, bytes)
}

fn io_at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AssembleError {
    let path: PathBuf = path.to_owned();
    move |source| AssembleError::Io {
        doing,
        path,
        source,
    }
}
