//! Contexts of the docker command: reads which engine `docker context use` chose.
//!
//! The input is the environment; the output is the address of the current context. Contexts are files
//! below `$DOCKER_CONFIG`, by default `~/.docker`: `config.json` names the current one,
//! `contexts/meta/ID/meta.json` describes each, and `contexts/tls/ID/docker` has its certificates. The
//! ID is the SHA-256 of the name.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::address::{Address, parse, text};
use crate::EngineError;
use stackforge_types::Digest;

/// Returns the name and the address of the context that `DOCKER_CONTEXT` or the configuration names.
/// `None` if no context is in use, or the one for the default socket.
///
/// # Errors
/// If the context does not exist, its directory is not known, or it describes no engine that can be
/// reached from this machine.
pub(super) fn current(
    var: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<(String, Address)>, EngineError> {
    let home = || var("HOME").map(|home| PathBuf::from(home).join(".docker"));
    let folder = var("DOCKER_CONFIG").map(PathBuf::from).or_else(home);
    let name = match text(&var, "DOCKER_CONTEXT")? {
        Some(name) => Some(name),
        None => folder.as_deref().and_then(chosen),
    };
    match (name.as_deref(), folder) {
        (None | Some("" | "default"), _) => Ok(None),
        (Some(name), Some(folder)) => {
            Ok(of_context(&folder, name)?.map(|address| (name.to_owned(), address)))
        }
        (Some(name), None) => Err(EngineError::Invalid {
            what: "the docker context",
            value: name.to_owned(),
            help: "set HOME or DOCKER_CONFIG: contexts are described there",
        }),
    }
}

/// Returns the name of the current context in a configuration directory.
fn chosen(folder: &Path) -> Option<String> {
    let path = folder.join("config.json");
    let config = match std::fs::read(&path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        read => Some(read),
    }?;
    let config: Result<Value, String> = match config {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| e.to_string()),
        Err(e) => Err(e.to_string()),
    };
    match config {
        Ok(config) => config["currentContext"].as_str().map(str::to_owned),
        // The docker command ignores such a file too. The warning is there because another engine may
        // be intended.
        Err(why) => {
            let path = path.display();
            tracing::warn!("{path} cannot be read, so no docker context is in use: {why}");
            None
        }
    }
}

fn of_context(folder: &Path, name: &str) -> Result<Option<Address>, EngineError> {
    let invalid = |help| EngineError::Invalid {
        what: "the docker context",
        value: name.to_owned(),
        help,
    };
    let id = id(name);
    let contexts = folder.join("contexts");
    let meta = json(&contexts.join("meta").join(&id).join("meta.json"));
    let meta = meta.ok_or_else(|| {
        invalid("`docker context ls` lists those that there are; `docker context use default` resets it")
    })?;
    let endpoint = &meta["Endpoints"]["docker"];
    if endpoint["SkipTLSVerify"].as_bool() == Some(true) {
        return Err(invalid(
            "it skips the verification of certificates, which is not done here: give it the engine's CA",
        ));
    }
    let host = endpoint["Host"].as_str().unwrap_or_default();
    if host.is_empty() {
        return Ok(None);
    }
    let tls = contexts.join("tls").join(&id).join("docker");
    let files = ["ca.pem", "cert.pem", "key.pem"];
    let is_tls = files.iter().any(|file| tls.join(file).is_file());
    parse(host, is_tls.then_some(tls)).map(Some)
}

/// Returns the directory name of a context: the SHA-256 of its name.
fn id(name: &str) -> String {
    Digest::of(name.as_bytes()).hex().to_owned()
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt as _;

    /// Creates a home directory with contexts (`name` → address) and the current one.
    fn home(current: &str, contexts: &[(&str, Value)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".docker");
        std::fs::create_dir_all(&folder).unwrap();
        let config = serde_json::json!({ "currentContext": current });
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        for (name, endpoint) in contexts {
            let id = id(name);
            let meta = folder.join("contexts/meta").join(&id);
            std::fs::create_dir_all(&meta).unwrap();
            let text = serde_json::json!({ "Name": name, "Endpoints": { "docker": endpoint } });
            std::fs::write(meta.join("meta.json"), text.to_string()).unwrap();
        }
        home
    }

    fn current_address(
        home: &tempfile::TempDir,
        context: Option<&str>,
    ) -> Result<Option<String>, EngineError> {
        let var = |name: &str| match name {
            "HOME" => Some(home.path().into()),
            "DOCKER_CONTEXT" => context.map(OsString::from),
            _ => None,
        };
        Ok(current(var)?.map(|(_, address)| address.to_string()))
    }

    #[test]
    fn the_context_in_use_names_the_engine() {
        let colima = serde_json::json!({ "Host": "unix:///u/.colima/default/docker.sock" });
        let far = serde_json::json!({ "Host": "ssh://me@far" });
        let skips = serde_json::json!({ "Host": "tcp://far:2376", "SkipTLSVerify": true });
        let home = home(
            "colima",
            &[("colima", colima), ("far", far), ("skips", skips)],
        );
        let address = "unix:///u/.colima/default/docker.sock".to_owned();
        assert_eq!(current_address(&home, None).unwrap(), Some(address));
        assert_eq!(
            current_address(&home, Some("far")).unwrap(),
            Some("ssh://me@far".into())
        );
        assert_eq!(current_address(&home, Some("default")).unwrap(), None);
        for bad in ["gone", "skips", "../../x"] {
            let error = current_address(&home, Some(bad)).unwrap_err();
            assert!(
                matches!(error, EngineError::Invalid { .. }),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn a_contexts_certificates_are_its_own() {
        let far = serde_json::json!({ "Host": "tcp://far" });
        let home = home("far", &[("far", far)]);
        assert_eq!(
            current_address(&home, None).unwrap(),
            Some("tcp://far:2375".into())
        );
        let tls = format!(".docker/contexts/tls/{}/docker", id("far"));
        let tls = home.path().join(tls);
        std::fs::create_dir_all(&tls).unwrap();
        std::fs::write(tls.join("ca.pem"), "").unwrap();
        assert_eq!(
            current_address(&home, None).unwrap(),
            Some("tcp://far:2376".into())
        );
    }

    #[test]
    fn without_a_configuration_there_is_no_context() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(current_address(&empty, None).unwrap(), None);
        assert_eq!(current(|_| None).unwrap(), None);
        // A context that is requested by name must exist.
        for (name, fails) in [("far", true), ("default", false)] {
            let var = |asked: &str| (asked == "DOCKER_CONTEXT").then(|| OsString::from(name));
            assert_eq!(current(var).is_err(), fails, "{name}");
        }
        let odd = OsString::from_vec(vec![0xff]);
        let var = |asked: &str| (asked == "DOCKER_CONTEXT").then(|| odd.clone());
        assert!(matches!(current(var), Err(EngineError::Invalid { .. })));
        std::fs::create_dir(empty.path().join(".docker")).unwrap();
        std::fs::write(empty.path().join(".docker/config.json"), "{").unwrap();
        assert_eq!(current_address(&empty, None).unwrap(), None);
    }
}
