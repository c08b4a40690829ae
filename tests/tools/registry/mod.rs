//! The client of registries against Debian's docker-registry, with skopeo as the other side, and
//! against servers that do harm.

mod faults;
mod login;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{proxy, server};

use bytes::Bytes;
use proxy::{Act, Fault, Proxy};
use server::{Kind, Server, layout, skopeo};
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::registry::{
    Descriptor, Keychain, Manifest, Options, Payload, PlainHttp, Pushed, Registry, RegistryError,
    Repository, Tag, Target,
};
use stackforge_types::Digest;

fn digest(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

fn repository(text: &str) -> Repository {
    text.parse().unwrap()
}

fn tag(text: &str) -> Target {
    Target::Tag(text.parse().unwrap())
}

/// Options whose pauses do not make tests slow.
/// Pauses hardly between attempts, and waits for bytes as long as a user's client: a busy machine answers late.
fn quick() -> Options {
    Options {
        retry: RetryPolicy {
            attempts: 6,
            first_pause: Duration::from_millis(2),
            longest_pause: Duration::from_millis(50),
            ..RetryPolicy::default()
        },
        ..Options::default()
    }
}

/// For a line that stalls: gives a silent answer up soon, and has attempts left where a busy machine was silent.
fn impatient() -> Options {
    let mut options = quick();
    options.retry.attempts = 16;
    options.retry.stall = Duration::from_millis(500);
    options
}

fn anonymous() -> Arc<Keychain> {
    Arc::new(Keychain::of_files([]))
}

fn connect(host: &str, options: &Options) -> Registry {
    Registry::connect(host, anonymous(), options).unwrap()
}

/// Config and layers of an image.
fn blobs(manifest: &Manifest) -> Vec<Descriptor> {
    let document: serde_json::Value = serde_json::from_slice(&manifest.bytes).unwrap();
    let layers = document["layers"].as_array().unwrap();
    std::iter::once(&document["config"])
        .chain(layers)
        .map(|entry| {
            let digest = entry["digest"].as_str().unwrap().parse().unwrap();
            Descriptor::of_blob(digest, entry["size"].as_u64().unwrap())
        })
        .collect()
}

fn skopeo_pushes(image: &Path, place: &str) {
    let source = format!("oci:{}:v1", image.display());
    let target = format!("docker://{place}");
    skopeo(&["copy", "--dest-tls-verify=false", &source, &target]);
}

/// Pushes an image of a layout with this crate.
async fn push(registry: &Registry, repository: &Repository, image: &Path) -> Digest {
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(image.join("index.json")).unwrap()).unwrap();
    let entry = &index["manifests"][0];
    let digest: Digest = entry["digest"].as_str().unwrap().parse().unwrap();
    let file = |digest: &Digest| image.join("blobs/sha256").join(digest.hex());
    let manifest = Manifest {
        bytes: std::fs::read(file(&digest)).unwrap().into(),
        digest: digest.clone(),
        media_type: entry["mediaType"].as_str().unwrap().to_owned(),
    };
    for blob in blobs(&manifest) {
        let payload = Payload::File(file(&blob.digest));
        registry
            .push_blob(repository, &blob.digest, blob.size, &payload, &[])
            .await
            .unwrap();
    }
    let published = registry
        .put_manifest(
            repository,
            &tag("v1"),
            &manifest.media_type,
            &manifest.bytes,
        )
        .await
        .unwrap();
    assert_eq!(published.digest, digest);
    digest
}

#[tokio::test(flavor = "multi_thread")]
async fn what_skopeo_pushes_is_read() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 1);
    skopeo_pushes(&image, &format!("{}/team/app:v1", server.host));
    let registry = connect(&server.host, &quick());
    let app = repository("team/app");

    let manifest = registry.manifest(&app, &tag("v1")).await.unwrap();
    assert_eq!(manifest.digest, digest(&manifest.bytes));
    let by_digest = Target::Digest(manifest.digest.clone());
    assert_eq!(registry.manifest(&app, &by_digest).await.unwrap(), manifest);
    assert_eq!(
        registry.head(&app, &tag("v1")).await.unwrap(),
        manifest.descriptor()
    );
    let tags = registry.tags(&app).await.unwrap();
    assert_eq!(tags, ["v1".parse::<Tag>().unwrap()]);

    let dir = server.dir.path().join("fetched");
    for blob in blobs(&manifest) {
        let fetched = registry.fetch_blob(&app, &blob, &dir).await.unwrap();
        assert_eq!(fetched.bytes, blob.size);
        let bytes = std::fs::read(&fetched.path).unwrap();
        assert_eq!(digest(&bytes), blob.digest);
        assert_eq!(
            registry.blob_size(&app, &blob.digest).await.unwrap(),
            blob.size
        );

        let range = blob.size / 3..blob.size / 2;
        let mut stream = registry
            .blob(&app, &blob.digest, range.clone())
            .await
            .unwrap();
        assert!(stream.ranged());
        assert_eq!(stream.size(), Some(blob.size));
        let mut part = Vec::new();
        while let Some(chunk) = stream.next().await.unwrap() {
            part.extend_from_slice(&chunk);
        }
        assert_eq!(part, bytes[range.start as usize..range.end as usize]);

        let again = registry.fetch_blob(&app, &blob, &dir).await.unwrap();
        assert_eq!(again.bytes, 0);
    }
    let left: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named() {
    let server = Server::start(Kind::Open);
    let registry = connect(&server.host, &quick());
    let app = repository("team/app");
    let message = |error: RegistryError| {
        assert!(error.is_missing(), "{error}");
        error.to_string().replace(&server.host, "HOST")
    };
    let manifest = registry.manifest(&app, &tag("v9")).await.unwrap_err();
    assert_eq!(
        message(manifest),
        "`HOST` has no manifest `team/app:v9`: MANIFEST_UNKNOWN: manifest unknown"
    );
    let none = digest(b"none");
    let blob = registry.blob(&app, &none, 0..10).await.err().unwrap();
    assert_eq!(
        message(blob),
        format!("`HOST` has no blob `team/app@{none}`: BLOB_UNKNOWN: blob unknown to registry")
    );
    let tags = registry.tags(&app).await.unwrap_err();
    assert_eq!(
        message(tags),
        "`HOST` has no tags of `team/app`: NAME_UNKNOWN: repository name not known to registry"
    );
    let nobody = connect("127.0.0.1:1", &quick());
    let error = nobody.manifest(&app, &tag("v1")).await.unwrap_err();
    assert!(
        matches!(error, RegistryError::Unreachable { .. }),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn skopeo_pulls_what_is_pushed() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 2);
    for (name, chunk) in [
        ("whole", None),
        ("chunks", Some(100_000)),
        ("bytes", Some(699_999)),
    ] {
        let registry = connect(&server.host, &Options { chunk, ..quick() });
        let app = repository(name);
        let own = push(&registry, &app, &image).await;
        // Another store, so that nothing is there by chance.
        let pulled = server.dir.path().join(format!("pulled-{name}"));
        let source = format!("docker://{}/{name}:v1", server.host);
        let target = format!("oci:{}:v1", pulled.display());
        skopeo(&[
            "copy",
            "--src-tls-verify=false",
            "--preserve-digests",
            &source,
            &target,
        ]);
        let bytes = std::fs::read(pulled.join("blobs/sha256").join(own.hex())).unwrap();
        assert_eq!(digest(&bytes), own);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_is_there_is_not_sent() {
    let server = Server::start(Kind::Open);
    let proxy = Proxy::start(&server.host, |_| Act::Pass);
    let registry = connect(&proxy.host, &quick());
    let (one, two) = (repository("one"), repository("two"));
    let bytes = Bytes::from(vec![7; 5000]);
    let (own, size) = (digest(&bytes), bytes.len() as u64);
    let payload = Payload::Memory(bytes);
    let sources = [repository("not/there"), one.clone()];
    for (repository, result) in [
        (&one, Pushed::Sent),
        (&one, Pushed::Existing),
        (&two, Pushed::Mounted),
    ] {
        let sources = if result == Pushed::Mounted {
            &sources[..]
        } else {
            &[]
        };
        let pushed = registry
            .push_blob(repository, &own, size, &payload, sources)
            .await;
        assert_eq!(pushed.unwrap(), result);
    }
    let sent = proxy
        .requests()
        .iter()
        .filter(|line| line.starts_with("PUT"))
        .count();
    assert_eq!(sent, 1, "{:?}", proxy.requests());

    let empty = Payload::Memory(Bytes::new());
    let pushed = registry.push_blob(&one, &digest(b""), 0, &empty, &[]).await;
    assert_eq!(pushed.unwrap(), Pushed::Sent);
    let dir = server.dir.path().join("fetched");
    let none = Descriptor::of_blob(digest(b""), 0);
    let fetched = registry.fetch_blob(&one, &none, &dir).await.unwrap();
    assert_eq!(std::fs::read(fetched.path).unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_what_it_should_be_is_not_pushed() {
    let server = Server::start(Kind::Open);
    let registry = connect(&server.host, &quick());
    let app = repository("app");
    let payload = Payload::Memory(Bytes::from_static(b"abd"));
    let error = registry
        .push_blob(&app, &digest(b"abc"), 3, &payload, &[])
        .await
        .unwrap_err();
    assert!(matches!(error, RegistryError::Payload { .. }), "{error}");
    assert!(!registry.has_blob(&app, &digest(b"abc")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_moved_is_not_replaced() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 3);
    let registry = connect(&server.host, &quick());
    let app = repository("app");
    let first = push(&registry, &app, &image).await;
    let v1: Tag = "v1".parse().unwrap();
    let index = |n: u32| {
        Bytes::from(format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[],"annotations":{{"n":"{n}"}}}}"#
        ))
    };
    let kind = stackforge_transfer::registry::MANIFEST_TYPES[0];
    let moved = registry
        .replace(&app, &v1, Some(&first), kind, &index(1))
        .await
        .unwrap();
    let late = registry
        .replace(&app, &v1, Some(&first), kind, &index(2))
        .await
        .unwrap_err();
    assert!(
        matches!(&late, RegistryError::Changed { found: Some(found), .. } if **found == moved.digest),
        "{late}"
    );
    let new: Tag = "new".parse().unwrap();
    registry
        .replace(&app, &new, None, kind, &index(3))
        .await
        .unwrap();
    let error = registry
        .replace(&app, &new, None, kind, &index(4))
        .await
        .unwrap_err();
    assert!(matches!(error, RegistryError::Changed { .. }), "{error}");

    registry
        .delete_manifest(&app, &Target::Digest(moved.digest.clone()))
        .await
        .unwrap();
    assert!(
        registry
            .current(&app, &Target::Tag(v1))
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn referrers_come_from_the_api_or_from_the_tag() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 4);
    let registry = connect(&server.host, &quick());
    let app = repository("app");
    let subject = push(&registry, &app, &image).await;
    // docker-registry has no API for referrers.
    assert!(
        registry
            .referrers(&app, &subject, None)
            .await
            .unwrap()
            .is_empty()
    );
    let list = |kinds: &[&str]| {
        let entries: Vec<_> = kinds
            .iter()
            .map(|kind| {
                format!(
                    r#"{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{subject}","size":9,"artifactType":"{kind}"}}"#
                )
            })
            .collect();
        format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{}]}}"#,
            entries.join(",")
        )
    };
    let fallback = tag(&format!("sha256-{}", subject.hex()));
    let kind = stackforge_transfer::registry::MANIFEST_TYPES[0];
    let bytes = Bytes::from(list(&["a/sbom", "a/report"]));
    registry
        .put_manifest(&app, &fallback, kind, &bytes)
        .await
        .unwrap();
    let all = registry.referrers(&app, &subject, None).await.unwrap();
    assert_eq!(all.len(), 2);
    let sboms = registry
        .referrers(&app, &subject, Some("a/sbom"))
        .await
        .unwrap();
    assert_eq!(sboms.len(), 1);
    assert_eq!(sboms[0].artifact_type.as_deref(), Some("a/sbom"));

    // A registry that has it, in two pages, and does not filter.
    let (first, second) = (list(&["b/sbom", "b/report"]), list(&["b/sbom"]));
    let proxy = Proxy::start(&server.host, move |request| {
        let head = |more: &str| {
            format!("200 OK\r\nContent-Type: application/vnd.oci.image.index.v1+json{more}")
        };
        match request.path.split_once("/referrers/") {
            Some((_, rest)) if rest.contains("page=2") => Act::Answer(head(""), second.clone()),
            Some(_) => {
                let link = "\r\nLink: </v2/app/referrers/x?page=2>; rel=\"next\"";
                Act::Answer(head(link), first.clone())
            }
            None => Act::Pass,
        }
    });
    let registry = connect(&proxy.host, &quick());
    assert_eq!(
        registry
            .referrers(&app, &subject, None)
            .await
            .unwrap()
            .len(),
        3
    );
    let sboms = registry
        .referrers(&app, &subject, Some("b/sbom"))
        .await
        .unwrap();
    assert_eq!(sboms.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_never_ends_or_leads_away_is_refused() {
    let server = Server::start(Kind::Open);
    let endless = Proxy::start(&server.host, |request| {
        let n: u32 = request.path.split("n=").nth(1).unwrap().parse().unwrap();
        Act::Answer(
            format!("200 OK\r\nLink: </v2/app/tags/list?n={}>; rel=next", n + 1),
            r#"{"name":"app","tags":["a"]}"#.to_owned(),
        )
    });
    let error = connect(&endless.host, &quick())
        .tags(&repository("app"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("does not end"), "{error}");

    let pages = Proxy::start(&server.host, |request| {
        let last = request.path.contains("last=b");
        let link = if last {
            ""
        } else {
            "\r\nLink: <list?last=b>; rel=\"next\""
        };
        let tags = if last {
            r#"["c"]"#
        } else {
            r#"["a","b","no tag"]"#
        };
        Act::Answer(format!("200 OK{link}"), format!(r#"{{"tags":{tags}}}"#))
    });
    let tags = connect(&pages.host, &quick())
        .tags(&repository("app"))
        .await
        .unwrap();
    let tags: Vec<_> = tags.iter().map(Tag::as_str).collect();
    assert_eq!(tags, ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_are_asked_first_and_missed_by_nobody() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 5);
    let direct = connect(&server.host, &quick());
    let app = repository("app");
    push(&direct, &app, &image).await;
    let manifest = direct.manifest(&app, &tag("v1")).await.unwrap();
    let large = blobs(&manifest).pop().unwrap();

    let good = Server::start(Kind::Open);
    let mirrored = connect(&good.host, &quick());
    push(&mirrored, &repository("hub/app"), &image).await;
    let empty = Server::start(Kind::Open);
    let broken = Proxy::start(&good.host, |_| Act::Harm(Fault::Flip(9)));
    let origin = Proxy::start(&server.host, |_| Act::Pass);
    for (mirrors, asks_origin) in [
        (vec![format!("{}/hub", good.host)], false),
        (
            vec!["127.0.0.1:1".to_owned(), format!("{}/hub", good.host)],
            false,
        ),
        (vec![empty.host.clone()], true),
        (vec![format!("{}/hub", broken.host)], true),
    ] {
        let before = origin.requests().len();
        let registry = connect(
            &origin.host,
            &Options {
                mirrors: mirrors.clone(),
                ..quick()
            },
        );
        let read = registry.manifest(&app, &tag("v1")).await.unwrap();
        assert_eq!(read, manifest, "{mirrors:?}");
        let dir = tempfile::tempdir().unwrap();
        let fetched = registry.fetch_blob(&app, &large, dir.path()).await.unwrap();
        let bytes = std::fs::read(fetched.path).unwrap();
        assert_eq!(digest(&bytes), large.digest, "{mirrors:?}");
        assert_eq!(origin.requests().len() > before, asks_origin, "{mirrors:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_an_unknown_authority_is_refused_with_the_way_out() {
    let server = Server::start(Kind::Tls);
    let app = repository("app");
    let options = Options {
        plain_http: PlainHttp::Never,
        ..quick()
    };
    let error = connect(&server.host, &options)
        .manifest(&app, &tag("v1"))
        .await
        .unwrap_err();
    assert!(matches!(error, RegistryError::Tls { .. }), "{error:?}");
    assert!(error.help().contains("SSL_CERT_FILE"), "{}", error.help());

    let authorities = Some(server.dir.path().join("cert.pem"));
    let registry = connect(
        &server.host,
        &Options {
            authorities,
            ..options
        },
    );
    let image = layout(server.dir.path(), 6);
    let own = push(&registry, &app, &image).await;
    assert_eq!(registry.head(&app, &tag("v1")).await.unwrap().digest, own);
}
