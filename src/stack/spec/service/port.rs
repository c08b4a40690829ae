//! A port that a service listens on.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A port with its protocol, `8000` or `9000/udp` in a stack, `8000/tcp` in an image's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    pub number: u16,
    pub protocol: Protocol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a port")]
pub struct PortError(String);

impl FromStr for Port {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        let wrong = || PortError(text.chars().take(40).collect());
        let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let digits = number.bytes().all(|b| b.is_ascii_digit());
        let number = number.parse().ok().filter(|n| digits && *n > 0);
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            _ => return Err(wrong()),
        };
        Ok(Self {
            number: number.ok_or_else(wrong)?,
            protocol,
        })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        write!(f, "{}/{protocol}", self.number)
    }
}

impl Serialize for Port {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_with_a_protocol() {
        for (text, shown) in [
            ("8000", "8000/tcp"),
            ("53/udp", "53/udp"),
            ("1/sctp", "1/sctp"),
        ] {
            assert_eq!(text.parse::<Port>().unwrap().to_string(), shown);
        }
        for text in [
            "", "0", "65536", "+80", "80/", "80/http", "8080:80", "80 ", "８０",
        ] {
            assert!(text.parse::<Port>().is_err(), "{text}");
        }
    }
}
