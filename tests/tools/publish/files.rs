//! Root file systems of pulled images.

use super::layers::Member::{self, File, Folder, Link};
use super::layers::{image, named, tree};
use super::{Kind, Sandbox, Server, answer, refusal};
use std::os::unix::fs::PermissionsExt as _;

/// The image at `place`, into `root`.
pub fn pull(place: &str) -> [&str; 6] {
    let platform = "linux/amd64";
    ["pull", place, "--platform", platform, "-o", "rootfs:root"]
}

#[test]
fn a_layer_that_is_not_what_the_configuration_says_is_unpacked_nowhere() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let layers: [&[Member]; 2] = [&[File("a", "1")], &[File("b", "2")]];
    named(&sandbox.path("image"), &layers, |mut diff_ids| {
        diff_ids[1] = diff_ids[0].clone();
        diff_ids
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
pub fn leftovers(sandbox: &Sandbox) -> Vec<String> {
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
