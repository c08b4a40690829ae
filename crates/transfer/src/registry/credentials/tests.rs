use super::*;
use stackforge_types::login::Secret;

const AUTH: &str = r#"{
    "auths": {
        "https://index.docker.io/v1/": {"auth": "aHViOnMzY3JldA=="},
        "ghcr.io": {"auth": "Z2hjcjpzM2NyZXQ"},
        "https://old.example/v2/": {"auth": "b2xkOnMzY3JldA=="},
        "quay.io/team": {"auth": "dGVhbTpzM2NyZXQ="},
        "quay.io": {"auth": "cXVheTpzM2NyZXQ="},
        "token.example": {"identitytoken": "s3cret"},
        "broken.example": {"auth": "!!"},
        "empty.example": {}
    }
}"#;

fn keychain(dir: &tempfile::TempDir, text: &str) -> Keychain {
    let path = dir.path().join("config.json");
    std::fs::write(&path, text).unwrap();
    Keychain::of_files([path])
}

#[tokio::test]
async fn the_entry_that_says_most_decides() {
    let dir = tempfile::tempdir().unwrap();
    let keychain = keychain(&dir, AUTH);
    for (host, repository, user) in [
        ("docker.io", "library/ubuntu", "hub"),
        ("ghcr.io", "a/b", "ghcr"),
        ("old.example", "a", "old"),
        ("quay.io", "team/a", "team"),
        ("quay.io", "teams/a", "quay"),
    ] {
        let found = keychain.find(host, repository).await;
        let password = Secret::new("s3cret".to_owned());
        let user = user.to_owned();
        assert_eq!(found.login, Login::Password { user, password }, "{host}");
        let shown = format!("{found:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    let found = keychain.find("token.example", "a").await;
    assert_eq!(
        found.login,
        Login::Identity(Secret::new("s3cret".to_owned()))
    );
}

#[tokio::test]
async fn what_cannot_be_used_is_told_and_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let keychain = keychain(&dir, AUTH);
    let found = keychain.find("broken.example", "a").await;
    assert_eq!(found.login, Login::Anonymous);
    assert!(
        found.whence.contains("the entry `broken.example`"),
        "{}",
        found.whence
    );
    for host in ["empty.example", "unknown.example"] {
        let found = keychain.find(host, "a").await;
        assert_eq!(found.login, Login::Anonymous);
        assert!(found.whence.contains("none in `"), "{}", found.whence);
    }
}

#[tokio::test]
async fn a_damaged_file_is_told_without_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let keychain = keychain(&dir, r#"{"auths": {"a": {"auth": s3cret}}}"#);
    let found = keychain.find("a.example", "a").await;
    assert_eq!(found.login, Login::Anonymous);
    assert!(
        found.whence.contains("is damaged at line 1"),
        "{}",
        found.whence
    );
    assert!(!found.whence.contains("s3cret"), "{}", found.whence);
}

#[tokio::test]
async fn a_helper_that_is_not_there_or_no_name_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let keychain = keychain(
        &dir,
        r#"{"credsStore": "is-not-there", "credHelpers": {"b.example": "../x"}}"#,
    );
    let found = keychain.find("a.example", "a").await;
    assert!(
        found
            .whence
            .contains("`docker-credential-is-not-there` cannot be run"),
        "{}",
        found.whence
    );
    let found = keychain.find("b.example", "a").await;
    assert!(
        found.whence.contains("is not a credential helper"),
        "{}",
        found.whence
    );
}

#[test]
fn places_follow_docker_and_podman() {
    let files = |set: &[(&str, &str)]| {
        let of = |name: &str| {
            let value = set.iter().find(|(n, _)| *n == name)?.1;
            Some(PathBuf::from(value))
        };
        let keychain = Keychain::of_environment(of);
        let shown: Vec<_> = keychain
            .files
            .iter()
            .map(|p| p.display().to_string())
            .collect();
        shown.join(" ")
    };
    assert_eq!(
        files(&[("HOME", "/h")]),
        "/h/.docker/config.json /h/.config/containers/auth.json"
    );
    assert_eq!(
        files(&[
            ("HOME", "/h"),
            ("DOCKER_CONFIG", "/d"),
            ("REGISTRY_AUTH_FILE", "/a.json"),
            ("XDG_RUNTIME_DIR", "/run"),
            ("XDG_CONFIG_HOME", "/c"),
        ]),
        "/a.json /d/config.json /run/containers/auth.json /c/containers/auth.json"
    );
    assert_eq!(files(&[]), "");
}

#[tokio::test]
async fn helpers_speak_dockers_protocol() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let script = r#"#!/bin/sh
read -r server || true
case "$1 $server" in
"get https://index.docker.io/v1/") echo '{"ServerURL":"x","Username":"hub","Secret":"s3cret"}' ;;
"get token.example") echo '{"Username":"<token>","Secret":"s3cret"}' ;;
"get fails.example") echo "s3cret went wrong"; exit 1 ;;
*) echo "credentials not found in native keychain"; exit 1 ;;
esac
"#;
    let program = dir.path().join("docker-credential-test");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut keychain = keychain(
        &dir,
        r#"{"credsStore": "test", "auths": {"docker.io": {}}}"#,
    );
    let mut path = vec![dir.path().to_owned()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    keychain.path = Some(std::env::join_paths(path).unwrap());

    let secret = || Secret::new("s3cret".to_owned());
    let hub = keychain.find("docker.io", "library/a").await;
    let user = "hub".to_owned();
    assert_eq!(
        hub.login,
        Login::Password {
            user,
            password: secret()
        }
    );
    assert!(
        hub.whence
            .contains("user `hub` of `docker-credential-test`"),
        "{}",
        hub.whence
    );
    let token = keychain.find("token.example", "a").await;
    assert_eq!(token.login, Login::Identity(secret()));
    let none = keychain.find("other.example", "a").await;
    assert_eq!(none.login, Login::Anonymous);
    let failed = keychain.find("fails.example", "a").await;
    assert_eq!(failed.login, Login::Anonymous);
    assert!(
        failed
            .whence
            .contains("`docker-credential-test` fails with"),
        "{}",
        failed.whence
    );
    assert!(!failed.whence.contains("s3cret"), "{}", failed.whence);
}
