use super::*;
use crate::tar::Reader;
use serde_json::from_slice;
use std::path::Path;

/// A layer of the store at `blobs` whose content is no tar: nothing here reads it.
fn layer(blobs: &Path, content: &[u8]) -> Layer {
    let digest = Digest::of(content);
    std::fs::write(blobs.join(digest.hex()), content).unwrap();
    Layer {
        media_type: "application/vnd.oci.image.layer.v1.tar+gzip".into(),
        diff_id: Digest::of(&[content, b"plain"].concat()),
        digest,
        size: content.len() as u64,
        plain_size: 9,
        annotations: BTreeMap::from([("a".into(), "b".into())]),
        about: "a test".into(),
        of: Vec::new(),
    }
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
    assert_eq!((of("a"), of("b")), (two.digest, one.digest.clone()));

    let other = out.path().join("other");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(other.join("mine"), "").unwrap();
    let refused = output::layout(&one, "x:a", blobs.path(), &other).unwrap_err();
    assert!(matches!(refused, AssembleError::NoLayout(_)), "{refused}");
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
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

    // A blob that somebody cut is no part of an archive.
    let path = blobs.path().join(image.layers[0].digest.hex());
    std::fs::write(path, "o").unwrap();
    let mut sink = Vec::new();
    assert!(output::archive(&image, &[], blobs.path(), |_| true, &mut sink).is_err());
}

#[test]
fn times_are_those_of_date() {
    // As `date -u -d @SECONDS +%FT%TZ` prints them.
    for (seconds, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (1_709_251_199, "2024-02-29T23:59:59Z"),
        (1_735_689_599, "2024-12-31T23:59:59Z"),
        (u32::MAX, "2106-02-07T06:28:15Z"),
    ] {
        assert_eq!(time(seconds), text);
    }
}
