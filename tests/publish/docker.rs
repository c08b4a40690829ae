//! Docker and Podman as the other side.

use super::support::remove;
use super::{Kind, Sandbox, Server, answer, digest, enter, layout, skopeo};
use std::process::Command;

/// What Docker says of an image, if it has it.
fn inspect(name: &str, format: &str) -> Option<String> {
    let out = Command::new("docker")
        .args(["image", "inspect", "--format", format, name])
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    out.status.success().then(|| text.trim().to_owned())
}

/// Takes names from Docker when the test ends.
struct Names(Vec<String>);

impl Drop for Names {
    fn drop(&mut self) {
        self.0.iter().for_each(|name| remove(name));
    }
}

#[test]
fn docker_gets_what_is_pulled_and_keeps_the_one_before() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let place = format!("{}/app:v1", server.host);
    let previous = |n: u32| format!("{place}-previous-{n}");
    let _names = Names(vec![place.clone(), previous(1), previous(2)]);
    let mut ids = Vec::new();
    for seed in 61..64 {
        let image = layout(server.dir.path(), seed);
        let source = format!("oci:{}:v1", image.display());
        answer(&sandbox, &["push", &source, &place]);
        let args = [
            "pull",
            &place,
            "--platform",
            "linux/amd64",
            "-o",
            "docker",
            "--keep",
            "1",
        ];
        answer(&sandbox, &args);
        // Once more is nothing new.
        answer(&sandbox, &args);
        ids.push(inspect(&place, "{{.Id}}").unwrap());
    }
    assert_eq!(inspect(&previous(1), "{{.Id}}").as_ref(), ids.get(1));
    assert_eq!(inspect(&previous(2), "{{.Id}}"), None);
    assert_eq!(inspect(&ids[0], "{{.Id}}"), None, "it had no other name");
}

#[test]
fn docker_pulls_from_an_index_of_variants() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let place = format!("{}/app:1", server.host);
    let _names = Names(vec![place.clone()]);
    let mut pushed = Vec::new();
    for (seed, variant, fact) in [(64, "hopper", "sm=90"), (65, "many", "sm=80,90")] {
        let entered = enter(&sandbox, &server, &place, (seed, variant, fact));
        pushed.push(entered["digest"].as_str().unwrap().to_owned());
    }
    let pulled = Command::new("docker")
        .args(["pull", "--quiet", "--platform", "linux/amd64", &place])
        .output()
        .unwrap();
    assert!(pulled.status.success(), "{pulled:?}");
    // Its layers are those of the first: the variant with most code.
    let id = inspect(&place, "{{.Id}}").unwrap();
    let manifest = server.dir.path().join("image65/blobs/sha256");
    let manifest = std::fs::read(manifest.join(pushed[1].replace("sha256:", ""))).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["config"]["digest"], id.as_str());

    // Podman finds the same one, with storage of its own.
    let storage = sandbox.path("podman");
    let podman = |args: &[&str]| {
        let mut podman = Command::new("podman");
        for name in ["root", "runroot", "tmpdir"] {
            podman.arg(format!("--{name}")).arg(storage.join(name));
        }
        let out = podman.args(["--storage-driver", "vfs"]).args(args).output();
        let out = out.unwrap();
        assert!(out.status.success(), "{args:?}: {out:?}");
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    let args = ["pull", "--quiet", "--tls-verify=false", "--platform"];
    podman(&[&args[..], &["linux/amd64", &place]].concat());
    let named = podman(&["image", "inspect", "--format", "{{.Id}}", &place]);
    assert_eq!(format!("sha256:{named}"), id);

    // And what they push is pulled.
    let [ours, theirs] = ["docker", "podman"].map(|name| format!("{}/{name}:1", server.host));
    let _names = Names(vec![ours.clone()]);
    for args in [["tag", &place, &ours], ["push", "--quiet", &ours]] {
        let out = Command::new("docker").args(args).output().unwrap();
        assert!(out.status.success(), "{out:?}");
    }
    podman(&["push", "--quiet", "--tls-verify=false", &place, &theirs]);
    for (place, to) in [(&ours, "ours"), (&theirs, "theirs")] {
        let output = format!("oci:{to}");
        let args = ["pull", place, "--platform", "linux/amd64", "-o", &output];
        answer(&sandbox, &args);
        let copied = format!("oci:{}:1", sandbox.path(to).display());
        let config = skopeo(&["inspect", "--config", "--raw", &copied]);
        assert_eq!(digest(config.as_bytes()).to_string(), id, "{to}");
    }
}
