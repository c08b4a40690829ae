//! `prune: true`: an image with the device code of its GPUs alone, from a real wheel with the code of
//! ten.

use super::{image_spec, ok, out};
use std::path::{Path, PathBuf};
use support::Sandbox;

const STACK: &str = "\
stack: pruned
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100, sm_120] }
python: \"3.11\"
libraries: { nvidia-curand: \"10.4.0.35\" }
jit: false
bytecode: false
prune: true
";
const LIBRARY: &str = "nvidia/cu13/lib/libcurand.so.10";
/// Loads the library, and compares it with its wheel's RECORD and with the wheel's own.
const LOOK: &str = r#"
import base64, ctypes, hashlib, os, pathlib, sys, zipfile
site, wheel, library = pathlib.Path(sys.argv[1]), zipfile.ZipFile(sys.argv[2]), sys.argv[3]
content = (site / library).read_bytes()
digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
record = (site / "nvidia_curand-10.4.0.35.dist-info/RECORD").read_text().splitlines()
assert f"{library},sha256={digest},{len(content)}" in record, "RECORD"
before = wheel.read(library)
assert len(before) == len(content), "size"
assert content.count(0) - before.count(0) > len(content) // 4, "zeros"
version = ctypes.c_int()
loaded = ctypes.CDLL(str(site / library))
assert loaded.curandGetVersion(ctypes.byref(version)) == 0 and version.value > 10000, "version"
"#;

fn sass(audit: &serde_json::Value) -> &serde_json::Value {
    let objects = audit["objects"].as_array().unwrap();
    let found = objects
        .iter()
        .find(|o| o["path"].as_str().unwrap().ends_with("libcurand.so.10"));
    &found.unwrap()["sm"]
}

#[test]
fn an_image_has_the_code_of_its_gpus_alone() {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", STACK);
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let plan = sandbox.run(&["plan", "s.yaml"]);
    assert!(
        plan.stdout.contains("native: device code is pruned"),
        "{}",
        plan.stdout
    );

    // What is left of the wheels depends on the GPUs, and on whether it is asked for.
    let key = |stack: &str| {
        sandbox.write("s.yaml", stack);
        assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
        let plan = ok(&sandbox.run(&["plan", "s.yaml", "--json"]));
        let steps = plan["variants"][0]["steps"].as_array().unwrap();
        let wheel = (steps.iter())
            .find(|step| step["id"].as_str().unwrap().starts_with("wheel"))
            .unwrap();
        wheel["key"].as_str().unwrap().to_owned()
    };
    let whole = STACK.replace("prune: true", "prune: false");
    let other = STACK.replace("sm_120", "a100");
    let keys = [&other, &whole, STACK].map(key);
    let apart: std::collections::BTreeSet<&String> = keys.iter().collect();
    assert_eq!(apart.len(), 3, "{keys:?}");

    // No step of a Dockerfile does that.
    for args in [
        &["build", "s.yaml", "--engine", "docker"][..],
        &["render", "s.yaml", "-o", "context"],
    ] {
        let refused = sandbox.run(args);
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert!(refused.stderr.contains("SF0309"), "{}", refused.stderr);
        assert!(refused.stderr.contains("prune: true"), "{}", refused.stderr);
    }

    let build = |store: &str| {
        sandbox.warm(store);
        let store = sandbox.path(store);
        let args = [
            "build",
            "s.yaml",
            "--json",
            "-o",
            "oci:layout",
            "--store",
            store.to_str().unwrap(),
        ];
        ok(&sandbox.run(&args))
    };
    let built = build("one");
    assert_eq!(built["image"]["id"], build("two")["image"]["id"]);
    assert_eq!(image_spec::wrong_in(&sandbox.path("layout")), [""; 0]);

    let wheel = "nvidia-curand==10.4.0.35";
    let whole = ok(&sandbox.run(&[
        "audit",
        wheel,
        "--platform",
        "linux/amd64",
        "--python",
        "3.11",
        "--json",
    ]));
    assert!(sass(&whole).as_array().unwrap().len() > 8, "{whole}");
    let audit = ok(&sandbox.run(&[
        "audit",
        "oci:layout",
        "--gpu",
        "h100",
        "--gpu",
        "sm_120",
        "--json",
    ]));
    assert_eq!(sass(&audit), &serde_json::json!(["9.0", "12.0"]));

    let unpacked = sandbox.path("unpacked");
    let layout = format!("{}:latest", sandbox.path("layout").display());
    out(
        "umoci",
        &[
            "unpack",
            "--rootless",
            "--image",
            &layout,
            unpacked.to_str().unwrap(),
        ],
    );
    let site = unpacked.join("rootfs/opt/venv/lib/python3.11/site-packages");
    let of = |path: &Path| path.to_str().unwrap().to_owned();
    let wheels = std::fs::read_dir(sandbox.path("one/blobs/sha256")).unwrap();
    let wheels = wheels.map(|entry| entry.unwrap().path());
    let is_zip = |path: &PathBuf| std::fs::read(path).unwrap().starts_with(b"PK\x03\x04");
    let wheels = wheels.filter(is_zip);
    let wheel = wheels.max_by_key(|wheel| wheel.metadata().unwrap().len());
    let wheel = wheel.unwrap();
    out("python3", &["-c", LOOK, &of(&site), &of(&wheel), LIBRARY]);

    // The rest of it are tables.
    let layers = built["image"]["layers"].as_array().unwrap();
    let of_wheel = |l: &&serde_json::Value| l["of"].to_string().contains("curand");
    let layer = layers.iter().find(of_wheel).unwrap()["size"]
        .as_u64()
        .unwrap();
    assert!(layer * 5 < wheel.metadata().unwrap().len() * 4, "{layer}");
}
