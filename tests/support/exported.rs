//! Root file systems as their exports list them, and what differs between two.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

/// What a container's engine puts into every export, by the start of the path.
const ENGINE: [&str; 6] = [
    ".dockerenv",
    "dev/",
    "etc/hostname",
    "etc/hosts",
    "etc/mtab",
    "etc/resolv.conf",
];

/// Kind, mode, owner, group, link and digest. Files with several names are compared by content:
/// which of them is the link depends on who wrote the tar.
pub type Entry = (char, u32, u64, u64, String, String);

pub fn entries(tar: impl Read) -> BTreeMap<String, Entry> {
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    let mut archive = tar::Archive::new(tar);
    for member in archive.entries().unwrap() {
        let mut member = member.unwrap();
        let clean = |path: &Path| {
            let path = path.to_str().unwrap().trim_start_matches("./");
            path.trim_matches('/').to_owned()
        };
        let path = clean(&member.path().unwrap());
        let link = member
            .link_name()
            .unwrap()
            .map(|l| l.to_str().unwrap().to_owned());
        let header = member.header().clone();
        let entry = match header.entry_type() {
            tar::EntryType::Link => {
                let target = clean(Path::new(&link.unwrap()));
                entries[&target].clone()
            }
            kind => {
                let (kind, link) = match kind {
                    tar::EntryType::Directory => ('d', String::new()),
                    tar::EntryType::Symlink => ('l', link.unwrap()),
                    _ => ('f', String::new()),
                };
                let hash = if path.ends_with(".pyc") {
                    normal(&mut member)
                } else {
                    digest(&mut member)
                };
                (
                    kind,
                    header.mode().unwrap() & 0o7777,
                    owner(&header.as_old().uid, header.uid()),
                    owner(&header.as_old().gid, header.gid()),
                    link,
                    hash,
                )
            }
        };
        if !path.is_empty() && !ENGINE.iter().any(|e| path.starts_with(e)) && path != "dev" {
            entries.insert(path, entry);
        }
    }
    // Who writes the tar may not be done with what follows its end.
    std::io::copy(&mut archive.into_inner(), &mut std::io::sink()).unwrap();
    entries
}

/// An owner. An empty field is root, as engines read it and the crate does not.
fn owner(field: &[u8], read: std::io::Result<u64>) -> u64 {
    if field.iter().all(|byte| *byte == 0) {
        return 0;
    }
    read.unwrap()
}

/// Digest of a byte code file's normal form, which is what the native engine writes.
fn normal(content: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    content.read_to_end(&mut bytes).unwrap();
    let normal = stackforge_binary::pyc::normalized(&bytes);
    digest(&mut normal.unwrap_or(bytes).as_slice())
}

fn digest(content: &mut impl Read) -> String {
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match content.read(&mut piece).unwrap() {
            0 => return format!("{:x?}", hash.finalize()),
            n => hash.update(&piece[..n]),
        }
    }
}

/// What a container of an image has, by Docker.
pub fn exported(image: &str) -> BTreeMap<String, Entry> {
    exported_by(&|| Command::new("docker"), image)
}

/// What a container of an image has, by the engine that `docker` speaks to.
pub fn exported_by(docker: &dyn Fn() -> Command, image: &str) -> BTreeMap<String, Entry> {
    let made = docker().args(["create", image]).output();
    let id = String::from_utf8(made.unwrap().stdout).unwrap();
    let mut export = docker()
        .args(["export", id.trim()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let entries = entries(export.stdout.take().unwrap());
    assert!(export.wait().unwrap().success(), "{image} is exported");
    let removed = docker().args(["rm", "-f", id.trim()]).output();
    assert!(removed.unwrap().status.success());
    entries
}

/// What the image of a layout has: its layers, one over the other.
pub fn at_rest(layout: &Path) -> BTreeMap<String, Entry> {
    let blob = |digest: &serde_json::Value| {
        let (_, hex) = digest.as_str().unwrap().split_once(':').unwrap();
        layout.join("blobs/sha256").join(hex)
    };
    let document = |path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    let index = document(layout.join("index.json"));
    let manifest = document(blob(&index["manifests"][0]["digest"]));
    let mut all = BTreeMap::new();
    for layer in manifest["layers"].as_array().unwrap() {
        let file = std::fs::File::open(blob(&layer["digest"])).unwrap();
        all.extend(entries(flate2::read::MultiGzDecoder::new(file)));
    }
    let gone = all.keys().find(|path| path.contains(".wh."));
    assert_eq!(gone, None, "layers that take files away are not read here");
    all
}

/// What may differ between the images of the two engines, and why.
const ALLOWED: [(&str, &str); 8] = [
    (
        ".dist-info/INSTALLER",
        "names what installed it: uv, or stackforge",
    ),
    (
        ".dist-info/RECORD",
        "lists INSTALLER with its digest, in another order",
    ),
    (
        ".dist-info/REQUESTED",
        "uv is given a file of requirements, so that it takes all for requested",
    ),
    (
        "opt/venv/bin/",
        "scripts of entry points: other words of the same program",
    ),
    ("stargz.index.json", "a layer's table of contents"),
    (".no.prefetch.landmark", "what eStargz wants to be there"),
    (
        "usr/share/stackforge/audit.json",
        "the native engine's image has no report",
    ),
    (
        "usr/share/stackforge/validation.json",
        "of one machine and one moment",
    ),
];

fn allowed(difference: &str) -> bool {
    let path = difference.split(": ").next().unwrap_or_default();
    let is = |(rule, _): &(&str, &str)| path.ends_with(rule) || path.starts_with(rule);
    ALLOWED.iter().any(is)
}

/// Differences between the images of two engines that nothing explains.
pub fn unexplained(a: &BTreeMap<String, Entry>, b: &BTreeMap<String, Entry>) -> Vec<String> {
    let mut differences = differences(a, b);
    differences.retain(|d| !allowed(d));
    differences
}

pub fn differences(a: &BTreeMap<String, Entry>, b: &BTreeMap<String, Entry>) -> Vec<String> {
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differs = |name: &&&String| a.get(**name) != b.get(**name);
    let show = |name: &String| format!("{name}: {:?} {:?}", a.get(name), b.get(name));
    names
        .iter()
        .filter(differs)
        .map(|name| show(name))
        .collect()
}
