//! Docker's `config.json` and Podman's `auth.json`, which have one format.
//!
//! `auths` maps registries, in Podman also repositories, to `auth` (base64 of `user:password`)
//! or `identitytoken`; `credHelpers` maps registries to programs; `credsStore` is the program for
//! all others.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use super::found::Credentials;
use super::helper;
use stackforge_types::login::{Login, Secret};
use stackforge_types::reference::DOCKER_HUB;

/// Docker Hub's key in Docker's files and for its helpers.
const HUB_KEY: &str = "https://index.docker.io/v1/";
const LONGEST_FILE: u64 = 1 << 20;

#[derive(Debug, Default, Deserialize)]
pub(super) struct AuthFile {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
    #[serde(default, rename = "credsStore")]
    store: Option<String>,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    identitytoken: Option<String>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl AuthFile {
    /// `None` if there is no file; an error says what is wrong with it, without quoting it.
    pub(crate) async fn read(path: &Path) -> Result<Option<Self>, String> {
        let wrong = |what: String| format!("`{}` {what}", path.display());
        let metadata = match tokio::fs::metadata(path).await {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(format!("cannot be read: {error}"))),
        };
        if metadata.len() > LONGEST_FILE || !metadata.is_file() {
            return Err(wrong("is not a file of at most 1 MiB".to_owned()));
        }
        let bytes = tokio::fs::read(path)
            .await
            .map_err(|error| wrong(format!("cannot be read: {error}")))?;
        // serde's own message may quote the file's content.
        serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            wrong(format!(
                "is damaged at line {}, column {}",
                error.line(),
                error.column()
            ))
        })
    }

    /// `None` if the file does not mention the registry; an error says why its entry cannot be used.
    /// `helpers` are the directories in which helpers are searched instead of PATH.
    pub(crate) async fn find(
        &self,
        helpers: Option<&OsStr>,
        path: &Path,
        host: &str,
        repository: &str,
    ) -> Result<Option<Credentials>, String> {
        let mut trouble = None;
        let own = best(&self.helpers, host, repository);
        let program = own.map(|(_, program)| program).or(self.store.as_ref());
        if let Some(program) = program {
            let key = if host == DOCKER_HUB { HUB_KEY } else { host };
            match helper::get(program, key, helpers).await {
                Ok(Some((user, secret))) => {
                    let place = format!("`docker-credential-{program}`, named in ");
                    // The protocol's marker for an identity token.
                    let login = if user == "<token>" {
                        Login::Identity(secret)
                    } else {
                        Login::Password {
                            user: user.clone(),
                            password: secret,
                        }
                    };
                    let whence = of_user(&user, &place, path);
                    return Ok(Some(Credentials { login, whence }));
                }
                Ok(None) => {}
                Err(error) => trouble = Some(format!("{error}, named in `{}`", path.display())),
            }
        }
        match best(&self.auths, host, repository) {
            Some((key, entry)) => match entry.login() {
                Some(login) => {
                    let user = match &login {
                        Login::Password { user, .. } => user.as_str(),
                        _ => "<token>",
                    };
                    let whence = of_user(user, "", path);
                    Ok(Some(Credentials { login, whence }))
                }
                // An empty entry means in Docker's files that a helper has the credentials.
                None if entry.is_empty() => trouble.map_or(Ok(None), Err),
                None => Err(format!(
                    "the entry `{key}` of `{}` cannot be read",
                    path.display()
                )),
            },
            None => trouble.map_or(Ok(None), Err),
        }
    }
}

/// Says whose credentials these are and where they were found.
fn of_user(user: &str, place: &str, path: &Path) -> String {
    format!(
        "user `{}` of {place}`{}`",
        crate::failure::excerpt(user),
        path.display()
    )
}

impl Entry {
    fn is_empty(&self) -> bool {
        [
            &self.auth,
            &self.username,
            &self.password,
            &self.identitytoken,
        ]
        .iter()
        .all(|field| field.as_deref().unwrap_or("").is_empty())
    }

    fn login(&self) -> Option<Login> {
        let non_empty = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        if let Some(token) = non_empty(&self.identitytoken) {
            return Some(Login::Identity(Secret::new(token)));
        }
        if let (Some(user), Some(password)) = (non_empty(&self.username), non_empty(&self.password))
        {
            let password = Secret::new(password);
            return Some(Login::Password { user, password });
        }
        // Some programs write base64 without padding.
        let config =
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let bytes = GeneralPurpose::new(&STANDARD, config)
            .decode(non_empty(&self.auth)?.trim())
            .ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (user, password) = text.split_once(':')?;
        (!user.is_empty()).then(|| Login::Password {
            user: user.to_owned(),
            // Docker for Windows pads with NULs, which Docker itself removes.
            password: Secret::new(password.trim_end_matches('\0').to_owned()),
        })
    }
}

/// The most specific entry for the repository: `host/a/b` before `host/a` before `host`.
fn best<'a, T>(
    entries: &'a BTreeMap<String, T>,
    host: &str,
    repository: &str,
) -> Option<(&'a str, &'a T)> {
    let whole = format!("{host}/{repository}");
    entries
        .iter()
        .filter_map(|(key, entry)| {
            let place = plain(key);
            let rest = whole.strip_prefix(&place)?;
            (rest.is_empty() || rest.starts_with('/')).then_some((place.len(), key, entry))
        })
        .max_by_key(|(length, ..)| *length)
        .map(|(_, key, entry)| (key.as_str(), entry))
}

/// Normalizes a key to `host[/path]`: old keys are addresses of the API.
fn plain(key: &str) -> String {
    let rest = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    let rest = match rest {
        Some(rest) => rest
            .trim_end_matches('/')
            .trim_end_matches("/v1")
            .trim_end_matches("/v2"),
        None => key,
    };
    let rest = rest.trim_end_matches('/');
    let (host, path) = match rest.split_once('/') {
        Some((host, path)) => (host, Some(path)),
        None => (rest, None),
    };
    let host = match host {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        other => other,
    };
    match path {
        // A key `index.docker.io/v1` without its scheme.
        Some("v1" | "v2") | None => host.to_owned(),
        Some(path) => format!("{host}/{path}"),
    }
}
