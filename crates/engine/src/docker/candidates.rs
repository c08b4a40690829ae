//! The engines that can be meant, in the order in which they are tried.
//!
//! In: the caller's address, the environment and docker's own configuration. Out: [`Candidate`]s with the
//! origin of each. Nothing connects here.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::address::{Address, parse, text};
use super::contexts;
use crate::EngineError;

/// Docker's default socket.
const USUAL: &str = "/var/run/docker.sock";

/// An address and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub address: Address,
    pub by: By,
}

/// The origin of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// The caller, for instance a builder of the configuration.
    Caller,
    /// The variable `DOCKER_HOST`.
    Environment,
    /// The docker command's context of this name.
    Context(String),
    /// No setting: the named program usually listens there.
    Usual(&'static str),
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Caller => f.write_str("the address that was asked for"),
            By::Environment => f.write_str("DOCKER_HOST"),
            By::Context(name) => write!(f, "docker context `{name}`"),
            By::Usual(whose) => write!(f, "{whose} socket"),
        }
    }
}

/// Returns the addresses to try: the requested one, else the one in `DOCKER_HOST`, else that of the
/// current docker context, else the usual sockets. `var` reads the environment.
pub(super) fn candidates(
    asked: Option<&str>,
    var: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<Candidate>, EngineError> {
    let var = |name: &str| var(name).filter(|value| !value.is_empty());
    let named = match asked {
        Some(asked) => Some((asked.to_owned(), By::Caller)),
        None => text(&var, "DOCKER_HOST")?.map(|host| (host, By::Environment)),
    };
    if let Some((text, by)) = named {
        let tls = var("DOCKER_TLS_VERIFY").map(|_| certificates(&var));
        let address = parse(&text, tls.transpose()?)?;
        return Ok(vec![Candidate { address, by }]);
    }
    if let Some((name, address)) = contexts::current(var)? {
        let by = By::Context(name);
        return Ok(vec![Candidate { address, by }]);
    }
    let usual = |(path, whose): (Option<PathBuf>, &'static str)| {
        Some(Candidate {
            address: Address::Unix(path?),
            by: By::Usual(whose),
        })
    };
    Ok(sockets(var).into_iter().filter_map(usual).collect())
}

/// Returns the sockets where engines usually listen, with their owners, in the order in which they are
/// tried.
fn sockets(var: impl Fn(&str) -> Option<OsString>) -> [(Option<PathBuf>, &'static str); 8] {
    // A login session sets the variable; cron, su and ssh without PAM do not.
    let own = || format!("/run/user/{}", rustix::process::getuid().as_raw()).into();
    let runtime = PathBuf::from(var("XDG_RUNTIME_DIR").unwrap_or_else(own));
    let home = var("HOME").map(PathBuf::from);
    let at_home = |path: &str| Some(home.as_ref()?.join(path));
    [
        (Some(USUAL.into()), "Docker's usual"),
        (Some(runtime.join("docker.sock")), "rootless Docker's"),
        // The first is used on macOS, the second on Linux.
        (at_home(".docker/run/docker.sock"), "Docker Desktop's"),
        (at_home(".docker/desktop/docker.sock"), "Docker Desktop's"),
        (at_home(".colima/default/docker.sock"), "Colima's"),
        (at_home(".rd/docker.sock"), "Rancher Desktop's"),
        (
            Some(runtime.join("podman/podman.sock")),
            "rootless Podman's",
        ),
        (Some("/run/podman/podman.sock".into()), "Podman's"),
    ]
}

/// Returns the directory of TLS certificates. It is an error if there is none, because the connection
/// would not use TLS.
fn certificates(var: &impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, EngineError> {
    var("DOCKER_CERT_PATH")
        .map(PathBuf::from)
        .or_else(|| var("HOME").map(|home| PathBuf::from(home).join(".docker")))
        .ok_or_else(|| EngineError::Invalid {
            what: "DOCKER_TLS_VERIFY without certificates",
            value: var("DOCKER_TLS_VERIFY")
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            help: "set DOCKER_CERT_PATH to the folder with ca.pem, cert.pem and key.pem",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(asked: Option<&str>, env: &[(&str, &str)]) -> Result<Vec<String>, EngineError> {
        let var = |name: &str| {
            env.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        let found = candidates(asked, var)?;
        Ok(found.iter().map(|c| c.address.to_string()).collect())
    }

    #[test]
    fn what_is_asked_for_wins_over_the_environment() {
        let env = [("DOCKER_HOST", "tcp://10.0.0.1:99")];
        assert_eq!(
            addresses(Some("unix:///x.sock"), &env).unwrap(),
            ["unix:///x.sock"]
        );
        assert_eq!(addresses(None, &env).unwrap(), ["tcp://10.0.0.1:99"]);
    }

    #[test]
    fn without_either_the_usual_sockets_are_tried_in_order() {
        assert_eq!(
            addresses(
                None,
                &[
                    ("XDG_RUNTIME_DIR", "/run/user/7"),
                    ("DOCKER_HOST", ""),
                    ("HOME", "/nonexistent"),
                ]
            )
            .unwrap(),
            [
                "unix:///var/run/docker.sock",
                "unix:///run/user/7/docker.sock",
                "unix:///nonexistent/.docker/run/docker.sock",
                "unix:///nonexistent/.docker/desktop/docker.sock",
                "unix:///nonexistent/.colima/default/docker.sock",
                "unix:///nonexistent/.rd/docker.sock",
                "unix:///run/user/7/podman/podman.sock",
                "unix:///run/podman/podman.sock",
            ]
        );
    }

    #[test]
    fn a_session_that_sets_no_folder_has_the_usual_one() {
        let own = format!("/run/user/{}", rustix::process::getuid().as_raw());
        let found = addresses(None, &[]).unwrap();
        assert_eq!(found[1], format!("unix://{own}/docker.sock"));
        assert_eq!(found[2], format!("unix://{own}/podman/podman.sock"));
        assert_eq!(found.len(), 4, "no home, no socket below it: {found:?}");
    }

    #[test]
    fn tls_that_was_asked_for_is_not_left_out() {
        let env = [("DOCKER_TLS_VERIFY", "1"), ("DOCKER_HOST", "tcp://box")];
        let error = addresses(None, &env).unwrap_err();
        assert!(error.help().contains("DOCKER_CERT_PATH"), "{error}");
        let env = [("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", "/certs")];
        assert_eq!(
            addresses(Some("tcp://box"), &env).unwrap(),
            ["tcp://box:2376"]
        );
    }
}
