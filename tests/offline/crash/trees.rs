//! An unpacked tree of the store, killed while it is made.

use super::kill::{self, End};
use stackforge_image::store::{Store, StoreError};
use stackforge_types::Digest;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const STORE: &str = "STACKFORGE_TEST_TREE";
const NAME: &str = "crash::trees::a_tree_has_its_name_when_it_is_whole_and_on_disk";

/// The tree of a store, made if it is not there.
fn tree(store: &Path) -> PathBuf {
    let store = Store::open(Some(store)).unwrap();
    let make = |into: &Path| {
        for name in ["one", "two"] {
            std::fs::write(into.join(name), name).unwrap();
        }
        Ok::<_, StoreError>(6)
    };
    store.tree(&Digest::of(b"a layer"), make).unwrap()
}

#[test]
fn a_tree_has_its_name_when_it_is_whole_and_on_disk() {
    // What is killed is this program, with a store to write into.
    if let Some(store) = std::env::var_os(STORE) {
        tree(Path::new(&store));
        return;
    }
    let killed = |at| {
        let store = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", NAME]).env(STORE, store.path());
        let end = kill::run(command.stdout(Stdio::null()).stderr(Stdio::null()), at);
        (store, end)
    };
    let (_store, end) = killed(None);
    let End::Ended(0, calls) = end else {
        panic!("{end:?}");
    };
    let synced = calls.iter().rposition(|call| *call == "syncfs").unwrap();
    let (before, after) = calls.split_at(synced);
    assert!(before.contains(&"write"), "{calls:?}");
    assert!(
        after.contains(&"rename") && !after.contains(&"write"),
        "{calls:?}"
    );
    for at in kill::points(calls.len(), 20) {
        let (store, end) = killed(Some(at));
        let root = tree(store.path());
        for name in ["one", "two"] {
            let text = std::fs::read_to_string(root.join(name)).unwrap();
            assert_eq!(text, name, "killed at call {at}, {end:?}");
        }
        let left = std::fs::read_dir(store.path().join("tmp")).unwrap().count();
        assert_eq!(left, 0, "killed at call {at}, {end:?}");
    }
}
