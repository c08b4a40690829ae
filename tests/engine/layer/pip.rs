//! What pip installs, beside a layer of the same wheels.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

type Files = BTreeMap<String, (u32, Vec<u8>)>;

fn walk(root: &Path, dir: &Path, out: &mut Files) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            walk(root, &path, out);
        } else {
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
            out.insert(name, (mode, std::fs::read(path).unwrap()));
        }
    }
}

/// Rows of a RECORD by path.
fn rows(record: &[u8]) -> BTreeMap<String, String> {
    let text = std::str::from_utf8(record).unwrap();
    let row = |line: &str| {
        let (path, rest) = line.rsplit_once(',').unwrap();
        let (path, digest) = path.rsplit_once(',').unwrap();
        (path.to_owned(), format!("{digest} {rest}"))
    };
    text.lines().map(row).collect()
}

/// Both have the same files, but for what is listed here.
pub fn compare(wheels: &[PathBuf]) {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("prefix");
    // The modes that pip gives files depend on it.
    let script = "umask 022; exec python3 -m pip install --quiet --no-deps --no-compile --no-index \
        --no-warn-script-location --ignore-installed --prefix \"$@\"";
    run(Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&prefix)
        .args(wheels));
    let mut by_pip = Files::new();
    walk(&prefix, &prefix, &mut by_pip);

    // Where this Python's `--prefix` installs to differs between distributions.
    let folder = |suffix: &str| {
        let file = by_pip.keys().find(|path| path.ends_with(suffix));
        let folder = file.unwrap().strip_suffix(suffix).unwrap();
        format!("/p/{}", folder.trim_end_matches('/'))
    };
    let site = folder("/numpy/__init__.py");
    // Debian's Python has it below `local`, others at the prefix.
    let data =
        folder("share/jupyter/labextensions/@jupyter-widgets/jupyterlab-manager/install.json");
    let scheme = Scheme {
        purelib: site.clone(),
        platlib: site,
        scripts: folder("/ruff"),
        data: data.trim_end_matches('/').to_owned(),
        headers: folder("/greenlet/greenlet.h"),
    };
    let python = run(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]));
    let path = dir.path().join("layer.tgz");
    layer(&spec(scheme, python.trim()), wheels, &path);
    let ours: Files = files(&std::fs::read(&path).unwrap())
        .into_iter()
        .filter(|(path, _)| !path.ends_with('/'))
        .filter_map(|(path, file)| Some((path.strip_prefix("p/")?.to_owned(), file)))
        .collect();

    // pip notes that a wheel came from a file, which an image's wheels did not.
    by_pip.retain(|path, _| !path.ends_with(".dist-info/direct_url.json"));
    let only = |one: &Files, other: &Files| {
        let missing = one.keys().filter(|path| !other.contains_key(*path));
        missing.cloned().collect::<Vec<_>>()
    };
    assert_eq!(only(&ours, &by_pip), Vec::<String>::new());
    assert_eq!(only(&by_pip, &ours), Vec::<String>::new());
    let mut commands = BTreeSet::new();
    for (path, (mode, content)) in &ours {
        let (pip_mode, pip_content) = &by_pip[path];
        assert_eq!(mode, pip_mode, "{path}");
        let name = path.rsplit('/').next().unwrap();
        match name {
            "INSTALLER" => assert_eq!(content, b"stackforge\n"),
            "RECORD" => {}
            _ if content == pip_content => {}
            // A command's text, whose first line and import are the same.
            _ => {
                let lines = |content: &[u8]| {
                    let text = String::from_utf8(content.to_vec()).unwrap();
                    let import = text.lines().find(|l| l.starts_with("from ")).unwrap();
                    let first = text.lines().next().unwrap();
                    (first.to_owned(), import.to_owned())
                };
                assert_eq!(lines(content), lines(pip_content), "{path}");
                commands.insert(name.to_owned());
            }
        }
    }
    let expected = ["f2py", "numpy-config"].map(str::to_owned);
    assert_eq!(commands, BTreeSet::from(expected));

    // RECORDs list the same files, with the same digests but for what differs.
    for (path, (_, content)) in ours.iter().filter(|(path, _)| path.ends_with("/RECORD")) {
        let (mut one, mut other) = (rows(content), rows(&by_pip[path].1));
        other.retain(|path, _| !path.ends_with("direct_url.json"));
        for rows in [&mut one, &mut other] {
            for (path, row) in rows.iter_mut() {
                let name = path.rsplit('/').next().unwrap();
                if name == "INSTALLER" || commands.contains(name) {
                    assert!(row.starts_with("sha256="), "{path}: {row}");
                    row.clear();
                }
            }
        }
        assert_eq!(one, other, "{path}");
    }
}
