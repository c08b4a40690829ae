//! `push` and `pull`: images and variants through Debian's docker-registry, with skopeo, umoci and
//! Docker as the other side, and through a network that does harm.

#[path = "publish/delta.rs"]
mod delta;
#[path = "publish/devices.rs"]
mod devices;
#[path = "publish/docker.rs"]
mod docker;
#[path = "publish/faults.rs"]
mod faults;
#[path = "publish/files.rs"]
mod files;
#[path = "support/image_spec.rs"]
mod image_spec;
#[path = "publish/images.rs"]
mod images;
#[path = "publish/index.rs"]
mod index;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "support/layers.rs"]
mod layers;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "offline/doctor/machines.rs"]
mod machines;
#[path = "evidence/made.rs"]
mod made;
#[path = "registry/proxy.rs"]
mod proxy;
#[path = "publish/rootfs.rs"]
mod rootfs;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "registry/server.rs"]
mod server;
mod support;

use serde_json::Value;
use server::{Kind, Server, layout, skopeo};
use stackforge_types::Digest;
use support::{Run, Sandbox};

fn digest(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

/// The answer of a command that has to succeed.
fn answer(sandbox: &Sandbox, args: &[&str]) -> Value {
    let run = sandbox.run(&[&["--json"][..], args].concat());
    assert_eq!(run.code, 0, "{args:?}: {}{}", run.stdout, run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

/// Enters an image of its own into the index at `place`.
fn enter(
    sandbox: &Sandbox,
    server: &Server,
    place: &str,
    (seed, variant, fact): (u64, &str, &str),
) -> Value {
    let image = layout(server.dir.path(), seed);
    let source = format!("oci:{}:v1", image.display());
    let args = ["push", &source, place, "--index"];
    let of = ["--variant", variant, "--fact", fact];
    answer(sandbox, &[args, of].concat())
}

/// The answer of one that has to fail with a code.
fn refusal(run: &Run, exit: i32, code: &str) -> Value {
    assert_eq!(run.code, exit, "{}{}", run.stdout, run.stderr);
    let answer: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(answer["diagnostics"][0]["code"], code, "{answer}");
    answer
}
