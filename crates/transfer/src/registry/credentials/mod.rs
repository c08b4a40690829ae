//! Finds a user's credentials for a registry, as Docker and Podman store them.
//!
//! In: Docker's `config.json`, Podman's `auth.json`, credential helpers. Out: [`Credentials`] and their
//! source. A damaged or missing file or helper is not an error, because public images need no credentials:
//! the fault is remembered and reported when a registry refuses. No log, error or `Debug` output contains a
//! secret.

mod file;
mod found;
mod helper;

use std::ffi::OsString;
use std::path::PathBuf;

use file::AuthFile;
use stackforge_types::login::Login;

pub use found::Credentials;

/// Where credentials are looked up.
#[derive(Debug)]
pub struct Keychain {
    /// Files in order; the first one that mentions a registry decides.
    files: Vec<PathBuf>,
    fixed: Option<Login>,
    /// Directories in which helpers are searched instead of PATH.
    path: Option<OsString>,
}

impl Keychain {
    /// Uses the user's files: REGISTRY_AUTH_FILE, Docker's, Podman's.
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

    /// Uses these files, in this order.
    pub fn of_files(files: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            files: files.into_iter().collect(),
            fixed: None,
            path: None,
        }
    }

    /// Uses one login for every registry.
    pub fn fixed(login: Login) -> Self {
        Self {
            files: Vec::new(),
            fixed: Some(login),
            path: None,
        }
    }

    /// Finds the credentials for a repository; `host` is `docker.io` for Docker Hub.
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
                Ok(Some(file)) => match file
                    .find(self.path.as_deref(), path, host, repository)
                    .await
                {
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

#[cfg(test)]
mod tests;
