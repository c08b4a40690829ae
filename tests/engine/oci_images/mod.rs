//! Images and archives that other programs made, judged by other programs: umoci and Docker say
//! which files an image has, Python's tarfile what an archive holds.

mod random;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use stackforge_binary::tar::{MemberKind, Problem, Reader};
use stackforge_image::oci::{self, Image, OciError};
use stackforge_stack::spec::Platform;

fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> String {
    let mut command = Command::new(program);
    command.args(args);
    let out = command.output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {error}");
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

fn python(script: &str, args: &[&Path]) -> String {
    let mut all = vec![OsStr::new("-c"), OsStr::new(script)];
    all.extend(args.iter().map(|a| a.as_os_str()));
    run("python3", &all)
}

fn shell(dir: &Path, script: &str) {
    run(
        "sh",
        &["-euc", &format!("cd '{}'\n{script}", dir.display())],
    );
}

/// A folder of files that were made here, and images of the engine; both go with it.
struct Made {
    dir: tempfile::TempDir,
    images: Vec<String>,
}

impl Made {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            images: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A name for an image that no other run uses.
    fn name(&mut self, name: &str) -> String {
        let unique = self.dir.path().file_name().unwrap().to_string_lossy();
        let unique: String = unique.chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("stackforge-oci-{}:{name}", unique.to_lowercase());
        self.images.push(name.clone());
        name
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for image in &self.images {
            let _ = Command::new("docker").args(["rmi", "-f", image]).output();
        }
    }
}

/// Path → kind with link target or size.
type Files = BTreeMap<String, String>;

fn described(kind: MemberKind, size: u64, link: Option<&str>) -> String {
    match kind {
        MemberKind::Directory => "directory".to_owned(),
        MemberKind::SymLink => format!("link to {}", link.unwrap_or_default()),
        MemberKind::File => format!("file of {size}"),
        other => format!("{other:?}"),
    }
}

fn files(image: &Image) -> Files {
    let nodes = image.files().unwrap();
    let nodes = nodes.into_iter().map(|(path, node)| {
        let header = node.header;
        let text = described(header.kind, header.size, header.link.as_deref());
        (path, text)
    });
    nodes.collect()
}

/// As the file system has them.
fn on_disk(root: &Path, dir: &Path, out: &mut Files) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        let link = std::fs::read_link(&path).ok();
        let kind = match meta.file_type() {
            t if t.is_dir() => MemberKind::Directory,
            t if t.is_symlink() => MemberKind::SymLink,
            _ => MemberKind::File,
        };
        let link = link.as_ref().and_then(|l| l.to_str());
        let name = path.strip_prefix(root).unwrap().to_str().unwrap();
        out.insert(name.to_owned(), described(kind, meta.len(), link));
        if meta.is_dir() {
            on_disk(root, &path, out);
        }
    }
}

/// A layout of four layers: files, replaced ones, whiteouts, an opaque directory, links.
fn layout(made: &Made) -> PathBuf {
    shell(
        made.dir.path(),
        r#"
        umoci init --layout layout
        umoci new --image layout:made
        mkdir -p one/keep one/gone/deep one/opaque one/was-dir/x
        echo first > one/keep/a; echo gone > one/gone/deep/b; echo old > one/opaque/old
        echo file > one/was-file; echo x > one/was-dir/x/y
        ln one/keep/a one/keep/hard; ln -s ../keep/a one/opaque/soft; ln -s keep one/to-keep
        umoci insert --image layout:made one /
        mkdir -p two/opaque two/was-file
        echo new > two/opaque/new; echo in > two/was-file/in; echo now a file > two/was-dir
        umoci insert --image layout:made --opaque two/opaque /opaque
        umoci insert --image layout:made --whiteout /gone
        umoci insert --image layout:made --whiteout /was-file
        umoci insert --image layout:made --whiteout /was-dir
        umoci insert --image layout:made two/was-file /was-file
        umoci insert --image layout:made two/was-dir /was-dir
        "#,
    );
    made.path("layout")
}

#[test]
fn an_image_has_the_files_that_umoci_unpacks() {
    let made = Made::new();
    let layout = layout(&made);
    let image = oci::open(&layout, Some("made"), None).unwrap();
    shell(made.dir.path(), "umoci unpack --image layout:made bundle");
    let mut expected = Files::new();
    let root = made.path("bundle/rootfs");
    on_disk(&root, &root, &mut expected);
    let found = files(&image);
    assert_eq!(found, expected);
    assert_eq!(found["was-dir"], "file of 11");
    assert!(!found.contains_key("gone/deep/b") && !found.contains_key("opaque/old"));
    let nodes = image.files().unwrap();
    let hard = ["keep/a", "keep/hard"].map(|p| nodes[p].content);
    assert_eq!(hard[0], hard[1]);
}

#[test]
fn skopeos_copies_are_the_same_image() {
    let made = Made::new();
    let layout = layout(&made);
    let image = oci::open(&layout, None, None).unwrap();
    shell(
        made.dir.path(),
        r#"
        skopeo --insecure-policy copy -q oci:layout:made oci-archive:archive.tar:made
        skopeo --insecure-policy copy -q --dest-compress-format zstd oci:layout:made oci:zstd:made
        skopeo --insecure-policy copy -q oci:layout:made docker-archive:docker.tar:local/made:tag
        tar -C layout -cf plain.tar .
        gzip -k plain.tar
        "#,
    );
    let expected = files(&image);
    for (name, reference) in [
        ("archive.tar", "made"),
        ("plain.tar", "made"),
        ("zstd", "made"),
        ("docker.tar", "tag"),
    ] {
        let copy = oci::open(&made.path(name), Some(reference), None).unwrap();
        assert_eq!(files(&copy), expected, "{name}");
        let ids = |i: &Image| -> Vec<_> { i.layers.iter().map(|l| l.diff_id.clone()).collect() };
        assert_eq!(ids(&copy), ids(&image), "{name}");
    }
    let zstd = oci::open(&made.path("zstd"), None, None).unwrap();
    for layer in &zstd.layers {
        assert_eq!(
            layer.media_type,
            "application/vnd.oci.image.layer.v1.tar+zstd"
        );
    }
    let digest = run(
        "skopeo",
        &[
            "inspect",
            "--format",
            "{{.Digest}}",
            &format!("oci:{}:made", layout.display()),
        ],
    );
    assert_eq!(image.digest.to_string(), digest);
    assert!(matches!(
        oci::open(&made.path("plain.tar.gz"), None, None),
        Err(OciError::Compressed(_))
    ));
    assert!(matches!(
        oci::open(&layout, Some("other"), None),
        Err(OciError::NoReference { available, .. }) if available == ["made"]
    ));
}

#[test]
fn a_blob_that_changed_on_disk_is_noticed() {
    let made = Made::new();
    let layout = layout(&made);
    let image = oci::open(&layout, None, None).unwrap();
    let blob = layout
        .join("blobs/sha256")
        .join(image.layers[0].digest.hex());
    let mut bytes = std::fs::read(&blob).unwrap();
    // In the time that gzip's header holds: nothing but the digest can tell.
    bytes[4] ^= 0xff;
    std::fs::write(&blob, bytes).unwrap();
    let error = image.files().unwrap_err().to_string();
    assert!(error.contains("copy the image again"), "{error}");
}

/// What Docker puts into every container.
fn is_dockers(path: &str) -> bool {
    let own = [
        "dev",
        "proc",
        "sys",
        ".dockerenv",
        "etc/hosts",
        "etc/hostname",
        "etc/mtab",
    ];
    path.starts_with("dev/") || path == "etc/resolv.conf" || own.contains(&path)
}

/// Files of a container of the image that is never started.
fn exported(made: &Made, image: &str) -> Files {
    let container = run("docker", &["create", image, "none"]);
    let tar = made.path("exported.tar");
    run(
        "docker",
        &["export", "-o", tar.to_str().unwrap(), &container],
    );
    run("docker", &["rm", &container]);
    let mut reader = Reader::new(std::fs::File::open(tar).unwrap());
    let mut all = Files::new();
    while let Some(entry) = reader.next().unwrap() {
        let header = entry.header;
        let text = match (header.kind, &header.link) {
            (MemberKind::HardLink, Some(to)) => all[to].clone(),
            (kind, link) => described(kind, header.size, link.as_deref()),
        };
        all.insert(header.path, text);
    }
    all.retain(|path, _| !is_dockers(path) && !path.is_empty() && path != "etc");
    all
}

#[test]
fn docker_has_the_same_files_in_a_container() {
    let mut made = Made::new();
    let layout = layout(&made);
    let name = made.name("loaded");
    let dir = made.dir.path();
    shell(
        dir,
        &format!(
            "skopeo --insecure-policy copy -q oci:layout:made docker-archive:docker.tar:{name}"
        ),
    );
    run(
        "docker",
        &["load", "-qi", made.path("docker.tar").to_str().unwrap()],
    );
    let image = oci::open(&layout, None, None).unwrap();
    assert_eq!(files(&image), exported(&made, &name));
}

#[test]
fn what_docker_saves_is_read() {
    let mut made = Made::new();
    let (imported, built) = (made.name("imported"), made.name("built"));
    shell(
        made.dir.path(),
        &format!(
            r#"
            mkdir -p root/usr/lib context
            echo lib > root/usr/lib/a; ln -s usr/lib root/lib; ln root/usr/lib/a root/usr/lib/b
            tar -C root -c . | docker import - {imported}
            echo over > context/a
            printf 'FROM {imported}\nENV KEY=value\nCOPY a /usr/lib/a\nCOPY a /lib/c\n' > context/Dockerfile
            docker build -q -t {built} context
            docker save -o saved.tar {imported} {built}
            "#
        ),
    );
    let saved = made.path("saved.tar");
    let platform = match std::env::consts::ARCH {
        "aarch64" => Platform::LinuxArm64,
        _ => Platform::LinuxAmd64,
    };
    for (reference, tag, layers) in [(&imported, "imported", 1), (&built, "built", 3)] {
        let image = oci::open(&saved, Some(reference), Some(platform)).unwrap();
        let id = run("docker", &["image", "inspect", "-f", "{{.Id}}", reference]);
        assert_eq!(image.digest.to_string(), id);
        assert_eq!(image.layers.len(), layers);
        assert_eq!(files(&image), exported(&made, reference));
        for other in [tag, &id] {
            assert_eq!(
                oci::open(&saved, Some(other), None).unwrap().digest,
                image.digest
            );
        }
    }
    let image = oci::open(&saved, Some("built"), None).unwrap();
    let env = image
        .config
        .config()
        .as_ref()
        .unwrap()
        .env()
        .clone()
        .unwrap();
    assert!(env.contains(&"KEY=value".to_owned()));
    let error = oci::open(&saved, None, None).unwrap_err().to_string();
    assert!(
        error.contains(&imported) && error.contains(&built),
        "{error}"
    );
}

const LIST: &str = r#"
import sys, tarfile
kinds = {b'0': 'File', b'\0': 'File', b'1': 'HardLink', b'2': 'SymLink', b'3': 'Character',
         b'4': 'Block', b'5': 'Directory', b'6': 'Fifo'}
with tarfile.open(sys.argv[1], errors='surrogateescape') as archive:
    for m in archive:
        path = '/'.join(p for p in m.name.split('/') if p not in ('', '.'))
        path = ''.join('\\x%02x' % (ord(c) - 0xdc00) if 0xdc80 <= ord(c) < 0xdd00 else c for c in path)
        link = m.linkname if m.type in (b'1', b'2') else '-'
        if m.type == b'1':
            link = '/'.join(p for p in link.split('/') if p not in ('', '.'))
        text = archive.extractfile(m).read() if m.type in (b'0', b'\0') else b''
        print(path, kinds[m.type], m.size if text else 0, oct(m.mode), m.uid, m.gid, int(m.mtime // 1),
              link, sum(text), sep='|')
"#;

fn listed(archive: &Path) -> Vec<String> {
    let mut reader = Reader::new(std::fs::File::open(archive).unwrap());
    let mut out = Vec::new();
    while let Some(mut entry) = reader.next().unwrap() {
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let h = entry.header;
        let sum: u64 = content.iter().map(|b| u64::from(*b)).sum();
        out.push(format!(
            "{}|{:?}|{}|0o{:o}|{}|{}|{}|{}|{sum}",
            h.path,
            h.kind,
            h.size,
            h.mode,
            h.uid,
            h.gid,
            h.mtime,
            h.link.as_deref().unwrap_or("-")
        ));
    }
    out
}

#[test]
fn archives_of_gnu_tar_and_python_read_as_python_reads_them() {
    let made = Made::new();
    shell(
        made.dir.path(),
        r#"
        mkdir root; cd root
        long=$(printf '%0120d' 1); deep=$(printf 'directory-%0100d/' 1 2 3)
        mkdir -p "$deep"
        echo long > "$long"; echo deep > "$deep/file"; ln -s "$deep/file" soft; ln "$deep/file" hard
        printf 'x' > "$(printf 'latin-\351')"; printf 'y' > ü; mkfifo fifo; : > empty
        head -c 5000 /dev/zero | tr '\0' 'z' > some
        chmod 4755 some; touch -d @-5.5 old; touch -d @1000000000 empty; chown 3000000:4000000 some
        cd ..
        for format in gnu pax oldgnu posix; do tar -C root --format=$format -cf $format.tar .; done
        mkdir short; echo a > short/a; ln short/a short/b
        for format in v7 ustar; do tar -C short --format=$format -cf $format.tar .; done
        truncate -s 1M sparse-file; echo end >> sparse-file
        tar -S --format=gnu -cf sparse-gnu.tar sparse-file
        tar -S --format=pax -cf sparse-pax.tar sparse-file
        "#,
    );
    python(
        r#"
import sys, tarfile, io
for name, kind in (('python-gnu', tarfile.GNU_FORMAT), ('python-pax', tarfile.PAX_FORMAT)):
    with tarfile.open(f'{sys.argv[1]}/{name}.tar', 'w', format=kind, pax_headers={'comment': 'all'}) as archive:
        archive.add(f'{sys.argv[1]}/root', 'x')
        big = tarfile.TarInfo('big' * 100)
        big.size, big.uid, big.mtime = 700, 1 << 40, 1 << 40
        big.pax_headers = {'SCHILY.xattr.user.key': 'value'}
        archive.addfile(big, io.BytesIO(b'b' * 700))
"#,
        &[made.dir.path()],
    );
    for name in [
        "gnu",
        "pax",
        "oldgnu",
        "posix",
        "v7",
        "ustar",
        "python-gnu",
        "python-pax",
    ] {
        let archive = made.path(&format!("{name}.tar"));
        let expected = python(LIST, &[&archive]);
        let expected: Vec<&str> = expected.lines().collect();
        assert_eq!(listed(&archive), expected, "{name}");
    }
    let mut reader = Reader::new(std::fs::File::open(made.path("python-pax.tar")).unwrap());
    let mut xattrs = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        xattrs.extend(entry.header.xattrs);
    }
    assert_eq!(xattrs, [("user.key".to_owned(), b"value".to_vec())]);
    for name in ["sparse-gnu", "sparse-pax"] {
        let mut reader =
            Reader::new(std::fs::File::open(made.path(&format!("{name}.tar"))).unwrap());
        let error = reader.next().err().unwrap();
        assert!(matches!(error.problem, Problem::Sparse), "{name}: {error}");
    }
}
