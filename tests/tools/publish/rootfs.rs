//! What lies at and beside a directory that `pull -o rootfs:DIR` writes: other people's directories, links,
//! mounts, other pulls, and trees that are too deep for descriptors.

use super::files::{leftovers, pull};
use super::layers::Member::{self, File, Folder};
use super::layers::{MARKER, deep, image, named, tree};
use super::{Kind, Sandbox, Server, answer, refusal};
use rustix::fs::{FlockOperation, flock};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Stdio;

/// Pushes an image of one file, and says where it is.
fn push(sandbox: &Sandbox, server: &Server, name: &str) -> String {
    let text: &'static str = name.to_owned().leak();
    let layer: &[Member] = &[File("version", text)];
    image(&sandbox.path(&format!("images/{name}")), &[layer]);
    let place = format!("{}/app:{name}", server.host);
    answer(sandbox, &["push", &format!("oci:images/{name}:v1"), &place]);
    place
}

fn read(sandbox: &Sandbox, name: &str) -> Option<String> {
    std::fs::read_to_string(sandbox.path(name)).ok()
}

/// The answer of a pull that is refused.
fn refused(sandbox: &Sandbox, place: &str, code: &str) -> String {
    let run = sandbox.run(&[&["--json"][..], &pull(place)].concat());
    refusal(&run, 1, code)["diagnostics"].to_string()
}

#[test]
fn a_directory_of_its_user_beside_it_is_never_touched() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let [one, two] = ["one", "two"].map(|name| push(&sandbox, &server, name));
    let own = [
        "root~1/file",
        "root~2/file",
        "root~02/file",
        ".root.new-project/src/main",
        ".root.new-0123456789abcdef/root/file",
        ".root.new-0123456789ABCDEF/.stackforge.json",
        ".root.new-00000000000000001/growing/file",
    ];
    for name in own {
        sandbox.write(name, "precious");
    }
    // Nothing, or next to nothing, is in what only looks like ours.
    let [empty, marked, other] = [0xa, 0xb, 0xc].map(|n| format!(".root.new-{n:016x}"));
    std::fs::create_dir(sandbox.path(&empty)).unwrap();
    sandbox.write(&format!("{marked}/{MARKER}"), "");
    sandbox.write(&format!("{other}/{MARKER}"), "{}");
    let message = refused(&sandbox, &one, "SF1005");
    assert!(message.contains("root~1"), "{message}");
    assert!(!sandbox.path("root").exists());
    for place in [&one, &two, &one] {
        let args = [&pull(place)[..], &["--keep", "0"]].concat();
        answer(&sandbox, &args);
    }
    assert_eq!(read(&sandbox, "root/version").as_deref(), Some("one"));
    refused(&sandbox, &two, "SF1005");
    assert_eq!(read(&sandbox, "root/version").as_deref(), Some("one"));
    // Beyond those that are kept nothing is in the way.
    std::fs::remove_dir_all(sandbox.path("root~1")).unwrap();
    for place in [&two, &one, &two] {
        answer(&sandbox, &pull(place));
    }
    assert_eq!(read(&sandbox, "root~1/version").as_deref(), Some("one"));
    for name in &own[1..] {
        assert_eq!(read(&sandbox, name).as_deref(), Some("precious"), "{name}");
    }
    assert!(sandbox.path(&empty).is_dir());
    for (name, text) in [(&marked, ""), (&other, "{}")] {
        let content = read(&sandbox, &format!("{name}/{MARKER}"));
        assert_eq!(content.as_deref(), Some(text), "{name}");
    }
    // Nor do such files make the directory itself one that an image replaces.
    for text in ["", "{}", r#"{"digest":null}"#] {
        let _ = std::fs::remove_dir_all(sandbox.path("root"));
        sandbox.write(&format!("root/{MARKER}"), text);
        sandbox.write("root/file", "precious");
        refused(&sandbox, &one, "SF1005");
        assert_eq!(read(&sandbox, "root/file").as_deref(), Some("precious"));
    }
}

#[test]
fn a_directory_that_took_the_place_of_an_image_is_not_replaced() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let [one, two] = ["one", "two"].map(|name| push(&sandbox, &server, name));
    answer(&sandbox, &pull(&one));
    // An earlier version's word for a directory that is gone.
    std::fs::rename(
        sandbox.path(&format!("root/{MARKER}")),
        sandbox.path(".root.stackforge.json"),
    )
    .unwrap();
    std::fs::remove_dir_all(sandbox.path("root")).unwrap();
    sandbox.write("root/file", "precious");
    refused(&sandbox, &two, "SF1005");
    assert_eq!(read(&sandbox, "root/file").as_deref(), Some("precious"));
}

#[test]
fn a_link_stays_and_the_image_lies_where_it_leads() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let [one, two] = ["one", "two"].map(|name| push(&sandbox, &server, name));
    std::fs::create_dir(sandbox.path("large")).unwrap();
    symlink("large/image", sandbox.path("link")).unwrap();
    symlink("link", sandbox.path("root")).unwrap();
    for place in [&one, &two] {
        answer(&sandbox, &pull(place));
    }
    assert!(sandbox.path("root").is_symlink() && sandbox.path("link").is_symlink());
    assert_eq!(
        read(&sandbox, "large/image/version").as_deref(),
        Some("two")
    );
    assert_eq!(
        read(&sandbox, "large/image~1/version").as_deref(),
        Some("one")
    );
    assert!(!sandbox.path("root~1").exists() && !sandbox.path("link~1").exists());
}

#[test]
fn what_a_service_wrote_into_its_files_is_in_no_other_image() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let shared: &[Member] = &[
        Folder("etc"),
        File("etc/one", "1"),
        File("etc/two", "2"),
        File("etc/old", "3"),
    ];
    let [one, two, three, four] = ["one", "two", "three", "four"].map(|name| {
        let layers = [shared, &[File("version", name)]];
        image(&sandbox.path(&format!("images/{name}")), &layers);
        let place = format!("{}/app:{name}", server.host);
        answer(
            &sandbox,
            &["push", &format!("oci:images/{name}:v1"), &place],
        );
        place
    });
    let inode = |name: &str| sandbox.path(name).metadata().unwrap().ino();
    answer(&sandbox, &pull(&one));
    let first = inode("root/etc/two");
    let clean = tree(&sandbox.path("root"));
    // In place, with its time set back, as a careful editor does; and one that has a second name now.
    let written = sandbox.path("root/etc/one");
    let before = written.metadata().unwrap().modified().unwrap();
    let file = std::fs::File::options().write(true).open(&written).unwrap();
    (&file).write_all(b"X").unwrap();
    file.set_modified(before).unwrap();
    let kept = sandbox.path("kept");
    std::fs::hard_link(sandbox.path("root/etc/old"), &kept).unwrap();
    answer(&sandbox, &pull(&two));
    let as_new = |version: &str| -> Vec<String> {
        let lines = clean
            .iter()
            .map(|line| line.replace("version = one", &format!("version = {version}")));
        lines.collect()
    };
    assert_eq!(tree(&sandbox.path("root")), as_new("two"));
    // The previous image keeps what the service wrote into it: going back finds it.
    assert_eq!(read(&sandbox, "root~1/etc/one").as_deref(), Some("X"));
    assert_eq!(inode("root~1/etc/two"), first);
    assert_ne!(inode("root/etc/two"), first);
    // It goes with the next image, which gets its unchanged file itself, and not the two others.
    answer(&sandbox, &pull(&three));
    assert_eq!(tree(&sandbox.path("root")), as_new("three"));
    assert_eq!(tree(&sandbox.path("root~1")), as_new("two"));
    assert_eq!(inode("root/etc/two"), first);
    assert_ne!(inode("root/etc/old"), kept.metadata().unwrap().ino());
    std::fs::write(&kept, "Y").unwrap();
    assert_eq!(tree(&sandbox.path("root")), as_new("three"));
    // A store without its records, or with damaged ones, costs time and nothing else.
    for entry in std::fs::read_dir(sandbox.path("store/trees")).unwrap() {
        std::fs::write(entry.unwrap().path(), "damaged").unwrap();
    }
    answer(&sandbox, &pull(&four));
    assert_eq!(tree(&sandbox.path("root")), as_new("four"));
    std::fs::remove_dir_all(sandbox.path("store/trees")).unwrap();
    answer(&sandbox, &pull(&one));
    assert_eq!(tree(&sandbox.path("root")), clean);
    assert_eq!(leftovers(&sandbox), Vec::<String>::new());
}

#[test]
fn a_mount_is_refused_before_anything_changes() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let [one, two] = ["one", "two"].map(|name| push(&sandbox, &server, name));
    answer(&sandbox, &pull(&one));
    sandbox.write("data/file", "precious");
    let before = tree(&sandbox.path("root"));
    for at in ["root", "root/in it"] {
        std::fs::create_dir_all(sandbox.path(at)).unwrap();
        let script = "mount --bind data \"$1\" && shift && exec \"$@\"";
        let own = sandbox.command();
        let out = sandbox
            .command_of("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                script,
                "sh",
                at,
            ])
            .arg(own.get_program())
            .arg("--json")
            .args(pull(&two))
            .args(["--keep", "0"])
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&out.stdout);
        assert_eq!(out.status.code(), Some(1), "{out:?}");
        assert!(stdout.contains("SF1008") && stdout.contains(at), "{stdout}");
        std::fs::remove_dir(sandbox.path("root/in it")).ok();
        assert_eq!(tree(&sandbox.path("root")), before);
        assert_eq!(read(&sandbox, "data/file").as_deref(), Some("precious"));
        assert_eq!(leftovers(&sandbox), Vec::<String>::new());
    }
}

#[test]
fn one_pull_at_a_time_writes_a_directory() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let places = ["one", "two"].map(|name| push(&sandbox, &server, name));
    let lock = std::fs::File::create(sandbox.path(".root.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let start = |place: &str| {
        let mut pull = sandbox.command();
        // Twice the same directory is once.
        pull.args(super::files::pull(place))
            .args(["-o", "rootfs:./root/"]);
        pull.stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut both = places.each_ref().map(|place| start(place));
    for pull in &mut both {
        let mut lines = BufReader::new(pull.stderr.as_mut().unwrap()).lines();
        let waits = lines.any(|line| line.unwrap().contains("another pull writes"));
        assert!(waits);
    }
    assert!(!sandbox.path("root").exists());
    drop(lock);
    for pull in &mut both {
        assert!(pull.wait().unwrap().success());
    }
    // Whichever was the last: the other is the one before, and is found to be another one.
    let current = read(&sandbox, "root/version").unwrap();
    let other = if current == "one" { "two" } else { "one" };
    assert_eq!(read(&sandbox, "root~1/version").as_deref(), Some(other));
    let place = format!("{}/app:{other}", server.host);
    answer(&sandbox, &pull(&place));
    assert_eq!(read(&sandbox, "root/version").as_deref(), Some(other));
    assert_eq!(leftovers(&sandbox), Vec::<String>::new());
}

#[test]
fn deep_layers_come_and_go_with_few_descriptors() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let next = push(&sandbox, &server, "next");
    let pushed = |name: &str, depth: usize, last: Member, wrong: bool| {
        let layers: [&[Member]; 3] = [&[deep(depth)], &[File("version", "deep")], &[last]];
        named(
            &sandbox.path(&format!("images/{name}")),
            &layers,
            |mut diff_ids| {
                if wrong {
                    diff_ids[1] = diff_ids[0].clone();
                }
                diff_ids
            },
        );
        let place = format!("{}/app:{name}", server.host);
        answer(
            &sandbox,
            &["push", &format!("oci:images/{name}:v1"), &place],
        );
        place
    };
    let hides = Member::Gone("d");
    let [good, hidden, bad, deeper] = [
        pushed("good", 1000, File("more", ""), false),
        pushed("hidden", 1000, hides, false),
        pushed("bad", 1000, hides, true),
        pushed("deeper", 2000, hides, false),
    ];
    for files in ["1024", "64"] {
        let run = |place: &str| {
            let script = "ulimit -n \"$1\" && shift && exec \"$@\"";
            let own = sandbox.command();
            let out = sandbox
                .command_of("sh")
                .args(["-c", script, "sh", files])
                .arg(own.get_program())
                .arg("--json")
                .args(pull(place))
                .args(["--keep", "0"])
                .output()
                .unwrap();
            let output = String::from_utf8_lossy(&out.stdout).into_owned();
            assert_eq!(leftovers(&sandbox), Vec::<String>::new(), "{output}");
            (out.status.code(), output)
        };
        let (code, output) = run(&bad);
        assert!(
            code == Some(1) && output.contains("diff ID"),
            "{files}: {output}"
        );
        let (code, output) = run(&deeper);
        assert!(
            code == Some(1) && output.contains("1024 folders"),
            "{files}: {output}"
        );
        for place in [&good, &hidden, &next] {
            let (code, output) = run(place);
            assert_eq!(code, Some(0), "{files}: {output}");
        }
        assert_eq!(read(&sandbox, "root/version").as_deref(), Some("next"));
    }
}

#[test]
fn a_file_of_the_marker_s_name_in_an_image_is_refused_unless_it_is_a_marker() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let marker = r#"{"stackforge":"0.1.0","digest":null}"#;
    for (name, text, replaced) in [("marked", marker, true), ("other", "mine", false)] {
        image(
            &sandbox.path(&format!("images/{name}")),
            &[&[File(MARKER, text)]],
        );
        let place = format!("{}/app:{name}", server.host);
        answer(
            &sandbox,
            &["push", &format!("oci:images/{name}:v1"), &place],
        );
        if replaced {
            let digest = answer(&sandbox, &pull(&place))["digest"].to_string();
            let written = read(&sandbox, &format!("root/{MARKER}")).unwrap();
            assert!(written.contains(&digest), "{written}");
        } else {
            let message = refused(&sandbox, &place, "SF0920");
            assert!(message.contains(MARKER), "{message}");
        }
        assert_eq!(leftovers(&sandbox), Vec::<String>::new());
    }
    let mode = sandbox
        .path("root")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o755);
}
