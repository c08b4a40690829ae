//! Processes that share a store, and end in the middle of what they do.

use super::{bytes, open};
use stackforge_image::store::{Limits, Store};
use stackforge_types::Digest;
use std::collections::BTreeSet;
use std::io::BufRead as _;
use std::path::Path;
use std::process::{Child, Stdio};
use support::process::{again, is_again};

/// This program again, which does what the environment says.
fn child(what: &str, store: &Path, seed: u64) -> Child {
    again("store::processes::what_two_want_is_made_once")
        .env("STORE_WORK", what)
        .env("STORE_ROOT", store)
        .env("STORE_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Every process puts some of these, in an order of its own.
fn content(number: u64) -> Vec<u8> {
    bytes(number, 40_000 + (number as usize * 7_919) % 900_000)
}

const CONTENTS: u64 = 24;

fn works_for_another_process() {
    let env = |name: &str| std::env::var(name).unwrap();
    let store = open(Path::new(&env("STORE_ROOT")));
    let mut random = fastrand::Rng::with_seed(env("STORE_SEED").parse().unwrap());
    match env("STORE_WORK").as_str() {
        "put" => loop {
            let content = content(random.u64(..CONTENTS));
            let blob = store.put(&content[..], None).unwrap();
            println!("PUT {}", blob.digest);
            // Another may clean up meanwhile, but not take it.
            assert_eq!(std::fs::read(&blob.path).unwrap(), content);
        },
        "alone" => {
            let digest = Digest::of(&content(1));
            let _alone = store.alone(&digest).unwrap();
            if store.blob(&digest).is_none() {
                println!("MADE {digest}");
                store.put(&content(1)[..], Some(&digest)).unwrap();
            }
        }
        "hold" => {
            let digest = Digest::of(&content(1));
            let _alone = store.alone(&digest).unwrap();
            store.blob(&digest).unwrap();
            let _scratch = store.scratch().unwrap();
            println!("HOLDS {digest}");
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
        other => panic!("{other}"),
    }
}

/// Returns the digests that the child prints after `mark`, until it ends.
fn digests_after(child: &mut Child, mark: &str) -> BTreeSet<Digest> {
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let lines = lines.map_while(Result::ok);
    lines
        .filter_map(|line| {
            let (_, digest) = line.split_once(mark)?;
            digest.trim().parse().ok()
        })
        .collect()
}

fn left(store: &Store, folder: &str) -> usize {
    std::fs::read_dir(store.root().join(folder))
        .unwrap()
        .count()
}

#[test]
fn killed_at_any_moment_nothing_that_was_put_is_lost_or_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let mut put = BTreeSet::new();
    for round in 0..20 {
        let mut children: Vec<Child> = (0..2)
            .map(|n| child("put", dir.path(), round * 2 + n))
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(random.u64(5..150)));
        for child in &mut children {
            child.kill().unwrap();
        }
        for child in &mut children {
            put.extend(digests_after(child, "PUT "));
            child.wait().unwrap();
        }
    }
    let store = open(dir.path());
    let found = store.verify(false, &|_, _| true).unwrap();
    assert!(found.is_clean(), "{found:?}");
    println!("{} blobs told of, {} there", put.len(), found.blobs);
    assert!(put.len() > 4, "{}", put.len());
    for digest in &put {
        assert!(store.blob(digest).is_some(), "{digest}");
    }
    store.gc(&Limits::default()).unwrap();
    assert_eq!((left(&store, "tmp"), left(&store, "leases")), (0, 1));
}

#[test]
fn what_two_want_is_made_once() {
    if is_again() {
        return works_for_another_process();
    }
    let dir = tempfile::tempdir().unwrap();
    let mut children: Vec<Child> = (0..4).map(|n| child("alone", dir.path(), n)).collect();
    let made: usize = (children.iter_mut())
        .map(|child| {
            let made = digests_after(child, "MADE ").len();
            assert!(child.wait().unwrap().success());
            made
        })
        .sum();
    assert_eq!(made, 1);
}

#[test]
fn what_a_running_process_uses_is_kept_and_of_a_killed_one_nothing_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let used = Digest::of(&content(1));
    {
        let store = open(dir.path());
        store.put(&content(1)[..], None).unwrap();
        store.put(&content(2)[..], None).unwrap();
    }
    let mut holds = child("hold", dir.path(), 0);
    let mut lines = std::io::BufReader::new(holds.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("HOLDS ")));
    let store = open(dir.path());
    let everything = Limits {
        max_size: Some(0),
        all: true,
        ..Limits::default()
    };
    let done = store.gc(&everything).unwrap();
    assert_eq!(
        (done.left, done.removed.len()),
        (content(1).len() as u64, 1)
    );
    assert!(store.try_alone(&used).unwrap().is_none());
    assert_eq!(left(&store, "tmp"), 1);

    holds.kill().unwrap();
    holds.wait().unwrap();
    drop(store.alone(&used).unwrap());
    assert_eq!(store.gc(&everything).unwrap().left, 0);
    assert_eq!(left(&store, "tmp"), 0);
}

#[test]
fn cleaning_up_beside_processes_that_put_takes_nothing_from_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut children: Vec<Child> = (0..3).map(|n| child("put", dir.path(), n)).collect();
    let everything = Limits {
        max_size: Some(0),
        all: true,
        ..Limits::default()
    };
    for _ in 0..60 {
        open(dir.path()).gc(&everything).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for child in &mut children {
        // One whose blob was taken has panicked by now.
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
    }
    for child in &mut children {
        assert!(!digests_after(child, "PUT ").is_empty());
        child.wait().unwrap();
    }
    assert!(
        open(dir.path())
            .verify(false, &|_, _| true)
            .unwrap()
            .is_clean()
    );
}
