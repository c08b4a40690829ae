//! Stack files, locks, the configuration and catalogs.

use super::{EVIL, World, quoted};

const GOOD: &str = "\
stack: small
about: some
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100] }
python: \"3.11\"
libraries:
  torch: \"2.13.0\"
";

/// The parts of a mixture one by one: a parser stops at the first that it refuses.
fn mixtures() -> Vec<&'static str> {
    let mut all: Vec<&str> = EVIL.split_inclusive(['J', '\u{7}', 'm', '\n']).collect();
    all.push(EVIL);
    all.push("\u{9b}31mx\u{202e}\u{2066}");
    all
}

pub fn stacks() -> World {
    let mut world = World::new();
    let mut number = 0;
    let mut check = |world: &mut World, text: &str| {
        let name = format!("s{number}.yaml");
        number += 1;
        world.sandbox.write(&name, text);
        world.case(&["check", &name]);
        name
    };
    let fields = [
        "small",
        "some",
        "debian-bookworm",
        "linux/amd64",
        "h100",
        "\"3.11\"",
        "torch",
        "\"2.13.0\"",
        "target",
        "about",
    ];
    for evil in [EVIL, "\u{9b}31mx\u{202e}\u{2066}"] {
        for field in fields {
            check(&mut world, &GOOD.replacen(field, &quoted(evil), 1));
        }
        for more in [
            "packages: [EVIL]",
            "overrides: [EVIL]",
            "indexes: [EVIL]",
            "EVIL: 1",
            "publish: { repository: EVIL }",
            "cache: { registry: EVIL }",
            "matrix: { python: [EVIL] }",
            "matrix: { gpu: [[EVIL]] }",
            "jit: EVIL",
            "validate: { attention: EVIL }",
        ] {
            check(
                &mut world,
                &format!("{GOOD}{}\n", more.replace("EVIL", &quoted(evil))),
            );
        }
        for library in [
            "{ version: EVIL }",
            "{ from: EVIL }",
            "{ git: EVIL }",
            "{ extras: [EVIL] }",
            "{ env: { EVIL: x } }",
            "{ env: { X: EVIL }, from: source }",
            "{ patches: [EVIL] }",
            "{ EVIL: 1 }",
        ] {
            let text = GOOD.replace("\"2.13.0\"", &library.replace("EVIL", &quoted(evil)));
            check(&mut world, &text);
        }
    }
    for evil in mixtures() {
        // Raw, in a comment beside a fault and in place of a value.
        check(
            &mut world,
            &format!("# {evil}\n{}", GOOD.replace("python", "pyhton")),
        );
        check(&mut world, &GOOD.replace("h100]", &format!("h10, {evil}]")));
        check(
            &mut world,
            &GOOD.replace("\"2.13.0\"", &format!("\"{evil}\"")),
        );
    }
    let described = GOOD.replacen("some", &quoted(EVIL), 1);
    let matrix = format!(
        "{}matrix: {{ gpu: [[h100], [a100]] }}\n",
        described.replace(", gpu: [h100]", "")
    );
    let name = check(&mut world, &matrix);
    world.case(&["matrix", &name]);
    for format in ["github", "gitlab", "slurm", "kubernetes"] {
        world.case(&["matrix", &name, "--emit", format]);
    }
    let nameless = format!("{EVIL}.yaml");
    world
        .sandbox
        .write(&nameless, &GOOD.replace("python", "pyhton"));
    for args in [
        &["check"][..],
        &["lock"],
        &["plan"],
        &["matrix"],
        &["build"],
        &["sbom"],
    ] {
        world.case(&[args, &[&nameless]].concat());
    }
    world
}

/// What reads the lock of the smallest stack.
fn reading(world: &mut World, stack: &str) {
    for args in [
        &["check", stack][..],
        &["plan", stack],
        &["plan", stack, "--why"],
        &["plan", stack, "--dot"],
        &[
            "build",
            stack,
            "--engine",
            "native",
            "--offline",
            "-o",
            "oci:out",
        ],
        &["build", stack, "--engine", "docker", "--offline"],
        &["build", stack, "--all-variants", "--offline"],
        &["lock", stack, "--offline"],
        &["cache", "export", "all/", "--stack", stack],
        &["validate", "oci:nothing", "--stack", stack],
    ] {
        world.case(args);
    }
}

pub fn locks() -> World {
    let mut world = World::new();
    let read = |name: &str| {
        let path = support::project(&format!("examples/{name}"));
        std::fs::read_to_string(path).unwrap()
    };
    let (stack, lock) = (read("tiny.yaml"), read("tiny.lock"));
    let replaced = |from: &str| {
        let from = format!("\"{from}\"");
        assert!(lock.contains(&from), "{from}");
        lock.replace(&from, &quoted(EVIL))
    };
    let locks = [
        format!("{lock}\n{EVIL} = 1"),
        format!("{lock}\n{} = 1", quoted(EVIL)),
        replaced("tiny"),
        replaced("==1.17.0"),
        replaced("1:3.0.9-1"),
        replaced("libaudit-common"),
        replaced("six"),
        replaced("1.17.0"),
        replaced("debian-bookworm"),
    ];
    for (number, text) in locks.iter().enumerate() {
        let name = format!("tiny{number}.yaml");
        world.sandbox.write(&name, &stack);
        world.sandbox.write(&format!("tiny{number}.lock"), text);
        reading(&mut world, &name);
        if number < 4 {
            world.case(&["sbom", &name]);
            world.case(&["render", &name, "--offline", "-o", "rendered"]);
        }
    }
    world
}

/// A configuration and catalogs; and what reads them.
pub fn settings() -> World {
    let mut world = World::new();
    let evil = quoted(EVIL);
    world.sandbox.write("s.yaml", GOOD);
    world.sandbox.write("log", "error: a thing happened\n");
    world.sandbox.write(
        "told/diagnoses.yaml",
        &format!(
            "schema: 1\ndiagnoses:\n- id: x\n  code: SF0708\n  patterns: ['a thing']\n  cause: {evil}\n  fix: {evil}\n  examples: ['a thing']\n  source: {evil}\n"
        ),
    );
    world.sandbox.write(
        "library/libraries/x.yaml",
        &format!("schema: 1\nlibrary: {evil}\n"),
    );
    world
        .sandbox
        .write("raw/libraries/x.yaml", &format!("{EVIL}: ["));
    world
        .sandbox
        .write("key/gpus.yaml", &format!("schema: 1\n{evil}: 1\n"));
    world
        .sandbox
        .write(&format!("name/libraries/{EVIL}.yaml"), "schema: 1\n");
    for catalog in ["told", "library", "raw", "key", "name", EVIL] {
        world.case(&["diagnose", "log", "--catalog", catalog]);
        world.case(&["check", "s.yaml", "--catalog", catalog]);
        world.case(&["init", "--gpu", "h100", "-o", "-", "--catalog", catalog]);
    }
    foreign(&mut world);
    world.sandbox.write(
        "config.yaml",
        &format!("registries: {{ {evil}: {evil} }}\n"),
    );
    world.case(&["check", "s.yaml"]);
    world.case(&["cache", "gc"]);
    world.case(&["doctor", "--root", "."]);
    world
}

/// Files that a stack starts from.
fn foreign(world: &mut World) {
    let line = EVIL.replace(['\n', '\r'], " ");
    let files = [
        (
            "evil.txt",
            format!("six  # {line}\n-e {line}\n--index-url https://{line}\n"),
        ),
        ("broken/Dockerfile", format!("FROM {line}\n{EVIL}")),
        (
            "Dockerfile",
            format!(
                "FROM {line}\nRUN pip install six {line} && {line}\nENV A=\"{line}\"\nUSER {line}\n"
            ),
        ),
        (
            "pyproject.toml",
            format!(
                "[project]\ndependencies = [\"six\", \"\"\"{}\"\"\"]\n",
                line.replace('\u{1b}', "\\u001b")
                    .replace(|c: char| c.is_control(), "")
            ),
        ),
        (
            "environment.yml",
            format!("name: '{line}'\ndependencies: [six, '{line}', pip: ['{line}']]\n"),
        ),
        ("include.txt", format!("-r {line}.txt\n")),
    ];
    for (name, text) in files {
        world.sandbox.write(name, &text);
        world.case(&[
            "init",
            "--offline",
            "--from",
            name,
            "--gpu",
            "h100",
            "-o",
            "-",
        ]);
    }
}
