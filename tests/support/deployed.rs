//! Services of every kind, and their images as a push would have left them in the store.

use super::{Run, Sandbox, document, project};
use serde_json::Value;
use stackforge_distribute::publish::PushedImage;
use stackforge_image::store::Store;
use stackforge_types::Digest;
use std::collections::BTreeMap;

/// Keys of a service with every value that a reader could take for another one.
pub const HARD: &str = r#"image:
  entrypoint: [python, -m]
  cmd: [service, "1e3"]
  env:
    PRICE: "$5 and ${HOME} $(PORT) $$"
    ANSWER: "yes"
    RATE: "1e3"
    DAY: "2026-01-01"
    NOTHING: ""
    TEXT: " a \"quoted\" 'x': # ü 漢 😀 "
  user: app
  ports: [8000, 80, "53/udp", 53]
  volumes: [/data, /var/lib/my-app]
  stop_signal: SIGINT
  health:
    cmd: [python, -c, "import os\nprint('$x', \"y: #\")"]
    interval: 1500ms
    timeout: 5s
    start_period: 2m
    retries: 5
"#;

/// A service without anything that can be left out.
pub const BARE: &str = "image: { entrypoint: [python, -m, service] }\n";

/// A folder with a stack of the project, more keys, and its lock.
pub fn stack(path: &str, more: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let read = |path: &str| std::fs::read_to_string(project(path)).unwrap();
    sandbox.write("s.yaml", &format!("{}{more}", read(path)));
    sandbox.write("s.lock", &read(&path.replace(".yaml", ".lock")));
    sandbox
}

/// The smallest stack.
pub fn tiny(more: &str) -> Sandbox {
    stack("examples/tiny.yaml", more)
}

/// Remembers a push of a stack or variant, with more labels.
pub fn pushed(
    sandbox: &Sandbox,
    variant: Option<&str>,
    user: Option<&str>,
    labels: &[(&str, &str)],
) {
    let of = variant.map(|name| ["--variant", name]);
    let of = of.as_ref().map_or(&[][..], |of| of);
    let all = document(&sandbox.run(&[&["plan", "s.yaml", "--json"], of].concat()));
    let plan = &all["variants"][0];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let name = text(&plan["name"]);
    let mut own = BTreeMap::from([
        ("io.stackforge.stack".to_owned(), text(&all["stack"])),
        ("io.stackforge.variant".to_owned(), name.clone()),
        ("io.stackforge.key".to_owned(), text(&plan["key"])),
        ("io.stackforge.sm".to_owned(), "sm_90".to_owned()),
    ]);
    own.extend(
        labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
    );
    let image = PushedImage {
        repository: "registry.example:5000/team/app".to_owned(),
        digest: Digest::of(name.as_bytes()),
        platform: text(&plan["platform"]).parse().unwrap(),
        labels: own,
        user: user.map(str::to_owned),
    };
    image.record(&Store::open(Some(&sandbox.path("store"))).unwrap());
}

/// Renders without an engine, with a fixed size of shared memory.
pub fn render(sandbox: &Sandbox, form: &str, args: &[&str]) -> Run {
    let all = [&["render", "s.yaml", form, "--shm-size", "1GiB"], args].concat();
    sandbox.run_with(&all, &[("DOCKER_HOST", "unix:///nowhere/docker.sock")])
}

/// What it writes.
pub fn rendered(sandbox: &Sandbox, form: &str, args: &[&str]) -> String {
    let run = render(sandbox, form, args);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    run.stdout
}
