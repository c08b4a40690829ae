//! Images and containers on a real engine.

use stackforge_engine::{EngineError, RunRequest};
use stackforge_types::{Cancel, LogStream};

use super::workshop::{Workshop, file};

fn shell(shop: &Workshop, script: &str) -> RunRequest {
    RunRequest {
        image: shop.base.clone(),
        entrypoint: Some(vec!["/bin/sh".into(), "-c".into()]),
        cmd: vec![script.into()],
        network: Some("none".into()),
        output_limit: 1 << 20,
        ..RunRequest::default()
    }
}

/// Containers of the test's base image, running or not.
async fn containers(shop: &Workshop) -> usize {
    let api = bollard::Docker::connect_with_unix(
        super::workshop::socket().to_str().unwrap(),
        600,
        bollard::API_DEFAULT_VERSION,
    );
    let api = api.unwrap().negotiate_version().await.unwrap();
    let options = bollard::query_parameters::ListContainersOptions {
        all: true,
        filters: Some([("ancestor".to_owned(), vec![shop.base.clone()])].into()),
        ..Default::default()
    };
    api.list_containers(Some(options)).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_imported_image_is_as_it_was_asked_for() {
    let shop = Workshop::open("import").await;
    let image = shop.docker.image(&shop.base).await.unwrap().unwrap();
    assert_eq!(image.labels["note"], shop.note());
    assert!(image.env.contains(&"PATH=/bin".to_owned()));
    assert!(image.size.bytes() > 0 && image.created.is_some());
    assert_eq!(image.os, "linux");

    let other = shop.name("other");
    shop.docker.tag(&image.id, &other).await.unwrap();
    let tagged = shop.docker.image(&other).await.unwrap().unwrap();
    assert_eq!(tagged.id, image.id);
    assert!(shop.docker.remove_image(&other).await.unwrap());
    assert!(!shop.docker.remove_image(&other).await.unwrap());
    assert_eq!(shop.docker.image(&other).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_through_links_and_within_bounds() {
    let shop = Workshop::open("read").await;
    let cat = std::fs::read("/bin/cat").unwrap();
    let read = |path: &'static str, limit| shop.docker.read_file(&shop.base, path, limit);
    assert_eq!(
        read("/bin/cat", cat.len()).await.unwrap(),
        Some(cat.clone())
    );
    assert_eq!(read("/etc/link", 1 << 30).await.unwrap(), Some(cat.clone()));
    assert_eq!(read("/etc/none", 10).await.unwrap(), None);
    for limit in [10, cat.len() - 1] {
        let error = read("/bin/cat", limit).await.unwrap_err();
        assert!(matches!(error, EngineError::TooLarge { .. }), "{error:?}");
    }
    assert!(read("/bin", 1 << 30).await.is_err());
    assert_eq!(containers(&shop).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_runs_to_its_end_and_is_removed() {
    let shop = Workshop::open("run").await;
    let mut request = shell(
        &shop,
        "cat /tmp/in/put; echo \"$WHO\"; echo warn >&2; echo no end | cat; exit 3",
    );
    request.env.insert("WHO".into(), "a b".into());
    request.files = vec![file("tmp/in/put", "given\n")];
    let mut lines = Vec::new();
    let outcome = shop
        .docker
        .run(request, &Cancel::new(), &mut |stream, line| {
            lines.push((stream, line.to_owned()));
        })
        .await
        .unwrap();
    assert_eq!(outcome.exit_code, 3);
    assert!(!outcome.oom_killed && !outcome.truncated);
    assert_eq!(outcome.stdout, "given\na b\nno end\n");
    assert_eq!(outcome.stderr, "warn\n");
    lines.sort_by_key(|(stream, _)| *stream == LogStream::Stderr);
    let texts: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(texts, ["given", "a b", "no end", "warn"]);
    assert_eq!(containers(&shop).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_beyond_the_limit_is_dropped_and_said() {
    let shop = Workshop::open("limit").await;
    let mut request = shell(&shop, "echo 0123456789; echo more");
    request.output_limit = 5;
    let outcome = shop
        .docker
        .run(request, &Cancel::new(), &mut |_, _| {})
        .await;
    let outcome = outcome.unwrap();
    assert_eq!(outcome.stdout, "01234");
    assert!(outcome.truncated);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_over_its_memory_is_killed() {
    let shop = Workshop::open("memory").await;
    let mut request = shell(&shop, "x=0123456789abcdef; while :; do x=$x$x; done");
    request.memory = Some(32 << 20);
    let outcome = shop
        .docker
        .run(request, &Cancel::new(), &mut |_, _| {})
        .await;
    assert_eq!(outcome.unwrap().exit_code, 137);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_container_removes_it() {
    let shop = Workshop::open("stop").await;
    let cancel = Cancel::new();
    let request = shell(&shop, "echo up; sleep 86400");
    let outcome = shop
        .docker
        .run(request, &cancel, &mut |_, line| {
            assert_eq!(line, "up");
            cancel.cancel();
        })
        .await;
    assert!(matches!(outcome, Err(EngineError::Cancelled { .. })));
    assert_eq!(containers(&shop).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_or_image_that_is_not_there_is_an_error() {
    let shop = Workshop::open("absent").await;
    let mut request = shell(&shop, "");
    request.entrypoint = Some(vec!["/bin/none".into()]);
    let error = shop
        .docker
        .run(request, &Cancel::new(), &mut |_, _| {})
        .await
        .unwrap_err();
    assert!(error.to_string().contains("/bin/none"), "{error}");
    assert_eq!(containers(&shop).await, 0);

    let mut request = shell(&shop, "");
    request.image = "stackforge-test-none:none".into();
    let outcome = shop
        .docker
        .run(request, &Cancel::new(), &mut |_, _| {})
        .await;
    match outcome.unwrap_err() {
        EngineError::Api { status: 404, .. } => {}
        other => panic!("{other:?}"),
    }
}
