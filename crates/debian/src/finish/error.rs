//! Errors while a system is finished.

use std::io;

use super::super::deb::DebError;
use super::super::rootfs::RootfsError;

/// A maintainer script whose effects are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownScript {
    /// The package's name.
    pub package: String,
    /// `preinst` or `postinst`.
    pub script: &'static str,
    /// The first line that is not understood.
    pub line: String,
    /// First 16 hexadecimal digits of a SHA-256, by which `scripts.yaml` would know the script. If a
    /// section of debhelper's is not understood, a text that says so.
    pub digest: String,
}

impl std::fmt::Display for UnknownScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {} ({}, at `{}`)",
            self.script, self.package, self.digest, self.line
        )
    }
}

fn list(unknown: &[UnknownScript]) -> String {
    let all: Vec<String> = unknown.iter().map(ToString::to_string).collect();
    all.join("; ")
}

/// Why a file has no certificate whose subject could be hashed.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file has no certificate between the lines of PEM, or is not UTF-8.
    #[error("it is not in PEM")]
    Pem,
    /// The text between the lines of PEM is not base64.
    #[error("it is not in base64")]
    Base64(#[from] base64::DecodeError),
    /// The bytes are not those of a certificate.
    #[error("it is not an X.509 certificate in DER")]
    Der(#[from] der::Error),
}

/// Why a system could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    /// The packages' own files cannot be laid out.
    #[error(transparent)]
    Rootfs(#[from] RootfsError),
    /// Scripts whose effects nobody has written down.
    #[error("scripts of packages are not understood: {}", list(.0))]
    Scripts(Vec<UnknownScript>),
    /// A file that finishing reads and changes is malformed.
    #[error("the system's `{path}` is damaged")]
    Damaged {
        /// The file.
        path: String,
    },
    /// A certificate authority cannot be read.
    #[error("the certificate `{path}` cannot be read")]
    Certificate {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: CertificateError,
    },
    /// A file that a script works on is missing.
    #[error("a package's script needs `{path}`, which no package has")]
    Missing {
        /// The file.
        path: String,
    },
    /// The parent of a file is not a directory.
    #[error("`{path}` is not below a directory")]
    Parent {
        /// The file.
        path: String,
    },
    /// A script would create a path that already exists as something else.
    #[error("`{path}` is there already, and is not what a package's script would put there")]
    Occupied {
        /// The file.
        path: String,
    },
    /// A unit's `[Install]` section has a key other than `WantedBy` and `RequiredBy`.
    #[error("unit `{unit}` asks for `{line}`, which is not understood")]
    Unit {
        /// The systemd unit.
        unit: String,
        /// The line that is not understood.
        line: String,
    },
    /// A package enables a PAM profile other than `unix`.
    #[error("PAM profile `{name}` is not understood")]
    Profile {
        /// The name of its file.
        name: String,
    },
    /// The system below cannot be read.
    #[error("reading `{path}` of the system below")]
    Root {
        /// The file.
        path: String,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// The output could not be written.
    #[error("writing the system")]
    Write(#[from] io::Error),
}

impl From<DebError> for FinishError {
    fn from(error: DebError) -> Self {
        FinishError::Rootfs(error.into())
    }
}

impl FinishError {
    /// Returns what to do about it, as a sentence without its full stop.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Rootfs(error) => error.help(),
            Self::Scripts(_) | Self::Unit { .. } | Self::Profile { .. } => {
                "packages' own scripts have to run, by dpkg, which this base lacks: use a base that has it"
            }
            Self::Write(_) => "check the space and the permissions where it is written",
            _ => "the system below is not as its packages left it: use another base",
        }
    }

    /// Whether running the packages' own scripts would work instead.
    pub fn is_not_understood(&self) -> bool {
        matches!(
            self,
            Self::Scripts(_) | Self::Unit { .. } | Self::Profile { .. }
        )
    }
}
