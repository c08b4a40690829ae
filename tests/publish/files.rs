//! Root file systems of pulled images.

use super::{Digest, Kind, Sandbox, Server, answer, digest, refusal};
use serde_json::json;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// A member of a layer: a path, and its content, or a link's target.
enum Member {
    File(&'static str, &'static str),
    Folder(&'static str),
    Link(&'static str, &'static str),
}
use Member::{File, Folder, Link};

/// An image of layers as a layout with the tag `v1`.
fn image(dir: &Path, layers: &[&[Member]]) {
    named(dir, layers, |diff_ids| diff_ids);
}

/// The same, with the diff IDs that its configuration says.
fn named(dir: &Path, layers: &[&[Member]], said: impl FnOnce(Vec<Digest>) -> Vec<Digest>) {
    let blobs = dir.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8]| {
        let digest = digest(bytes);
        std::fs::write(blobs.join(digest.hex()), bytes).unwrap();
        json!({ "digest": digest, "size": bytes.len() })
    };
    let (mut descriptors, mut diff_ids) = (Vec::new(), Vec::new());
    for members in layers {
        let mut tar = tar::Builder::new(Vec::new());
        for member in *members {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o755);
            header.set_uid(u64::from(rustix::process::geteuid().as_raw()));
            header.set_gid(u64::from(rustix::process::getegid().as_raw()));
            header.set_size(0);
            match member {
                File(path, text) => {
                    header.set_mode(0o640);
                    header.set_size(text.len() as u64);
                    tar.append_data(&mut header, path, text.as_bytes()).unwrap();
                }
                Folder(path) => {
                    header.set_entry_type(tar::EntryType::Directory);
                    tar.append_data(&mut header, path, std::io::empty())
                        .unwrap();
                }
                Link(path, to) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    tar.append_link(&mut header, path, to).unwrap();
                }
            }
        }
        let tar = tar.into_inner().unwrap();
        diff_ids.push(digest(&tar));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&tar).unwrap();
        let mut descriptor = put(&gzip.finish().unwrap());
        descriptor["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip".into();
        descriptors.push(descriptor);
    }
    let config = json!({ "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": said(diff_ids) } });
    let mut config = put(config.to_string().as_bytes());
    config["mediaType"] = "application/vnd.oci.image.config.v1+json".into();
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": descriptors,
        "mediaType": "application/vnd.oci.image.manifest.v1+json" });
    let mut entry = put(manifest.to_string().as_bytes());
    entry["mediaType"] = "application/vnd.oci.image.manifest.v1+json".into();
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": "v1" });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    std::fs::write(dir.join("index.json"), index.to_string()).unwrap();
    std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

/// The image at `place`, into `root`.
fn pull(place: &str) -> [&str; 6] {
    let platform = "linux/amd64";
    ["pull", place, "--platform", platform, "-o", "rootfs:root"]
}

fn tree(root: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let shown = path.strip_prefix(root).unwrap().display().to_string();
            let kind = path.symlink_metadata().unwrap();
            if kind.is_symlink() {
                let to = std::fs::read_link(&path).unwrap();
                out.push(format!("{shown} -> {}", to.display()));
            } else if kind.is_dir() {
                out.push(format!("{shown}/"));
                folders.push(path);
            } else {
                out.push(format!(
                    "{shown} = {}",
                    std::fs::read_to_string(&path).unwrap()
                ));
            }
        }
    }
    out.sort();
    out
}

#[test]
fn a_layer_that_is_not_what_the_configuration_says_is_unpacked_nowhere() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let layers: [&[Member]; 2] = [&[File("a", "1")], &[File("b", "2")]];
    named(&sandbox.path("image"), &layers, |mut said| {
        said[1] = said[0].clone();
        said
    });
    let place = format!("{}/app:v1", server.host);
    answer(&sandbox, &["push", "oci:image:v1", &place]);
    let refused = sandbox.run(&pull(&place));
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("diff ID"), "{}", refused.stderr);
    assert!(!sandbox.path("root").exists());
    assert_eq!(leftovers(&sandbox), Vec::<String>::new());
}

/// Directories that began and were not finished.
fn leftovers(sandbox: &Sandbox) -> Vec<String> {
    let entries = std::fs::read_dir(sandbox.path(".")).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(".new-")).collect()
}

#[test]
fn layers_lie_over_each_other_as_they_say() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let layers: [&[Member]; 3] = [
        &[
            Folder("etc"),
            Folder("usr"),
            Folder("usr/lib"),
            Link("lib", "usr/lib"),
            Link("outside", "/etc"),
            File("usr/lib/a", "a1"),
            File("gone", "1"),
            Folder("full"),
            File("full/old", "1"),
            Folder("full/deep"),
            File("full/deep/old", "1"),
            Folder("becomes"),
            File("becomes/x", "1"),
        ],
        &[
            // Below a link of the layer below; and in what looks like another's /etc.
            File("lib/b", "b2"),
            File("outside/here", "in the image"),
            File(".wh.gone", ""),
            File("full/new", "2"),
            File("full/.wh..wh..opq", ""),
            File("becomes", "a file"),
            File("usr/lib/a", "a2"),
        ],
        &[
            // Its own file of a name that it hides stays.
            File("gone", "3"),
            File(".wh.gone", ""),
            File(".wh.nothing", ""),
        ],
    ];
    image(&sandbox.path("image"), &layers);
    let place = format!("{}/app:v1", server.host);
    answer(&sandbox, &["push", "oci:image:v1", &place]);
    answer(&sandbox, &pull(&place));
    assert_eq!(
        tree(&sandbox.path("root")),
        [
            "becomes = a file",
            "etc/",
            "etc/here = in the image",
            "full/",
            "full/new = 2",
            "gone = 3",
            "lib -> usr/lib",
            "outside -> /etc",
            "usr/",
            "usr/lib/",
            "usr/lib/a = a2",
            "usr/lib/b = b2",
        ]
    );
    let mode = sandbox
        .path("root/usr/lib/a")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn a_root_file_system_is_replaced_whole_and_no_other_directory_ever() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let place = format!("{}/app:v1", server.host);
    let out = |root: &str| format!("rootfs:{root}");
    let pull = |root: &str, keep: &str| {
        let out = out(root);
        let args = [
            "pull",
            &place,
            "--platform",
            "linux/amd64",
            "-o",
            &out,
            "--keep",
            keep,
        ];
        answer(&sandbox, &args)
    };
    for (n, text) in ["one", "two", "three", "four"].into_iter().enumerate() {
        let layer = [File("version", text)];
        let name = format!("image{n}");
        image(&sandbox.path(&name), &[&layer]);
        answer(&sandbox, &["push", &format!("oci:{name}:v1"), &place]);
        pull("kept", "2");
        pull("alone", "0");
    }
    let version = |root: &str| std::fs::read_to_string(sandbox.path(root).join("version")).ok();
    assert_eq!(version("kept").as_deref(), Some("four"));
    assert_eq!(version("kept~1").as_deref(), Some("three"));
    assert_eq!(version("kept~2").as_deref(), Some("two"));
    assert_eq!(version("kept~3"), None);
    assert_eq!(version("alone").as_deref(), Some("four"));
    assert_eq!(version("alone~1"), None);
    let names = std::fs::read_dir(sandbox.path("")).unwrap();
    let left: Vec<String> = names
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".new-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");

    sandbox.write("mine/file", "precious");
    let args = [
        "--json",
        "pull",
        &place,
        "--platform",
        "linux/amd64",
        "-o",
        "rootfs:mine",
    ];
    refusal(&sandbox.run(&args), 1, "SF1005");
    assert_eq!(
        std::fs::read_to_string(sandbox.path("mine/file")).unwrap(),
        "precious"
    );
}
