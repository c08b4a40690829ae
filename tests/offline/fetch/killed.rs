//! A process that is killed loses nothing that it had on disk.

use super::server::{Reply, Server};
use super::{bytes, download, fetcher, names};
use stackforge_transfer::fetch::Download;
use std::path::Path;
use std::process::{Child, Stdio};
use support::process::{again, is_again};

const SIZE: usize = 8 << 20;
/// Where the server falls silent, each time further on.
const STALLS: [usize; 3] = [2 << 20, 4 << 20, 6 << 20];

/// This program again, which fetches what the environment names.
fn child(wanted: &Download, directory: &Path) -> Child {
    again("fetch::killed::a_killed_fetch_goes_on_where_it_stopped")
        .env("FETCH_URL", &wanted.urls[0])
        .env("FETCH_SHA256", wanted.sha256.to_string())
        .env("FETCH_DIRECTORY", directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::main(flavor = "multi_thread")]
async fn fetches_for_another_process() {
    let env = |name: &str| std::env::var(name).unwrap();
    let wanted = Download {
        name: "thing-1.0-py3-none-any.whl".into(),
        urls: vec![env("FETCH_URL")],
        sha256: env("FETCH_SHA256").parse().unwrap(),
        size: None,
    };
    let mut policy = super::policy();
    policy.stall = stackforge_transfer::RetryPolicy::default().stall;
    let fetcher =
        stackforge_transfer::fetch::Fetcher::with_netrc(policy, Default::default()).unwrap();
    let directory = env("FETCH_DIRECTORY");
    fetcher
        .file(&wanted, Path::new(&directory), &|_| {})
        .await
        .unwrap();
}

#[test]
fn a_killed_fetch_goes_on_where_it_stopped() {
    if is_again() {
        return fetches_for_another_process();
    }
    let body = bytes(7, SIZE);
    let served = body.clone();
    let server = Server::start(move |request, before| {
        let mut reply = Reply::honest(&served, "\"a\"", request);
        if let Some(stall) = STALLS.get(before) {
            reply.body.truncate(stall - request.range.unwrap_or(0));
            reply.stalls = true;
        }
        reply
    });
    let wanted = download(&server, &body, None);
    let dir = tempfile::tempdir().unwrap();
    let part = dir.path().join(format!("{}.part", wanted.name));
    let mut kept = vec![0];
    for stall in STALLS {
        let mut child = child(&wanted, dir.path());
        let written = || std::fs::metadata(&part).map_or(0, |m| m.len() as usize);
        // It writes in pieces; the last one, not yet full, is in memory.
        while written() < stall - (1 << 20) {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kept.push(written());
        assert!(!dir.path().join(&wanted.name).exists());
    }
    let mut last = child(&wanted, dir.path());
    assert!(last.wait().unwrap().success());
    assert!(std::fs::read(dir.path().join(&wanted.name)).unwrap() == body);
    assert_eq!(names(dir.path()), [wanted.name.as_str()]);

    let log = server.log();
    let asked: Vec<usize> = log.iter().map(|s| s.range.unwrap_or(0)).collect();
    assert_eq!(
        asked, kept,
        "each goes on with the first byte that is not on disk"
    );
    assert!(
        log[1..]
            .iter()
            .all(|s| s.if_range.as_deref() == Some("\"a\""))
    );
    assert_eq!(log[3].sent, SIZE - kept[3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_fetch_leaves_a_part_that_is_gone_on_with() {
    let body = bytes(8, SIZE);
    let served = body.clone();
    let server = Server::start(move |request, before| {
        let mut reply = Reply::honest(&served, "\"a\"", request);
        if before == 0 {
            reply.body.truncate(5 << 20);
            reply.stalls = true;
        }
        reply
    });
    let wanted = download(&server, &body, Some(SIZE as u64));
    let dir = tempfile::tempdir().unwrap();
    let enough = tokio::sync::Notify::new();
    let on_event = |event: stackforge_transfer::fetch::Event<'_>| {
        if event.file.have >= 4 << 20 {
            enough.notify_one();
        }
    };
    let fetcher = fetcher();
    tokio::select! {
        done = fetcher.file(&wanted, dir.path(), &on_event) => panic!("{done:?}"),
        () = enough.notified() => {}
    }
    let got = fetcher.file(&wanted, dir.path(), &|_| {}).await.unwrap();
    assert!(got.bytes <= 5 << 20, "{} bytes again", got.bytes);
    let log = server.log();
    assert_eq!(log[1].range, Some(SIZE - got.bytes as usize));
    assert!(std::fs::read(got.path).unwrap() == body);
}
