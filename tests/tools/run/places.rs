//! Where an image can lie: in a registry, in the store, as a root file system, in an archive.

use super::world::{Who, World, config, finish, image};
use support::Run;
use support::published::answer;
use support::server::{Kind, Server};

fn run(w: &World, args: &[&str]) -> Run {
    let mut command = w.program();
    command.args(["run", "--engine", "native"]).args(args);
    finish(command)
}

fn pushed() -> (Server, String) {
    let server = Server::start(Kind::Open);
    let place = format!("{}/team/app:1", server.host);
    let publisher = support::Sandbox::new();
    image(&publisher.path("image"), config());
    answer(
        &publisher,
        &[
            "push",
            &format!("oci:{}:v1", publisher.path("image").display()),
            &place,
        ],
    );
    (server, place)
}

#[test]
fn a_reference_is_pulled_once_and_then_here() {
    let w = World::new(Who::Here);
    let (server, place) = pushed();
    let first = run(&w, &[&place]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(
        first.stdout.starts_with("entry\nof the image\n"),
        "{}",
        first.stdout
    );
    assert!(
        first.stderr.contains("fetched, 0 KiB there already"),
        "{}",
        first.stderr
    );
    drop(server);
    let again = run(&w, &[&place, "--offline", "--", "again"]);
    assert!(
        again.stdout.starts_with("entry\nagain\n"),
        "{}",
        again.stderr
    );
    assert_eq!(again.stderr, "");
}

#[test]
fn a_digest_is_not_another_image_of_its_name() {
    let w = World::new(Who::Here);
    let (server, place) = pushed();
    assert_eq!(run(&w, &[&place]).code, 0);
    let other = format!("{place}@sha256:{}", "0".repeat(64));
    let run = run(&w, &[&other, "--offline"]);
    assert_eq!(run.code, 3, "{}{}", run.stdout, run.stderr);
    drop(server);
}

#[test]
fn the_variant_of_this_device_is_pulled_and_told() {
    let server = Server::start(Kind::Open);
    let w = World::new(Who::Here);
    let place = format!("{}/team/app:1", server.host);
    let publisher = support::Sandbox::new();
    for (variant, said) in [("new", "from new"), ("any", "from any")] {
        let mut config = config();
        config["Env"] = serde_json::json!([format!("SAID={said}")]);
        image(&publisher.path(variant), config);
        let source = format!("oci:{}:v1", publisher.path(variant).display());
        let mut args = vec!["push", &source, &place, "--index", "--variant", variant];
        if variant == "new" {
            args.extend(["--fact", "driver=999.1", "--fact", "sm=90"]);
        }
        answer(&publisher, &args);
    }
    let ran = run(&w, &[&place]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("any: "), "{}", ran.stderr);
    assert!(ran.stdout.contains("from any\n"), "{}", ran.stdout);
    let other = World::new(Who::Here);
    let ran = run(&other, &[&place, "--variant", "new"]);
    assert!(
        ran.stdout.contains("from new\n"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
}

#[test]
fn a_root_file_system_has_its_images_configuration() {
    let w = World::new(Who::Here);
    let (_server, place) = pushed();
    let out = format!("rootfs:{}", w.path("root").display());
    answer(&w.sandbox, &["pull", &place, "-o", &out]);
    for name in ["root", "./root", &out] {
        let ran = run(&w, &[name]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(
            ran.stdout
                .starts_with("entry\nof the image\n/made/for/it\n1000 1001\n"),
            "{}",
            ran.stdout
        );
    }
    assert!(
        !w.path("root/made").exists(),
        "what a program writes is not the image's"
    );
    // With another store nothing but the files is known.
    let mut command = w.program();
    command.args(["run", "root", "--store", "other"]);
    let lost = finish(command);
    assert_eq!(lost.code, 2, "{}", lost.stderr);
    insta::assert_snapshot!("a_root_without_its_image", lost.stderr);
    let mut command = w.program();
    command.args(["run", "root", "--store", "other", "--", "echo", "hello"]);
    assert_eq!(finish(command).stdout, "hello\n");
}

#[test]
fn an_archive_is_run_as_it_is() {
    let w = World::new(Who::Here);
    let tar = std::process::Command::new("tar")
        .args(["-cf", "image.tar", "-C", "image", "."])
        .current_dir(w.path(""))
        .status();
    assert!(tar.unwrap().success());
    let ran = run(&w, &["oci-archive:image.tar", "--", "x"]);
    assert!(ran.stdout.starts_with("entry\nx\n"), "{}", ran.stderr);
    assert!(run(&w, &["image.tar"]).stdout.starts_with("entry\n"));
}

#[test]
fn a_user_that_the_image_lacks_is_told() {
    let w = World::new(Who::Here);
    image(
        &w.path("odd"),
        serde_json::json!({ "User": "nobody-here", "Cmd": ["true"] }),
    );
    let ran = run(&w, &["oci:odd:v1"]);
    assert_eq!(ran.code, 1);
    insta::assert_snapshot!(ran.stderr);
}
