use std::io::{Read as _, Write as _};
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A layout in a temporary directory.
struct Layout(tempfile::TempDir);

impl Layout {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("blobs/sha256")).unwrap();
        std::fs::write(
            dir.path().join("oci-layout"),
            r#"{"imageLayoutVersion":"1.0.0"}"#,
        )
        .unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = Digest::of(bytes);
        std::fs::write(self.path().join("blobs/sha256").join(digest.hex()), bytes).unwrap();
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    }

    fn json(&self, media_type: &str, value: &Value) -> Value {
        self.blob(media_type, value.to_string().as_bytes())
    }

    fn image(&self, arch: &str, suffix: &str, tar: &[u8], blob: &[u8]) -> Value {
        let config = json!({"architecture": arch, "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [Digest::of(tar)]}});
        let config = self.json(CONFIG, &config);
        let layer = self.blob(&format!("{LAYER}{suffix}"), blob);
        self.json(
            MANIFEST,
            &json!({"schemaVersion": 2, "config": config, "layers": [layer]}),
        )
    }

    fn index(&self, manifests: &[Value]) {
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        std::fs::write(self.path().join("index.json"), index.to_string()).unwrap();
    }

    fn open(&self, reference: Option<&str>, platform: Option<Platform>) -> Result<Image, OciError> {
        open(self.path(), reference, platform)
    }
}

fn with(mut descriptor: Value, key: &str, value: Value) -> Value {
    descriptor[key] = value;
    descriptor
}

fn named(descriptor: Value, name: &str) -> Value {
    with(
        descriptor,
        "annotations",
        json!({"org.opencontainers.image.ref.name": name}),
    )
}

fn on(descriptor: Value, arch: &str) -> Value {
    with(
        descriptor,
        "platform",
        json!({"os": "linux", "architecture": arch}),
    )
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn read(layer: &Layer) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    layer.tar().unwrap().read_to_end(&mut out).map(|_| out)
}

#[test]
fn layers_of_each_compression_are_read_many_times_and_from_threads() {
    let tar = vec![3; 300_000];
    let members = [gzip(&tar[..1000]), gzip(&tar[1000..])].concat();
    let frames = [
        zstd::encode_all(&tar[..1000], 1).unwrap(),
        zstd::encode_all(&tar[1000..], 1).unwrap(),
    ];
    for (suffix, blob) in [
        ("", tar.clone()),
        ("+gzip", members),
        ("+zstd", frames.concat()),
    ] {
        let layout = Layout::new();
        layout.index(&[layout.image("amd64", suffix, &tar, &blob)]);
        let image = layout.open(None, None).unwrap();
        let layer = &image.layers[0];
        assert_eq!(layer.size, blob.len() as u64);
        assert_eq!(
            (&layer.digest, &layer.diff_id),
            (&Digest::of(&blob), &Digest::of(&tar))
        );
        assert_eq!(layer.media_type, format!("{LAYER}{suffix}"));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert!(read(layer).unwrap() == tar));
            }
        });
    }
}

#[test]
fn a_layer_that_was_altered_is_never_read_in_full() {
    let tar: Vec<u8> = (0..200_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for (suffix, blob) in [
        ("", tar.clone()),
        ("+gzip", gzip(&tar)),
        ("+zstd", zstd::encode_all(&tar[..], 1).unwrap()),
    ] {
        let layout = Layout::new();
        layout.index(&[layout.image("amd64", suffix, &tar, &blob)]);
        let file = layout
            .path()
            .join("blobs/sha256")
            .join(Digest::of(&blob).hex());
        for at in [4, 9, blob.len() / 2, blob.len() - 1] {
            let mut altered = blob.clone();
            altered[at] ^= 1;
            std::fs::write(&file, &altered).unwrap();
            let image = layout.open(None, None).unwrap();
            let mut stream = image.layers[0].tar().unwrap();
            assert!(
                stream.read_to_end(&mut Vec::new()).is_err(),
                "{suffix} {at}"
            );
            assert!(stream.read(&mut [0]).is_err(), "an error is not an end");
        }
        std::fs::write(&file, &blob[..blob.len() - 1]).unwrap();
        let image = layout.open(None, None).unwrap();
        assert!(matches!(image.layers[0].tar(), Err(OciError::Size { .. })));
    }
    // The blob's digest is right, the diff ID is wrong.
    let layout = Layout::new();
    layout.index(&[layout.image("amd64", "", b"other", &tar)]);
    let error = read(&layout.open(None, None).unwrap().layers[0]).unwrap_err();
    assert!(error.to_string().contains("diff ID"), "{error}");
}

#[test]
fn one_image_is_chosen_or_all_are_listed() {
    let layout = Layout::new();
    let amd = layout.image("amd64", "", b"a", b"a");
    let arm = layout.image("arm64", "", b"b", b"b");
    let digest = |v: &Value| v["digest"].as_str().unwrap().to_owned();
    let attestation = with(
        amd.clone(),
        "platform",
        json!({"os": "unknown", "architecture": "unknown"}),
    );
    let both = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
        on(amd.clone(), "amd64"), on(arm.clone(), "arm64"), attestation]});
    let both = layout.json(INDEX, &both);
    let outer = layout.json(
        INDEX,
        &json!({"schemaVersion": 2, "manifests": [both.clone()]}),
    );
    layout.index(&[named(outer.clone(), "multi"), named(arm.clone(), "arm")]);
    let found = |reference: Option<&str>, platform| {
        layout
            .open(reference, platform)
            .map(|i| i.digest.to_string())
    };
    assert_eq!(
        found(Some("multi"), Some(Platform::LinuxAmd64)).unwrap(),
        digest(&amd)
    );
    assert_eq!(
        found(None, Some(Platform::LinuxArm64)).unwrap(),
        digest(&arm)
    );
    assert_eq!(found(Some("arm"), None).unwrap(), digest(&arm));
    assert_eq!(found(Some(&digest(&amd)), None).unwrap(), digest(&amd));
    assert_eq!(
        found(Some(&digest(&both)), Some(Platform::LinuxAmd64)).unwrap(),
        digest(&amd)
    );
    let error = found(None, None).unwrap_err().to_string();
    for part in ["several images", "multi", "linux/amd64", "linux/arm64"] {
        assert!(error.contains(part), "{error}");
    }
    let error = found(Some("nope"), None).unwrap_err().to_string();
    assert!(error.contains("`nope`; there is arm, multi"), "{error}");
    assert!(found(Some(&format!("sha256:{:064}", 0)), None).is_err());
    let error = found(Some("arm"), Some(Platform::LinuxAmd64))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("linux/amd64; there is linux/arm64"),
        "{error}"
    );
    // An index that states the wrong platform for its manifest.
    layout.index(&[on(arm, "amd64")]);
    assert!(matches!(
        layout.open(None, Some(Platform::LinuxAmd64)),
        Err(OciError::NoPlatform { .. })
    ));
    let mut deep = amd;
    for _ in 0..6 {
        deep = layout.json(INDEX, &json!({"schemaVersion": 2, "manifests": [deep]}));
    }
    layout.index(&[deep]);
    assert!(
        found(None, None)
            .unwrap_err()
            .to_string()
            .contains("indexes deep")
    );
}

#[test]
fn what_is_wrong_with_a_document_is_said() {
    let layout = Layout::new();
    let good = layout.image("amd64", "", b"a", b"a");
    let refuse = |entry: Value, expected: &str| {
        layout.index(&[entry]);
        let error = layout.open(None, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refuse(with(good.clone(), "size", json!(7)), "in place of 7");
    refuse(
        with(good.clone(), "digest", json!(format!("sha256:{:064}", 1))),
        "is missing",
    );
    refuse(
        with(good.clone(), "digest", json!(format!("sha512:{:0128}", 1))),
        "not a sha256 digest",
    );
    refuse(
        with(good.clone(), "digest", json!("sha256:../../etc/passwd")),
        "index.json",
    );
    refuse(
        with(good.clone(), "mediaType", json!("text/plain")),
        "only text/plain",
    );
    let foreign = layout.image("amd64", ".nondistributable", b"a", b"a");
    refuse(foreign, "not a known type of layer");
    let config = json!({"architecture": "amd64", "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": []}});
    let config = layout.json(CONFIG, &config);
    let layer = layout.blob(
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        b"a",
    );
    let manifest = |value: Value| layout.json(MANIFEST, &value);
    refuse(
        manifest(json!({"schemaVersion": 2, "config": config, "layers": [layer]})),
        "0 diff IDs for 1 layers",
    );
    refuse(
        manifest(json!({"schemaVersion": 2, "config": config, "layers": [], "manifests": []})),
        "an index and a manifest at once",
    );
    refuse(
        manifest(json!({"schemaVersion": 2, "config": layer, "layers": []})),
        "so this is not an image",
    );
    refuse(
        layout.blob(MANIFEST, &vec![b' '; (4 << 20) + 1]),
        "more than 4194304",
    );
    let text = serde_json::from_value(layer).unwrap();
    assert!(
        parse::compression(&text)
            .unwrap_err()
            .to_string()
            .contains("lies elsewhere")
    );
    std::fs::write(
        layout.path().join("oci-layout"),
        r#"{"imageLayoutVersion":"2.0.0"}"#,
    )
    .unwrap();
    assert!(layout.open(None, None).is_err());
    let other = tempfile::tempdir().unwrap();
    std::fs::write(
        other.path().join("manifest.json"),
        r#"[{"Config":"/etc/passwd"}]"#,
    )
    .unwrap();
    assert!(matches!(
        open(other.path(), None, None),
        Err(OciError::Unknown(_))
    ));
    for text in [&b"no tar"[..], b"\x1f\x8b\x08"] {
        let file = other.path().join("file");
        std::fs::write(&file, text).unwrap();
        assert!(open(&file, None, None).is_err());
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parsers_panic(text in "[\\[\\]{}\",:0-9a-z]{0,200}") {
        let bytes = text.as_bytes();
        let _ = parse::layout(bytes);
        let _ = parse::index("i", bytes);
        let _ = parse::manifest("m", bytes);
        let _ = parse::config("c", bytes);
        let _ = parse::saved(bytes);
    }
}
