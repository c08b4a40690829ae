//! Ways to a real engine.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use stackforge_engine::EngineError;
use stackforge_engine::docker::Docker;
use tokio::net::{TcpListener, UnixStream};

use super::workshop::{Relay, Workshop, secrets, socket};
use support::process::{again, is_again};

/// Builds over `docker` with a secret, so that the session has to work too.
async fn builds(shop: &Workshop, docker: &Docker) {
    let mut request =
        shop.request("RUN --mount=type=secret,id=token,required=true echo it works > /works");
    request.secrets = secrets("token", "planted-secret-value");
    let image = shop.build_with(docker, request).await.outcome.unwrap();
    let works = docker.read_file(&image.image_id, "/works", 100).await;
    assert_eq!(works.unwrap().unwrap(), b"it works\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_local_engine_says_what_it_is() {
    let docker = Docker::connect(Some(&format!("unix://{}", socket().display())))
        .await
        .unwrap();
    docker.ping().await.unwrap();
    let info = docker.info().await.unwrap();
    assert!(info.cpus > 0 && info.memory > 0);
    assert!(!info.server_version.is_empty() && !info.storage_driver.is_empty());
    assert!(docker.server().ends_with(&info.server_version));
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_carries_builds() {
    let shop = Workshop::open("tcp").await;
    let relay = Relay::open().await;
    let docker = Docker::connect(Some(&format!("tcp://{}", relay.address))).await;
    builds(&shop, &docker.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn line_breaks_may_arrive_after_their_lines() {
    let shop = Workshop::open("breaks").await;
    let relay = Relay::open_slow().await;
    let docker = Docker::connect(Some(&format!("tcp://{}", relay.address))).await;
    builds(&shop, &docker.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_not_there_is_an_error_with_help() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("tcp://{}", free.local_addr().unwrap());
    drop(free);
    for address in [nobody.as_str(), "unix:///nonexistent.sock"] {
        match Docker::connect(Some(address)).await.map(drop).unwrap_err() {
            EngineError::NotReachable {
                address: named,
                help,
                ..
            } => {
                assert_eq!(named, address);
                assert!(help.contains("DOCKER_HOST"));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Runs the test `name` of this file in a process with that environment.
fn in_a_process(name: &str, env: &[(&str, &std::ffi::OsStr)]) {
    let mut command = again(&format!("docker::connections::{name}"));
    let output = command.envs(env.iter().copied()).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{complained}");
    assert!(stdout.contains("1 passed"), "{stdout}");
}

/// An `ssh` that runs its command here, where the usual engine is the tests', and refuses the user `nobody`.
pub fn fake_ssh(dir: &Path) -> std::ffi::OsString {
    let program = dir.join("ssh");
    let engine = socket();
    let text = format!(
        "#!/bin/sh\ncase \" $* \" in *' -l nobody '*) echo 'Permission denied (publickey).' \
         >&2; exit 255;; esac\nwhile [ \"$1\" != -- ]; do shift; done\n\
         [ \"$2\" = far.example ] || exit 1\nshift 2\n\
         export DOCKER_HOST=unix://{}\nexec \"$@\"\n",
        engine.display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let dirs = std::iter::once(dir.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(dirs).unwrap()
}

#[test]
fn ssh_carries_builds() {
    if is_again() {
        return over_ssh();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = fake_ssh(dir.path());
    in_a_process("ssh_carries_builds", &[("PATH", &path)]);
}

#[tokio::main(flavor = "multi_thread")]
async fn over_ssh() {
    let shop = Workshop::open("ssh").await;
    let to_socket = format!("ssh://me@far.example:22{}", socket().display());
    for address in ["ssh://far.example", to_socket.as_str()] {
        let docker = Docker::connect(Some(address)).await.unwrap();
        assert_eq!(docker.address(), address);
        builds(&shop, &docker).await;
    }
    let denied = Docker::connect(Some("ssh://nobody@far.example")).await;
    match denied.map(drop).unwrap_err() {
        EngineError::NotReachable { reason, help, .. } => {
            assert_eq!(reason, "ssh: Permission denied (publickey).");
            assert!(help.contains("agent"));
        }
        other => panic!("{other:?}"),
    }
}

/// A folder of certificates for `localhost` and of who may ask there.
pub fn make_certificates() -> tempfile::TempDir {
    let certificates = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls/make.sh");
    let made = Command::new(script).arg(certificates.path()).output();
    let made = made.unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    certificates
}

#[test]
fn tls_carries_builds() {
    if is_again() {
        return over_tls();
    }
    let certificates = make_certificates();
    in_a_process(
        "tls_carries_builds",
        &[
            ("DOCKER_TLS_VERIFY", "1".as_ref()),
            ("DOCKER_CERT_PATH", certificates.path().as_os_str()),
        ],
    );
}

#[tokio::main(flavor = "multi_thread")]
async fn over_tls() {
    let shop = Workshop::open("tls").await;
    let dir = std::path::PathBuf::from(std::env::var_os("DOCKER_CERT_PATH").unwrap());
    let port = tls_relay(&dir).await;
    let docker = Docker::connect(Some(&format!("tcp://localhost:{port}"))).await;
    builds(&shop, &docker.unwrap()).await;
    // The certificate is for `localhost` only.
    let other = Docker::connect(Some(&format!("tcp://127.0.0.1:{port}"))).await;
    let error = other.map(drop).unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
}

/// A port of `localhost` that leads to the engine's socket, for clients with a certificate in `dir`.
pub async fn tls_relay(dir: &Path) -> u16 {
    let authority = CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap();
    let certificate = CertificateDer::from_pem_file(dir.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.join("key.pem")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::clone(&provider),
    );
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut near) = acceptor.accept(near).await else {
                    return;
                };
                let mut far = UnixStream::connect(socket()).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    port
}
