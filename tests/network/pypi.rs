//! One published wheel, from PyPI.

use stackforge_types::Digest;
use std::path::Path;
use support::process::is_again;
use support::wanted::{ask, asks_for_another_process};

#[test]
fn small_wheels_come_from_pypi() {
    if is_again() {
        return asks_for_another_process();
    }
    let ask = |pinned: &str, platform: &str, store: &Path, offline: bool| {
        ask(
            "pypi::small_wheels_come_from_pypi",
            pinned,
            platform,
            store,
            &[],
            offline,
        )
    };
    let store = tempfile::tempdir().unwrap();
    for (pinned, platform, file) in [
        (
            "six==1.17.0",
            "linux/arm64",
            "six-1.17.0-py2.py3-none-any.whl",
        ),
        (
            "MarkupSafe==3.0.2",
            "linux/arm64",
            "MarkupSafe-3.0.2-cp312-cp312-manylinux_2_17_aarch64.manylinux2014_aarch64.whl",
        ),
    ] {
        let path = ask(pinned, platform, store.path(), false).unwrap();
        assert_eq!(path.file_name().unwrap(), file);
        let hex = path
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap();
        assert_eq!(Digest::of(&std::fs::read(&path).unwrap()).hex(), hex);
        // And from the store, without any index.
        assert_eq!(ask(pinned, platform, store.path(), true).unwrap(), path);
    }
    let error = ask("MarkupSafe==3.0.99", "linux/amd64", store.path(), false).unwrap_err();
    assert!(
        error.contains("has no version 3.0.99; the nearest are "),
        "{error}"
    );
    let error = ask("nvidia-ml-py3==7.352.0", "linux/amd64", store.path(), false).unwrap_err();
    assert!(error.contains("only its source is published"), "{error}");
}
