//! Builds on a real engine.

use std::time::Duration;

use futures_util::StreamExt;
use stackforge_engine::docker::Docker;
use stackforge_engine::{ContextEntry, EngineError, Event, Source, StepKind};
use stackforge_types::Cancel;

use super::workshop::{Relay, Workshop, file, secrets, socket};

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_reaches_its_step_and_nothing_else() {
    let shop = Workshop::open("secret").await;
    let secret = format!("planted-{}-secret", std::process::id());
    let mut request = shop.request(
        "RUN --mount=type=secret,id=token,required=true read t < /run/secrets/token; \
         echo \"saw $t\"; echo ${#t} > /length; echo planted-marker > /marker",
    );
    request.secrets = secrets("token", &format!("{secret}\n"));
    let built = shop.build(request).await;
    let image = built.outcome.as_ref().unwrap().image_id.clone();

    assert_eq!(built.lines(), ["saw ***"]);
    let length = shop.docker.read_file(&image, "/length", 100).await;
    let expected = format!("{}\n", secret.len());
    assert_eq!(length.unwrap().unwrap(), expected.into_bytes());
    assert!(!built.log.contains(&secret));
    assert!(!format!("{:?}", built.events).contains(&secret));

    // Layers of an exported image are plain tars in a tar, so a look at the bytes sees them all.
    let api = bollard::Docker::connect_with_unix(
        socket().to_str().unwrap(),
        600,
        bollard::API_DEFAULT_VERSION,
    );
    let api = api.unwrap().negotiate_version().await.unwrap();
    let mut export = Vec::new();
    let mut chunks = api.export_image(&image);
    while let Some(chunk) = chunks.next().await {
        export.extend_from_slice(&chunk.unwrap());
    }
    let holds = |word: &str| memchr::memmem::find(&export, word.as_bytes()).is_some();
    assert!(holds("planted-marker"), "the search finds what is there");
    assert!(!holds(&secret));
    let history = api.image_history(&image).await.unwrap();
    assert!(format!("{history:?}").contains("planted-marker"));
    assert!(!format!("{history:?}").contains(&secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_the_request_does_not_have_fails_the_step() {
    let shop = Workshop::open("nosecret").await;
    let mut request =
        shop.request("RUN --mount=type=secret,id=other,required=true cat /run/secrets/other");
    request.secrets = secrets("token", "planted-secret-value");
    let error = shop.build(request).await.outcome.unwrap_err();
    assert!(error.to_string().contains("other"), "{error}");
    assert!(!shop.is_tagged("out").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_step_is_told_and_nothing_is_tagged() {
    let shop = Workshop::open("fail").await;
    let request = shop.request(
        "RUN echo fine\n# why\nRUN i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); done; \
         echo broken >&2; exit 37\nRUN echo never",
    );
    let built = shop.build(request).await;
    match built.outcome.unwrap_err() {
        EngineError::StepFailed(step) => {
            assert_eq!(step.exit_code, Some(37));
            assert_eq!(step.line, Some(4));
            assert!(step.name.starts_with("[3/4] RUN i=0"), "{}", step.name);
            assert!(!step.killed_for_memory);
            assert_eq!(step.tail.len(), 40);
            assert!(step.tail.contains(&"broken".to_owned()));
            assert_eq!(step.finished.last().unwrap().name, "[2/4] RUN echo fine");
        }
        other => panic!("{other:?}"),
    }
    assert!(!shop.is_tagged("out").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_step_is_taken_for_memory() {
    let shop = Workshop::open("killed").await;
    let built = shop
        .build(shop.request("RUN sh -c 'kill -9 $$'; exit $?"))
        .await;
    match built.outcome.unwrap_err() {
        EngineError::StepFailed(step) => {
            assert_eq!(step.exit_code, Some(137));
            assert!(step.killed_for_memory);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dockerfile_that_does_not_parse_has_its_line() {
    let shop = Workshop::open("syntax").await;
    let built = shop.build(shop.request("RUN echo a\nRUNN echo b")).await;
    match built.outcome.unwrap_err() {
        EngineError::DockerfileSyntax { line, message } => {
            assert_eq!(line, Some(3));
            assert!(message.contains("RUNN"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_build_is_cached_and_gives_the_same_image() {
    let shop = Workshop::open("cache").await;
    let request = || {
        let mut request = shop.request("COPY dir/a /a\nRUN echo built > /b");
        request.context.push(file("dir/a", "content"));
        request.labels.insert("kept".into(), "a=b&c \"d\"".into());
        request.tags.push(shop.name("also"));
        request
    };
    let first = shop.build(request()).await.outcome.unwrap();
    let second = shop.build(request()).await.outcome.unwrap();
    assert_eq!(first.image_id, second.image_id);
    let work = |kind| matches!(kind, StepKind::Run | StepKind::Copy);
    let cached = |outcome: &stackforge_engine::BuildOutcome| -> Vec<bool> {
        let steps = outcome.steps.iter().filter(|step| work(step.kind));
        steps.map(|step| step.cached).collect()
    };
    assert_eq!(cached(&first), [false, false]);
    assert_eq!(cached(&second), [true, true]);

    let image = shop
        .docker
        .image(&shop.name("also"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(image.id, first.image_id);
    assert_eq!(image.labels["kept"], "a=b&c \"d\"");
    assert!(image.tags.contains(&shop.name("out")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_file_has_every_line() {
    let shop = Workshop::open("log").await;
    let built = shop
        .build(shop.request(
            "RUN i=0; while [ $i -lt 2000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; \
             echo no line end | { read l; cat /dev/null; }; (echo last)",
        ))
        .await;
    built.outcome.as_ref().unwrap();
    assert_eq!(built.log.matches("\n#2 [2/2] RUN i=0; while").count(), 1);
    for number in 0..2000 {
        for stream in ["out", "err"] {
            let line = format!("\n#2 [2/2] RUN | {stream} {number}\n");
            assert_eq!(built.log.matches(&line).count(), 1, "{line}");
        }
    }
    for line in ["| last\n", "done in "] {
        let line = format!("\n#2 [2/2] RUN {line}");
        assert_eq!(built.log.matches(&line).count(), 1, "{line}");
    }
    assert_eq!(built.lines().len(), 4001);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_context_takes_no_memory() {
    const SIZE: u64 = 200 << 20;
    let shop = Workshop::open("stream").await;
    let large = shop.dir.path().join("large");
    std::fs::File::create(&large)
        .unwrap()
        .set_len(SIZE)
        .unwrap();
    let mut request = shop.request("COPY Dockerfile /");
    request.context.push(ContextEntry {
        path: "large".into(),
        mode: 0o644,
        source: Source::File(large),
    });
    // Forget the peak so far.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak_memory();
    let built = shop.build(request).await;
    built.outcome.unwrap();
    let uploaded = built.events.iter().rev().find_map(|event| match event {
        Event::Uploading { bytes } => Some(*bytes),
        _ => None,
    });
    assert!(uploaded.unwrap() > SIZE);
    let grown = peak_memory().saturating_sub(before);
    assert!(grown < 64 << 20, "grew by {grown} bytes");
}

/// The most memory this process has had, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_file_that_is_not_there_is_named() {
    let shop = Workshop::open("missing").await;
    let mut request = shop.request("COPY large /");
    request.context.push(ContextEntry {
        path: "large".into(),
        mode: 0o644,
        source: Source::File("/nonexistent/large".into()),
    });
    match shop.build(request).await.outcome.unwrap_err() {
        EngineError::Context { path, .. } => assert_eq!(path.to_str(), Some("/nonexistent/large")),
        other => panic!("{other:?}"),
    }
}

/// Whether a process with this argument runs on this machine.
fn runs(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .any(|line| {
            line.split(|byte| *byte == 0)
                .any(|word| word == argument.as_bytes())
        })
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_stops_the_step_on_the_engine() {
    let shop = Workshop::open("cancel").await;
    let nap = format!("86{}.5", std::process::id());
    let request = shop.request(&format!("RUN echo started; sleep {nap}"));
    let cancel = Cancel::new();
    let stopper = tokio::spawn({
        let (cancel, nap) = (cancel.clone(), nap.clone());
        async move {
            until("the step runs", || runs(&nap)).await;
            cancel.cancel();
        }
    });
    let mut events = Vec::new();
    let outcome = shop
        .docker
        .build(request, None, &cancel, &mut |event| events.push(event))
        .await;
    stopper.await.unwrap();
    assert!(matches!(outcome, Err(EngineError::Cancelled { .. })));
    assert!(matches!(
        events.last(),
        Some(Event::StepFinished { error: Some(_), .. })
    ));
    until("the step is gone", || !runs(&nap)).await;
    assert!(!shop.is_tagged("out").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_build_stops_it_too() {
    let shop = Workshop::open("drop").await;
    let nap = format!("87{}.5", std::process::id());
    let request = shop.request(&format!("RUN sleep {nap}"));
    let build = tokio::spawn({
        let docker = shop.docker.clone();
        async move {
            docker
                .build(request, None, &Cancel::new(), &mut |_| {})
                .await
        }
    });
    until("the step runs", || runs(&nap)).await;
    build.abort();
    until("the step is gone", || !runs(&nap)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_goes_away_is_told_from_a_failed_step() {
    let shop = Workshop::open("gone").await;
    let relay = Relay::open().await;
    let docker = Docker::connect(Some(&format!("tcp://{}", relay.address)))
        .await
        .unwrap();
    let nap = format!("88{}.5", std::process::id());
    let request = shop.request(&format!("RUN sleep {nap}"));
    let cutter = async {
        until("the step runs", || runs(&nap)).await;
        relay.cut();
    };
    let (built, ()) = tokio::join!(shop.build_with(&docker, request), cutter);
    match built.outcome.unwrap_err() {
        EngineError::Gone { doing, .. } => assert_eq!(doing, "building the image"),
        other => panic!("{other:?}"),
    }
    until("the step is gone", || !runs(&nap)).await;
    let error = docker.ping().await.unwrap_err();
    assert!(
        matches!(error, EngineError::NotReachable { .. }),
        "{error:?}"
    );
}
