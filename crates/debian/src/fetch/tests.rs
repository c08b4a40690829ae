use super::*;
use stackforge_types::Digest;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Serves `answer(path, number of requests for it)` as status, body and `Content-Length`, so a body may
/// be cut short.
async fn serve(
    answer: impl Fn(&str, usize) -> (u16, Vec<u8>, usize) + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (answer, asked) = (Arc::new(answer), Arc::new(Mutex::new(Vec::<String>::new())));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (answer, asked) = (answer.clone(), asked.clone());
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(socket.read_u8().await.unwrap());
                }
                let path = String::from_utf8(request)
                    .unwrap()
                    .split(' ')
                    .nth(1)
                    .unwrap()
                    .to_owned();
                let times = {
                    let mut asked = asked.lock().unwrap();
                    asked.push(path.clone());
                    asked.iter().filter(|known| **known == path).count()
                };
                let (status, body, length) = answer(&path, times);
                let head = format!(
                    "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                socket.write_all(head.as_bytes()).await.unwrap();
                let _ = socket.write_all(&body).await;
            });
        }
    });
    url
}

fn deb(content: &[u8]) -> LockedDeb {
    LockedDeb {
        name: "tiny".into(),
        version: "1".into(),
        architecture: "all".into(),
        archive: "debian".into(),
        path: "pool/tiny.deb".into(),
        size: content.len() as u64,
        sha256: Digest::of(content),
    }
}

fn mirrors(urls: &[String]) -> Mirrors {
    let list: Vec<String> = urls.iter().map(|url| format!("debian={url}")).collect();
    Mirrors::parse(list.iter().map(String::as_str)).unwrap()
}

fn leftovers(cache: &Path) -> usize {
    std::fs::read_dir(cache).unwrap().count()
}

#[tokio::test]
async fn retries_a_cut_transfer_then_uses_the_cache() {
    let url = serve(|_, times| match times {
        1 => (503, Vec::new(), 0),
        2 => (200, b"hel".to_vec(), 5),
        _ => (200, b"hello".to_vec(), 5),
    })
    .await;
    let cache = tempfile::tempdir().unwrap();
    let (fetcher, debs) = (
        Fetcher::new(RetryPolicy::default()).unwrap(),
        [deb(b"hello")],
    );
    let events = Mutex::new(Vec::new());
    let note = |event: FetchEvent<'_>| {
        events.lock().unwrap().push(match event {
            FetchEvent::Cached(_) => "cached",
            FetchEvent::Bytes(..) => "bytes",
            FetchEvent::Done(_) => "done",
        });
    };
    let mirrors = mirrors(&[url]);
    let files = fetch_debs(&fetcher, &mirrors, cache.path(), &debs, &note)
        .await
        .unwrap();
    assert_eq!(std::fs::read(&files[0]).unwrap(), b"hello");
    assert_eq!(events.lock().unwrap().last(), Some(&"done"));
    assert_eq!(leftovers(cache.path()), 1);
    fetch_debs(&fetcher, &Mirrors::default(), cache.path(), &debs, &note)
        .await
        .unwrap();
    assert_eq!(events.lock().unwrap().last(), Some(&"cached"));
    // A damaged file is not trusted because of its name.
    std::fs::write(&files[0], b"hullo").unwrap();
    fetch_debs(&fetcher, &mirrors, cache.path(), &debs, &note)
        .await
        .unwrap();
    assert_eq!(std::fs::read(&files[0]).unwrap(), b"hello");
}

#[tokio::test]
async fn takes_the_next_mirror_when_one_lies_or_lags() {
    let lying = serve(|_, _| (200, b"hullo".to_vec(), 5)).await;
    let long = serve(|_, _| (200, b"hello world".to_vec(), 11)).await;
    let lagging = serve(|_, _| (404, Vec::new(), 0)).await;
    let good = serve(|_, _| (200, b"hello".to_vec(), 5)).await;
    let cache = tempfile::tempdir().unwrap();
    let (fetcher, debs) = (
        Fetcher::new(RetryPolicy::default()).unwrap(),
        [deb(b"hello")],
    );
    let fetch = async |urls: &[&String]| {
        let urls: Vec<String> = urls.iter().map(|url| (*url).clone()).collect();
        fetch_debs(&fetcher, &mirrors(&urls), cache.path(), &debs, &|_| {}).await
    };
    let error = fetch(&[&lagging]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no mirror has package `tiny` in version 1 any more"
    );
    assert!(error.help().contains("lock again"));
    let error = fetch(&[&lagging, &lying]).await.unwrap_err();
    assert!(matches!(
        error,
        FetchDebsError::Download {
            source: FetchError::Mismatch { .. },
            ..
        }
    ));
    assert!(matches!(
        fetch(&[&long]).await,
        Err(FetchDebsError::Download {
            source: FetchError::Mismatch { .. },
            ..
        })
    ));
    assert_eq!(leftovers(cache.path()), 0);
    fetch(&[&lying, &long, &lagging, &good]).await.unwrap();
    assert_eq!(leftovers(cache.path()), 1);
}

#[tokio::test]
async fn refuses_locks_that_were_tampered_with_and_unknown_archives() {
    let cache = tempfile::tempdir().unwrap();
    let (fetcher, mut bad) = (Fetcher::new(RetryPolicy::default()).unwrap(), deb(b"x"));
    let error = fetch_debs(
        &fetcher,
        &Mirrors::default(),
        cache.path(),
        &[bad.clone()],
        &|_| {},
    )
    .await
    .unwrap_err();
    assert!(matches!(error, FetchDebsError::Mirror { .. }));
    bad.path = "../../etc/passwd".into();
    let error = fetch_debs(&fetcher, &Mirrors::default(), cache.path(), &[bad], &|_| {})
        .await
        .unwrap_err();
    assert!(matches!(error, FetchDebsError::Lock(_)));
}
