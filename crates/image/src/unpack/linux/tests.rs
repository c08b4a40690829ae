use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use tar::EntryType;

struct Layer(tar::Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn add(mut self, kind: EntryType, name: &str, link: &str, mode: u32, content: &[u8]) -> Self {
        let mut header = tar::Header::new_ustar();
        // Written as bytes, because the library refuses names that are tested here.
        let raw = header.as_ustar_mut().unwrap();
        raw.name[..name.len()].copy_from_slice(name.as_bytes());
        raw.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, name: &str, content: &[u8]) -> Self {
        self.add(EntryType::Regular, name, "", 0o644, content)
    }

    fn unpack(self) -> (tempfile::TempDir, Result<Unpacked, UnpackError>) {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "untouched").unwrap();
        let root = outside.path().join("root");
        fs::create_dir(&root).unwrap();
        let done = unpack(&*self.0.into_inner().unwrap(), &root, Owner::of_process());
        let secret = fs::read_to_string(outside.path().join("secret")).unwrap();
        assert_eq!(secret, "untouched");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 2);
        (outside, done)
    }
}

/// The kernel takes -1 as "leave unchanged".
#[test]
fn an_owner_that_no_user_has_is_refused() {
    let mut header = tar::Header::new_gnu();
    header.set_path("x").unwrap();
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(0);
    for (uid, gid) in [(u64::from(u32::MAX), 0), (0, u64::from(u32::MAX))] {
        header.set_uid(uid);
        header.set_gid(gid);
        header.set_cksum();
        let mut layer = Layer::new();
        layer.0.append(&header, &b""[..]).unwrap();
        let (_dir, done) = layer.unpack();
        match Owner::of_process() {
            Owner::Kept => assert!(matches!(done, Err(UnpackError::Id(path)) if path == "x")),
            _ => assert!(done.is_ok()),
        }
    }
}

#[test]
fn files_folders_links_with_modes_and_times() {
    use EntryType::{Directory, Fifo, Link, Symlink};
    let (dir, done) = Layer::new()
        .add(Directory, "a/", "", 0o555, b"")
        .file("a/b", b"content")
        .add(Link, "a/c", "a/b", 0o644, b"")
        .add(Symlink, "d", "/etc/passwd", 0o777, b"")
        .add(Fifo, "p", "", 0o600, b"")
        .file("deep/in/folders", b"x")
        .file("a/b2", b"")
        .unpack();
    let done = done.unwrap();
    assert_eq!((done.files, done.content), (6, 8));
    let root = dir.path().join("root");
    let of = |name: &str| fs::symlink_metadata(root.join(name)).unwrap();
    assert_eq!(fs::read(root.join("a/c")).unwrap(), b"content");
    assert_eq!((of("a/b").nlink(), of("a/b").mtime()), (2, 1_000));
    assert_eq!(of("a").mtime(), 1_000);
    assert_eq!(of("a").permissions().mode() & 0o555, 0o555);
    assert_eq!(
        fs::read_link(root.join("d")).unwrap(),
        Path::new("/etc/passwd")
    );
    assert!(of("deep/in").is_dir());
}

#[test]
fn a_hard_link_to_its_own_file_leaves_it() {
    use EntryType::{Directory, Link};
    let (dir, done) = Layer::new()
        .file("a", b"content")
        .add(Link, "a", "a", 0o644, b"")
        .add(Link, "b", "a", 0o644, b"")
        .add(Link, "a", "b", 0o644, b"")
        .unpack();
    done.unwrap();
    let root = dir.path().join("root");
    for name in ["a", "b"] {
        assert_eq!(fs::read(root.join(name)).unwrap(), b"content");
    }
    // Again, over the unpacked layer that has the file.
    let again = Layer::new().add(Link, "b", "b", 0o644, b"");
    let tar = again.0.into_inner().unwrap();
    over(&*tar, &root, Owner::of_process()).unwrap();
    assert_eq!(fs::read(root.join("b")).unwrap(), b"content");
    let (_, folder) = Layer::new()
        .add(Directory, "d/", "", 0o755, b"")
        .add(Link, "d", "d", 0o644, b"")
        .unpack();
    assert!(folder.is_err());
}

#[test]
fn a_later_member_replaces_an_earlier_one() {
    use EntryType::{Directory, Symlink};
    let (dir, done) = Layer::new()
        .file("x", b"old")
        .add(Symlink, "x", "secret", 0o777, b"")
        .file("x", b"new")
        .add(Symlink, "y", "..", 0o777, b"")
        .add(Directory, "y", "", 0o755, b"")
        .file("y/z", b"inside")
        .unpack();
    done.unwrap();
    let root = dir.path().join("root");
    assert_eq!(fs::read(root.join("x")).unwrap(), b"new");
    assert_eq!(fs::read(root.join("y/z")).unwrap(), b"inside");
}

#[test]
fn nothing_leaves_the_root() {
    use EntryType::{Link, Symlink};
    let below_link = |target: &str| {
        Layer::new()
            .add(Symlink, "out", target, 0o777, b"")
            .file("out/secret", b"changed")
    };
    for layer in [
        below_link(".."),
        below_link("/"),
        below_link("../root/.."),
        Layer::new().file("../secret", b"changed"),
        Layer::new().file("a/../../secret", b"changed"),
        Layer::new().add(Link, "a", "../secret", 0o644, b""),
        Layer::new()
            .add(Symlink, "out", "..", 0o777, b"")
            .add(Link, "a", "out/secret", 0o644, b""),
        Layer::new().file("f", b"").file("f/g", b""),
        Layer::new().file(".wh...", b""),
        Layer::new().file(".wh.", b""),
        Layer::new().file("a/b", b"").file("a", b"no folder"),
    ] {
        let (_dir, done) = layer.unpack();
        assert!(done.is_err(), "{done:?}");
    }
    // An absolute name is taken relative to the root.
    let (dir, done) = Layer::new().file("/secret", b"own").unpack();
    done.unwrap();
    assert_eq!(fs::read(dir.path().join("root/secret")).unwrap(), b"own");
}

#[test]
fn whiteouts_are_as_overlayfs_has_them_and_devices_are_left_out() {
    let layer = Layer::new()
        .file("a/.wh.gone", b"")
        .file("b/.wh..wh..opq", b"")
        .file("b/.wh..wh.plnk", b"")
        .add(EntryType::Char, "dev/mem", "", 0o666, b"");
    let (dir, done) = layer.unpack();
    match done {
        Ok(done) => {
            assert_eq!((done.whiteouts, done.devices, done.files), (1, 1, 0));
            let root = dir.path().join("root");
            let gone = fs::symlink_metadata(root.join("a/gone")).unwrap();
            assert_eq!((gone.rdev(), gone.mode() >> 12), (0, 0o2));
            assert!(!root.join("dev/mem").exists() && !root.join("b/.wh..wh.plnk").exists());
        }
        // The temporary file system does not let this user set such attributes.
        Err(UnpackError::Io { doing, .. }) => assert_eq!(doing, "mark as opaque"),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn zeros_become_holes_and_read_as_zeros() {
    let mut content = vec![0; 2 << 20];
    content[..10].copy_from_slice(b"0123456789");
    content[700_000] = 1;
    let ending = [b"x".repeat(100).as_slice(), &vec![0; 1 << 20]].concat();
    let (dir, done) = Layer::new()
        .file("middle", &content)
        .file("end", &ending)
        .file("all", &vec![0; 300 << 10])
        .unpack();
    let all = [
        ("middle", content),
        ("end", ending),
        ("all", vec![0; 300 << 10]),
    ];
    let size: usize = all.iter().map(|(_, content)| content.len()).sum();
    assert_eq!(done.unwrap().content, size as u64);
    for (name, content) in all {
        let path = dir.path().join("root").join(name);
        assert!(fs::read(&path).unwrap() == content, "{name}");
        let allocated = fs::metadata(&path).unwrap().blocks() * 512;
        assert!(allocated < content.len() as u64 / 2, "{name}: {allocated}");
    }
}

#[test]
fn a_member_has_a_bound_of_depth() {
    for (depth, fits) in [(DEEPEST, true), (DEEPEST + 1, false)] {
        let path = vec!["d"; depth].join("/");
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(0);
        header.set_mode(0o644);
        tar.append_data(&mut header, &path, std::io::empty())
            .unwrap();
        let root = tempfile::tempdir().unwrap();
        let done = over(
            &*tar.into_inner().unwrap(),
            root.path(),
            Owner::of_process(),
        );
        if fits {
            assert_eq!(done.unwrap().files, 1)
        } else {
            let message = done.unwrap_err().to_string();
            assert!(message.contains("more than 1024 folders"), "{message}");
            assert!(message.len() < 200, "{message}");
        }
    }
}

#[test]
fn whiteouts_remove_deep_folders_but_for_what_the_layer_has() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for name in ["a/b/c/d", "a/own/deep/er", "a/other/x", "gone/b/c"] {
        fs::create_dir_all(at(name)).unwrap();
        fs::write(at(name).join("lower"), "lower").unwrap();
    }
    let layer = Layer::new()
        .file("a/own/deep/mine", b"upper")
        .file("a/.wh..wh..opq", b"")
        .file(".wh.gone", b"");
    over(
        &*layer.0.into_inner().unwrap(),
        root.path(),
        Owner::of_process(),
    )
    .unwrap();
    assert!(!at("gone").exists() && !at("a/b").exists() && !at("a/other").exists());
    assert!(!at("a/own/deep/er").exists());
    assert_eq!(fs::read(at("a/own/deep/mine")).unwrap(), b"upper");
}

/// A tar with one directory, repeated.
struct Again {
    header: Vec<u8>,
    left: usize,
    at: usize,
}

impl Read for Again {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.header.len() && self.left > 0 {
            (self.at, self.left) = (0, self.left - 1);
        }
        let len = buf.len().min(self.header.len() - self.at);
        buf[..len].copy_from_slice(&self.header[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

#[test]
fn a_directory_that_comes_again_takes_no_memory() {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::Directory);
    header.set_size(0);
    header.set_mode(0o755);
    let path = vec!["directory"; 300].join("/");
    tar.append_data(&mut header, &path, std::io::empty())
        .unwrap();
    let mut header = tar.into_inner().unwrap();
    header.truncate(header.len() - 1024);
    let root = tempfile::tempdir().unwrap();
    let mut layer = Unpacking {
        root: Root::shared(open(root.path()).unwrap()),
        lower: Some(Lower::default()),
        owner: Owner::of_process(),
        done: Unpacked::default(),
        folders: BTreeMap::new(),
        text: 0,
    };
    let again = Again {
        header,
        left: 20_000,
        at: 0,
    };
    let mut reader = Reader::new(again);
    while let Some(entry) = reader.next().unwrap() {
        layer.entry(entry).unwrap();
    }
    assert_eq!(layer.folders.len(), 1);
    assert!(layer.text < 10_000, "{}", layer.text);
}
