//! One published wheel, from indexes that the test serves.

use server::{Reply, Request, Server};
use stackforge_image::store::Store;
use stackforge_resolve::locked_files;
use stackforge_stack::diag::Explained as _;
use stackforge_stack::lock::PythonFile;
use stackforge_types::Digest;
use std::path::{Path, PathBuf};
use support::process::{again, is_again};
use support::{http as server, wanted};

/// Tests that ask in a process of their own.
const WHEEL: &str = "package::the_wheel_of_a_platform_comes_from_json_and_from_html";
const LOCKED: &str = "package::locked_files_are_found_by_their_digest_wherever_they_are";

/// Asks for a wheel in a process of its own.
fn ask(
    pinned: &str,
    platform: &str,
    store: &Path,
    settings: &[(&str, &str)],
    offline: bool,
) -> Result<PathBuf, String> {
    wanted::ask(WHEEL, pinned, platform, store, settings, offline)
}

/// Asks for files of a lock in a process of its own: their paths, or the error, its code and help.
fn ask_locked(
    files: &[PythonFile],
    store: &Path,
    settings: &[(&str, &str)],
    offline: bool,
) -> Result<Vec<PathBuf>, String> {
    let mut command = again(LOCKED);
    command
        .env("LOCKED_FILES", serde_json::to_string(files).unwrap())
        .env("PACKAGE_STORE", store)
        .env("PACKAGE_OFFLINE", if offline { "1" } else { "0" });
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("UV_") || name.starts_with("PIP_") || name == "NETRC" {
            command.env_remove(name);
        }
    }
    command.env("HOME", store).env_remove("XDG_CONFIG_HOME");
    let output = command.envs(settings.iter().copied()).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let after = |mark: &str| stdout.split_once(mark)?.1.lines().next().map(str::to_owned);
    match (after("FOUND "), after("REFUSED ")) {
        (Some(paths), None) => Ok(serde_json::from_str(&paths).unwrap()),
        (None, Some(error)) => Err(error),
        _ => panic!("{stdout}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[tokio::main(flavor = "multi_thread")]
async fn asks_for_locked_files() {
    let env = |name: &str| std::env::var(name).unwrap();
    let files: Vec<PythonFile> = serde_json::from_str(&env("LOCKED_FILES")).unwrap();
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let store = Store::open(Some(Path::new(&env("PACKAGE_STORE")))).unwrap();
    let offline = env("PACKAGE_OFFLINE") == "1";
    match locked_files(&files, None, &catalog, &store, offline, &|_| {}).await {
        Ok(paths) => println!("FOUND {}", serde_json::to_string(&paths).unwrap()),
        Err(e) => println!("REFUSED {} {e} | {}", e.code(), e.help()),
    }
}

fn locked(file: &str) -> PythonFile {
    PythonFile {
        name: "Thing".into(),
        version: "1.0".into(),
        file: file.into(),
        size: content(file).len() as u64,
        sha256: Digest::of(&content(file)),
        via: Vec::new(),
    }
}

#[test]
fn locked_files_are_found_by_their_digest_wherever_they_are() {
    if is_again() {
        return asks_for_locked_files();
    }
    let (empty, full) = (Server::start(|_, _| Reply::status(404)), index(JSON, None));
    let (first, last) = (simple(&empty, ""), simple(&full, "user:secret@"));
    let store = tempfile::tempdir().unwrap();
    let files = [locked(ARM), locked(INTEL), locked(ARM)];
    for settings in [
        [
            ("UV_INDEX", first.as_str()),
            ("UV_DEFAULT_INDEX", last.as_str()),
        ],
        [
            ("PIP_EXTRA_INDEX_URL", last.as_str()),
            ("PIP_INDEX_URL", first.as_str()),
        ],
    ] {
        let store = tempfile::tempdir().unwrap();
        let paths = ask_locked(&files, store.path(), &settings, false).unwrap();
        for (path, file) in paths.iter().zip(&files) {
            assert!(path.ends_with(&file.file));
            assert_eq!(std::fs::read(path).unwrap(), content(&file.file));
        }
    }
    // One page for the project, each file once, and nothing where all is there.
    let pages = || {
        full.log()
            .iter()
            .filter(|s| s.path.starts_with("/simple"))
            .count()
    };
    let (before, requests) = (pages(), full.log().len());
    assert_eq!((before, requests), (2, 6));
    let settings = [("UV_DEFAULT_INDEX", last.as_str())];
    ask_locked(&files[..1], store.path(), &settings, false).unwrap();
    let kept = ask_locked(&files[..1], store.path(), &[], true).unwrap();
    assert_eq!(std::fs::read(&kept[0]).unwrap(), content(ARM));
    assert_eq!(full.log().len(), requests + 2);
    for request in full.log() {
        assert_eq!(
            request.authorization.as_deref(),
            Some("Basic dXNlcjpzZWNyZXQ=")
        );
    }
}

#[test]
fn what_is_missing_of_a_lock_is_named() {
    let server = index(JSON, None);
    let url = simple(&server, "");
    let settings = [("UV_DEFAULT_INDEX", url.as_str())];
    let store = tempfile::tempdir().unwrap();
    let error = ask_locked(&[locked(ARM)], store.path(), &settings, true).unwrap_err();
    assert!(
        error.starts_with(&format!(
            "SF0325 a file is not in the store, and stackforge is offline: {ARM}"
        )),
        "{error}"
    );
    let mut other = locked(ARM);
    other.sha256 = Digest::of(b"another file");
    let error = ask_locked(&[other], store.path(), &settings, false).unwrap_err();
    assert!(
        error.starts_with(&format!("SF0208 no index has a locked file: {ARM}")),
        "{error}"
    );
    // An index that tells no digest, and has another file under the name.
    let lying = Server::start(|request, _| match request.path.as_str() {
        "/simple/thing/" => {
            let page = format!("<a href=\"/files/{ARM}\">{ARM}</a>").into_bytes();
            Reply {
                length: Some(page.len()),
                body: page,
                ..Reply::status(200).header("Content-Type", "text/html")
            }
        }
        _ => Reply::honest(b"something else", "\"1\"", &Request::default()),
    });
    let url = simple(&lying, "");
    let settings = [("UV_DEFAULT_INDEX", url.as_str())];
    let error = ask_locked(&[locked(ARM)], store.path(), &settings, false).unwrap_err();
    assert!(error.starts_with("SF0403 "), "{error}");
    let blobs = store.path().join("blobs/sha256");
    assert_eq!(std::fs::read_dir(blobs).unwrap().count(), 0);
}

const ARM: &str = "thing-1.0-cp312-cp312-manylinux_2_28_aarch64.whl";
const INTEL: &str = "thing-1.0-cp312-cp312-manylinux_2_28_x86_64.whl";

fn content(file: &str) -> Vec<u8> {
    format!("the content of {file}").into_bytes()
}

/// An index with both wheels of `thing`; `kind` is its media type. With a login it wants that.
fn index(kind: &'static str, login: Option<&'static str>) -> Server {
    Server::start(move |request, _| {
        if login.is_some() && request.authorization.as_deref() != login {
            return Reply::status(401);
        }
        match request.path.as_str() {
            "/simple/thing/" => {
                let body = if kind.contains("json") {
                    json()
                } else {
                    html()
                };
                Reply {
                    length: Some(body.len()),
                    body: body.into_bytes(),
                    ..Reply::status(200).header("Content-Type", kind)
                }
            }
            path => match path.strip_prefix("/files/") {
                Some(file) if [ARM, INTEL].contains(&file) => {
                    Reply::honest(&content(file), "\"1\"", &Request::default())
                }
                _ => Reply::status(404),
            },
        }
    })
}

fn html() -> String {
    let anchor = |file: &str| {
        let hash = Digest::of(&content(file));
        format!(
            "<a href=\"../../files/{file}#sha256={}\" data-requires-python=\"&gt;=3.9\">{file}</a><br>\n",
            hash.hex()
        )
    };
    format!(
        "<!DOCTYPE html><html><body>{}{}</body></html>",
        anchor(ARM),
        anchor(INTEL)
    )
}

fn json() -> String {
    let file = |file: &str| {
        let hash = Digest::of(&content(file));
        format!(
            r#"{{"filename": "{file}", "url": "/files/{file}", "hashes": {{"sha256": "{}"}}, "size": {}, "yanked": false}}"#,
            hash.hex(),
            content(file).len()
        )
    };
    let files = [file(ARM), file(INTEL)].join(",");
    format!(r#"{{"meta": {{"api-version": "1.1"}}, "name": "thing", "files": [{files}]}}"#)
}

fn simple(server: &Server, login: &str) -> String {
    server.url.replace("://", &format!("://{login}")) + "/simple"
}

const JSON: &str = "application/vnd.pypi.simple.v1+json";

#[test]
fn the_wheel_of_a_platform_comes_from_json_and_from_html() {
    if is_again() {
        return wanted::asks_for_another_process();
    }
    for kind in [JSON, "text/html; charset=utf-8"] {
        let server = index(kind, None);
        let store = tempfile::tempdir().unwrap();
        let url = simple(&server, "");
        for (platform, file) in [("linux/arm64", ARM), ("linux/amd64", INTEL)] {
            for setting in ["UV_DEFAULT_INDEX", "PIP_INDEX_URL"] {
                let path = ask(
                    "Thing==1.0",
                    platform,
                    store.path(),
                    &[(setting, &url)],
                    false,
                );
                let path = path.unwrap();
                let hex = Digest::of(&content(file)).hex().to_owned();
                assert_eq!(path, store.path().join("names").join(hex).join(file));
                assert_eq!(std::fs::read(path).unwrap(), content(file));
            }
        }
        let files = server
            .log()
            .iter()
            .filter(|s| s.path.starts_with("/files/"))
            .count();
        assert_eq!(files, 2, "each is fetched once");
    }
}

#[test]
fn indexes_are_asked_in_their_order_and_find_links_before_them() {
    let (empty, full) = (Server::start(|_, _| Reply::status(404)), index(JSON, None));
    let store = tempfile::tempdir().unwrap();
    let (first, last) = (simple(&empty, ""), simple(&full, ""));
    let settings = [("UV_INDEX", first.as_str()), ("UV_DEFAULT_INDEX", &last)];
    ask("thing==1", "linux/arm64", store.path(), &settings, false).unwrap();
    assert_eq!(empty.log().len(), 1);
    // An index that has the project hides those after it.
    let other = [("UV_INDEX", last.as_str()), ("UV_DEFAULT_INDEX", &first)];
    ask("thing==1", "linux/arm64", store.path(), &other, false).unwrap();
    assert_eq!(empty.log().len(), 1);

    let own = tempfile::tempdir().unwrap();
    std::fs::write(own.path().join(ARM), "mine").unwrap();
    let links = own.path().to_str().unwrap();
    let settings = [("PIP_FIND_LINKS", links), ("PIP_INDEX_URL", &last)];
    let path = ask("thing==1", "linux/arm64", store.path(), &settings, false).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"mine");
    let path = ask("thing==1", "linux/amd64", store.path(), &settings, false).unwrap();
    assert!(path.starts_with(store.path()), "what the directory lacks");
}

#[test]
fn a_login_is_that_of_the_address_of_the_name_or_of_netrc() {
    // user:secret
    let server = index(JSON, Some("Basic dXNlcjpzZWNyZXQ="));
    let store = tempfile::tempdir().unwrap();
    let plain = simple(&server, "");
    let error = ask(
        "thing==1",
        "linux/arm64",
        store.path(),
        &[("UV_DEFAULT_INDEX", &plain)],
        false,
    );
    let error = error.unwrap_err();
    assert!(
        error.contains("answers 401") && error.contains("netrc"),
        "{error}"
    );
    let wrong = simple(&server, "user:sesame@");
    let error = ask(
        "thing==1",
        "linux/arm64",
        store.path(),
        &[("UV_DEFAULT_INDEX", &wrong)],
        false,
    );
    assert!(!error.unwrap_err().contains("sesame"));

    let netrc = store.path().join("netrc");
    std::fs::write(&netrc, "machine 127.0.0.1 login user password secret").unwrap();
    let (inside, named) = (simple(&server, "user:secret@"), format!("corp={plain}"));
    for settings in [
        vec![("UV_DEFAULT_INDEX", inside.as_str())],
        vec![
            ("UV_DEFAULT_INDEX", &named),
            ("UV_INDEX_CORP_USERNAME", "user"),
            ("UV_INDEX_CORP_PASSWORD", "secret"),
        ],
        vec![
            ("PIP_INDEX_URL", &plain),
            ("NETRC", netrc.to_str().unwrap()),
        ],
    ] {
        let store = tempfile::tempdir().unwrap();
        ask("thing==1", "linux/arm64", store.path(), &settings, false).unwrap();
    }
}

#[test]
fn what_is_not_there_is_told_with_what_is() {
    let server = index("text/html", None);
    let (store, url) = (tempfile::tempdir().unwrap(), simple(&server, ""));
    let ask = |pinned, settings: &[(&str, &str)], offline| {
        ask(pinned, "linux/arm64", store.path(), settings, offline).unwrap_err()
    };
    let settings = [("UV_DEFAULT_INDEX", url.as_str())];
    let error = ask("other==1.0", &settings, false);
    assert!(error.starts_with("`other` is not on the index"), "{error}");
    let error = ask("thing==1.1", &settings, false);
    assert!(
        error.starts_with("`thing` has no version 1.1; the nearest are 1.0"),
        "{error}"
    );
    let error = ask("thing==1.0", &settings, true);
    assert!(
        error.contains("not in the store, and stackforge is offline"),
        "{error}"
    );
    let error = ask("thing==1.0", &[("PIP_NO_INDEX", "1")], false);
    assert!(error.contains("forbid every index"), "{error}");
}
