//! Real wheels as layers: the files that pip installs, in a form that the programs which meet
//! layers take, and that a snapshotter reads file by file.
//!
//! Needs the network, for pip; a Docker Engine, skopeo and umoci.

mod image;
mod lazy;
mod pip;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::wheels;

use stackforge_binary::source::FileSource;
use stackforge_image::layer::{Install, Scheme, Spec, Stitched, Wheel, write};

/// Commands, C extensions and a library beside them; a program as a script; a Python script whose
/// first line changes; headers; data; two of NVIDIA's wheels, which share a namespace.
const WHEELS: [&str; 7] = [
    "numpy==2.2.6",
    "ruff==0.14.0",
    "jmespath==1.0.1",
    "greenlet==3.2.4",
    "jupyterlab-widgets==3.0.15",
    "nvidia-nvtx-cu12==12.8.90",
    "nvidia-cuda-runtime-cu12==12.8.90",
];

const EPOCH: u32 = 1_700_000_000;

fn downloaded() -> Vec<PathBuf> {
    WHEELS
        .iter()
        .map(|wheel| wheels::download(wheel, None))
        .collect()
}

fn spec(scheme: Scheme, python: &str) -> Spec {
    Spec {
        scheme,
        python: python.to_owned(),
        epoch: EPOCH,
        level: 6,
        threads: 2,
    }
}

fn plain_spec() -> Spec {
    spec(Scheme::posix_prefix("/usr", "3.11"), "/usr/bin/python3")
}

fn layer(spec: &Spec, files: &[PathBuf], to: &Path) -> Stitched {
    let open = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        Wheel::open(name, FileSource::open(path).unwrap()).unwrap()
    };
    let wheels: Vec<_> = files.iter().map(open).collect();
    let changed = BTreeMap::new();
    let install = |wheel| Install {
        wheel,
        requested: true,
        drop: &[],
        changed: &changed,
    };
    let installs: Vec<_> = wheels.iter().map(install).collect();
    let layer = write(spec, &installs, std::fs::File::create(to).unwrap()).unwrap();
    assert_eq!(layer.layer.size, std::fs::metadata(to).unwrap().len());
    assert_eq!(layer.unlisted, Vec::<String>::new());
    layer
}

fn run(command: &mut Command) -> String {
    let output = command.env("LC_ALL", "C").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Path, permissions and content of every file of a layer.
fn files(layer: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(flate2::read::MultiGzDecoder::new(layer));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let header = entry.header();
        assert_eq!(
            (header.uid().unwrap(), header.gid().unwrap()),
            (0, 0),
            "{path}"
        );
        assert_eq!(header.mtime().unwrap(), u64::from(EPOCH), "{path}");
        let mode = header.mode().unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        assert!(files.insert(path, (mode, content)).is_none());
    }
    files
}

#[test]
fn the_files_are_those_that_pip_installs() {
    pip::compare(&downloaded());
}

#[test]
fn tar_and_python_list_the_same_members() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("layer.tgz");
    layer(&plain_spec(), &downloaded(), &path);
    let files = files(&std::fs::read(&path).unwrap());
    let listed = run(Command::new("tar").arg("tzf").arg(&path));
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort_unstable();
    let expected: Vec<&String> = files.keys().collect();
    assert_eq!(listed, expected);
    let script = "import sys, tarfile\n\
        for m in tarfile.open(sys.argv[1]): print(m.name + '/' * m.isdir(), oct(m.mode), m.size)";
    let mut listed: Vec<String> = run(Command::new("python3").args(["-c", script]).arg(&path))
        .lines()
        .map(str::to_owned)
        .collect();
    listed.sort_unstable();
    let mut expected: Vec<String> = (files.iter())
        .map(|(path, (mode, content))| format!("{path} 0o{mode:o} {}", content.len()))
        .collect();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

#[test]
fn engines_and_tools_take_the_layer() {
    image::check(&downloaded());
}

#[test]
fn every_file_is_read_alone_through_the_contents() {
    let dir = tempfile::tempdir().unwrap();
    let wheels = downloaded();
    lazy::check(&wheels, &dir.path().join("layer.tgz"));
    // Stored files are compressed here, in chunks.
    let stored = dir.path().join(wheels[0].file_name().unwrap());
    let script = "import sys, zipfile\n\
        a, b = zipfile.ZipFile(sys.argv[1]), zipfile.ZipFile(sys.argv[2], 'w')\n\
        for m in a.infolist(): d = a.read(m); m.compress_type = 0; b.writestr(m, d)\n\
        b.close()";
    let mut python = Command::new("python3");
    run(python.args(["-c", script]).arg(&wheels[0]).arg(&stored));
    let chunks = lazy::check(
        std::slice::from_ref(&stored),
        &dir.path().join("stored.tgz"),
    );
    assert!(chunks > 10, "{chunks} chunks");
    let same = dir.path().join("same.tgz");
    layer(&plain_spec(), &wheels[..1], &same);
    let plain = |name: &str| {
        let layer = std::fs::read(dir.path().join(name)).unwrap();
        let mut files = files(&layer);
        files.remove("stargz.index.json");
        files
    };
    assert!(plain("stored.tgz") == plain("same.tgz"));
}

#[test]
fn threads_and_order_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut wheels = downloaded();
    let one = layer(&plain_spec(), &wheels, &dir.path().join("one.tgz"));
    for threads in [1, 3, 64] {
        wheels.rotate_left(2);
        let spec = Spec {
            threads,
            ..plain_spec()
        };
        let other = layer(&spec, &wheels, &dir.path().join("other.tgz"));
        assert_eq!(other.layer.digest, one.layer.digest);
        assert_eq!(other.toc_digest, one.toc_digest);
    }
    let later = Spec {
        epoch: EPOCH + 1,
        ..plain_spec()
    };
    assert_ne!(
        layer(&later, &wheels, &dir.path().join("other.tgz"))
            .layer
            .diff_id,
        one.layer.diff_id
    );
}
