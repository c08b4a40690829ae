//! Many files at once, and one file wanted by many.

use super::server::{Reply, Server};
use super::{bytes, download, fetcher, names};
use stackforge_transfer::fetch::{Download, What};
use stackforge_types::Digest;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_want_a_file_one_fetches_and_the_other_finds_it() {
    let body = bytes(3, 3 << 20);
    let served = body.clone();
    let server = Server::start(move |request, _| {
        // Long enough for the other to come by.
        std::thread::sleep(std::time::Duration::from_millis(200));
        Reply::honest(&served, "\"a\"", request)
    });
    let wanted = download(&server, &body, None);
    let dir = tempfile::tempdir().unwrap();
    let waits = AtomicUsize::new(0);
    let on_event = |event: stackforge_transfer::fetch::Event<'_>| {
        if matches!(event.what, What::Waiting) {
            waits.fetch_add(1, Ordering::Relaxed);
        }
    };
    let (one, two) = (fetcher(), fetcher());
    let (one, two) = tokio::join!(
        one.file(&wanted, dir.path(), &on_event),
        two.file(&wanted, dir.path(), &on_event)
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(one.cached != two.cached);
    assert_eq!(one.path, two.path);
    assert_eq!(waits.into_inner(), 1);
    assert_eq!(server.log().len(), 1);
    assert_eq!(names(dir.path()), [wanted.name.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_files_come_in_their_order_and_never_too_many_at_once() {
    let (now, most) = (
        AtomicUsize::new(0),
        std::sync::Arc::new(AtomicUsize::new(0)),
    );
    let most_at_once = most.clone();
    let server = Server::start(move |request, _| {
        most_at_once.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(20));
        now.fetch_sub(1, Ordering::SeqCst);
        let size = request.path[1..].parse().unwrap();
        Reply::honest(&bytes(5, size), "\"a\"", request)
    });
    let wanted: Vec<Download> = (1..=20)
        .map(|n| Download {
            name: format!("f{n}"),
            urls: vec![format!("{}/{}", server.url, n * 1000)],
            sha256: Digest::of(&bytes(5, n * 1000)),
            size: (n % 2 == 0).then_some(n as u64 * 1000),
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let last = Mutex::new(None);
    let on_event =
        |event: stackforge_transfer::fetch::Event<'_>| *last.lock().unwrap() = Some(event.all);
    let files = fetcher().all(&wanted, dir.path(), &on_event).await.unwrap();
    for (file, wanted) in files.iter().zip(&wanted) {
        assert_eq!(file.path, dir.path().join(&wanted.name));
    }
    let all = last.into_inner().unwrap().unwrap();
    assert_eq!((all.have, all.size), (210_000, Some(210_000)));
    assert!(most.load(Ordering::SeqCst) <= 4);
    let again = fetcher().all(&wanted, dir.path(), &|_| {}).await.unwrap();
    assert!(again.iter().all(|f| f.cached));
    assert_eq!(server.log().len(), 20);
}
