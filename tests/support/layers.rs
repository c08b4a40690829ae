//! Images of layers that a test writes down.

use serde_json::{Value, json};
use stackforge_types::Digest;
use std::io::Write as _;
use std::path::Path;

/// The file that says what a root file system is.
pub const MARKER: &str = ".stackforge.json";

/// A member of a layer: a path, and its content, or a link's target.
#[derive(Clone, Copy)]
pub enum Member {
    File(&'static str, &'static str),
    Folder(&'static str),
    Link(&'static str, &'static str),
    /// A file that is run.
    Program(&'static str, &'static [u8]),
    /// A file that is run with its owner's rights.
    SetUid(&'static str, &'static [u8]),
    /// A whiteout.
    Gone(&'static str),
}
use Member::{File, Folder, Gone, Link, Program, SetUid};

/// A file in so many folders, itself counted.
pub fn deep(depth: usize) -> Member {
    File(vec!["d"; depth].join("/").leak(), "deep")
}

/// An image of layers as a layout with the tag `v1`. Returns the digests of its layers' blobs.
pub fn image(dir: &Path, layers: &[&[Member]]) -> Vec<Digest> {
    named(dir, layers, |diff_ids| diff_ids)
}

/// The same, with the diff IDs that its configuration says.
pub fn named(
    dir: &Path,
    layers: &[&[Member]],
    stated: impl FnOnce(Vec<Digest>) -> Vec<Digest>,
) -> Vec<Digest> {
    written(dir, layers, stated, json!({}))
}

/// An image that says how it is started.
pub fn configured(dir: &Path, layers: &[&[Member]], config: Value) -> Vec<Digest> {
    written(dir, layers, |diff_ids| diff_ids, config)
}

fn written(
    dir: &Path,
    layers: &[&[Member]],
    stated: impl FnOnce(Vec<Digest>) -> Vec<Digest>,
    config: Value,
) -> Vec<Digest> {
    let blobs = dir.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(blobs.join(digest.hex()), bytes).unwrap();
        json!({ "digest": digest, "size": bytes.len() })
    };
    let (mut descriptors, mut diff_ids, mut digests) = (Vec::new(), Vec::new(), Vec::new());
    for members in layers {
        let mut tar = tar::Builder::new(Vec::new());
        for member in *members {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o755);
            header.set_uid(u64::from(rustix::process::geteuid().as_raw()));
            header.set_gid(u64::from(rustix::process::getegid().as_raw()));
            header.set_size(0);
            match member {
                File(path, text) => {
                    header.set_entry_type(tar::EntryType::Regular);
                    header.set_mode(0o640);
                    header.set_size(text.len() as u64);
                    tar.append_data(&mut header, path, text.as_bytes()).unwrap();
                }
                Program(path, bytes) | SetUid(path, bytes) => {
                    header.set_entry_type(tar::EntryType::Regular);
                    if matches!(member, SetUid(..)) {
                        header.set_mode(0o4755);
                    }
                    header.set_size(bytes.len() as u64);
                    tar.append_data(&mut header, path, *bytes).unwrap();
                }
                Folder(path) => {
                    header.set_entry_type(tar::EntryType::Directory);
                    tar.append_data(&mut header, path, std::io::empty())
                        .unwrap();
                }
                Gone(path) => {
                    tar.append_data(&mut header, format!(".wh.{path}"), std::io::empty())
                        .unwrap();
                }
                Link(path, to) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    tar.append_link(&mut header, path, to).unwrap();
                }
            }
        }
        let tar = tar.into_inner().unwrap();
        diff_ids.push(Digest::of(&tar));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&tar).unwrap();
        let gzip = gzip.finish().unwrap();
        digests.push(Digest::of(&gzip));
        let mut descriptor = put(&gzip);
        descriptor["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip".into();
        descriptors.push(descriptor);
    }
    let config = json!({ "architecture": "amd64", "os": "linux", "config": config,
        "rootfs": { "type": "layers", "diff_ids": stated(diff_ids) } });
    let mut config = put(config.to_string().as_bytes());
    config["mediaType"] = "application/vnd.oci.image.config.v1+json".into();
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": descriptors,
        "mediaType": "application/vnd.oci.image.manifest.v1+json" });
    let mut entry = put(manifest.to_string().as_bytes());
    entry["mediaType"] = "application/vnd.oci.image.manifest.v1+json".into();
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": "v1" });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    std::fs::write(dir.join("index.json"), index.to_string()).unwrap();
    std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    digests
}

/// Names in a directory with their content or target, but for stackforge's own file.
pub fn tree(root: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let shown = path.strip_prefix(root).unwrap().display().to_string();
            if shown == MARKER {
                continue;
            }
            let kind = path.symlink_metadata().unwrap();
            if kind.is_symlink() {
                let to = std::fs::read_link(&path).unwrap();
                out.push(format!("{shown} -> {}", to.display()));
            } else if kind.is_dir() {
                out.push(format!("{shown}/"));
                folders.push(path);
            } else {
                out.push(format!(
                    "{shown} = {}",
                    std::fs::read_to_string(&path).unwrap()
                ));
            }
        }
    }
    out.sort();
    out
}
