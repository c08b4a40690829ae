//! Addresses of engines: parses text such as `DOCKER_HOST` has into an [`Address`]. Nothing connects here.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use crate::EngineError;
use stackforge_types::printable::without_credentials;

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

/// Parses `unix:///path`, `tcp://host:port`, `host:port` or `ssh://user@host`. `tls` is the directory of the
/// certificates for TCP.
///
/// # Errors
/// If it is none of these, or has characters that could become an option or a word of a shell.
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

    #[test]
    fn ports_users_and_sockets_are_read() {
        for text in [
            "tcp://[::1]:2375",
            "ssh://thor",
            "ssh://me@thor:2222",
            "ssh://me@thor/run/user/1000/docker.sock",
        ] {
            assert_eq!(parse(text, None).unwrap().to_string(), text);
        }
        let of = |text, tls| parse(text, tls).unwrap().to_string();
        assert_eq!(of("tcp://box", None), "tcp://box:2375");
        assert_eq!(of("box:99", None), "tcp://box:99");
        assert_eq!(of("tcp://box", Some("/certs".into())), "tcp://box:2376");
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
            let error = parse(text, None).unwrap_err();
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
            let error = parse(text, None).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }
}
