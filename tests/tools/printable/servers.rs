//! Registries and engines that answer with foreign texts.

use super::images::labels;
use super::proxy::{Act, Proxy};
use super::{EVIL, World, quoted};
use serde_json::{Value, json};
use stackforge_types::Digest;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Nothing is behind these servers.
const NOTHING: &str = "127.0.0.1:9";

fn ok(media_type: &str, body: &str) -> Act {
    let digest = Digest::of(body.as_bytes());
    let head = format!("200 OK\r\nContent-Type: {media_type}\r\nDocker-Content-Digest: {digest}");
    Act::Answer(head, body.to_owned())
}

/// A name in a registry that takes nothing.
pub fn nobody(world: &mut World) -> String {
    let server = Proxy::start(NOTHING, |_| {
        Act::Answer("400 No".to_owned(), "{}".to_owned())
    });
    let name = format!("{}/x:1", server.host);
    world.servers.push(server);
    name
}

fn commands(world: &mut World, place: &str) {
    for args in [
        &["pull", place][..],
        &["pull", place, "--dry-run"],
        &["pull", place, "--dry-run", "--gpu", "h100"],
        &["pull", place, "--variant", EVIL, "--dry-run"],
        &["pull", place, "--variant", "nope"],
        &["pull", place, "--verify", "key.pub"],
        &["pull", place, "-o", "oci:out"],
        &["inspect", place],
        &["inspect", place, "--print", "spdx"],
        &["verify", place, "--key", "key.pub"],
        &["sign", place, "--key", "key.key"],
        &["attach", place, "--stack", "tiny.yaml"],
        &["audit", &format!("registry:{place}")],
    ] {
        world.case(args);
    }
    // What an update was told before is in its state, and a file's name is not always ours.
    let top = world.sandbox.path("").display().to_string();
    let last = json!({ "outcome": "refused", "said": EVIL, "time": 0 });
    let state = json!({ "step": { "at": "idle" }, "last": last });
    for (name, place) in [("new", place), ("told", place), (EVIL, EVIL)] {
        let settings = format!("{name}-{}.yaml", place.replace(['/', ':', '\n'], "-"));
        let text = format!(
            "image: {}\nplace: oci:{top}/layout\nstate: {}\nservice: {{ unit: x }}\n",
            quoted(place),
            quoted(&format!("{top}/state-{name}")),
        );
        world.sandbox.write(&settings, &text);
        world
            .sandbox
            .write("state-told/state.json", &state.to_string());
        world.case(&["update", &settings, "--status"]);
        if name == "new" {
            world.case(&["update", &settings]);
        }
    }
}

fn world() -> World {
    let world = World::new();
    for name in ["tiny.yaml", "tiny.lock"] {
        let path = support::project(&format!("examples/{name}"));
        world
            .sandbox
            .write(name, &std::fs::read_to_string(path).unwrap());
    }
    let run = world.sandbox.run(&["sign", "--generate-key", "key"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    world
}

/// An index of variants at `index`, an image at `image`; both are all foreign texts.
pub fn registry() -> World {
    let mut world = world();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": { "Labels": labels() },
        "rootfs": { "type": "layers", "diff_ids": [] },
    });
    let config = config.to_string();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": EVIL, "layers": [],
        "annotations": { EVIL: EVIL, "org.opencontainers.image.title": EVIL },
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": Digest::of(config.as_bytes()).to_string(), "size": config.len(),
        },
    })
    .to_string();
    let entry = |annotations: Value| {
        json!({
            "mediaType": MANIFEST, "digest": Digest::of(manifest.as_bytes()).to_string(),
            "size": manifest.len(), "annotations": annotations, "artifactType": EVIL,
            "platform": { "architecture": "amd64", "os": "linux", "variant": EVIL },
        })
    };
    let good = json!({ "io.stackforge.variant": EVIL, "io.stackforge.sm": "sm_90" });
    let mut entries = vec![entry(labels()), entry(good)];
    for fact in ["sm", "driver", "cuda", "isa", "l4t", "ptx"] {
        let name = format!("io.stackforge.{fact}");
        entries.push(entry(json!({ "io.stackforge.variant": EVIL, name: EVIL })));
    }
    let index = |entries: &[Value]| {
        json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries }).to_string()
    };
    let (all, one) = (index(&entries), index(&entries[1..2]));
    let server = Proxy::start(NOTHING, move |request| {
        if !["GET", "HEAD"].contains(&request.method.as_str()) {
            return refusal("403 Forbidden");
        }
        let last = request.path.rsplit('/').next().unwrap();
        match last {
            "" => ok("application/json", "{}"),
            "all" => ok(INDEX, &all),
            "one" => ok(INDEX, &one),
            "image" => ok(MANIFEST, &manifest),
            digest if digest == Digest::of(manifest.as_bytes()).to_string() => {
                ok(MANIFEST, &manifest)
            }
            _ if request.path.contains("/blobs/") => ok("application/octet-stream", &config),
            // The evidence of an image: something foreign for each.
            _ if request.path.contains("/referrers/") || last.starts_with("sha256-") => {
                ok(INDEX, &one)
            }
            _ => refusal("404 Not Found"),
        }
    });
    for name in ["all", "one", "image", "nothing"] {
        commands(&mut world, &format!("{}/app:{name}", server.host));
    }
    world.servers.push(server);
    world
}

fn refusal(status: &str) -> Act {
    let body = json!({ "errors": [{ "code": EVIL, "message": EVIL, "detail": EVIL }] });
    Act::Answer(status.to_owned(), body.to_string())
}

/// Registries that refuse everything, that send nonsense, and whose token service does.
pub fn refusing() -> World {
    let mut world = world();
    let raw = EVIL.replace(['\n', '\r'], "");
    let statuses = ["401 No", "403 No", "404 No", "429 No", "400 No", "200 OK"];
    for status in statuses {
        let message = quoted(EVIL).replace("\\U000e0041", "");
        let server = Proxy::start(NOTHING, move |request| {
            let host = request.header("host").unwrap_or_default();
            let head = if request.path.starts_with("/token") {
                "403 No".to_owned()
            } else if status.starts_with("401") {
                format!(
                    "{status}\r\nWWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"x\""
                )
            } else {
                format!("{status}\r\nContent-Type: {MANIFEST}")
            };
            let body = format!("{{\"errors\":[{{\"code\":{message},\"message\":{message}}}]}}");
            Act::Answer(head, body)
        });
        let place = format!("{}/app:1", server.host);
        match status {
            // It is asked again, and each time takes a while.
            "429 No" => world.case(&["inspect", &place]),
            _ => commands(&mut world, &place),
        }
        world.servers.push(server);
    }
    let nonsense = Proxy::start(NOTHING, move |_| {
        Act::Answer("200 OK".to_owned(), raw.clone())
    });
    let host = nonsense.host.clone();
    commands(&mut world, &format!("{host}/app:1"));
    // The same as an index of Python's and a mirror of Debian's.
    world.sandbox.write(
        "config.yaml",
        &format!("debian: [\"http://{host}/debian\"]\n"),
    );
    world.env("UV_DEFAULT_INDEX", &format!("http://{host}/simple"));
    world.case(&["lock", "tiny.yaml"]);
    world.case(&["audit", "six==1.17.0"]);
    world.case(&["doctor"]);
    world.servers.push(nonsense);
    world
}

/// An engine all of whose answers are foreign texts.
pub fn engine() -> World {
    let mut world = world();
    let to = nobody(&mut world);
    let server = Proxy::start(NOTHING, |request| {
        let version = json!({
            "Version": EVIL, "ApiVersion": "1.47", "MinAPIVersion": "1.24", "Os": "linux",
            "Arch": "amd64", "KernelVersion": EVIL, "Components": [{ "Name": EVIL, "Version": EVIL }],
        });
        let info = json!({
            "ServerVersion": EVIL, "Architecture": "x86_64", "OSType": "linux", "NCPU": 1, "Name": EVIL,
            "Driver": EVIL, "Runtimes": { EVIL: { "path": EVIL } }, "OperatingSystem": EVIL,
            "Warnings": [EVIL],
        });
        let image = json!({
            "Id": Digest::of(b"x").to_string(), "Os": "linux", "Architecture": EVIL, "Size": 1,
            "RepoTags": [EVIL], "Config": { "Labels": labels() },
        });
        let (status, body) = match request.path.as_str() {
            path if path.ends_with("/version") => ("200 OK", version),
            path if path.ends_with("/info") => ("200 OK", info),
            path if path.ends_with("/_ping") => ("200 OK", json!("OK")),
            path if path.contains("/images/") && path.ends_with("/json") => ("200 OK", image),
            _ => ("500 No", json!({ "message": EVIL })),
        };
        Act::Answer(
            format!("{status}\r\nContent-Type: application/json"),
            body.to_string(),
        )
    });
    world.env("DOCKER_HOST", &format!("tcp://{}", server.host));
    for args in [
        &["inspect", "docker:x"][..],
        &["audit", "docker:x"],
        &["validate", "x"],
        &["push", "x", &to],
        &["doctor"],
        &["build", "tiny.yaml", "--engine", "docker", "--offline"],
    ] {
        world.case(args);
    }
    world.servers.push(server);
    world
}
