//! Who somebody is to a registry, as Docker and Podman keep it.
//!
//! In: Docker's `config.json`, Podman's `auth.json`, credential helpers. Out: [`Credentials`] and
//! where they come from. A file or helper that is damaged or missing is no error: public images need
//! none of it, so it is remembered and told when a registry refuses. Secrets are in no log, no error
//! and no `Debug`.

mod file;
mod helper;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use file::AuthFile;

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text from being shown.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// For whoever hands it to the registry, or to the engine that talks to it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How somebody proves who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// Without any credentials, as for public images.
    Anonymous,
    /// A name and a password, or an access token in its place.
    Password {
        /// The user's name.
        user: String,
        /// The password or token.
        password: Secret,
    },
    /// A refresh token, which the registry's token service turns into access tokens.
    Identity(Secret),
}

/// A login, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// [`Login::Anonymous`] if nothing was found.
    pub login: Login,
    /// For people: whose they are and where they stand, or where they were looked for.
    pub whence: String,
}

/// Where credentials are looked up.
#[derive(Debug)]
pub struct Keychain {
    /// The first file that knows a registry decides.
    files: Vec<PathBuf>,
    fixed: Option<Login>,
    /// Where helpers are searched instead of PATH.
    path: Option<OsString>,
}

impl Keychain {
    /// The user's: REGISTRY_AUTH_FILE, Docker's, Podman's.
    pub fn of_user() -> Self {
        Self::of_environment(|name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        })
    }

    fn of_environment(variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let home = variable("HOME");
        let docker = variable("DOCKER_CONFIG").or_else(|| Some(home.as_ref()?.join(".docker")));
        let config = variable("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
        let files = [
            variable("REGISTRY_AUTH_FILE"),
            docker.map(|d| d.join("config.json")),
            variable("XDG_RUNTIME_DIR").map(|d| d.join("containers/auth.json")),
            config.map(|d| d.join("containers/auth.json")),
        ];
        Self {
            files: files.into_iter().flatten().collect(),
            fixed: None,
            path: None,
        }
    }

    /// These files, in this order.
    pub fn of_files(files: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            files: files.into_iter().collect(),
            fixed: None,
            path: None,
        }
    }

    /// The same for every registry.
    pub fn fixed(login: Login) -> Self {
        Self {
            files: Vec::new(),
            fixed: Some(login),
            path: None,
        }
    }

    /// The credentials for a repository; `host` is `docker.io` for Docker Hub.
    pub async fn find(&self, host: &str, repository: &str) -> Credentials {
        if let Some(login) = &self.fixed {
            return Credentials {
                login: login.clone(),
                whence: "credentials that were given".to_owned(),
            };
        }
        let mut looked = Vec::new();
        for path in &self.files {
            match AuthFile::read(path).await {
                Ok(None) => {}
                Ok(Some(file)) => match file.find(self, path, host, repository).await {
                    Ok(Some(found)) => return found,
                    Ok(None) => looked.push(format!("none in `{}`", path.display())),
                    Err(trouble) => looked.push(trouble),
                },
                Err(trouble) => looked.push(trouble),
            }
        }
        Credentials {
            login: Login::Anonymous,
            whence: if looked.is_empty() {
                "no credentials".to_owned()
            } else {
                format!("no credentials: {}", looked.join(", "))
            },
        }
    }
}

fn of_user(user: &str, place: &str, path: &Path) -> String {
    format!(
        "user `{}` of {place}`{}`",
        super::error::excerpt(user),
        path.display()
    )
}

#[cfg(test)]
mod tests;
