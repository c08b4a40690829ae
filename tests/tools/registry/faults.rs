//! Servers and networks that do harm, by a seed: every run ends right or with a clear error, and
//! none with a wrong byte.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use stackforge_transfer::registry::{
    BlobReader, Descriptor, Event, Options, Payload, Pushed, RegistryError,
};

use super::proxy::{Act, Fault, Proxy};
use super::server::{Kind, Server, layout};
use super::{blobs, connect, digest, impatient, push, quick, repository, tag};

/// Harms about every other request, and never more than so many in a row.
fn harmful(seed: u64, faults: &'static [fn(usize) -> Fault]) -> impl Fn() -> Option<Fault> {
    let state = Mutex::new((fastrand::Rng::with_seed(seed), 0));
    move || {
        let (random, in_a_row) = &mut *state.lock().unwrap();
        if *in_a_row == 4 || random.bool() {
            *in_a_row = 0;
            return None;
        }
        *in_a_row += 1;
        Some(faults[random.usize(..faults.len())](
            random.usize(..1 << 20),
        ))
    }
}

const OF_READING: &[fn(usize) -> Fault] = &[
    Fault::Cut,
    Fault::Cut,
    Fault::Truncate,
    Fault::Stall,
    Fault::Flip,
    |_| Fault::TooMany,
    |at| Fault::Status([500, 502, 503, 504][at % 4]),
    |_| Fault::IgnoreRange,
    |_| Fault::DropAnswer,
];

const OF_WRITING: &[fn(usize) -> Fault] = &[
    Fault::CutRequest,
    Fault::CutRequest,
    Fault::FlipRequest,
    Fault::Cut,
    |_| Fault::TooMany,
    |at| Fault::Status([500, 502, 503, 504][at % 4]),
    |_| Fault::DropAnswer,
];

#[tokio::test(flavor = "multi_thread")]
async fn no_harm_makes_a_wrong_byte() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 21);
    let direct = connect(&server.host, &quick());
    let app = repository("app");
    push(&direct, &app, &image).await;
    let right = direct.manifest(&app, &tag("v1")).await.unwrap();
    let mut ended_right = 0;
    for seed in 0..60 {
        let harm = harmful(seed, OF_READING);
        let proxy = Proxy::start(&server.host, move |_| harm().map_or(Act::Pass, Act::Harm));
        let registry = connect(&proxy.host, &impatient());
        let dir = tempfile::tempdir().unwrap();
        let read = async {
            let manifest = registry.manifest(&app, &tag("v1")).await?;
            assert_eq!(manifest, right, "seed {seed}");
            let mut completed = Vec::new();
            for blob in blobs(&manifest) {
                let done = registry.fetch_blob(&app, &blob, dir.path()).await?;
                let bytes = std::fs::read(&done.path).unwrap();
                assert_eq!(digest(&bytes), blob.digest, "seed {seed}");
                completed.push((blob, done));
            }
            // Nothing that is complete is asked for again.
            let before = proxy.requests().len();
            for (blob, done) in completed {
                let again = registry.fetch_blob(&app, &blob, dir.path()).await?;
                assert_eq!((again.bytes, again.path), (0, done.path), "seed {seed}");
            }
            assert_eq!(proxy.requests().len(), before, "seed {seed}");
            Ok::<_, RegistryError>(())
        };
        match read.await {
            Ok(()) => ended_right += 1,
            Err(error) => assert_clear(seed, &error),
        }
        // Under a final name there is only what is right, however it ended.
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !name.starts_with('.') {
                let bytes = std::fs::read(dir.path().join(&name)).unwrap();
                assert_eq!(digest(&bytes).hex(), name, "seed {seed}");
            }
        }
    }
    // By the faults' chances nearly all come through; with a client that gives up at the first
    // harm, none would.
    assert!(ended_right >= 50, "{ended_right} of 60");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_harm_pushes_a_wrong_byte() {
    let server = Server::start(Kind::Open);
    let direct = connect(&server.host, &quick());
    let mut ended_right = 0;
    for seed in 0..60 {
        let harm = harmful(seed, OF_WRITING);
        let proxy = Proxy::start(&server.host, move |_| harm().map_or(Act::Pass, Act::Harm));
        let chunk = [None, Some(64 << 10)][seed as usize % 2];
        let mut options = Options { chunk, ..quick() };
        // A blob in chunks is begun anew for most of these faults: that takes many attempts.
        options.retry.attempts = 16;
        let registry = connect(&proxy.host, &options);
        let app = repository(&format!("app{seed}"));
        let mut random = fastrand::Rng::with_seed(seed);
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(300_000)
            .collect();
        let (own, size) = (digest(&bytes), bytes.len() as u64);
        let payload = Payload::Memory(bytes.into());
        match registry.push_blob(&app, &own, size, &payload, &[]).await {
            Ok(pushed) => {
                ended_right += 1;
                assert!([Pushed::Sent, Pushed::Existing].contains(&pushed));
                let dir = tempfile::tempdir().unwrap();
                let blob = Descriptor::of_blob(own, size);
                direct.fetch_blob(&app, &blob, dir.path()).await.unwrap();
            }
            Err(error) => assert_clear(seed, &error),
        }
    }
    assert!(ended_right >= 50, "{ended_right} of 60");
}

fn assert_clear(seed: u64, error: &RegistryError) {
    assert!(!error.help().is_empty());
    let message = error.to_string();
    assert!(
        message.contains("`app"),
        "seed {seed}: it does not say what it was about: {message}"
    );
}

async fn read_all(mut reader: BlobReader) -> Result<Vec<u8>, RegistryError> {
    let mut whole = Vec::new();
    while let Some(chunk) = reader.next().await? {
        whole.extend_from_slice(&chunk);
    }
    Ok(whole)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_harm_to_a_blob_ends_as_it_should() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 22);
    let direct = connect(&server.host, &quick());
    let app = repository("app");
    push(&direct, &app, &image).await;
    let manifest = direct.manifest(&app, &tag("v1")).await.unwrap();
    let blob = blobs(&manifest).pop().unwrap();
    let right = read_all(direct.read_blob(&app, &blob.digest, blob.size))
        .await
        .unwrap();

    for (fault, error) in [
        (Fault::Cut(400_000), None),
        (Fault::Truncate(400_000), None),
        (Fault::Stall(400_000), None),
        (Fault::TooMany, None),
        (Fault::Status(500), None),
        (Fault::Status(400), Some("answers 400")),
        (Fault::DropAnswer, None),
        (Fault::Flip(400_000), Some("sends is sha256:")),
    ] {
        let first = Mutex::new(true);
        let proxy = Proxy::start(&server.host, move |_| {
            if std::mem::take(&mut *first.lock().unwrap()) {
                Act::Harm(fault)
            } else {
                Act::Pass
            }
        });
        let registry = connect(&proxy.host, &impatient());
        let read = read_all(registry.read_blob(&app, &blob.digest, blob.size)).await;
        match (read, error) {
            (Ok(bytes), None) => assert_eq!(bytes, right, "{fault:?}"),
            (Err(found), Some(text)) => {
                assert!(found.to_string().contains(text), "{fault:?}: {found}");
                assert!(
                    found.to_string().contains(&blob.digest.to_string()),
                    "{found}"
                );
            }
            (read, _) => panic!("{fault:?}: {read:?}"),
        }
    }
    // What goes on for good ends with the reason.
    for (fault, text) in [
        (Fault::Cut(9), "the connection to"),
        (Fault::Truncate(9), "ends after 54 of"),
        (Fault::TooMany, "limits how often it is asked"),
        (Fault::Status(503), "answers 503"),
        (Fault::Flip(9), "sends is sha256:"),
    ] {
        let proxy = Proxy::start(&server.host, move |_| Act::Harm(fault));
        let registry = connect(&proxy.host, &quick());
        let dir = tempfile::tempdir().unwrap();
        let error = registry
            .fetch_blob(&app, &blob, dir.path())
            .await
            .unwrap_err();
        let message = error.to_string();
        assert!(message.contains(text), "{fault:?}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_off_is_taken_up_where_it_broke() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 23);
    let direct = connect(&server.host, &quick());
    let app = repository("app");
    push(&direct, &app, &image).await;
    let manifest = direct.manifest(&app, &tag("v1")).await.unwrap();
    let blob = blobs(&manifest).pop().unwrap();
    let dir = tempfile::tempdir().unwrap();

    // A fetch that is dropped in its middle, as by Ctrl-C.
    let first = Mutex::new(true);
    let proxy = Proxy::start(&server.host, move |_| {
        if std::mem::take(&mut *first.lock().unwrap()) {
            Act::Harm(Fault::Stall(500_000))
        } else {
            Act::Pass
        }
    });
    let received = Arc::new(Mutex::new(0));
    let (counted, wanted) = (Arc::clone(&received), Arc::new(tokio::sync::Notify::new()));
    let enough = Arc::clone(&wanted);
    let mut options = quick();
    options.observer = Some(Arc::new(move |event| {
        if let Event::Received { bytes, .. } = event {
            let mut total = counted.lock().unwrap();
            *total += bytes;
            if *total == 500_000 {
                enough.notify_one();
            }
        }
    }));
    let registry = connect(&proxy.host, &options);
    tokio::select! {
        done = registry.fetch_blob(&app, &blob, dir.path()) => panic!("{done:?}"),
        () = wanted.notified() => {}
    }
    let part = dir.path().join(format!(".{}.part", blob.digest.hex()));
    // What was being written then is written when the lock is free.
    let file = std::fs::File::open(&part).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let kept = file.metadata().unwrap().len();
    drop(file);
    assert!(kept > 0 && kept <= 500_000, "{kept}");
    let fetched = registry.fetch_blob(&app, &blob, dir.path()).await.unwrap();
    assert_eq!(fetched.bytes, blob.size - kept);
    assert_eq!(digest(&std::fs::read(fetched.path).unwrap()), blob.digest);

    // A part that is damaged is found out, and fetched anew.
    let dir = tempfile::tempdir().unwrap();
    let part = dir.path().join(format!(".{}.part", blob.digest.hex()));
    std::fs::write(&part, vec![1; 1000]).unwrap();
    let fetched = direct.fetch_blob(&app, &blob, dir.path()).await.unwrap();
    assert_eq!(fetched.bytes, blob.size - 1000 + blob.size);
    assert_eq!(digest(&std::fs::read(fetched.path).unwrap()), blob.digest);
    assert!(!part.exists());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.path().join(blob.digest.hex())), 0o444);

    // A part that leads elsewhere is nobody's part.
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("other");
    std::fs::write(&other, "own").unwrap();
    let part = dir.path().join(format!(".{}.part", blob.digest.hex()));
    std::os::unix::fs::symlink(&other, &part).unwrap();
    let refused = direct.fetch_blob(&app, &blob, dir.path()).await;
    assert!(matches!(refused, Err(RegistryError::File { .. })));
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "own");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_want_a_blob_one_fetches_it() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 24);
    let proxy = Proxy::start(&server.host, |_| Act::Pass);
    let registry = connect(&proxy.host, &quick());
    let app = repository("app");
    push(&registry, &app, &image).await;
    let manifest = registry.manifest(&app, &tag("v1")).await.unwrap();
    let blob = blobs(&manifest).pop().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let before = proxy.requests().len();
    let all = (0..8).map(|_| registry.fetch_blob(&app, &blob, dir.path()));
    let mut bytes = 0;
    for fetched in futures_util::future::join_all(all).await {
        bytes += fetched.unwrap().bytes;
    }
    assert_eq!(bytes, blob.size);
    assert_eq!(proxy.requests().len() - before, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_breaks_off_goes_on_or_begins_anew() {
    let server = Server::start(Kind::Open);
    let bytes: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
    let (own, size) = (digest(&bytes), bytes.len() as u64);
    let payload = Payload::Memory(bytes.into());
    // docker-registry keeps what whole requests brought. Of one that was cut it keeps nothing, or,
    // by chance, a part that it does not know the sum of: the upload goes on, or begins anew.
    for (fault, chunk, uploads) in [
        (Fault::CutRequest(50_000), None, 1..=2),
        (Fault::CutRequest(50_000), Some(100_000), 1..=2),
        (Fault::CutRequest(0), Some(100_000), 1..=1),
        (Fault::Status(503), Some(100_000), 1..=1),
        (Fault::DropAnswer, Some(100_000), 1..=2),
        (Fault::DropAnswer, None, 1..=1),
        (Fault::FlipRequest(5), None, 2..=2),
        (Fault::Status(413), None, 2..=2),
    ] {
        let count = Mutex::new(0);
        let proxy = Proxy::start(&server.host, move |request| {
            if !["PUT", "PATCH"].contains(&request.method.as_str()) {
                return Act::Pass;
            }
            let mut count = count.lock().unwrap();
            *count += 1;
            if *count == 1 + i32::from(chunk.is_some()) {
                Act::Harm(fault)
            } else {
                Act::Pass
            }
        });
        let progress = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&progress);
        let mut options = Options { chunk, ..quick() };
        options.observer = Some(Arc::new(move |event| match event {
            Event::Sent { bytes, .. } => *counted.lock().unwrap() += bytes,
            Event::Lost { bytes, .. } => *counted.lock().unwrap() -= bytes,
            _ => {}
        }));
        let app = repository("app");
        let registry = connect(&proxy.host, &options);
        let pushed = registry.push_blob(&app, &own, size, &payload, &[]).await;
        assert_eq!(pushed.unwrap(), Pushed::Sent, "{fault:?} {chunk:?}");
        assert_eq!(*progress.lock().unwrap(), size, "{fault:?} {chunk:?}");
        let seen = proxy.requests();
        let begun = seen.iter().filter(|line| line.starts_with("POST")).count();
        assert!(uploads.contains(&begun), "{fault:?} {chunk:?}: {seen:#?}");
        let dir = tempfile::tempdir().unwrap();
        let blob = Descriptor::of_blob(own.clone(), size);
        let direct = connect(&server.host, &quick());
        direct.fetch_blob(&app, &blob, dir.path()).await.unwrap();
        // The next one has to be sent again.
        std::fs::remove_dir_all(server.dir.path().join("store")).unwrap();
    }
}
