//! Answers of engines that are newer than the client library: as Docker 28.5.2 and 26.1.5, Docker 20.10 and
//! Podman 5.4.2 gave them, shortened, with values in every place of an enum that no release has yet.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use serde_json::{Value, json};
use stackforge_engine::docker::Docker;
use stackforge_engine::{ImageSize, RunRequest};
use stackforge_types::Cancel;

/// What is answered to `METHOD PATH`: a status and a body.
type Answers = fn(&str) -> (u16, Value);

/// An engine at a socket in `dir` that answers so, a request for each connection.
async fn engine(dir: &Path, answers: Answers) -> Docker {
    let socket = dir.join("engine.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || answer(stream, answers));
        }
    });
    let address = format!("unix://{}", socket.display());
    Docker::connect(Some(&address)).await.unwrap()
}

fn answer(stream: UnixStream, answers: Answers) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let asked = first.rsplit_once(' ').unwrap().0;
    let (status, body) = answers(asked);
    let text = match (status, &body) {
        // An attached stream: one frame on stdout.
        (101, Value::String(line)) => {
            let mut frame = vec![1, 0, 0, 0];
            frame.extend(u32::try_from(line.len()).unwrap().to_be_bytes());
            let head = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
            [head.as_bytes(), &frame, line.as_bytes()].concat()
        }
        (status, Value::Null) => {
            format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes()
        }
        (status, body) => {
            let body = body.to_string();
            let length = body.len();
            format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
        }
    };
    (&stream).write_all(&text).unwrap();
}

const ID: &str = "sha256:57019d564d51c576b52bdba5996761645bd2fa33f57ce04237f99ece890b4d3b";

fn version() -> (u16, Value) {
    let component =
        json!({ "Name": "Engine", "Version": "40.0.0", "Details": { "Kind": ["new"] } });
    let version = json!({
        "Version": "40.0.0", "ApiVersion": "1.99", "MinAPIVersion": "1.44", "Os": "linux",
        "Arch": "amd64", "Experimental": "sometimes", "Components": [component],
    });
    (200, version)
}

fn unknown_values(asked: &str) -> (u16, Value) {
    match asked {
        "GET /version" => version(),
        "GET /info" => (
            200,
            json!({
                "Name": "box", "Architecture": "x86_64", "KernelVersion": "6.1", "NCPU": 4, "MemTotal": 1 << 30,
                "ContainersRunning": 2, "Driver": "overlayfs", "DockerRootDir": "/data",
                "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
                "Runtimes": { "runc": { "path": "runc", "status": { "a": [1] } }, "nvidia": {} },
                "CgroupDriver": "quantum", "CgroupVersion": "3", "Isolation": "enclave",
                "Swarm": { "LocalNodeState": "asleep" }, "CDISpecDirs": ["/etc/cdi"],
            }),
        ),
        "GET /images/x:1/json?manifests=1" => (
            200,
            json!({
                "Id": ID, "RepoTags": ["x:1"], "RepoDigests": [format!("x@{ID}")], "Created": "lately",
                "Architecture": "amd64", "Os": "linux", "Size": 4_010_079,
                "Descriptor": { "mediaType": "application/vnd.oci.image.manifest.v9+json", "digest": ID, "size": "?" },
                "Config": { "Labels": { "a": "b" }, "Env": ["PATH=/bin"], "Healthcheck": { "Test": 7 } },
                "RootFS": { "Type": "layers", "Layers": [ID] },
                "Manifests": [
                    { "ID": ID, "Available": true, "Kind": "hologram", "Size": { "Content": 1, "Total": 1 } },
                    { "ID": ID, "Available": true, "Kind": "image",
                      "Size": { "Content": 4_010_079, "Total": 8_073_311 },
                      "ImageData": { "Size": { "Unpacked": 4_063_232 } } },
                ],
            }),
        ),
        _ if asked.starts_with("GET /images/json") => (
            200,
            json!([{ "Id": ID, "RepoTags": ["x:1", "y:2"], "Size": 1, "Containers": -1, "Created": "lately",
                     "Manifests": [{ "Kind": "hologram" }] }]),
        ),
        _ if asked.starts_with("GET /images/sha256:") => (
            200,
            json!({ "Id": ID, "Created": "lately", "RootFS": { "Type": "layers", "Layers": ["sha256:a", "sha256:b"] } }),
        ),
        _ if asked.starts_with("GET /distribution/") => (
            200,
            json!({ "Descriptor": { "digest": ID, "size": "?" }, "Platforms": "all" }),
        ),
        _ if asked.starts_with("GET /containers/json") => (
            200,
            json!([{ "Id": "1", "Names": ["/stackforge-1"], "State": "stopped", "Health": { "Status": "frozen" },
                     "Mounts": [{ "Type": "ramdisk" }], "Ports": [{ "Type": "quic" }] }]),
        ),
        _ if asked.starts_with("DELETE /containers/") => (204, Value::Null),
        _ if asked.starts_with("POST /containers/create") => {
            (201, json!({ "Id": "1", "Warnings": null }))
        }
        _ if asked.contains("/attach") => (101, json!("hello\n")),
        _ if asked.contains("/start") => (204, Value::Null),
        _ if asked.contains("/wait") => (200, json!({ "StatusCode": 137, "Error": null })),
        _ if asked.starts_with("GET /containers/") => (
            200,
            json!({ "Id": "1", "Name": "/x", "Mounts": [{ "Type": "ramdisk", "RW": true }],
                    "HostConfig": { "CgroupnsMode": "shared", "RestartPolicy": { "Name": "mostly" } },
                    "State": { "Status": "stopped", "OOMKilled": true, "ExitCode": 137, "Health": { "Status": "frozen" } } }),
        ),
        other => (404, json!({ "message": format!("nothing at {other}") })),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_no_release_had_breaks_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let docker = engine(dir.path(), unknown_values).await;
    assert_eq!(docker.server(), "Docker 40.0.0");

    let info = docker.info().await.unwrap();
    assert_eq!((info.cpus, info.running, info.memory), (4, 2, 1 << 30));
    assert_eq!(info.runtimes, ["nvidia", "runc"]);
    assert!(info.cdi && info.in_containerd);
    assert_eq!(info.storage_driver, "overlayfs");

    let image = docker.image("x:1").await.unwrap().unwrap();
    assert_eq!(image.id, ID);
    assert_eq!(image.labels["a"], "b");
    assert_eq!(image.env, ["PATH=/bin"]);
    let both = ImageSize {
        packed: Some(4_010_079),
        unpacked: Some(4_063_232),
    };
    assert_eq!(image.size, both);
    assert_eq!(docker.names().await.unwrap(), ["x:1", "y:2"]);
    let layers = ["sha256:a", "sha256:c"].map(str::to_owned);
    assert_eq!(docker.count_existing_layers(&layers).await.unwrap(), 1);
    let digest = docker.registry_digest("x:1").await.unwrap();
    assert_eq!(digest.to_string(), ID);
    docker.remove_runs("x:1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_container_ended_is_what_wait_says() {
    let dir = tempfile::tempdir().unwrap();
    let docker = engine(dir.path(), unknown_values).await;
    let request = RunRequest {
        image: "x:1".into(),
        output_limit: 100,
        ..RunRequest::default()
    };
    let outcome = docker.run(request, &Cancel::new(), &mut |_, _| {}).await;
    let outcome = outcome.unwrap();
    assert_eq!(outcome.exit_code, 137);
    assert_eq!(outcome.stdout, "hello\n");
    assert!(outcome.oom_killed);
}

/// What an engine says of `x:1`, whose `/version` has this.
fn engine_answers(api: &str, component: &str, image: Value) -> (Value, Value) {
    let component = json!({ "Name": component, "Version": "1" });
    (
        json!({ "Version": "1", "ApiVersion": api, "Components": [component] }),
        image,
    )
}

fn docker_20(asked: &str) -> (u16, Value) {
    // The configuration's digest, and of a push the manifest's.
    let image = json!({ "Id": ID, "RepoTags": ["x:1"], "RepoDigests": ["x@sha256:00ff"], "Size": 155_189_248,
                        "VirtualSize": 155_189_248, "GraphDriver": { "Name": "overlay2", "Data": {} } });
    answer_to(asked, engine_answers("1.41", "Engine", image))
}

fn docker_26_containerd(asked: &str) -> (u16, Value) {
    let image = json!({ "Id": ID, "RepoTags": ["x:1"], "RepoDigests": [format!("x@{ID}")], "Size": 3_066_821,
                        "GraphDriver": { "Name": "overlayfs", "Data": null } });
    answer_to(asked, engine_answers("1.45", "Engine", image))
}

fn podman_5(asked: &str) -> (u16, Value) {
    let image = json!({ "Id": ID, "RepoTags": ["localhost/x:1"], "RepoDigests": ["localhost/x@sha256:00ff"],
                        "Size": 7_000_000, "GraphDriver": { "Name": "overlay", "Data": {} } });
    answer_to(asked, engine_answers("1.41", "Podman Engine", image))
}

fn answer_to(asked: &str, (version, image): (Value, Value)) -> (u16, Value) {
    match asked {
        "GET /version" => (200, version),
        "GET /images/x:1/json" => (200, image),
        other => (404, json!({ "message": format!("nothing at {other}") })),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_is_said_to_be_what_the_engine_counts() {
    let packed = |n| (Some(n), None);
    let unpacked = |n| (None, Some(n));
    for (answers, size) in [
        (docker_20 as Answers, unpacked(155_189_248)),
        (docker_26_containerd, packed(3_066_821)),
        (podman_5, unpacked(7_000_000)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let docker = engine(dir.path(), answers).await;
        let image = docker.image("x:1").await.unwrap().unwrap();
        assert_eq!((image.size.packed, image.size.unpacked), size);
    }
}
