//! Trees built from earlier ones, beside the same layers unpacked anew.

use super::super::{Owner, over_listed};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use tar::EntryType;

/// A member of a layer. Names are few, so that layers meet.
#[derive(Debug, Clone)]
enum Member {
    Directory(String, u32),
    File(String, u32, u32),
    Marked(String, u8),
    SymLink(String, String),
    HardLink(String, String),
    Fifo(String),
    Whiteout(String),
    Opaque(String),
}
use Member::{Directory, Fifo, File, HardLink, Marked, Opaque, SymLink, Whiteout};

/// Any path: what is a directory in one layer may be a file in another.
fn wild_path() -> BoxedStrategy<String> {
    let names = proptest::collection::vec("[abcd]", 1..4);
    names.prop_map(|names| names.join("/")).boxed()
}

/// A path whose last name says whether it is a directory's.
fn tidy_path(is_folder: bool) -> BoxedStrategy<String> {
    let folders = proptest::collection::vec("[ab]", usize::from(is_folder)..3);
    let names = (folders, "[wxyz]").prop_map(move |(mut names, name)| {
        if !is_folder {
            names.push(name);
        }
        names.join("/")
    });
    names.boxed()
}

fn member(tidy: bool) -> impl Strategy<Value = Member> {
    let folder = || if tidy { tidy_path(true) } else { wild_path() };
    let path = || if tidy { tidy_path(false) } else { wild_path() };
    let mode = || prop::sample::select(vec![0o755, 0o700, 0o4755, 0o640, 0o1777]);
    prop_oneof![
        4 => (folder(), mode()).prop_map(|(path, mode)| Directory(path, mode)),
        12 => (path(), 0..200_000u32, mode()).prop_map(|(path, size, mode)| File(path, size, mode)),
        1 => (path(), any::<u8>()).prop_map(|(path, value)| Marked(path, value)),
        1 => (path(), "[abcd]").prop_map(|(path, to)| SymLink(path, format!("/{to}"))),
        1 => (path(), path()).prop_map(|(path, to)| HardLink(path, to)),
        1 => path().prop_map(Fifo),
        1 => prop_oneof![path().prop_map(Whiteout), folder().prop_map(Opaque)],
    ]
}

impl Member {
    fn append(&self, to: &mut tar::Builder<Vec<u8>>) {
        let (path, kind, link, mode, size) = match self {
            Directory(path, mode) => (path.clone(), EntryType::Directory, None, *mode, 0),
            File(path, size, mode) => (path.clone(), EntryType::Regular, None, *mode, *size),
            Marked(path, _) => (path.clone(), EntryType::Regular, None, 0o644, 3),
            SymLink(path, link) => (path.clone(), EntryType::Symlink, Some(link), 0o777, 0),
            HardLink(path, link) => (path.clone(), EntryType::Link, Some(link), 0o644, 0),
            Fifo(path) => (path.clone(), EntryType::Fifo, None, 0o600, 0),
            Whiteout(path) => {
                let (above, name) = path.rsplit_once('/').unwrap_or((".", path));
                let path = format!("{above}/.wh.{name}");
                (path, EntryType::Regular, None, 0, 0)
            }
            Opaque(path) => {
                let path = format!("{path}/.wh..wh..opq");
                (path, EntryType::Regular, None, 0, 0)
            }
        };
        if let Marked(_, value) = self {
            let value = [*value];
            to.append_pax_extensions([("SCHILY.xattr.user.mark", &value[..])])
                .unwrap();
        }
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(u64::from(size % 5));
        header.set_gid(u64::from(size % 3));
        header.set_mtime(1_000 + u64::from(size));
        header.set_size(u64::from(size));
        let content: Vec<u8> = match size {
            // The second half becomes a hole.
            100_000.. => vec![0; size as usize],
            _ => (0..size).map(|n| (n % 251 + size % 7) as u8).collect(),
        };
        match link {
            Some(link) => to.append_link(&mut header, path, link).unwrap(),
            None => to.append_data(&mut header, path, &content[..]).unwrap(),
        }
    }
}

/// A layer. With `tidy`, as tools write it: directories before what is in them, each path once.
fn layer(members: &[Member], tidy: bool) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut seen: BTreeMap<String, Member> = BTreeMap::new();
    for member in members {
        let (Directory(path, _)
        | File(path, ..)
        | Marked(path, _)
        | SymLink(path, _)
        | HardLink(path, _)
        | Fifo(path)
        | Whiteout(path)
        | Opaque(path)) = member;
        if !tidy {
            member.append(&mut tar);
            continue;
        }
        let is_folder = matches!(member, Directory(..));
        let below = |one: &str, other: &str| other.starts_with(&format!("{one}/"));
        let meets = seen.iter().any(|(other, kind)| {
            other == path
                || below(other, path) && !matches!(kind, Directory(..))
                || below(path, other) && !is_folder
        });
        if meets {
            continue;
        }
        for (at, _) in path.match_indices('/') {
            let above = path[..at].to_owned();
            let folder = Directory(above.clone(), 0o755);
            seen.entry(above).or_insert(folder);
        }
        seen.insert(path.clone(), member.clone());
    }
    // Hard links come after what they lead to, which is a file of the layer.
    let (links, others): (Vec<&Member>, Vec<&Member>) =
        seen.values().partition(|m| matches!(m, HardLink(..)));
    let leads = |m: &&&Member| match m {
        HardLink(_, to) => matches!(seen.get(to), Some(File(..) | Marked(..))),
        _ => false,
    };
    let links = links.iter().filter(leads);
    others.iter().chain(links).for_each(|m| m.append(&mut tar));
    tar.into_inner().unwrap()
}

/// What a program did to a file of the old tree. The number chooses the file.
#[derive(Debug, Clone)]
enum Damage {
    /// Changes its content, and sets its time back.
    Overwrite(usize),
    Remove(usize),
    Chmod(usize),
    Replace(usize),
    Link(usize),
    Add(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    use Damage::{Add, Chmod, Link, Overwrite, Remove, Replace};
    let kinds = [Overwrite, Remove, Chmod, Replace, Link, Add];
    (prop::sample::select(kinds.to_vec()), 0..100usize).prop_map(|(kind, n)| kind(n))
}

impl Damage {
    fn done(&self, root: &Path) {
        let (Self::Overwrite(n)
        | Self::Remove(n)
        | Self::Chmod(n)
        | Self::Replace(n)
        | Self::Link(n)
        | Self::Add(n)) = self;
        let files: Vec<PathBuf> = walk(root)
            .into_iter()
            .filter(|p| p.symlink_metadata().is_ok_and(|m| m.is_file()))
            .collect();
        if let Self::Add(_) = self {
            return fs::write(root.join(format!("new-{n}")), "new").unwrap();
        }
        let Some(path) = files.get(n % files.len().max(1)) else {
            return;
        };
        match self {
            Self::Overwrite(_) => {
                let times = path.metadata().unwrap().modified().unwrap();
                let file = fs::File::options().write(true).open(path).unwrap();
                file.write_all_at(b"!", 0).unwrap();
                file.set_modified(times).unwrap();
            }
            Self::Remove(_) => fs::remove_file(path).unwrap(),
            Self::Chmod(_) => {
                fs::set_permissions(path, fs::Permissions::from_mode(0o604)).unwrap();
            }
            Self::Replace(_) => {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("/etc/passwd", path).unwrap();
            }
            Self::Link(_) => {
                let _ = fs::hard_link(path, root.join(format!("link-{n}")));
            }
            Self::Add(_) => {}
        }
    }
}

fn walk(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                left.push(path.clone());
            }
            all.push(path);
        }
    }
    all.sort();
    all
}

/// All that is to be the same in two trees. Names of one file have the first of them.
fn shown(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut first: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for path in walk(root) {
        let short = path.strip_prefix(root).unwrap().to_owned();
        let stat = path.symlink_metadata().unwrap();
        let kind = stat.file_type();
        let mut text = format!("{:o} {} {} ", stat.mode(), stat.uid(), stat.gid());
        if kind.is_dir() {
            // Without a member of its own in the last layer that wrote into it, its time is that of now.
            text += if stat.mtime() < 1_000_000 {
                "old"
            } else {
                "now"
            };
        } else {
            let one = first.entry(stat.ino()).or_insert_with(|| short.clone());
            text += &format!("{} {} {}", stat.mtime(), stat.size(), one.display());
        }
        if kind.is_symlink() {
            text += &format!(" -> {}", fs::read_link(&path).unwrap().display());
        }
        if kind.is_file() {
            let mut value = [0; 8];
            let marked = rustix::fs::lgetxattr(&path, "user.mark", &mut value[..]);
            let content = Digest::of(&fs::read(&path).unwrap());
            text += &format!(" {content} {:?}", marked.ok().map(|_| value[0]));
        }
        all.insert(short, text);
    }
    all
}

fn unpacked(root: &Path, layers: &[Vec<u8>]) -> Option<Record> {
    fs::create_dir(root).unwrap();
    let mut listings = Vec::new();
    for tar in layers {
        let mut listing = Listing::default();
        over_listed(&tar[..], root, Owner::of_process(), &mut |h| listing.add(h)).ok()?;
        listings.push((Digest::of(tar), listing));
    }
    let record = Record::of(root, listings).unwrap();
    // As it is read from disk.
    let file = root.with_extension("record");
    let Some(record) = record else {
        return Some(Record::default());
    };
    record.write(&file).unwrap();
    let read = Record::read(&file);
    assert!(read.as_ref().unwrap().files == record.files);
    read
}

/// Builds the tree of `layers` from an earlier one.
fn updated(
    into: &Path,
    layers: &[Vec<u8>],
    old: &Path,
    record: Record,
    is_spare: bool,
) -> Result<Option<(Sources, Record)>, UpdateError> {
    fs::create_dir(into).unwrap();
    let staged = into.with_extension("staged");
    fs::create_dir(&staged).unwrap();
    let diff_ids: Vec<Digest> = layers.iter().map(|tar| Digest::of(tar)).collect();
    let tree = Tree {
        path: old,
        record,
        is_spare,
    };
    let begun = TreeUpdate::begin(&diff_ids, vec![tree], &staged, Owner::of_process())?;
    let Some(mut update) = begun else {
        return Ok(None);
    };
    for (n, tar) in layers.iter().enumerate() {
        if !update.knows(n) {
            update.stage(n, &tar[..])?;
        }
    }
    for (n, members) in update.plan()? {
        update.fill(n, &members, &layers[n][..])?;
    }
    update.write(into, &|| false).map(Some)
}

fn same(fresh: &Path, sources: &Path, case: &str) {
    let (fresh, sources) = (shown(fresh), shown(sources));
    let strict = |text: &str| text.replace(" now", " old");
    assert_eq!(
        fresh.keys().collect::<Vec<_>>(),
        sources.keys().collect::<Vec<_>>(),
        "{case}"
    );
    for (path, text) in &fresh {
        let other = &sources[path];
        // A directory may have the image's time where unpacking leaves that of now.
        let (one, other) = if text.contains(" now") {
            (strict(text), strict(other))
        } else {
            (text.clone(), other.clone())
        };
        assert_eq!(one, other, "{}: {case}", path.display());
    }
}

/// Layers; which of them the old and the new image have; what happens to the old tree; whether it is spare; whether the
/// layers are as tools write them.
type Case = (
    Vec<Vec<Member>>,
    Vec<usize>,
    Vec<usize>,
    Vec<Damage>,
    bool,
    bool,
);

fn cases(tidy: bool) -> impl Strategy<Value = Case> {
    let layers = proptest::collection::vec(proptest::collection::vec(member(tidy), 1..12), 4);
    let of = || proptest::collection::vec(0..4usize, 1..4);
    let damages = proptest::collection::vec(damage(), 0..3);
    (layers, of(), of(), damages, any::<bool>(), Just(tidy))
}

fn check((pool, old, new, damages, is_spare, tidy): &Case) -> Option<Sources> {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let pool: Vec<Vec<u8>> = pool.iter().map(|members| layer(members, *tidy)).collect();
    let of = |numbers: &[usize]| numbers.iter().map(|n| pool[*n].clone()).collect::<Vec<_>>();
    let (old, new) = (of(old), of(new));
    let record = unpacked(&at("old"), &old)?;
    unpacked(&at("fresh"), &new)?;
    damages.iter().for_each(|damage| damage.done(&at("old")));
    let before = shown(&at("old"));
    match updated(&at("sources"), &new, &at("old"), record, *is_spare) {
        Ok(Some((sources, written))) => {
            let case = format!("{sources:?}, spare: {is_spare}");
            same(&at("fresh"), &at("sources"), &case);
            if !is_spare {
                assert_eq!(before, shown(&at("old")), "{case}");
            }
            let inodes = |root: &Path| -> BTreeSet<u64> {
                let files = walk(root).into_iter();
                files
                    .map(|path| path.symlink_metadata().unwrap().ino())
                    .collect()
            };
            assert!(
                inodes(&at("old")).is_disjoint(&inodes(&at("sources"))),
                "{case}"
            );
            // The new record serves the next update: nothing has to be read.
            let next = updated(&at("next"), &new, &at("sources"), written, true);
            let (next, _) = next.unwrap().unwrap();
            assert_eq!(next.written, 0, "{case}");
            same(&at("fresh"), &at("next"), &case);
            Some(sources)
        }
        Ok(None) | Err(UpdateError::Unclear(_)) => None,
        Err(e) => panic!("{e:?}"),
    }
}

/// How many of the cases gave a tree from an earlier one.
fn checked(strategy: impl Strategy<Value = Case>, cases: u32) -> usize {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::{Config, TestRunner};
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(
        config.clone(),
        proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm),
    );
    let mut built = 0;
    for _ in 0..cases {
        let case = strategy.new_tree(&mut runner).unwrap().current();
        match std::panic::catch_unwind(|| check(&case)) {
            Ok(sources) => built += usize::from(sources.is_some()),
            // What was wrong is printed before this.
            Err(_) => panic!("{case:#?}"),
        }
    }
    built
}

#[test]
fn a_tree_from_an_earlier_one_is_what_unpacking_gives() {
    let built = checked(cases(true), 200);
    assert!(built > 100, "{built}");
}

#[test]
fn layers_that_contradict_each_other_give_that_tree_or_none() {
    let built = checked(cases(false), 300);
    assert!(built >= 5, "{built}");
}

const SOME: [u32; 3] = [1_000, 2_000, 3_000];

fn plain(sizes: &[u32]) -> Vec<u8> {
    let mut members = vec![Directory("a".to_owned(), 0o755)];
    let file = |size: &u32| File(format!("a/{size}"), *size, 0o644);
    members.extend(sizes.iter().map(file));
    layer(&members, true)
}

#[test]
fn only_what_changed_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (base, one, two) = (plain(&SOME), plain(&[5_000]), plain(&[6_000, 7_000]));
    let record = unpacked(&at("old"), &[base.clone(), one]).unwrap();
    // Set back to its time, and so not to be told by it.
    Damage::Overwrite(0).done(&at("old"));
    let layers = [base, two];
    let copied = updated(&at("copied"), &layers, &at("old"), record.clone(), false);
    let (sources, _) = copied.unwrap().unwrap();
    assert_eq!((sources.written, sources.moved), (3, 0));
    assert_eq!(sources.cloned + sources.copied, 2);
    let moved = updated(&at("moved"), &layers, &at("old"), record, true);
    let (sources, _) = moved.unwrap().unwrap();
    assert_eq!((sources.written, sources.moved), (3, 2));
    unpacked(&at("fresh"), &layers).unwrap();
    same(&at("fresh"), &at("copied"), "copied");
    same(&at("fresh"), &at("moved"), "moved");
}

#[test]
fn a_file_that_a_program_has_open_for_writing_is_not_moved() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let base = plain(&SOME);
    let record = unpacked(&at("old"), std::slice::from_ref(&base)).unwrap();
    let path = at("old").join("a/1000");
    let open = fs::File::options().write(true).open(path).unwrap();
    let moved = updated(&at("moved"), &[base], &at("old"), record, true);
    // The caller unpacks anew: its time of change is no longer that of the record.
    assert!(matches!(moved, Err(UpdateError::Changed(_))), "{moved:?}");
    open.write_all_at(b"!", 0).unwrap();
    let new = at("moved").join("a/1000");
    assert!(!new.exists());
}
