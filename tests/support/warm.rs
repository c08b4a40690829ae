//! A store with the first steps of native builds on Debian 12 with Python 3.11: the base, its byte code, and the
//! compilers. It is made once for all tests and copied, so a test that is not about those does not wait
//! for them.

use super::Sandbox;
use super::recipe::MARKUPSAFE;
use super::shared::alone;
use std::path::PathBuf;
use std::process::Command;

/// A library of its own: no test compiles it with this variable.
const STACK: &str = "\
stack: stackforge-test-warm
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100] }
python: \"3.11\"
libraries:
  markupsafe: { version: \"3.0.3\", from: source, env: { WARM: \"1\" } }
jit: false
";

/// The parts of a store that a copy needs.
const COPIED: [&str; 6] = [
    "actions",
    "indices",
    "names",
    "oci-layout",
    "store.json",
    "tools",
];

impl Sandbox {
    /// Fills a store unless it is there. The test must not change a blob or a file of an unpacked directory in place:
    /// stores share those.
    pub fn warm(&self, store: &str) {
        self.fill(store, "-al");
    }

    /// The same with blobs that the test may change.
    pub fn warm_with_own_blobs(&self, store: &str) {
        self.fill(store, "-a");
    }

    fn fill(&self, store: &str, blobs: &str) {
        let to = self.path(store);
        if to.exists() {
            return;
        }
        // Another program's tests may replace it.
        let _alone = alone("warm");
        let from = made();
        std::fs::create_dir_all(&to).unwrap();
        let copy = |how: &str, names: &[&str]| {
            let mut command = Command::new("cp");
            command.arg(how);
            let there = names.iter().map(|name| from.join(name));
            command.args(there.filter(|path| path.exists())).arg(&to);
            assert!(command.status().unwrap().success(), "{command:?}");
        };
        copy("-a", &COPIED);
        copy(blobs, &["blobs"]);
        copy("-al", &["unpacked"]);
        // No image of the other store has a name here.
        std::fs::write(to.join("index.json"), EMPTY).unwrap();
    }
}

const EMPTY: &str = "{\"schemaVersion\":2,\"manifests\":[]}";

/// Makes the store unless this program made it before.
fn made() -> PathBuf {
    let all = super::target_tmp();
    let program = std::fs::metadata(super::program()).unwrap();
    let changed = program.modified().unwrap();
    let changed = changed.duration_since(std::time::UNIX_EPOCH).unwrap();
    let made = all.join(format!("warm-{}", changed.as_millis()));
    if made.exists() {
        return made;
    }
    // Those of other programs are of no use.
    for entry in std::fs::read_dir(all).unwrap().flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("warm-") {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", STACK);
    sandbox.write(".stackforge/libraries/markupsafe.yaml", MARKUPSAFE);
    let args = ["build", "s.yaml", "--engine", "native", "-o", "oci:layout"];
    let run = sandbox.run(&[&args[..], &["--no-compile-cache"]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let begun = all.join("warm-begun");
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(sandbox.path("store")).arg(&begun);
    assert!(copy.status().unwrap().success());
    std::fs::rename(&begun, &made).unwrap();
    made
}
