//! Where an engine is: `DOCKER_HOST` and its kin, read into an [`Address`].
//!
//! In come strings, a view of the environment and docker's own configuration, out come addresses in the
//! order in which they are tried. Nothing is dialled here.

use std::fmt;
use std::path::PathBuf;

use super::contexts;
use crate::engine::EngineError;

/// Where Docker listens unless it is told otherwise.
const USUAL: &str = "/var/run/docker.sock";

/// One way to an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Unix(PathBuf),
    Tcp {
        host: String,
        port: u16,
        /// Directory with `ca.pem`, `cert.pem` and `key.pem`; plain HTTP when absent.
        tls: Option<PathBuf>,
    },
    Ssh {
        user: Option<String>,
        host: String,
        port: Option<u16>,
        /// The engine's socket on that host, where it is not the default.
        socket: Option<String>,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Tcp { host, port, .. } if host.contains(':') => {
                write!(f, "tcp://[{host}]:{port}")
            }
            Address::Tcp { host, port, .. } => write!(f, "tcp://{host}:{port}"),
            Address::Ssh {
                user,
                host,
                port,
                socket,
            } => {
                f.write_str("ssh://")?;
                if let Some(user) = user {
                    write!(f, "{user}@")?;
                }
                f.write_str(host)?;
                if let Some(port) = port {
                    write!(f, ":{port}")?;
                }
                f.write_str(socket.as_deref().unwrap_or_default())
            }
        }
    }
}

/// The addresses to try: the one that was asked for, else the one in `DOCKER_HOST`, else that of the
/// docker context in use, else the usual sockets. `var` reads the environment.
pub(super) fn candidates(
    asked: Option<&str>,
    var: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Address>, EngineError> {
    let var = |name: &str| var(name).filter(|value| !value.is_empty());
    if let Some(text) = asked.map(str::to_owned).or_else(|| var("DOCKER_HOST")) {
        let tls = var("DOCKER_TLS_VERIFY").map(|_| certificates(&var));
        return Ok(vec![parse(&text, tls.flatten())?]);
    }
    if let Some(address) = contexts::current(var)? {
        return Ok(vec![address]);
    }
    let runtime = var("XDG_RUNTIME_DIR").map(PathBuf::from);
    let home = var("HOME").map(PathBuf::from);
    let below = |folder: &Option<PathBuf>, path: &str| Some(folder.as_ref()?.join(path));
    let sockets = [
        Some(PathBuf::from(USUAL)),
        // Rootless Docker; Docker Desktop on macOS and on Linux; Colima; rootless Podman.
        below(&runtime, "docker.sock"),
        below(&home, ".docker/run/docker.sock"),
        below(&home, ".docker/desktop/docker.sock"),
        below(&home, ".colima/default/docker.sock"),
        below(&runtime, "podman/podman.sock"),
        Some("/run/podman/podman.sock".into()),
    ];
    Ok(sockets.into_iter().flatten().map(Address::Unix).collect())
}

fn certificates(var: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    var("DOCKER_CERT_PATH")
        .map(PathBuf::from)
        .or_else(|| var("HOME").map(|home| PathBuf::from(home).join(".docker")))
}

pub(super) fn parse(text: &str, tls: Option<PathBuf>) -> Result<Address, EngineError> {
    let invalid = || EngineError::Invalid {
        what: "the engine's address",
        value: text.to_owned(),
        help: "write unix:///path/to.sock, tcp://host:port or ssh://user@host",
    };
    let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
    match scheme {
        "unix" if rest.starts_with('/') => Ok(Address::Unix(rest.into())),
        "tcp" => {
            let rest = rest.strip_suffix('/').unwrap_or(rest);
            let (host, port) = host_and_port(rest).ok_or_else(invalid)?;
            let port = port.unwrap_or(if tls.is_some() { 2376 } else { 2375 });
            Ok(Address::Tcp { host, port, tls })
        }
        "ssh" => {
            let (login, socket) = match rest.find('/') {
                Some(at) => (&rest[..at], &rest[at..]),
                None => (rest, ""),
            };
            let (user, place) = match login.rsplit_once('@') {
                Some((user, place)) => (Some(user), place),
                None => (None, login),
            };
            let (host, port) = host_and_port(place).ok_or_else(invalid)?;
            // These become words of a command line here and of a shell line over there.
            if !user.is_none_or(is_word) || !(socket.is_empty() || is_path(socket)) {
                return Err(invalid());
            }
            Ok(Address::Ssh {
                user: user.map(str::to_owned),
                host,
                port,
                socket: Some(socket.to_owned()).filter(|path| path.len() > 1),
            })
        }
        _ => Err(invalid()),
    }
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        if host.is_empty()
            || !host
                .chars()
                .all(|c| c.is_ascii_hexdigit() || ":.".contains(c))
        {
            return None;
        }
        let port = match port {
            "" => None,
            port => Some(port.strip_prefix(':')?),
        };
        (host, port)
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        if !is_word(host) {
            return None;
        }
        (host, port)
    };
    let port = port.map(str::parse).transpose().ok()?;
    Some((host.to_owned(), port))
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

fn is_path(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(asked: Option<&str>, env: &[(&str, &str)]) -> Result<Vec<String>, EngineError> {
        let var = |name: &str| {
            env.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        candidates(asked, var).map(|found| found.iter().map(Address::to_string).collect())
    }

    #[test]
    fn what_is_asked_for_wins_over_the_environment() {
        let env = [("DOCKER_HOST", "tcp://10.0.0.1:99")];
        assert_eq!(
            of(Some("unix:///x.sock"), &env).unwrap(),
            ["unix:///x.sock"]
        );
        assert_eq!(of(None, &env).unwrap(), ["tcp://10.0.0.1:99"]);
    }

    #[test]
    fn without_either_the_usual_sockets_are_tried_in_order() {
        assert_eq!(
            of(
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
                "unix:///run/user/7/podman/podman.sock",
                "unix:///run/podman/podman.sock",
            ]
        );
    }

    #[test]
    fn ports_users_and_sockets_are_read() {
        for text in [
            "tcp://[::1]:2375",
            "ssh://thor",
            "ssh://me@thor:2222",
            "ssh://me@thor/run/user/1000/docker.sock",
        ] {
            assert_eq!(of(Some(text), &[]).unwrap(), [text]);
        }
        assert_eq!(of(Some("tcp://box"), &[]).unwrap(), ["tcp://box:2375"]);
        let env = [("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", "/certs")];
        assert_eq!(of(Some("tcp://box"), &env).unwrap(), ["tcp://box:2376"]);
    }

    #[test]
    fn what_could_become_an_option_or_a_shell_word_is_refused() {
        for text in [
            "ssh://-oProxyCommand=x",
            "ssh://a b",
            "ssh://me;id@thor",
            "ssh://thor/$(id)",
            "ssh://",
            "tcp://",
            "tcp://box:99999",
            "unix://relative",
            "npipe:////./pipe/docker_engine",
            "nonsense",
        ] {
            let error = of(Some(text), &[]).unwrap_err();
            assert!(matches!(error, EngineError::Invalid { .. }), "{text}");
        }
    }
}
