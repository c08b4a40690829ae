//! Addresses of engines: reads `DOCKER_HOST` and related variables into an [`Address`].
//!
//! The input is strings, the environment and docker's own configuration; the output is addresses in the
//! order in which they are tried. Nothing connects here.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::contexts;
use crate::EngineError;
use stackforge_types::printable::without_credentials;

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

/// The address of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Unix(PathBuf),
    Tcp {
        host: String,
        port: u16,
        /// Directory with `ca.pem`, `cert.pem` and `key.pem`. `None` for plain HTTP.
        tls: Option<PathBuf>,
    },
    Ssh {
        user: Option<String>,
        host: String,
        port: Option<u16>,
        /// The engine's socket on that host, if it is not the default.
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

/// Returns a variable as text. `None` if it is not set.
///
/// # Errors
/// If the variable is not UTF-8: it was set for a reason, so it must not be ignored.
pub(super) fn text(
    var: &impl Fn(&str) -> Option<OsString>,
    name: &'static str,
) -> Result<Option<String>, EngineError> {
    let value = var(name).map(OsString::into_string).transpose();
    value.map_err(|value| EngineError::Invalid {
        what: name,
        value: value.to_string_lossy().into_owned(),
        help: "it has to be UTF-8",
    })
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

pub(super) fn parse(text: &str, tls: Option<PathBuf>) -> Result<Address, EngineError> {
    let invalid = || EngineError::Invalid {
        what: "the engine's address",
        // The address may contain a password.
        value: without_credentials(text),
        help: "write unix:///path/to.sock, tcp://host:port or ssh://user@host",
    };
    // The docker command reads `host:port` as TCP.
    let scheme = text.split_once("://");
    let plain = || host_and_port(text).filter(|(_, port)| port.is_some());
    let (scheme, rest) = scheme
        .or_else(|| Some(("tcp", plain().map(|_| text)?)))
        .ok_or_else(invalid)?;
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
            // These become words of a command line on this machine and of a shell command on the remote
            // one.
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

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`.
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
                .map(|(_, value)| OsString::from(value))
        };
        let found = candidates(asked, var)?;
        Ok(found.iter().map(|c| c.address.to_string()).collect())
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
                "unix:///nonexistent/.rd/docker.sock",
                "unix:///run/user/7/podman/podman.sock",
                "unix:///run/podman/podman.sock",
            ]
        );
    }

    #[test]
    fn a_session_that_sets_no_folder_has_the_usual_one() {
        let own = format!("/run/user/{}", rustix::process::getuid().as_raw());
        let found = of(None, &[]).unwrap();
        assert_eq!(found[1], format!("unix://{own}/docker.sock"));
        assert_eq!(found[2], format!("unix://{own}/podman/podman.sock"));
        assert_eq!(found.len(), 4, "no home, no socket below it: {found:?}");
    }

    #[test]
    fn tls_that_was_asked_for_is_not_left_out() {
        let env = [("DOCKER_TLS_VERIFY", "1"), ("DOCKER_HOST", "tcp://box")];
        let error = of(None, &env).unwrap_err();
        assert!(error.help().contains("DOCKER_CERT_PATH"), "{error}");
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
        assert_eq!(of(Some("box:99"), &[]).unwrap(), ["tcp://box:99"]);
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
            "/var/run/docker.sock",
            "-o:99",
        ] {
            let error = of(Some(text), &[]).unwrap_err();
            assert!(matches!(error, EngineError::Invalid { .. }), "{text}");
        }
    }

    #[test]
    fn a_password_is_not_told() {
        for text in [
            "tcp://me:s3cret@box:2375",
            "ssh://me:s3cret@box",
            "https://me:s3cret@box",
            "me:s3cret@box",
        ] {
            let error = of(Some(text), &[]).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }
}
