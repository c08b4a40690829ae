//! Blobs that changed in the store, and steps that somebody else wrote: neither reaches an image.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ok;
use support::Sandbox;

const STACK: &str = "\
stack: stackforge-test-damage
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100] }
python: \"3.11\"
libraries: { six: \"1.17.0\" }
jit: false
bytecode: false
";

fn stack() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.warm_with_own_blobs("store");
    sandbox.write("s.yaml", STACK);
    let run = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    sandbox
}

fn build(sandbox: &Sandbox, store: &str, more: &[&str]) -> Value {
    sandbox.warm_with_own_blobs(store);
    let store = sandbox.path(store).display().to_string();
    let all = [
        "build", "s.yaml", "--json", "--engine", "native", "--store", &store,
    ];
    // Without an output the image would go to Docker.
    let to: &[&str] = if more.contains(&"-o") {
        &[]
    } else {
        &["-o", "oci:unused"]
    };
    ok(&sandbox.run(&[&all[..], more, to].concat()))
}

/// Changes a byte and puts the time of last change back.
fn damage(path: &Path) {
    let metadata = fs::metadata(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(path, bytes).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(metadata.modified().unwrap()).unwrap();
}

fn blobs(layout: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(layout.join("blobs/sha256")).unwrap();
    let mut paths: Vec<PathBuf> = read.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn a_damaged_blob_is_made_or_fetched_again_when_it_is_used() {
    let sandbox = stack();
    let first = build(&sandbox, "store", &["-o", "oci:layout"]);
    let store = sandbox.path("store");
    // Layers, configuration and manifest of the image, then the wheel and packages below it.
    let image = blobs(&sandbox.path("layout"));
    assert!(image.len() > 4, "{image:?}");
    for (number, blob) in image.iter().enumerate() {
        damage(&store.join("blobs/sha256").join(blob.file_name().unwrap()));
        let to = format!("oci:again-{number}");
        let again = build(&sandbox, "store", &["-o", &to]);
        assert_eq!(again["image"]["id"], first["image"]["id"]);
        for blob in blobs(&sandbox.path(&format!("again-{number}"))) {
            let digest = stackforge_types::Digest::of(&fs::read(&blob).unwrap());
            assert_eq!(digest.hex(), blob.file_name().unwrap());
        }
    }
    for blob in blobs(&store) {
        damage(&blob);
    }
    let again = build(&sandbox, "store", &["-o", "oci:anew"]);
    assert_eq!(again["image"]["id"], first["image"]["id"]);
    assert_eq!(sandbox.run(&["audit", "oci:anew"]).code, 0);
}

#[test]
fn an_editor_of_a_layout_does_not_edit_the_store() {
    let sandbox = stack();
    let first = build(&sandbox, "store", &["-o", "oci:layout"]);
    for blob in blobs(&sandbox.path("layout")) {
        damage(&blob);
    }
    let again = build(&sandbox, "store", &["-o", "oci:second"]);
    assert_eq!(again["image"]["id"], first["image"]["id"]);
    assert_eq!(sandbox.run(&["audit", "oci:second"]).code, 0);
}

#[test]
fn a_cached_build_gives_every_name() {
    let sandbox = stack();
    build(&sandbox, "store", &["-t", "one:1"]);
    assert_eq!(build(&sandbox, "store", &["-t", "two:1"])["cached"], true);
    let store = sandbox.path("store").display().to_string();
    let listed = ok(&sandbox.run(&["cache", "ls", "--json", "--store", &store]));
    let names = listed["images"].as_array().unwrap();
    assert!(
        names.iter().any(|image| image["name"] == "two:1"),
        "{names:?}"
    );
}

/// The steps of an export name a layer that this stack does not have, and an image of it.
#[test]
fn a_forged_export_decides_nothing_of_what_is_built() {
    let sandbox = stack();
    let clean = build(&sandbox, "clean", &[]);
    build(&sandbox, "forged", &[]);
    let actions = fs::read_dir(sandbox.path("forged/actions")).unwrap();
    let actions: Vec<(PathBuf, Value)> = actions
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.clone(),
                serde_json::from_slice(&fs::read(path).unwrap()).unwrap(),
            )
        })
        .collect();
    let layers: Vec<&(PathBuf, Value)> = (actions.iter())
        .filter(|(_, action)| action["made"][0]["digest"].is_string() && action["image"].is_null())
        .collect();
    assert!(layers.len() > 2);
    // Each layer's key now leads to the layer of another.
    for ((path, _), (_, other)) in layers.iter().zip(layers.iter().cycle().skip(1)) {
        fs::write(path, other.to_string()).unwrap();
    }
    let (export, store) = ("forged.tar", sandbox.path("forged").display().to_string());
    let run = sandbox.run(&["cache", "export", export, "--store", &store]);
    assert_eq!(run.code, 0, "{}", run.stderr);

    let store = sandbox.path("new").display().to_string();
    let run = sandbox.run(&["cache", "import", export, "--store", &store]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("made again"), "{}", run.stdout);
    let plan = ok(&sandbox.run(&["plan", "s.yaml", "--json", "--store", &store]));
    let steps = plan["variants"][0]["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["cached"] != true), "{plan:#}");
    let built = build(&sandbox, "new", &[]);
    assert_eq!(built["cached"], false);
    assert_eq!(built["image"]["id"], clean["image"]["id"]);
}

/// Whatever the form of a record: each digest of a layer in it is another layer's, and so is its size.
#[test]
fn records_that_name_other_layers_decide_nothing() {
    let sandbox = stack();
    let clean = build(&sandbox, "clean", &["-o", "oci:layout"]);
    build(&sandbox, "forged", &[]);
    let manifest = blobs(&sandbox.path("layout"))
        .iter()
        .filter_map(|blob| serde_json::from_slice::<Value>(&fs::read(blob).unwrap()).ok())
        .find(|document| document["layers"].is_array())
        .unwrap();
    let config = manifest["config"]["digest"].as_str().unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    let configuration = sandbox.path("layout/blobs/sha256");
    let configuration =
        fs::read(configuration.join(config.strip_prefix("sha256:").unwrap())).unwrap();
    let configuration: Value = serde_json::from_slice(&configuration).unwrap();
    let layer = |n: usize| {
        let n = n % layers.len();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        [
            text(&layers[n]["digest"]),
            text(&configuration["rootfs"]["diff_ids"][n]),
            format!("\"size\": {}", layers[n]["size"]),
        ]
    };
    for action in fs::read_dir(sandbox.path("forged/actions")).unwrap() {
        let path = action.unwrap().path();
        let mut text = fs::read_to_string(&path).unwrap();
        // A build would take the image as it is, and look at no layer.
        if text.contains(config) {
            fs::remove_file(&path).unwrap();
            continue;
        }
        // In two steps, for one layer's name is put where another one's was.
        for (mark, other) in [(true, 0), (false, 1)] {
            for n in 0..layers.len() {
                for (what, (old, new)) in layer(n).iter().zip(layer(n + other)).enumerate() {
                    let held = format!("(layer {n}: {what})");
                    text = if mark {
                        text.replace(old, &held)
                    } else {
                        text.replace(&held, &new)
                    };
                }
            }
        }
        fs::write(path, text).unwrap();
    }
    let forged = sandbox.path("forged").display().to_string();
    let run = sandbox.run(&["cache", "export", "forged.tar", "--store", &forged]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let new = sandbox.path("new").display().to_string();
    let run = sandbox.run(&["cache", "import", "forged.tar", "--store", &new]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let built = build(&sandbox, "new", &["-o", "oci:built"]);
    assert_eq!(built["image"]["id"], clean["image"]["id"]);
    assert_eq!(
        blobs(&sandbox.path("built")).len(),
        blobs(&sandbox.path("layout")).len()
    );
}
