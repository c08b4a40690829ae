//! What a person asks of a run. Each value is parsed once, here.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// What is run, and how.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub gpus: Gpus,
    /// Size of `/dev/shm` in bytes; `None` for the default.
    pub shared_memory: Option<u64>,
    pub cache: Cache,
    pub ports: Vec<Port>,
    pub variables: Vec<Variable>,
    pub volumes: Vec<Volume>,
    pub name: Option<String>,
    /// Whether the container goes on without this process.
    pub detach: bool,
    /// Program in place of the image's entry point.
    pub entrypoint: Option<String>,
    /// Arguments in place of the image's own.
    pub command: Vec<String>,
    /// Whether standard input and output are a terminal.
    pub terminal: bool,
}

/// Which GPUs the program gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Gpus {
    /// Those of the device, if it has any.
    #[default]
    Auto,
    None,
    All,
    /// These, by index or by the driver's name for them.
    These(Vec<String>),
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Names as the driver has them: `GPU-8932f937-…`, `MIG-…`, and `0:1` for a MIG device.
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-:/".contains(&b))
        };
        match text {
            "none" => Ok(Self::None),
            "all" => Ok(Self::All),
            _ if text.split(',').all(is_name) => {
                Ok(Self::These(text.split(',').map(str::to_owned).collect()))
            }
            _ => Err("GPUs are `none`, `all` or numbers such as `0,1`".to_owned()),
        }
    }
}

/// Which directory of models the program shares with its user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Cache {
    /// The user's own, as their variables say.
    #[default]
    Own,
    /// This one, in place of Hugging Face's.
    Directory(PathBuf),
    None,
}

/// A port of the container that the host answers on: `[ADDRESS:]PORT[:PORT][/udp]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    pub address: Option<IpAddr>,
    pub host: u16,
    pub inside: u16,
    pub udp: bool,
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a port is `PORT`, `HOST-PORT:PORT` or `ADDRESS:HOST-PORT:PORT`".to_owned();
        let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let udp = match protocol {
            "tcp" => false,
            "udp" => true,
            _ => return Err("a port's protocol is `tcp` or `udp`".to_owned()),
        };
        let number = |text: &str| match text.parse::<u16>() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(wrong()),
        };
        let (before, inside) = match ports.rsplit_once(':') {
            Some((before, inside)) => (before, number(inside)?),
            None => (ports, number(ports)?),
        };
        let (address, host) = match before.rsplit_once(':') {
            Some((address, host)) => {
                let bare = address.trim_start_matches('[').trim_end_matches(']');
                (Some(bare.parse().map_err(|_| wrong())?), number(host)?)
            }
            None => (None, number(before)?),
        };
        Ok(Self {
            address,
            host,
            inside,
            udp,
        })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:")?,
            Some(address) => write!(f, "{address}:")?,
            None => {}
        }
        write!(f, "{}:{}", self.host, self.inside)?;
        f.write_str(if self.udp { "/udp" } else { "" })
    }
}

/// A variable of the program: `NAME=VALUE`, or `NAME` with this process's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub value: Option<String>,
}

impl FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("a variable is `NAME=VALUE` or `NAME`".to_owned());
        }
        Ok(Self {
            name: name.to_owned(),
            value,
        })
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A directory or file of the host in the container: `SOURCE:TARGET[:OPTIONS]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub source: Source,
    /// An absolute path.
    pub target: PathBuf,
    /// As engines take them: `ro`, `rw`, `z`.
    pub options: Vec<String>,
}

/// What a volume holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file or directory of the host.
    Path(PathBuf),
    /// A volume of the engine's own.
    Named(String),
}

impl Volume {
    pub fn read_only(&self) -> bool {
        self.options.iter().any(|o| o == "ro")
    }
}

impl FromStr for Volume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let (source, target) = match (parts.next(), parts.next()) {
            (Some(source), Some(target)) if !source.is_empty() => (source, target),
            _ => return Err("a volume is `SOURCE:TARGET` or `SOURCE:TARGET:ro`".to_owned()),
        };
        let options = match (parts.next(), parts.next()) {
            (None, _) => Vec::new(),
            (Some(options), None) => options.split(',').map(str::to_owned).collect(),
            (Some(_), Some(_)) => {
                return Err("a volume has at most two colons".to_owned());
            }
        };
        let plain = target.split('/').all(|part| part != "..");
        if !target.starts_with('/') || target.trim_matches('/').is_empty() || !plain {
            return Err("a volume's target is an absolute path below `/`, without `..`".to_owned());
        }
        let source = if source.starts_with(['.', '~']) || source.contains('/') {
            Source::Path(source.into())
        } else {
            Source::Named(source.to_owned())
        };
        Ok(Self {
            source,
            target: target.into(),
            options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ports_are_the_same_on_both_sides_unless_two_are_given() {
        let of = |text: &str| text.parse::<Port>().map(|p| p.to_string());
        assert_eq!(of("8000").unwrap(), "8000:8000");
        assert_eq!(of("80:8000/udp").unwrap(), "80:8000/udp");
        assert_eq!(of("127.0.0.1:80:8000").unwrap(), "127.0.0.1:80:8000");
        assert_eq!(of("[::1]:80:8000").unwrap(), "[::1]:80:8000");
        for bad in ["", "0", "70000", "a:1", "1:2:3", "8000/sctp", "80:"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn gpus_are_numbers_or_the_drivers_names() {
        let of = |text: &str| text.parse::<Gpus>();
        assert_eq!(of("none"), Ok(Gpus::None));
        assert_eq!(of("0,1"), Ok(Gpus::These(vec!["0".into(), "1".into()])));
        assert!(of("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6").is_ok());
        for bad in ["", "0,", "0 1", "\"device=0\""] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_volume_with_a_slash_is_a_path() {
        let of = |text: &str| text.parse::<Volume>();
        assert_eq!(of("./x:/y").unwrap().source, Source::Path("./x".into()));
        assert_eq!(of("x:/y").unwrap().source, Source::Named("x".into()));
        assert!(of("/x:/y:ro,z").unwrap().read_only());
        for bad in ["/x", ":/y", "/x:y", "/x:/", "/x:/a/../b", "/x:/y:ro:z"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "(?s).*", p in "[0-9a-f:.\\[\\]/udpt]{0,24}") {
            for text in [&s, &p] {
                let _ = text.parse::<Gpus>();
                let _ = text.parse::<Variable>();
                let _ = text.parse::<Volume>();
                if let Ok(port) = text.parse::<Port>() {
                    prop_assert_eq!(port.to_string().parse::<Port>(), Ok(port));
                }
            }
        }
    }
}
