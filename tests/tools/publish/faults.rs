//! A network that does harm by a seed: every push and pull ends right or with a clear error, with no
//! wrong byte, and nothing that is complete is fetched again.

use super::proxy::{Act, Fault, Proxy};
use super::{Kind, Server, digest, layout};
use stackforge_distribute::publish::{self, PublishError, PushRequest};
use stackforge_distribute::pull::{self, PullError, Wanted};
use stackforge_image::oci;
use stackforge_image::store::Store;
use stackforge_stack::config::Config;
use stackforge_stack::spec::Platform;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::registry::{Event, Reference, RegistryError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEEDS: u64 = 100;
const FAULTS: &[fn(usize) -> Fault] = &[
    Fault::Cut,
    Fault::Truncate,
    Fault::Stall,
    Fault::Flip,
    Fault::CutRequest,
    Fault::FlipRequest,
    Fault::Reorder,
    Fault::ReorderRequest,
    Fault::Late,
    |_| Fault::TooMany,
    |at| Fault::Status([500, 502, 503, 504][at % 4]),
    |_| Fault::IgnoreRange,
    |_| Fault::DropAnswer,
];

/// Harms about every third request.
fn harmful(upstream: &str, seed: u64) -> Proxy {
    let random = Mutex::new(fastrand::Rng::with_seed(seed));
    Proxy::start(upstream, move |_| {
        let mut random = random.lock().unwrap();
        match random.u8(..3) {
            0 => Act::Harm(FAULTS[random.usize(..FAULTS.len())](
                random.usize(..1 << 20),
            )),
            _ => Act::Pass,
        }
    })
}

/// Gives a silent answer up soon: for a line that does harm, not for one that does none on a busy machine.
fn impatient() -> RetryPolicy {
    RetryPolicy {
        attempts: 6,
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(20),
        stall: Duration::from_millis(250),
    }
}

fn reference(host: &str, name: &str) -> Reference {
    format!("{host}/{name}:v1").parse().unwrap()
}

fn request(image: &std::path::Path) -> PushRequest {
    PushRequest::of_image(&oci::open(image, Some("v1"), None).unwrap()).unwrap()
}

/// One that names what failed, in words for people.
fn assert_clear(seed: u64, error: &RegistryError) {
    let shown = error.to_string();
    assert!(
        !shown.is_empty() && !error.help().is_empty(),
        "{seed}: {error:?}"
    );
    assert!(!shown.contains("panic"), "{seed}: {shown}");
}

async fn pulled(
    host: &str,
    name: &str,
    store: &Store,
    patience: RetryPolicy,
    on: impl Fn(Event) + Send + Sync + 'static,
) -> Result<oci::Image, PullError> {
    let config = Config::default();
    let settings = pull::Settings {
        store,
        config: &config,
        plain_http: Default::default(),
        patience,
        rate: None,
        observer: Some(Arc::new(on)),
    };
    let wanted = Wanted::Platform {
        platform: Platform::LinuxAmd64,
        only: true,
    };
    let resolved = pull::resolve(&reference(host, name), &wanted, &settings).await?;
    Ok(pull::fetch(&resolved, &settings, None).await?.image)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_harm_pushes_half_an_image_or_a_wrong_one() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 51);
    let request = request(&image);
    let mut right = 0;
    for seed in 0..SEEDS {
        let proxy = harmful(&server.host, seed);
        let settings = publish::Settings {
            patience: impatient(),
            ..publish::Settings::default()
        };
        let name = format!("push{seed}");
        let pushed = publish::push(&request, &reference(&proxy.host, &name), &settings).await;
        // Whoever sees the tag gets all of it.
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let pulled = pulled(&server.host, &name, &store, RetryPolicy::default(), |_| {}).await;
        match (pushed, pulled) {
            (Ok(done), Ok(image)) => {
                assert_eq!(done.digest, request.digest);
                assert_eq!(image.digest, request.digest, "{seed}");
                right += 1;
            }
            (Err(PublishError::Registry(error)), Ok(image)) => {
                assert_clear(seed, &error);
                assert_eq!(image.digest, request.digest, "{seed}");
            }
            (Err(PublishError::Registry(error)), Err(PullError::Registry(pull_error))) => {
                assert_clear(seed, &error);
                let shown = pull_error.to_string();
                assert!(
                    pull_error.is_missing() && shown.contains("manifest"),
                    "{seed}: {shown}"
                );
            }
            other => panic!("{seed}: {other:?}"),
        }
    }
    assert!(right >= SEEDS / 2, "{right} of {SEEDS}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_harm_pulls_a_wrong_byte_or_a_blob_twice() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 52);
    let request = request(&image);
    publish::push(
        &request,
        &reference(&server.host, "app"),
        &publish::Settings::default(),
    )
    .await
    .unwrap();
    let mut right = 0;
    for seed in 0..SEEDS {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        // A second try after an error, through other harm, goes on from there.
        for turn in 0..2 {
            let proxy = harmful(&server.host, seed + 1000 * turn);
            let whole: BTreeSet<_> = blobs(dir.path());
            let received = Arc::new(Mutex::new(BTreeMap::new()));
            let counter = Arc::clone(&received);
            let on = move |event| {
                if let Event::Received { digest, bytes } = event {
                    *counter
                        .lock()
                        .unwrap()
                        .entry(digest.hex().to_owned())
                        .or_insert(0) += bytes;
                }
            };
            let ended = pulled(&proxy.host, "app", &store, impatient(), on).await;
            for entry in blobs(dir.path()) {
                let bytes = std::fs::read(dir.path().join("blobs/sha256").join(&entry)).unwrap();
                assert_eq!(digest(&bytes).hex(), entry, "{seed}");
            }
            let again: Vec<_> = (received.lock().unwrap().keys())
                .filter(|hex| whole.contains(*hex))
                .cloned()
                .collect();
            assert!(again.is_empty(), "{seed}: {again:?}");
            match ended {
                Ok(image) => {
                    assert_eq!(image.digest, request.digest, "{seed}");
                    right += 1;
                    break;
                }
                Err(PullError::Registry(error)) => assert_clear(seed, &error),
                Err(error) => panic!("{seed}: {error:?}"),
            }
        }
    }
    assert!(right >= SEEDS / 2, "{right} of {SEEDS}");
}

fn blobs(store: &std::path::Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(store.join("blobs/sha256"));
    let files = files.into_iter().flatten().flatten();
    files
        .map(|f| f.file_name().into_string().unwrap())
        .collect()
}
