use super::*;
use crate::oci::Layer;
use serde_json::{Value, from_slice, json};
use stackforge_binary::tar::Reader;
use stackforge_types::{Digest, Platform};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A layer in the store at `blobs` whose content is not a tar: nothing here reads it.
fn layer(blobs: &Path, content: &[u8]) -> Layer {
    let digest = Digest::of(content);
    std::fs::write(blobs.join(digest.hex()), content).unwrap();
    let mut layer = Layer::new(
        "application/vnd.oci.image.layer.v1.tar+gzip",
        digest,
        Digest::of(&[content, b"plain"].concat()),
        content.len() as u64,
        9,
    )
    .described("a test", Vec::new());
    layer.annotations = BTreeMap::from([("a".into(), "b".into())]);
    layer
}

fn draft(layers: Vec<Layer>) -> Draft {
    Draft {
        platform: Platform::LinuxArm64,
        epoch: 1_704_067_200,
        base: None,
        layers,
        from_base: 0,
        env: vec![("PATH".into(), "/opt/venv/bin".into())],
        cmd: vec!["python".into()],
        labels: BTreeMap::from([("k".into(), "v".into()), ("a".into(), "w".into())]),
        keys: serde_json::Map::new(),
    }
}

#[test]
fn documents_say_what_the_draft_says() {
    let blobs = tempfile::tempdir().unwrap();
    let image = draft(vec![
        layer(blobs.path(), b"one"),
        layer(blobs.path(), b"two"),
    ])
    .assemble()
    .unwrap();
    let again = draft(image.layers.clone()).assemble().unwrap();
    assert_eq!(
        (&again.manifest, &again.config),
        (&image.manifest, &image.config)
    );
    let config: Value = from_slice(&image.config).unwrap();
    assert_eq!(config["architecture"], "arm64");
    assert_eq!(config["created"], "2024-01-01T00:00:00Z");
    assert_eq!(config["config"]["Env"], json!(["PATH=/opt/venv/bin"]));
    assert_eq!(config["config"]["Labels"], json!({ "a": "w", "k": "v" }));
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 2);
    assert_eq!(config["history"][1]["created_by"], "stackforge: a test");
    let manifest: Value = from_slice(&image.manifest).unwrap();
    assert_eq!(manifest["layers"][1]["size"], 3);
    assert_eq!(manifest["layers"][1]["annotations"]["a"], "b");
}

#[test]
fn a_base_keeps_what_it_says_and_loses_its_entrypoint() {
    let config = json!({
        "architecture": "arm64", "os": "linux",
        "config": {
            "Env": ["PATH=/bin", "X=1"], "User": "u", "Entrypoint": ["/start"], "Labels": { "k": "old", "b": "c" },
        },
        "rootfs": { "type": "layers", "diff_ids": [] },
        "history": [{ "created_by": "its own" }],
    });
    let blobs = tempfile::tempdir().unwrap();
    let (below, own) = (layer(blobs.path(), b"below"), layer(blobs.path(), b"own"));
    let image = Draft {
        base: Some(serde_json::from_value(config).unwrap()),
        from_base: 1,
        ..draft(vec![below, own])
    };
    let config: Value = from_slice(&image.assemble().unwrap().config).unwrap();
    let own = &config["config"];
    assert_eq!(own["Env"], json!(["PATH=/opt/venv/bin", "X=1"]));
    assert_eq!(
        (&own["User"], &own["Entrypoint"]),
        (&json!("u"), &Value::Null)
    );
    assert_eq!(own["Labels"], json!({ "a": "w", "b": "c", "k": "v" }));
    let history = config["history"].as_array().unwrap();
    assert_eq!(history.len(), 2);
    assert_eq!(history[0]["created_by"], "its own");
}

#[test]
fn a_layout_takes_more_images_and_replaces_those_of_one_name() {
    let blobs = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let directory = out.path().join("layout");
    let one = draft(vec![layer(blobs.path(), b"one")]).assemble().unwrap();
    let two = draft(vec![layer(blobs.path(), b"two")]).assemble().unwrap();
    for (image, name) in [(&one, "x:a"), (&one, "x:b"), (&two, "x:a")] {
        output::layout(image, name, blobs.path(), &directory).unwrap();
    }
    let of = |name| {
        crate::oci::open(&directory, Some(name), None)
            .unwrap()
            .digest
    };
    assert_eq!((of("a"), of("b")), (two.digest.clone(), one.digest.clone()));

    // An image of another repository with that tag is another image, and one image may have two names.
    for (image, name) in [(&two, "y:a"), (&one, "host.test/z:a"), (&one, "y:b")] {
        output::layout(image, name, blobs.path(), &directory).unwrap();
    }
    assert_eq!((of("a"), of("b")), (one.digest.clone(), one.digest.clone()));
    assert_eq!(
        (of("x:a"), of("y:a")),
        (two.digest.clone(), two.digest.clone())
    );
    for name in ["host.test/z:a", "x:b", "y:b"] {
        assert_eq!(of(name), one.digest, "{name}");
    }

    // The next writer removes what a killed writer left, wherever it was killed.
    let begun = out.path().join("begun");
    std::fs::create_dir_all(&begun).unwrap();
    for layout in [&directory, &begun] {
        std::fs::write(layout.join(".tmp-killed"), "").unwrap();
        output::layout(&one, "x:a", blobs.path(), layout).unwrap();
        assert!(!layout.join(".tmp-killed").exists());
        assert!(crate::oci::open(layout, Some("a"), None).is_ok());
    }

    let other = out.path().join("other");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(other.join("mine"), "").unwrap();
    let refused = output::layout(&one, "x:a", blobs.path(), &other).unwrap_err();
    assert!(matches!(refused, AssembleError::NoLayout(_)), "{refused}");
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
    // An index of another shape may also name images, in a way that is not understood.
    for text in ["[]", "{}", r#"{"manifests":{}}"#, "{", ""] {
        let index = directory.join("index.json");
        std::fs::write(&index, text).unwrap();
        assert!(
            output::layout(&one, "x:a", blobs.path(), &directory).is_err(),
            "{text}"
        );
        assert_eq!(std::fs::read_to_string(index).unwrap(), text);
    }
}

#[test]
fn an_archive_holds_the_layers_that_are_wanted() {
    let blobs = tempfile::tempdir().unwrap();
    let same = layer(blobs.path(), b"two");
    let layers = vec![layer(blobs.path(), b"one"), same.clone(), same];
    let image = draft(layers).assemble().unwrap();
    let names = |from: usize| {
        let mut bytes = Vec::new();
        let tags = ["x:a".to_owned()];
        output::archive(&image, &tags, blobs.path(), |n| n >= from, &mut bytes).unwrap();
        let mut names = Vec::new();
        let mut reader = Reader::new(bytes.as_slice());
        while let Some(entry) = reader.next().unwrap() {
            names.push(entry.header.path.clone());
        }
        names
    };
    let one = format!("blobs/sha256/{}", image.layers[0].digest.hex());
    assert!(names(0).contains(&one) && !names(1).contains(&one));
    assert_eq!(names(0).len(), names(1).len() + 1, "each blob once");

    // A truncated blob fails the archive.
    let path = blobs.path().join(image.layers[0].digest.hex());
    std::fs::write(path, "o").unwrap();
    let mut sink = Vec::new();
    assert!(output::archive(&image, &[], blobs.path(), |_| true, &mut sink).is_err());
}

#[test]
fn containerd_is_told_names_in_full() {
    let blobs = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let directory = out.path().join("layout");
    let image = draft(vec![layer(blobs.path(), b"one")]).assemble().unwrap();
    let names = ["nat:1", "nat", "a/b:2", "local.example:5000/nat:3"].map(str::to_owned);
    let full = [
        "docker.io/library/nat:1",
        "docker.io/library/nat:latest",
        "docker.io/a/b:2",
        "local.example:5000/nat:3",
    ];
    let image_names = |index: &[u8]| -> Vec<String> {
        let index: Value = from_slice(index).unwrap();
        let manifests = index["manifests"].as_array().unwrap().iter();
        let names = manifests.map(|m| &m["annotations"]["io.containerd.image.name"]);
        names.map(|n| n.as_str().unwrap().to_owned()).collect()
    };
    for name in &names {
        output::layout(&image, name, blobs.path(), &directory).unwrap();
    }
    assert_eq!(
        image_names(&std::fs::read(directory.join("index.json")).unwrap()),
        full
    );
    // The image is found by both forms of its name.
    for name in names.iter().map(String::as_str).chain(full) {
        let found = crate::oci::open(&directory, Some(name), None).unwrap();
        assert_eq!(found.digest, image.digest, "{name}");
    }
    let mut bytes = Vec::new();
    output::archive(&image, &names, blobs.path(), |_| true, &mut bytes).unwrap();
    let mut reader = Reader::new(bytes.as_slice());
    let mut checked = 0;
    while let Some(mut entry) = reader.next().unwrap() {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut text).unwrap();
        match entry.header.path.as_str() {
            "index.json" => assert_eq!(image_names(&text), full),
            // These names are shown to people, and Docker takes them.
            "manifest.json" => {
                let document: Value = from_slice(&text).unwrap();
                assert_eq!(document[0]["RepoTags"], json!(names));
            }
            _ => continue,
        }
        checked += 1;
    }
    assert_eq!(checked, 2);
}

#[test]
fn writers_of_one_layout_lose_no_image_and_no_field() {
    let blobs = tempfile::tempdir().unwrap();
    let to = tempfile::tempdir().unwrap();
    let directory = to.path().join("layout");
    let image = draft(vec![layer(blobs.path(), b"one")]);
    let image = image.assemble().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (image, directory, blobs) = (&image, &directory, blobs.path());
            scope.spawn(move || {
                for number in 0..5 {
                    let name = format!("x:{writer}-{number}");
                    output::layout(image, &name, blobs, directory).unwrap();
                }
            });
        }
    });
    let index = directory.join("index.json");
    let mut read: Value = from_slice(&std::fs::read(&index).unwrap()).unwrap();
    assert_eq!(read["manifests"].as_array().unwrap().len(), 40);

    read["annotations"] = json!({ "kept": "yes" });
    std::fs::write(&index, read.to_string()).unwrap();
    output::layout(&image, "x:more", blobs.path(), &directory).unwrap();
    let read: Value = from_slice(&std::fs::read(&index).unwrap()).unwrap();
    assert_eq!(read["annotations"]["kept"], "yes");

    std::fs::write(&index, "{\"manifests\": [torn").unwrap();
    let refused = output::layout(&image, "x:last", blobs.path(), &directory);
    assert!(refused.is_err());
    assert!(std::fs::read_to_string(&index).unwrap().ends_with("torn"));
}

#[test]
fn a_copy_of_the_same_length_is_not_taken_for_the_blob() {
    let blobs = tempfile::tempdir().unwrap();
    let to = tempfile::tempdir().unwrap();
    let image = draft(vec![layer(blobs.path(), b"one")]);
    let image = image.assemble().unwrap();
    output::layout(&image, "x:1", blobs.path(), to.path()).unwrap();
    let blob = to
        .path()
        .join("blobs/sha256")
        .join(image.layers[0].digest.hex());
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(&blob, "oen").unwrap();
    output::layout(&image, "x:1", blobs.path(), to.path()).unwrap();
    assert_eq!(std::fs::read(&blob).unwrap(), b"one");
}

/// The case of a layout on another file system than the store, if this machine has one in memory.
#[test]
fn a_damaged_copy_on_another_file_system_is_made_again() {
    let blobs = tempfile::tempdir().unwrap();
    let memory = Path::new("/dev/shm");
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev());
    if !memory.is_dir() || device(memory).unwrap() == device(blobs.path()).unwrap() {
        return;
    }
    let image = draft(vec![layer(blobs.path(), b"one")]).assemble().unwrap();
    let place = tempfile::tempdir_in(memory).unwrap();
    let write = || output::layout(&image, "x:1", blobs.path(), place.path()).unwrap();
    write();
    let copy = place.path().join("blobs/sha256");
    let copy = copy.join(image.layers[0].digest.hex());
    std::fs::write(&copy, "bad").unwrap();
    write();
    assert_eq!(std::fs::read(&copy).unwrap(), b"one");
    // A symbolic link is not a copy, whatever its target.
    std::fs::rename(&copy, place.path().join("kept")).unwrap();
    std::os::unix::fs::symlink("../../kept", &copy).unwrap();
    write();
    assert!(std::fs::symlink_metadata(&copy).unwrap().is_file());
}

/// The digest was computed before the writer was shared.
#[test]
fn an_archive_keeps_its_bytes() {
    let blobs = tempfile::tempdir().unwrap();
    let image = draft(vec![layer(blobs.path(), b"one")]).assemble().unwrap();
    let mut bytes = Vec::new();
    let names = ["x:a".to_owned()];
    output::archive(&image, &names, blobs.path(), |_| true, &mut bytes).unwrap();
    assert_eq!(
        Digest::of(&bytes).to_string(),
        "sha256:a50eea164f85d450b947d12e1c7edb1cefabd470dd6427576531501dde8651c3"
    );
}
