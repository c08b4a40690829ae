//! Who may do what: htpasswd, and a token service in front of an open registry.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use stackforge_transfer::registry::{Keychain, Login, Registry, RegistryError, Secret};

use super::proxy::{Act, Proxy};
use super::server::{Kind, Server, layout, skopeo};
use super::{connect, push, quick, repository, tag};

fn keychain(dir: &std::path::Path, text: &str) -> Arc<Keychain> {
    let path = dir.join("config.json");
    std::fs::write(&path, text).unwrap();
    Arc::new(Keychain::of_files([path]))
}

fn password(user: &str, password: &str) -> Arc<Keychain> {
    Arc::new(Keychain::fixed(Login::Password {
        user: user.to_owned(),
        password: Secret::new(password.to_owned()),
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_of_dockers_configuration_opens_a_registry() {
    let server = Server::start(Kind::Htpasswd);
    let dir = server.dir.path();
    let image = layout(dir, 11);
    skopeo(&[
        "copy",
        "--dest-tls-verify=false",
        "--dest-creds=user:s3cret",
        &format!("oci:{}:v1", image.display()),
        &format!("docker://{}/app:v1", server.host),
    ]);
    let app = repository("app");

    let nobody = connect(&server.host, &quick());
    let error = nobody.manifest(&app, &tag("v1")).await.unwrap_err();
    assert!(
        matches!(error, RegistryError::Unauthorized { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("(no credentials)"), "{error}");
    assert!(error.help().contains("docker login"), "{}", error.help());

    // user:s3cret
    let right = format!(
        r#"{{"auths":{{"{}":{{"auth":"dXNlcjpzM2NyZXQ="}}}}}}"#,
        server.host
    );
    let registry = Registry::connect(&server.host, keychain(dir, &right), &quick()).unwrap();
    registry.manifest(&app, &tag("v1")).await.unwrap();
    push(&registry, &repository("other"), &image).await;

    // user:wr0ng
    let wrong = format!(
        r#"{{"auths":{{"{}":{{"auth":"dXNlcjp3cjBuZw=="}}}}}}"#,
        server.host
    );
    let keychain = keychain(dir, &wrong);
    let registry = Registry::connect(&server.host, Arc::clone(&keychain), &quick()).unwrap();
    let error = registry.manifest(&app, &tag("v1")).await.unwrap_err();
    let texts = format!("{error} {error:?} {keychain:?} {registry:?}");
    assert!(texts.contains("user `user` of"), "{texts}");
    assert!(texts.contains("config.json"), "{texts}");
    assert!(
        !texts.contains("wr0ng") && !texts.contains("dXNlcjp3cjBuZw"),
        "{texts}"
    );
}

/// A token service and what it has given away. Anonymous tokens may pull; `user:s3cret` and the
/// refresh token `refresh` may push.
#[derive(Default)]
struct Service {
    issued: AtomicU32,
    valid: Mutex<HashSet<String>>,
}

fn guarded(server: &Server) -> (Proxy, Arc<Service>) {
    let service = Arc::new(Service::default());
    let inside = Arc::clone(&service);
    let proxy = Proxy::start(&server.host, move |request| {
        let host = request.header("host").unwrap();
        if let Some((_, query)) = request.path.split_once("/token") {
            let known = match request.header("authorization") {
                // user:s3cret
                Some("Basic dXNlcjpzM2NyZXQ=") => true,
                Some(_) => return Act::Answer("401 No".to_owned(), "{}".to_owned()),
                None => false,
            };
            // A refresh token comes as a form, whose body this server does not read.
            let known = known || request.method == "POST";
            let scope = query
                .replace("%3A", ":")
                .replace("%2C", ",")
                .replace("%2F", "/");
            let push = known && (scope.contains("push") || request.method == "POST");
            let n = inside.issued.fetch_add(1, Ordering::SeqCst);
            let token = format!("{}-{n}", if push { "push" } else { "pull" });
            inside.valid.lock().unwrap().insert(token.clone());
            return Act::Answer(
                "200 OK\r\nContent-Type: application/json".to_owned(),
                format!(r#"{{"token":"{token}","expires_in":300}}"#),
            );
        }
        let write = !["GET", "HEAD"].contains(&request.method.as_str());
        let token = request
            .header("authorization")
            .and_then(|a| a.strip_prefix("Bearer "));
        match token {
            Some(token) if inside.valid.lock().unwrap().contains(token) => {
                if write && !token.starts_with("push") {
                    let body = r#"{"errors":[{"code":"DENIED","message":"not you"}]}"#;
                    return Act::Answer("403 Forbidden".to_owned(), body.to_owned());
                }
                Act::Pass
            }
            _ => Act::Answer(
                format!(
                    "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"test\""
                ),
                r#"{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}"#.to_owned(),
            ),
        }
    });
    (proxy, service)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_service_is_asked_once_and_again_when_its_token_ends() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 12);
    let app = repository("app");
    push(&connect(&server.host, &quick()), &app, &image).await;
    let (proxy, service) = guarded(&server);
    let registry = connect(&proxy.host, &quick());
    let readers = (0..16).map(|_| {
        let (registry, app) = (registry.clone(), app.clone());
        tokio::spawn(async move { registry.manifest(&app, &tag("v1")).await })
    });
    for reader in futures_util::future::join_all(readers).await {
        reader.unwrap().unwrap();
    }
    assert_eq!(service.issued.load(Ordering::SeqCst), 1);
    service.valid.lock().unwrap().clear();
    registry.manifest(&app, &tag("v1")).await.unwrap();
    assert_eq!(service.issued.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_service_lets_those_push_who_may() {
    let server = Server::start(Kind::Open);
    let image = layout(server.dir.path(), 13);
    let app = repository("app");
    let (proxy, _service) = guarded(&server);
    let payload = stackforge_transfer::registry::Payload::Memory("abc".into());
    let blob = super::digest(b"abc");

    let nobody = connect(&proxy.host, &quick());
    let error = nobody
        .push_blob(&app, &blob, 3, &payload, &[])
        .await
        .unwrap_err();
    assert!(matches!(error, RegistryError::Denied { .. }), "{error}");
    assert!(error.to_string().contains("DENIED: not you"), "{error}");

    let wrong = Registry::connect(&proxy.host, password("user", "wr0ng"), &quick()).unwrap();
    let error = wrong.manifest(&app, &tag("v1")).await.unwrap_err();
    assert!(matches!(error, RegistryError::Token { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("answers 401 (credentials that were given)"),
        "{error}"
    );

    let refresh = Login::Identity(Secret::new("refresh".to_owned()));
    for keychain in [
        password("user", "s3cret"),
        Arc::new(Keychain::fixed(refresh)),
    ] {
        let registry = Registry::connect(&proxy.host, keychain, &quick()).unwrap();
        let own = push(&registry, &app, &image).await;
        assert_eq!(registry.head(&app, &tag("v1")).await.unwrap().digest, own);
        registry
            .push_blob(
                &repository("two"),
                &blob,
                3,
                &payload,
                std::slice::from_ref(&app),
            )
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_stay_with_the_registry() {
    let server = Server::start(Kind::Htpasswd);
    let elsewhere = Arc::new(Mutex::new(Vec::new()));
    let headers = Arc::clone(&elsewhere);
    let store = Proxy::start(&server.host, move |request| {
        let mut headers = headers.lock().unwrap();
        headers.push(request.header("authorization").map(str::to_owned));
        Act::Answer("200 OK".to_owned(), "abc".to_owned())
    });
    let store_host = store.host.clone();
    let front = Proxy::start(&server.host, move |request| {
        if request.header("authorization").is_some() && request.path.contains("/blobs/") {
            let head = format!("307 Elsewhere\r\nLocation: http://{store_host}/signed");
            return Act::Answer(head, String::new());
        }
        Act::Pass
    });
    let registry = Registry::connect(&front.host, password("user", "s3cret"), &quick()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let blob = stackforge_transfer::registry::Descriptor::of_blob(super::digest(b"abc"), 3);
    registry
        .fetch_blob(&repository("app"), &blob, dir.path())
        .await
        .unwrap();
    assert_eq!(*elsewhere.lock().unwrap(), [None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_service_without_tls_gets_no_credentials() {
    let server = Server::start(Kind::Tls);
    let asked = Arc::new(AtomicU32::new(0));
    let inside = Arc::clone(&asked);
    let service = Proxy::start(&server.host, move |_| {
        inside.fetch_add(1, Ordering::SeqCst);
        Act::Answer("200 OK".to_owned(), r#"{"token":"t"}"#.to_owned())
    });
    let realm = format!("http://{}/token", service.host);
    // The registry speaks TLS itself, so its configuration names the service.
    let config = server.dir.path().join("config.yml");
    let text = std::fs::read_to_string(&config).unwrap();
    let cert = server.dir.path().join("cert.pem");
    let text = format!(
        "{text}auth:\n  token: {{ realm: \"{realm}\", service: s, issuer: i, rootcertbundle: {} }}\n",
        cert.display()
    );
    let server = server.again(&text);
    let options = stackforge_transfer::registry::Options {
        plain_http: stackforge_transfer::registry::PlainHttp::Never,
        authorities: Some(cert),
        ..quick()
    };
    let registry = Registry::connect(&server.host, password("user", "s3cret"), &options).unwrap();
    let error = registry
        .manifest(&repository("app"), &tag("v1"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("without TLS"), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// Asks a registry whose token service redirects the login to another server. Returns what each of the
/// two was asked for, and the error.
async fn redirected(status: &'static str) -> (Vec<String>, Vec<String>, RegistryError) {
    let elsewhere = Proxy::start("127.0.0.1:9", |_| {
        Act::Answer("200 OK".to_owned(), r#"{"token":"t"}"#.to_owned())
    });
    let to = elsewhere.host.clone();
    let front = Proxy::start("127.0.0.1:9", move |request| {
        let host = request.header("host").unwrap();
        let head = match request.path.as_str() {
            "/token" => format!("{status}\r\nLocation: http://{to}/token"),
            _ => format!(
                "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"test\""
            ),
        };
        Act::Answer(head, "{}".to_owned())
    });
    let refresh = Login::Identity(Secret::new("refresh".to_owned()));
    let keychain = Arc::new(Keychain::fixed(refresh));
    let registry = Registry::connect(&front.host, keychain, &quick()).unwrap();
    let error = registry
        .manifest(&repository("app"), &tag("v1"))
        .await
        .unwrap_err();
    (front.requests(), elsewhere.requests(), error)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_token_is_not_posted_to_another_server() {
    for status in ["307 Elsewhere", "308 Elsewhere", "302 Elsewhere"] {
        let (asked, elsewhere, error) = redirected(status).await;
        assert_eq!(elsewhere, [""; 0], "{status}");
        assert!(matches!(error, RegistryError::Token { .. }), "{error}");
        let expected = "leads to where credentials must not go";
        assert!(error.to_string().contains(expected), "{error}");
        // It would lead there the next time, too.
        assert_eq!(asked.iter().filter(|a| *a == "POST /token").count(), 1);
    }
}
