//! A store that is carried elsewhere, and read by other programs.

use super::{bytes, damage, image, open};
use stackforge_image::store::{Action, Limits, Selection, Store, StoreError};
use stackforge_types::{Digest, Platform};
use std::path::Path;
use std::process::Command;

/// Stands for a key: what it signs ends with the digest of the bytes.
fn sign(bytes: &[u8]) -> Vec<u8> {
    Digest::of(bytes).to_string().into_bytes()
}

fn has_signed(bytes: &[u8], signature: &[u8]) -> bool {
    sign(bytes) == signature
}

/// A store with an image, a named wheel, a step and its output; what the step has for a key.
fn filled(dir: &Path) -> (Digest, Action, Digest) {
    let store = open(dir);
    image(&store, "demo:latest", "etc/motd", b"hello");
    let wheel = store.put(&bytes(1, 700_000)[..], None).unwrap();
    store.named(&wheel.digest, "x-1-py3-none-any.whl").unwrap();
    let output = store.put(&bytes(2, 100_000)[..], None).unwrap();
    let action = Action {
        step: "compile:x".into(),
        outputs: [("wheel".to_owned(), output.digest)].into(),
        seconds: 12.5,
        ..Action::default()
    };
    let key = Digest::of(b"key");
    store.record(&key, &action).unwrap();
    store.put(&b"named by nothing"[..], None).unwrap();
    (key, action, wheel.digest)
}

#[test]
fn what_is_exported_is_the_same_where_it_is_imported() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    let (key, action, wheel) = filled(&from);
    for name in ["cache.tar", "cache/"] {
        let to = dir.path().join(name);
        let exported = open(&from).export(None, Some(&sign), &to, &|_, _| true);
        let exported = exported.unwrap();
        assert_eq!((exported.actions, exported.images), (1, 1));
        let new = dir
            .path()
            .join(format!("new-{}", name.trim_end_matches('/')));
        let store = open(&new);
        let trusted = Some(&has_signed as &dyn Fn(&[u8], &[u8]) -> bool);
        let done = store.import(&to, trusted, &|_, _| true).unwrap();
        assert_eq!((done.blobs, done.bytes), (exported.blobs, exported.bytes));
        assert_eq!((done.actions, done.images), (1, 1));
        assert_eq!(store.action(&key), Some(action.clone()));
        assert_eq!(store.names_of(&wheel), ["x-1-py3-none-any.whl"]);
        assert_eq!(store.refs().unwrap(), open(&from).refs().unwrap());
        assert!(store.verify(false, &|_, _| true).unwrap().is_clean());
        let again = store.import(&to, trusted, &|_, _| true).unwrap();
        assert_eq!((again.blobs, again.actions), (0, 0));
    }
}

#[test]
fn steps_and_names_of_files_are_taken_from_signed_exports_alone() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    let (key, _, wheel) = filled(&from);
    let to = dir.path().join("cache.tar");
    open(&from).export(None, None, &to, &|_, _| true).unwrap();
    let new = open(&dir.path().join("new"));
    let error = new
        .import(&to, Some(&has_signed), &|_, _| true)
        .unwrap_err();
    assert!(matches!(error, StoreError::Unsigned(_)), "{error}");
    let done = new.import(&to, None, &|_, _| true).unwrap();
    assert_eq!((done.actions, done.untrusted, done.images), (0, 1, 1));
    assert!(!new.has(&key) && new.names_of(&wheel).is_empty());
    assert!(new.blob(&wheel).is_some(), "it is what its digest says");

    // The signature is of this record: another one under it is refused.
    let layout = dir.path().join("layout");
    std::fs::create_dir(&layout).unwrap();
    let signed = open(&from).export(None, Some(&sign), &layout, &|_, _| true);
    signed.unwrap();
    rename_in_record(&layout, "x-1-py3-none-any.whl", "y-1-py3-none-any.whl");
    let other = open(&dir.path().join("other"));
    let error = other.import(&layout, Some(&has_signed), &|_, _| true);
    assert!(matches!(error.unwrap_err(), StoreError::Unsigned(_)));
}

#[test]
fn objects_of_compiles_travel_in_signed_exports_alone() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    filled(&from);
    let digits = |digit: &str| format!("{digit}/{digit}/{}", digit.repeat(64));
    let names: std::collections::BTreeSet<String> = [digits("a"), digits("b")].into();
    let objects = |store: &Store| store.objects(Platform::LinuxAmd64, "flash-attn").unwrap();
    {
        let store = open(&from);
        let folder = objects(&store).unwrap();
        for name in &names {
            folder.write(name, name.as_bytes()).unwrap();
        }
    }
    let blobs = |store: &Store| store.list().unwrap().entries.len();
    let before = blobs(&open(&from));
    let to = dir.path().join("cache.tar");
    let done = open(&from).export(None, Some(&sign), &to, &|_, _| true);
    let done = done.unwrap();
    assert_eq!((done.objects, done.in_use.len()), (2, 0));
    // What an export leaves is its record, its manifest and an empty configuration.
    assert!(blobs(&open(&from)) <= before + 3);

    let untrusting = open(&dir.path().join("untrusting"));
    let done = untrusting.import(&to, None, &|_, _| true).unwrap();
    assert_eq!(done.objects, 0);
    assert_eq!(objects(&untrusting).unwrap().names().unwrap().len(), 0);

    let new = open(&dir.path().join("new"));
    let own = digits("a");
    let folder = objects(&new).unwrap();
    folder.write(&own, &b"mine"[..]).unwrap();
    drop(folder);
    let done = new.import(&to, Some(&has_signed), &|_, _| true).unwrap();
    assert_eq!(done.objects, 1);
    let folder = objects(&new).unwrap();
    assert_eq!(folder.names().unwrap(), names);
    assert_eq!(folder.read(&own).unwrap().1, 4, "mine stays");
    // While a compile has them they are left out.
    let export = |selection: Option<&Selection>| {
        let to = dir.path().join("again.tar");
        open(&dir.path().join("new")).export(selection, Some(&sign), &to, &|_, _| true)
    };
    assert_eq!(export(None).unwrap().in_use, ["flash-attn"]);
    drop(folder);
    let other = Selection {
        objects: [(Platform::LinuxAmd64, "xformers".to_owned())].into(),
        ..Selection::default()
    };
    assert_eq!(export(Some(&other)).unwrap().objects, 0);
    let this = Selection {
        objects: [(Platform::LinuxAmd64, "flash-attn".to_owned())].into(),
        ..Selection::default()
    };
    assert_eq!(export(Some(&this)).unwrap().objects, 2);

    // These texts are no archives, so both are damaged.
    let found = new.verify(false, &|_, _| true).unwrap();
    assert_eq!((found.objects, found.damaged_objects.len()), (2, 2));
    assert!(!found.is_clean() && found.damaged.is_empty());
    assert!(new.verify(true, &|_, _| true).unwrap().repaired);
    let found = new.verify(false, &|_, _| true).unwrap();
    assert!(found.is_clean() && found.objects == 0);
}

/// Changes the entries of a layout's index.
fn reindex(layout: &Path, change: impl FnOnce(&mut Vec<serde_json::Value>)) {
    let path = layout.join("index.json");
    let text = std::fs::read(&path).unwrap();
    let mut index: serde_json::Value = serde_json::from_slice(&text).unwrap();
    change(index["manifests"].as_array_mut().unwrap());
    std::fs::write(&path, index.to_string()).unwrap();
}

/// The entries of a layout's index.
fn entries_of(layout: &Path) -> Vec<serde_json::Value> {
    let mut out = Vec::new();
    reindex(layout, |entries| out = entries.clone());
    out
}

#[test]
fn a_record_beside_a_signed_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let signed = dir.path().join("signed/");
    std::fs::create_dir(&signed).unwrap();
    filled(&dir.path().join("from"));
    let from = open(&dir.path().join("from"));
    from.export(None, Some(&sign), &signed, &|_, _| true)
        .unwrap();

    // Whose steps the signed record does not have.
    let forged = dir.path().join("forged/");
    std::fs::create_dir(&forged).unwrap();
    let theirs = open(&dir.path().join("theirs"));
    let output = theirs.put(&bytes(9, 1000)[..], None).unwrap();
    let action = Action {
        step: "image".into(),
        outputs: [("layer".to_owned(), output.digest)].into(),
        ..Action::default()
    };
    let key = Digest::of(b"their key");
    theirs.record(&key, &action).unwrap();
    theirs.export(None, None, &forged, &|_, _| true).unwrap();
    let blobs = std::fs::read_dir(forged.join("blobs/sha256")).unwrap();
    for blob in blobs.map(|blob| blob.unwrap()) {
        let to = signed.join("blobs/sha256").join(blob.file_name());
        std::fs::copy(blob.path(), to).unwrap();
    }
    reindex(&signed, |entries| entries.extend(entries_of(&forged)));

    let new = open(&dir.path().join("new"));
    let error = new.import(&signed, Some(&has_signed), &|_, _| true);
    assert!(matches!(error.unwrap_err(), StoreError::Foreign { .. }));
    assert!(!new.has(&key) && new.refs().unwrap().is_empty());
    // Nor is either taken without a key: nobody says which of the two counts.
    assert!(new.import(&signed, None, &|_, _| true).is_err());
}

/// A change of an index's entries.
type Change<'a> = &'a dyn Fn(&mut Vec<serde_json::Value>);

#[test]
fn a_signature_is_of_the_images_names_too() {
    let dir = tempfile::tempdir().unwrap();
    filled(&dir.path().join("from"));
    let from = open(&dir.path().join("from"));
    image(&from, "other:1", "etc/motd", b"another");
    let images = |layout: &Path| {
        let all = entries_of(layout).into_iter();
        all.filter(|e| {
            !e["annotations"]["org.opencontainers.image.ref.name"]
                .as_str()
                .unwrap()
                .contains("cache")
        })
        .map(|e| e["digest"].as_str().unwrap().to_owned())
        .collect::<Vec<_>>()
    };
    let name = "org.opencontainers.image.ref.name";
    let changes: [(&str, Change<'_>); 3] = [
        ("another image under a name", &|entries| {
            let other = entries[1]["digest"].clone();
            entries[0]["digest"] = other;
        }),
        ("another name", &|entries| {
            entries[0]["annotations"][name] = "new:1".into()
        }),
        ("a name more", &|entries| {
            let mut more = entries[0].clone();
            more["annotations"][name] = "new:1".into();
            entries.push(more);
        }),
    ];
    for (what, change) in changes {
        let layout = dir.path().join(what);
        std::fs::create_dir(&layout).unwrap();
        from.export(None, Some(&sign), &layout, &|_, _| true)
            .unwrap();
        assert_eq!(images(&layout).len(), 2);
        reindex(&layout, |entries| change(entries));
        let own = open(&dir.path().join(format!("own {what}")));
        let mine = image(&own, "demo:latest", "etc/motd", b"mine");
        let error = own.import(&layout, Some(&has_signed), &|_, _| true);
        assert!(matches!(error, Err(StoreError::Unsigned(_))), "{what}");
        let refs = own.refs().unwrap();
        assert_eq!((refs.len(), &refs[0].digest), (1, &mine), "{what}");
    }
}

#[test]
fn an_unsigned_import_moves_no_name() {
    let dir = tempfile::tempdir().unwrap();
    filled(&dir.path().join("from"));
    let to = dir.path().join("cache.tar");
    let from = open(&dir.path().join("from"));
    from.export(None, None, &to, &|_, _| true).unwrap();
    let own = open(&dir.path().join("own"));
    let mine = image(&own, "demo:latest", "etc/motd", b"mine");
    let done = own.import(&to, None, &|_, _| true).unwrap();
    assert_eq!(done.kept_names, ["demo:latest"]);
    assert_eq!(own.refs().unwrap()[0].digest, mine);
}

#[test]
fn a_good_copy_heals_a_damaged_blob() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    let (_, _, wheel) = filled(&from);
    let to = dir.path().join("cache.tar");
    open(&from).export(None, None, &to, &|_, _| true).unwrap();
    damage(&open(&from), &wheel);
    let done = open(&from).import(&to, None, &|_, _| true).unwrap();
    assert_eq!(done.blobs, 1);
    assert!(open(&from).blob(&wheel).is_some());
    assert!(open(&from).verify(false, &|_, _| true).unwrap().is_clean());
}

#[test]
fn names_of_images_have_a_bound_and_many_are_one_write() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("store"));
    let digest = image(&store, "first:1", "x", b"x");
    for name in [String::new(), "x".repeat(401), "a\u{1b}b".to_owned()] {
        let error = store.tag(&name, &digest).unwrap_err();
        assert!(matches!(error, StoreError::Name(_)), "{name:?}");
    }
    let many: Vec<_> = (0..20_000)
        .map(|n| (format!("image-{n}:latest"), digest.clone()))
        .collect();
    store.tag_all(&many).unwrap();
    assert_eq!(store.refs().unwrap().len(), 20_001);
    let index = || std::fs::metadata(dir.path().join("store/index.json")).unwrap();
    let before = std::os::unix::fs::MetadataExt::ino(&index());
    store.tag_all(&many).unwrap();
    let after = std::os::unix::fs::MetadataExt::ino(&index());
    assert_eq!(before, after, "nothing had to be written");
}

#[test]
fn an_index_that_cannot_be_read_is_kept_aside_by_a_repair() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    filled(&root);
    std::fs::write(root.join("index.json"), "{\"manifests\": [torn").unwrap();
    open(&root).verify(true, &|_, _| true).unwrap();
    let kept = std::fs::read_to_string(root.join("index.json.damaged-1")).unwrap();
    assert!(kept.ends_with("torn"));
    assert!(open(&root).refs().unwrap().is_empty());
}

#[test]
fn a_selection_is_exported_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (key, _, wheel) = filled(&dir.path().join("from"));
    let store = open(&dir.path().join("from"));
    let to = dir.path().join("part.tar");
    let wanted = Selection {
        blobs: [wheel.clone()].into(),
        ..Selection::default()
    };
    let done = store
        .export(Some(&wanted), None, &to, &|_, _| true)
        .unwrap();
    assert_eq!((done.actions, done.images), (0, 0));
    let new = open(&dir.path().join("new"));
    new.import(&to, None, &|_, _| true).unwrap();
    assert!(new.blob(&wheel).is_some() && !new.has(&key));
    assert!(new.refs().unwrap().is_empty());
}

#[test]
fn a_damaged_blob_leaves_no_export_and_enters_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    let (_, _, wheel) = filled(&from);
    let whole = dir.path().join("whole");
    std::fs::create_dir(&whole).unwrap();
    open(&from)
        .export(None, None, &whole, &|_, _| true)
        .unwrap();

    damage(&open(&from), &wheel);
    let to = dir.path().join("cache.tar");
    let error = open(&from)
        .export(None, None, &to, &|_, _| true)
        .unwrap_err();
    assert!(matches!(&error, StoreError::Damaged { digest, .. } if **digest == wheel));
    assert!(!to.exists());

    let carried = whole.join("blobs/sha256").join(wheel.hex());
    std::fs::write(&carried, "something else").unwrap();
    let new = open(&dir.path().join("new"));
    let error = new.import(&whole, None, &|_, _| true).unwrap_err();
    assert!(matches!(&error, StoreError::Altered { expected, .. } if **expected == wheel));
    assert!(new.blob(&wheel).is_none() && new.refs().unwrap().is_empty());
}

#[test]
fn foreign_layouts_are_refused_and_write_nothing_outside() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("store"));
    let hostile = dir.path().join("hostile.tar");
    let mut archive = tar::Builder::new(Vec::new());
    for name in [
        "blobs/sha256/../../../escaped",
        "blobs/sha256/x",
        "index.json",
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(2);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        archive.append(&header, &b"{}"[..]).unwrap();
    }
    std::fs::write(&hostile, archive.into_inner().unwrap()).unwrap();
    assert!(store.import(&hostile, None, &|_, _| true).is_err());
    assert!(!dir.path().join("escaped").exists());
    for content in [&b""[..], b"\x1f\x8b\x08", &[0; 2048]] {
        std::fs::write(&hostile, content).unwrap();
        let error = store.import(&hostile, None, &|_, _| true).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    }
    // Programs differ in which of two they read, and what is no index has no images.
    let index = r#"{"schemaVersion":2,"manifests":[]}"#;
    for indices in [&[index, index][..], &["null"], &[r#"{"manifests":{}}"#]] {
        let mut archive = tar::Builder::new(Vec::new());
        for text in indices {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            archive
                .append_data(&mut header, "index.json", text.as_bytes())
                .unwrap();
        }
        std::fs::write(&hostile, archive.into_inner().unwrap()).unwrap();
        let error = store.import(&hostile, None, &|_, _| true).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    }
    // A record whose name leads out of the store.
    let from = dir.path().join("from");
    let (_, _, wheel) = filled(&from);
    let names = from.join("names").join(wheel.hex());
    let layout = dir.path().join("layout");
    std::fs::create_dir(&layout).unwrap();
    open(&from)
        .export(None, None, &layout, &|_, _| true)
        .unwrap();
    assert!(names.exists());
    rename_in_record(&layout, "x-1-py3-none-any.whl", "../../../escaped");
    // Even if it is signed.
    let trusted: &dyn Fn(&[u8], &[u8]) -> bool = &|_, _| true;
    sign_layout(&layout);
    let error = store.import(&layout, Some(trusted), &|_, _| true);
    let error = error.unwrap_err();
    assert!(matches!(error, StoreError::Name(_)), "{error}");
    assert!(!dir.path().join("escaped").exists());
}

/// Puts some signature on the record.
fn sign_layout(layout: &Path) {
    let path = layout.join("index.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut index: serde_json::Value = serde_json::from_str(&text).unwrap();
    let entry = index["manifests"].as_array_mut().unwrap().last_mut();
    entry.unwrap()["annotations"]["io.stackforge.cache.signature"] = "AAAA".into();
    std::fs::write(path, index.to_string()).unwrap();
}

/// Writes the record, and what leads to it, anew with another text in it.
fn rename_in_record(layout: &Path, from: &str, to: &str) {
    let blob = |digest: &str| layout.join("blobs/sha256").join(&digest[7..]);
    let index = std::fs::read_to_string(layout.join("index.json")).unwrap();
    let mut index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let entries = index["manifests"].as_array_mut().unwrap();
    let entry = entries.last_mut().unwrap();
    let manifest = std::fs::read_to_string(blob(entry["digest"].as_str().unwrap())).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let record = manifest["layers"][0]["digest"].as_str().unwrap().to_owned();
    let text = std::fs::read_to_string(blob(&record))
        .unwrap()
        .replace(from, to);
    let put = |text: &str| {
        let digest = Digest::of(text.as_bytes());
        std::fs::write(blob(&digest.to_string()), text).unwrap();
        digest.to_string()
    };
    manifest["layers"][0]["digest"] = put(&text).into();
    entry["digest"] = put(&manifest.to_string()).into();
    std::fs::write(layout.join("index.json"), index.to_string()).unwrap();
}

#[test]
fn pipes_and_devices_of_a_layout_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    filled(&dir.path().join("from"));
    let layout = dir.path().join("layout");
    std::fs::create_dir(&layout).unwrap();
    let from = open(&dir.path().join("from"));
    from.export(None, None, &layout, &|_, _| true).unwrap();
    let strange = layout.join("blobs/sha256").join("0".repeat(64));
    let new = open(&dir.path().join("new"));
    let made = Command::new("mkfifo").arg(&strange).status();
    assert!(made.unwrap().success());
    let error = new.import(&layout, None, &|_, _| true).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    std::fs::remove_file(&strange).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &strange).unwrap();
    let error = new.import(&layout, None, &|_, _| true).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
}

#[test]
fn an_interrupted_export_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    filled(&dir.path().join("from"));
    let store = open(&dir.path().join("from"));
    let to = dir.path().join("cache.tar");
    let error = store
        .export(None, None, &to, &|done, _| done < 100_000)
        .unwrap_err();
    assert!(matches!(error, StoreError::Interrupted), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    store.gc(&Limits::default()).unwrap();
}
