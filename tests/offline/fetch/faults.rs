//! Whatever goes wrong, a fetch ends with the right bytes or a clear error.

use super::server::{Reply, Request, Server};
use super::{bytes, download, fetcher, names, policy};
use futures_util::StreamExt as _;
use stackforge_transfer::fetch::{FetchError, Fetcher, Netrc, What};
use std::sync::Mutex;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Cut(usize),
    Stall(usize),
    IgnoresRange,
    WrongRange,
    NewTag,
    NoTag,
    Busy,
    Broken,
    Altered(usize),
    /// Ends early, and nothing says so.
    Truncated(usize),
    Longer,
    Gone,
    Denied,
}

impl Fault {
    fn any(random: &mut fastrand::Rng, size: usize) -> Self {
        let at = random.usize(..=size);
        match random.u8(..32) {
            0..7 => Self::Cut(at),
            7..9 => Self::Stall(at),
            9..12 => Self::IgnoresRange,
            12..15 => Self::WrongRange,
            15..17 => Self::NewTag,
            17..19 => Self::NoTag,
            19..22 => Self::Busy,
            22..25 => Self::Broken,
            25..27 => Self::Altered(at),
            27..29 => Self::Truncated(at),
            29 => Self::Longer,
            30 => Self::Gone,
            _ => Self::Denied,
        }
    }

    fn reply(self, body: &[u8], request: &Request) -> Reply {
        let mut reply = Reply::honest(body, "\"a\"", request);
        let here = reply.body.len();
        match self {
            Self::Cut(at) => reply.body.truncate(at),
            Self::Stall(at) => {
                reply.body.truncate(at);
                reply.stalls = at < here;
            }
            Self::IgnoresRange => return Reply::honest(body, "\"a\"", &Request::default()),
            Self::WrongRange if reply.status == 206 => {
                let range = format!("bytes 0-{}/{}", here - 1, body.len());
                reply.headers = vec![("Content-Range".into(), range)];
            }
            Self::NewTag => return Reply::honest(body, "\"b\"", request),
            Self::NoTag => reply.headers.retain(|(name, _)| name != "ETag"),
            Self::Busy => return Reply::status(429).header("Retry-After", "0"),
            Self::Broken => return Reply::status(500),
            Self::Altered(at) => {
                if let Some(byte) = reply.body.get_mut(at) {
                    *byte ^= 1;
                }
            }
            Self::Truncated(at) if reply.status == 200 => {
                reply.body.truncate(at);
                reply.length = None;
            }
            Self::Longer => {
                reply.body.extend(b"more");
                reply.length = None;
            }
            Self::Gone => return Reply::status(404),
            Self::Denied => return Reply::status(403),
            Self::WrongRange | Self::Truncated(_) => {}
        }
        reply
    }

    fn is_final(self) -> bool {
        matches!(self, Self::Gone | Self::Denied)
    }

    fn alters(self) -> bool {
        matches!(self, Self::Altered(_) | Self::Truncated(_) | Self::Longer)
    }
}

async fn run(seed: u64) -> bool {
    let mut random = fastrand::Rng::with_seed(seed);
    let size = match random.u8(..8) {
        0 => 0,
        1 => random.usize(1..100),
        _ => random.usize(100..1_500_000),
    };
    let body = bytes(seed, size);
    let count = random.usize(..7);
    let plan: Vec<Fault> = (0..count).map(|_| Fault::any(&mut random, size)).collect();
    let served = (body.clone(), plan.clone());
    let server = Server::start(move |request, before| match served.1.get(before) {
        Some(fault) => fault.reply(&served.0, request),
        None => Reply::honest(&served.0, "\"a\"", request),
    });
    let wanted = download(&server, &body, random.bool().then_some(size as u64));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(&wanted.name);
    let last_progress = Mutex::new(None);
    let on_event = |event: stackforge_transfer::fetch::Event<'_>| {
        assert_eq!(event.file, event.all, "one file is all there is");
        *last_progress.lock().unwrap() = Some(event.all);
    };
    let first = fetcher().file(&wanted, dir.path(), &on_event).await;
    let ended = first.is_ok();
    match &first {
        Ok(_) => {
            let last = last_progress.lock().unwrap().unwrap();
            assert_eq!((last.have, last.size), (size as u64, Some(size as u64)));
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("/thing`"), "seed {seed}: {text}");
            assert!(!error.help().is_empty());
            assert!(!path.exists(), "seed {seed}: {plan:?}");
            if matches!(error, FetchError::Mismatch { reason, .. } if reason.contains("instead")) {
                assert!(text.contains(wanted.sha256.hex()), "seed {seed}: {text}");
            }
            let hopeless = plan.iter().any(|f| f.is_final())
                || plan.iter().filter(|f| f.alters()).count() > 1
                || plan.len() > 4;
            assert!(hopeless, "seed {seed}: {plan:?}: {text}");
        }
    }
    // What is left from it never stands in the way of a server that is well again.
    let well = body.clone();
    let server = Server::start(move |request, _| Reply::honest(&well, "\"a\"", request));
    let wanted = download(&server, &body, wanted.size);
    let patient = Fetcher::with_netrc(Default::default(), Netrc::default()).unwrap();
    let again = patient.file(&wanted, dir.path(), &|_| {}).await.unwrap();
    assert_eq!(again.cached, ended, "seed {seed}");
    assert!(
        std::fs::read(&path).unwrap() == body,
        "seed {seed}: {plan:?}"
    );
    assert_eq!(names(dir.path()), [wanted.name.as_str()], "seed {seed}");
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn every_run_ends_with_the_right_bytes_or_a_clear_error() {
    let runs = futures_util::stream::iter(0..200).map(run);
    let ended: Vec<bool> = runs.buffer_unordered(8).collect().await;
    let right = ended.iter().filter(|e| **e).count();
    println!(
        "{right} of {} runs ended with the file at once",
        ended.len()
    );
    assert!(
        right > 100 && right < 200,
        "the faults are not all alike: {right}"
    );
}

#[tokio::test]
async fn an_altered_file_is_fetched_once_more_and_then_named_with_both_digests() {
    let body = bytes(1, 300_000);
    let wrong = bytes(2, 300_000);
    let found = stackforge_types::Digest::of(&wrong);
    let server = Server::start(move |request, _| Reply::honest(&wrong, "\"a\"", request));
    let wanted = download(&server, &body, None);
    let dir = tempfile::tempdir().unwrap();
    let error = fetcher()
        .file(&wanted, dir.path(), &|_| {})
        .await
        .unwrap_err();
    let text = error.to_string();
    for part in [&wanted.name, wanted.sha256.hex(), found.hex()] {
        assert!(text.contains(part), "{text}");
    }
    let ranges: Vec<_> = server.log().iter().map(|s| s.range).collect();
    assert_eq!(ranges, [None, None]);
    assert!(names(dir.path()).is_empty());
}

#[tokio::test]
async fn a_file_that_changed_is_not_patched_together() {
    let (old, new) = (bytes(1, 600_000), bytes(2, 600_000));
    let body = new.clone();
    let server = Server::start(move |request, before| match before {
        0 => Fault::Cut(400_000).reply(&old, request),
        _ => Reply::honest(&new, "\"b\"", request),
    });
    let wanted = download(&server, &body, None);
    let dir = tempfile::tempdir().unwrap();
    fetcher().file(&wanted, dir.path(), &|_| {}).await.unwrap();
    let log = server.log();
    assert_eq!(log.len(), 2);
    assert_eq!(log[1].if_range.as_deref(), Some("\"a\""));
    assert_eq!(log[1].sent, 600_000);
}

#[tokio::test]
async fn a_server_that_asks_to_wait_is_left_alone_so_long_or_for_good() {
    let body = bytes(1, 10);
    for (wait, tries) in [("1", 2), ("3600", 1)] {
        let served = body.clone();
        let server = Server::start(move |request, before| match before {
            0 => Reply::status(429).header("Retry-After", wait),
            _ => Reply::honest(&served, "\"a\"", request),
        });
        let dir = tempfile::tempdir().unwrap();
        let pauses = Mutex::new(Vec::new());
        let on_event = |event: stackforge_transfer::fetch::Event<'_>| {
            if let What::Retrying { pause, .. } = event.what {
                pauses.lock().unwrap().push(pause);
            }
        };
        let wanted = download(&server, &body, None);
        let done = fetcher().file(&wanted, dir.path(), &on_event).await;
        assert_eq!(server.log().len(), tries);
        match done {
            Ok(_) => {
                let pauses = pauses.lock().unwrap();
                let asked = Duration::from_secs(1);
                assert!(pauses.len() == 1 && pauses[0] >= asked && pauses[0] < asked * 2);
            }
            Err(e) => assert!(
                e.to_string()
                    .ends_with("answers 429 and asks to wait 3600 s")
            ),
        }
    }
}

#[tokio::test]
async fn a_login_comes_from_netrc_or_the_address_and_is_never_shown() {
    let body = bytes(1, 1000);
    let served = body.clone();
    let server = Server::start(move |request, _| match request.authorization.as_deref() {
        // user:secret
        Some("Basic dXNlcjpzZWNyZXQ=") => Reply::honest(&served, "\"a\"", request),
        _ => Reply::status(401),
    });
    let netrc = Netrc::parse("machine 127.0.0.1 login user password secret").unwrap();
    let knows = Fetcher::with_netrc(policy(), netrc).unwrap();
    let mut wanted = download(&server, &body, None);
    let dir = tempfile::tempdir().unwrap();
    let error = fetcher()
        .file(&wanted, dir.path(), &|_| {})
        .await
        .unwrap_err();
    assert!(error.is_denied() && error.help().contains("netrc"));
    knows.file(&wanted, dir.path(), &|_| {}).await.unwrap();

    for (login, right) in [("user:secret@", true), ("user:sesame@", false)] {
        let dir = tempfile::tempdir().unwrap();
        wanted.urls =
            vec![server.url.replace("http://", &format!("http://{login}")) + "/thing?sesame"];
        match knows.file(&wanted, dir.path(), &|_| {}).await {
            Ok(_) => assert!(right),
            Err(error) => {
                let text = format!("{error} {error:?}");
                assert!(!right && !text.contains("sesame"), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn the_next_address_goes_on_where_the_first_one_failed() {
    let body = bytes(1, 900_000);
    let served = body.clone();
    let failing = Server::start(move |request, before| match before {
        0 => Fault::Cut(500_000).reply(&served, request),
        _ => Reply::status(503),
    });
    let served = body.clone();
    let good = Server::start(move |request, _| Reply::honest(&served, "\"other\"", request));
    let mut wanted = download(&failing, &body, Some(900_000));
    wanted.urls.push(format!("{}/thing", good.url));
    let dir = tempfile::tempdir().unwrap();
    let got = fetcher().file(&wanted, dir.path(), &|_| {}).await.unwrap();
    assert_eq!(got.bytes, 900_000);
    let log = good.log();
    assert_eq!((log[0].range, &log[0].if_range), (Some(500_000), &None));
}

#[tokio::test]
async fn a_server_without_ranges_that_breaks_off_each_time_is_given_up() {
    let body = bytes(1, 3 << 20);
    let served = body.clone();
    let server = Server::start(move |request, before| {
        let mut reply = Fault::IgnoresRange.reply(&served, request);
        // In the end it is well, so that the test would end if the fetch did not give up.
        if before < 20 {
            reply.body.truncate(2 << 20);
        }
        reply
    });
    let wanted = download(&server, &body, None);
    let dir = tempfile::tempdir().unwrap();
    let done = fetcher().file(&wanted, dir.path(), &|_| {}).await;
    assert!(done.is_err(), "the same bytes again are no progress");
    assert_eq!(server.log().len(), 5);
}
