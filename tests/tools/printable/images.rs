//! Images at rest, directories, wheels and a store.

use super::{EVIL, World};
use serde_json::{Value, json};
use stackforge_types::Digest;
use std::path::Path;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Labels as builds of ours write them, each with a foreign text.
pub fn labels() -> Value {
    let names = [
        "stack", "variant", "sm", "ptx", "cuda", "driver", "isa", "l4t", "key", EVIL,
    ];
    let mut labels = serde_json::Map::new();
    for name in names {
        labels.insert(format!("io.stackforge.{name}"), EVIL.into());
    }
    labels.insert("org.opencontainers.image.title".to_owned(), EVIL.into());
    labels.into()
}

fn put(blobs: &Path, bytes: &[u8], media_type: &str) -> Value {
    let digest = Digest::of(bytes);
    std::fs::create_dir_all(blobs).unwrap();
    std::fs::write(blobs.join(digest.hex()), bytes).unwrap();
    json!({ "digest": digest.to_string(), "size": bytes.len(), "mediaType": media_type })
}

/// A layer with an object whose path is a foreign text.
fn layer(link: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let object = std::fs::read("/bin/true").unwrap();
    for path in ["usr/lib/libx.so", &format!("usr/lib/{EVIL}.so")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(object.len() as u64);
        header.set_mode(0o755);
        tar.append_data(&mut header, path, &object[..]).unwrap();
    }
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    tar.append_link(&mut header, format!("usr/{EVIL}"), link)
        .unwrap();
    tar.into_inner().unwrap()
}

/// An image as a layout; `says` changes its documents.
fn layout(dir: &Path, edit: impl Fn(&mut Value, &mut Value)) {
    let blobs = dir.join("blobs/sha256");
    let tar = layer(EVIL);
    let layer = put(&blobs, &tar, "application/vnd.oci.image.layer.v1.tar");
    let mut config = json!({
        "architecture": "amd64", "os": "linux", "config": { "Labels": labels() },
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(&tar).to_string()] },
    });
    let mut entry = json!({});
    edit(&mut config, &mut entry);
    let config = config.to_string();
    let config = put(
        &blobs,
        config.as_bytes(),
        "application/vnd.oci.image.config.v1+json",
    );
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
        "annotations": { EVIL: EVIL },
    });
    let mut named = put(&blobs, manifest.to_string().as_bytes(), MANIFEST);
    named["annotations"] = json!({ "org.opencontainers.image.ref.name": EVIL });
    for (key, value) in entry.as_object().unwrap() {
        named[key] = value.clone();
    }
    let index = json!({ "schemaVersion": 2, "manifests": [named] });
    std::fs::write(dir.join("index.json"), index.to_string()).unwrap();
    std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

pub fn layouts() -> World {
    let mut world = World::new();
    let to = super::servers::nobody(&mut world);
    let at = |world: &World, name: &str| world.sandbox.path(name);
    layout(&at(&world, "image"), |_, _| {});
    layout(&at(&world, EVIL), |_, _| {});
    layout(&at(&world, "platform"), |config, entry| {
        config["architecture"] = EVIL.into();
        entry["platform"] = json!({ "architecture": EVIL, "os": EVIL });
    });
    layout(&at(&world, "type"), |_, entry| {
        entry["mediaType"] = EVIL.into()
    });
    layout(&at(&world, "digest"), |_, entry| {
        entry["digest"] = EVIL.into()
    });
    layout(&at(&world, "ids"), |config, _| {
        config["rootfs"] = json!({ "type": EVIL, "diff_ids": [EVIL] })
    });
    std::fs::create_dir(at(&world, "version")).unwrap();
    let version = json!({ "imageLayoutVersion": EVIL }).to_string();
    std::fs::write(at(&world, "version").join("oci-layout"), version).unwrap();
    for name in [
        "image", "platform", "type", "digest", "ids", "version", EVIL,
    ] {
        let place = format!("oci:{name}");
        world.case(&["inspect", &place]);
        world.case(&["audit", &place, "--gpu", "h100"]);
        world.case(&["audit", &place, "--gpu", "all"]);
        world.case(&["audit", &place, "--sarif"]);
        world.case(&["push", &place, &to]);
        world.case(&["push", &place, &to, "--index"]);
        world.case(&["cache", "import", name]);
        world.case(&["validate", &format!("oci:{name}:{EVIL}")]);
    }
    archive(&world.sandbox.path("archive.tar"));
    world.case(&["inspect", "docker-archive:archive.tar"]);
    world.case(&["audit", "docker-archive:archive.tar"]);
    world.case(&["inspect", "oci-archive:archive.tar"]);
    world
}

/// As `docker save` writes it, with foreign names.
fn archive(path: &Path) {
    let mut tar = tar::Builder::new(std::fs::File::create(path).unwrap());
    let manifest = json!([{ "Config": EVIL, "RepoTags": [EVIL], "Layers": [EVIL] }]).to_string();
    for (name, text) in [("manifest.json", manifest.as_str()), (EVIL, "{}")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    tar.finish().unwrap();
}

pub fn trees() -> World {
    let mut world = World::new();
    let object = std::fs::read("/bin/true").unwrap();
    let folder = format!("site/{EVIL}/");
    world.sandbox.write(&format!("{folder}x"), "");
    std::fs::write(world.sandbox.path(&format!("{folder}{EVIL}.so")), &object).unwrap();
    let metadata = format!("Name: {EVIL}\nVersion: {EVIL}\nRequires-Dist: {EVIL}\n");
    world
        .sandbox
        .write("site/x-1.dist-info/METADATA", &metadata);
    world
        .sandbox
        .write("site/x-1.dist-info/RECORD", &format!("{EVIL},,\n"));
    world.case(&["audit", "site", "--gpu", "h100"]);
    world.case(&["audit", "site", "--sarif"]);
    world.case(&["audit", &folder]);
    world.case(&["validate", &format!("rootfs:{folder}")]);
    // A wheel, by Python's own hand: its member's name and its metadata.
    let script = "import sys, zipfile\n\
        w = zipfile.ZipFile(sys.argv[1], 'w')\n\
        w.writestr(sys.argv[3], open('/bin/true', 'rb').read())\n\
        w.writestr('x-1.dist-info/METADATA', 'Name: ' + sys.argv[2])\n\
        w.writestr('x-1.dist-info/WHEEL', 'Tag: ' + sys.argv[2])\n";
    for (number, name) in [EVIL, "x\u{202e}\u{2066}.so", "x.so"].iter().enumerate() {
        let wheel = format!("x-{number}-py3-none-any.whl");
        let made = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(world.sandbox.path(&wheel))
            .args([EVIL, name])
            .status();
        assert!(made.unwrap().success());
        world.case(&["audit", &wheel]);
    }
    let strange = format!("{EVIL}-1-py3-none-any.whl");
    std::fs::copy(
        world.sandbox.path("x-2-py3-none-any.whl"),
        world.sandbox.path(&strange),
    )
    .unwrap();
    world.case(&["audit", &strange]);
    world
}

/// A store whose names somebody else wrote.
pub fn store() -> World {
    let mut world = World::new();
    let to = super::servers::nobody(&mut world);
    let root = world.sandbox.path("store");
    let first = world.sandbox.run(&["cache", "ls"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    layout(&root, |_, _| {});
    world.sandbox.write(&format!("store/logs/{EVIL}.log"), "x");
    for args in [
        &["cache", "ls"][..],
        &["cache", "ls", "--all"],
        &["cache", "verify"],
        &["cache", "export", "to/"],
        &["cache", "gc", "--dry-run", "--all", "--max-size", "0"],
        &["push", "absent", &to],
        &["push", EVIL, &to],
        &["inspect", EVIL],
        &["validate", EVIL],
        &["cache", "import", "to"],
        &["cache", "gc", "--all", "--max-size", "0"],
        &["cache", "verify", "--repair"],
    ] {
        world.case(args);
    }
    world
}
