//! `push` and `pull` with Docker and Podman as the other side.

use std::process::Command;
use support::published::{answer, digest, enter, refusal};
use support::server::{Kind, Server, layout, skopeo};
use support::{Sandbox, remove};

/// What Docker says of an image, if it has it.
fn inspect(name: &str, format: &str) -> Option<String> {
    let out = Command::new("docker")
        .args(["image", "inspect", "--format", format, name])
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    out.status.success().then(|| text.trim().to_owned())
}

fn docker(args: &[&str]) {
    let out = Command::new("docker").args(args).output().unwrap();
    assert!(out.status.success(), "{args:?}: {out:?}");
}

fn pull_to_docker(sandbox: &Sandbox, place: &str, keep: &str) {
    let args = ["pull", place, "--platform", "linux/amd64"];
    let to = ["-o", "docker", "--keep", keep];
    answer(sandbox, &[args, to].concat());
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
        pull_to_docker(&sandbox, &place, "1");
        // Once more is nothing new.
        pull_to_docker(&sandbox, &place, "1");
        ids.push(inspect(&place, "{{.Id}}").unwrap());
    }
    assert_eq!(inspect(&previous(1), "{{.Id}}").as_ref(), ids.get(1));
    assert_eq!(inspect(&previous(2), "{{.Id}}"), None);
    assert_eq!(inspect(&ids[0], "{{.Id}}"), None, "it had no other name");
}

#[test]
fn an_image_with_a_name_of_its_users_is_not_removed() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    for (keep, seed) in [("0", 66), ("1", 70)] {
        let place = format!("{}/app:keep{keep}", server.host);
        let port = server.host.rsplit(':').next().unwrap();
        let own = |n: usize| format!("stackforge-test-{port}/prod{keep}:{n}");
        let mut names = vec![place.clone(), format!("{place}-previous-1")];
        names.extend((0..4).map(own));
        let _names = Names(names);
        for n in 0..4 {
            let image = layout(server.dir.path(), seed + n as u64);
            let source = format!("oci:{}:v1", image.display());
            answer(&sandbox, &["push", &source, &place]);
            pull_to_docker(&sandbox, &place, keep);
            docker(&["tag", &place, &own(n)]);
        }
        for n in 0..4 {
            assert!(
                inspect(&own(n), "{{.Id}}").is_some(),
                "--keep {keep}: {}",
                own(n)
            );
        }
    }
}

#[test]
fn an_image_with_a_container_stays_and_goes_after_it() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let place = format!("{}/app:v1", server.host);
    let container = format!(
        "stackforge-test-{}",
        server.host.rsplit(':').next().unwrap()
    );
    let mut names = vec![place.clone()];
    names.extend((0..5).map(|n| format!("{place}-previous-{n}")));
    let _names = Names(names);
    let mut ids = Vec::new();
    for seed in 75..79 {
        let image = layout(server.dir.path(), seed);
        answer(
            &sandbox,
            &["push", &format!("oci:{}:v1", image.display()), &place],
        );
        pull_to_docker(&sandbox, &place, "1");
        ids.push(inspect(&place, "{{.Id}}").unwrap());
        match seed {
            75 => docker(&["create", "--name", &container, &place, "/x"]),
            77 => {
                assert!(
                    inspect(&ids[0], "{{.Id}}").is_some(),
                    "its container is there"
                );
                docker(&["rm", &container]);
            }
            _ => {}
        }
    }
    let left: Vec<_> = ids
        .iter()
        .map(|id| inspect(id, "{{.Id}}").is_some())
        .collect();
    assert_eq!(left, [false, false, true, true]);
}

#[test]
fn what_a_killed_pull_left_in_docker_is_ended_by_the_next() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let place = format!("{}/app:v1", server.host);
    let slot = |n: u32| format!("{place}-previous-{n}");
    let mut names = vec![place.clone()];
    names.extend((0..5).map(slot));
    let _names = Names(names);
    let mut ids: Vec<String> = Vec::new();
    for seed in 80..84 {
        let image = layout(server.dir.path(), seed);
        let source = format!("oci:{}:v1", image.display());
        answer(&sandbox, &["push", &source, &place]);
        pull_to_docker(&sandbox, &place, "3");
        ids.push(inspect(&place, "{{.Id}}").unwrap());
        if seed == 82 {
            // As it is where the third is loaded and the first has moved on, but not yet the second.
            docker(&["tag", &ids[1], &slot(0)]);
            docker(&["tag", &ids[0], &slot(1)]);
            assert_eq!(inspect(&slot(2), "{{.Id}}").as_ref(), ids.first());
        }
    }
    let kept: Vec<_> = (0..5).map(|n| inspect(&slot(n), "{{.Id}}")).collect();
    let of = |n: usize| Some(ids[n].clone());
    assert_eq!(kept, [None, of(2), of(1), of(0), None]);
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

#[test]
fn an_image_that_only_the_engine_has_is_pushed_by_it() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let [loaded, to, index] =
        ["app:1", "mine:1", "index:1"].map(|n| format!("{}/{n}", server.host));
    let own = "stackforge-test-of-the-engine:1".to_owned();
    let _names = Names(vec![loaded.clone(), own.clone(), to.clone()]);
    let source = format!("oci:{}:v1", layout(server.dir.path(), 66).display());
    answer(&sandbox, &["push", &source, &loaded]);
    let args = ["pull", &loaded, "--platform", "linux/amd64"];
    answer(&sandbox, &[&args[..], &["-o", "docker"]].concat());
    let tagged = Command::new("docker").args(["tag", &loaded, &own]).status();
    assert!(tagged.unwrap().success());
    let id = inspect(&own, "{{.Id}}").unwrap();

    let pushed = answer(&sandbox, &["push", &own, &to]);
    assert_eq!(pushed["image"], id.as_str());
    let remote = format!("docker://{to}");
    let config = skopeo(&[
        "inspect",
        "--tls-verify=false",
        "--config",
        "--raw",
        &remote,
    ]);
    assert_eq!(digest(config.as_bytes()).to_string(), id);
    assert_eq!(
        inspect(&to, "{{.Id}}"),
        None,
        "the engine keeps no name of it"
    );
    let variant = ["--index", "--variant", "v", "--fact", "sm=90"];
    let entered = answer(&sandbox, &[&["push", &own, &index], &variant[..]].concat());
    assert_eq!(entered["index"]["variants"].as_array().unwrap().len(), 1);

    // One that nobody has, and one for another platform.
    for args in [
        &["stackforge-test-nobody:1"][..],
        &[&own, "--platform", "linux/arm64"],
    ] {
        let run = sandbox.run(&[&["--json", "push"], args, &[&to]].concat());
        refusal(&run, 2, "SF0921");
    }
}
