//! Images of a few random layers: umoci unpacks them to the same files as `unpack`, layer over layer,
//! and to those that `oci` says they merge to.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use stackforge_image::unpack::{self, Owner};
use stackforge_types::Digest;
use tar::EntryType;

use super::{Files, on_disk, run};

/// A member of a layer. Names are few, so that layers meet.
#[derive(Debug, Clone)]
enum Member {
    Directory(String),
    File(String, u8),
    SymLink(String, String),
    Whiteout(String),
    Opaque(String),
}

/// One to three names of three, so that members are above and below each other.
fn path() -> impl Strategy<Value = String> {
    proptest::collection::vec("[abc]", 1..4).prop_map(|names| names.join("/"))
}

fn member() -> impl Strategy<Value = Member> {
    prop_oneof![
        3 => path().prop_map(Member::Directory),
        4 => (path(), 0..40u8).prop_map(|(path, size)| Member::File(path, size)),
        1 => (path(), "[abc]").prop_map(|(path, to)| Member::SymLink(path, format!("/{to}"))),
        2 => path().prop_map(Member::Whiteout),
        1 => path().prop_map(Member::Opaque),
    ]
}

impl Member {
    fn path(&self) -> &str {
        match self {
            Self::Directory(path)
            | Self::File(path, _)
            | Self::SymLink(path, _)
            | Self::Whiteout(path)
            | Self::Opaque(path) => path,
        }
    }

    fn append(&self, to: &mut tar::Builder<Vec<u8>>) {
        let beside = |path: &str, name: &str| match path.rsplit_once('/') {
            Some((above, last)) => format!("{above}/{}", name.replace("{}", last)),
            None => name.replace("{}", path),
        };
        let (kind, path, link, size) = match self {
            Self::Directory(path) => (EntryType::Directory, path.clone(), None, 0),
            Self::File(path, size) => (EntryType::Regular, path.clone(), None, *size),
            Self::SymLink(path, link) => (EntryType::Symlink, path.clone(), Some(link), 0),
            Self::Whiteout(path) => (EntryType::Regular, beside(path, ".wh.{}"), None, 0),
            Self::Opaque(path) => (EntryType::Regular, format!("{path}/.wh..wh..opq"), None, 0),
        };
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(if kind == EntryType::Directory {
            0o755
        } else {
            0o644
        });
        header.set_mtime(1_000);
        header.set_size(u64::from(size));
        let content = vec![b'x'; usize::from(size)];
        match link {
            Some(link) => to.append_link(&mut header, path, link).unwrap(),
            None => to.append_data(&mut header, path, &content[..]).unwrap(),
        }
    }
}

/// A layer as tools write them: each path once, none below a file or link of the same layer, each
/// directory before what is in it, whiteouts only of what the layer does not have.
fn layer(members: Vec<Member>) -> Vec<u8> {
    let mut kept: BTreeMap<String, Member> = BTreeMap::new();
    for member in members {
        let path = member.path().to_owned();
        let above = |one: &str, other: &str| other.starts_with(&format!("{one}/"));
        let meets = kept.iter().any(|(other, existing)| {
            let over = above(other, &path)
                && !matches!(existing, Member::Directory(_) | Member::Opaque(_));
            let under =
                above(&path, other) && !matches!(member, Member::Directory(_) | Member::Opaque(_));
            over || under
        });
        if !meets {
            for (at, _) in path.match_indices('/') {
                let above = path[..at].to_owned();
                let folder = Member::Directory(above.clone());
                kept.entry(above).or_insert(folder);
            }
            kept.entry(path).or_insert(member);
        }
    }
    let mut tar = tar::Builder::new(Vec::new());
    for member in kept.values() {
        if let Member::Opaque(path) = member {
            Member::Directory(path.clone()).append(&mut tar);
        }
        member.append(&mut tar);
    }
    tar.into_inner().unwrap()
}

/// Writes a layout of the layers, with the reference `made`.
fn write_layout(dir: &Path, layers: &[Vec<u8>]) {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |bytes: &[u8], media_type: &str| -> Value {
        let digest = Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).unwrap();
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    };
    let diff_ids: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let config = blob(
        config.to_string().as_bytes(),
        "application/vnd.oci.image.config.v1+json",
    );
    let layers: Vec<Value> = layers
        .iter()
        .map(|layer| blob(layer, "application/vnd.oci.image.layer.v1.tar"))
        .collect();
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
    let mut entry = blob(
        manifest.to_string().as_bytes(),
        "application/vnd.oci.image.manifest.v1+json",
    );
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": "made" });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    fs::write(dir.join("index.json"), index.to_string()).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]
    #[test]
    fn random_layers_are_unpacked_and_merged_as_umoci_unpacks_them(
        layers in proptest::collection::vec(proptest::collection::vec(member(), 0..12), 1..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let layout = dir.path().join("layout");
        let layers: Vec<Vec<u8>> = layers.into_iter().map(layer).collect();
        write_layout(&layout, &layers);
        let (theirs, ours) = (dir.path().join("theirs"), dir.path().join("ours"));
        let image = format!("{}:made", layout.display());
        run("umoci", &["raw", "unpack", "--rootless", "--image", &image, theirs.to_str().unwrap()]);
        fs::create_dir(&ours).unwrap();
        for layer in &layers {
            unpack::over(&layer[..], &ours, Owner::Mine).unwrap();
        }
        let mut expected = Files::new();
        on_disk(&theirs, &theirs, &mut expected);
        let mut found = Files::new();
        on_disk(&ours, &ours, &mut found);
        prop_assert_eq!(&found, &expected, "unpacked");
        let image = stackforge_image::oci::open(&layout, Some("made"), None).unwrap();
        prop_assert_eq!(&super::files(&image), &expected, "merged");
    }
}
