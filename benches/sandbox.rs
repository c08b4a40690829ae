//! Start and end of `/bin/true` in a sandbox, against the same program without one and, where they
//! are installed, `runc` and `crun`.
//!
//! Run as root or as an ordinary user: `cargo bench --bench sandbox`. Needs Debian's
//! busybox-static. Medians of runs that take turns, so that a busy machine slows all alike; each
//! has a root of one layer and an upper directory that is new.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stackforge_sandbox::{Root, Sandbox, probe};
use stackforge_types::Cancel;

const ROUNDS: usize = 200;
const BINARY: &str = env!("CARGO_BIN_EXE_stackforge");

type Case<'a> = (&'static str, Box<dyn FnMut(usize) + 'a>);

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("rootfs");
    for name in ["bin", "dev", "proc", "sys", "etc"] {
        std::fs::create_dir_all(root.join(name)).expect("a root");
    }
    std::fs::copy("/bin/busybox", root.join("bin/true")).expect("Debian's busybox-static");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let found = runtime
        .block_on(probe(Some(Path::new(BINARY))))
        .expect("an answer");
    println!(
        "identity: {:?}, {ROUNDS} rounds, median and 95th percentile",
        found.identity
    );

    let plain = root.join("bin/true");
    let mut cases: Vec<Case> = vec![
        ("plain process", Box::new(|_| run(Command::new(&plain)))),
        (
            "stackforge",
            Box::new(|round| {
                let upper = dir.path().join(format!("upper-{round}"));
                let sandbox = Sandbox {
                    launcher: Some(BINARY.into()),
                    ..Sandbox::new(Root::layers(vec![root.clone()], upper), ["/bin/true"])
                };
                let outcome = runtime
                    .block_on(sandbox.run(&Cancel::new(), &mut |_, _| ()))
                    .expect("it runs");
                assert_eq!(outcome.code(), 0);
            }),
        ),
    ];
    for name in ["crun", "runc"] {
        if bundle(dir.path(), name) {
            let at = dir.path().join(name);
            let other = move |round: usize| {
                let mut command = Command::new(name);
                command
                    .args(["run", &format!("stackforge-bench-{round}")])
                    .current_dir(&at);
                run(command);
            };
            cases.push((name, Box::new(other)));
        }
    }
    let mut times = vec![Vec::new(); cases.len()];
    for round in 0..ROUNDS {
        for (case, times) in cases.iter_mut().zip(&mut times) {
            let start = Instant::now();
            case.1(round);
            times.push(start.elapsed());
        }
    }
    for ((name, _), times) in cases.iter().zip(&mut times) {
        times.sort();
        let ms = |d: Duration| d.as_secs_f64() * 1000.0;
        println!(
            "{name:<14} {:7.2} ms {:7.2} ms",
            ms(times[ROUNDS / 2]),
            ms(times[ROUNDS * 95 / 100])
        );
    }
}

fn run(mut command: Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(status.expect("it starts").success());
}

/// A bundle of the program's own default configuration; false where it is missing or runs nothing.
fn bundle(dir: &Path, name: &'static str) -> bool {
    let at = dir.join(name);
    std::fs::create_dir_all(&at).expect("a directory");
    let rootless = !rustix::process::geteuid().is_root();
    let mut spec = Command::new(name);
    spec.arg("spec")
        .args(rootless.then_some("--rootless"))
        .current_dir(&at);
    if !spec.output().is_ok_and(|o| o.status.success()) {
        return false;
    }
    let file = at.join("config.json");
    let text = std::fs::read_to_string(&file).expect("its configuration");
    let root = dir.join("rootfs");
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    json["process"]["args"] = serde_json::json!(["/bin/true"]);
    json["process"]["terminal"] = false.into();
    json["root"]["path"] = root.display().to_string().into();
    std::fs::write(&file, json.to_string()).expect("its configuration");
    let mut once = Command::new(name);
    once.args(["run", "stackforge-bench-first"])
        .current_dir(&at)
        .stdin(Stdio::null());
    let works = once.output().is_ok_and(|o| o.status.success());
    if !works {
        println!("{name}: installed, but does not run here");
    }
    works
}
