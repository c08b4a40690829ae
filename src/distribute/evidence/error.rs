//! Errors of making or verifying evidence.

use stackforge_image::oci::OciError;
use stackforge_stack::diag::{Code, Explained, codes};
use stackforge_transfer::registry::RegistryError;
use stackforge_types::Digest;
use stackforge_types::reference::BadReference;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Image(#[from] OciError),
    #[error("`{reference}` was not made from {stack}: {problem}")]
    OtherStack {
        reference: String,
        stack: String,
        problem: String,
    },
    #[error("`{reference}` has no {kind} attached")]
    NotAttached { reference: String, kind: String },
    #[error("{what}: {problem}")]
    Malformed { what: String, problem: String },
    #[error("read the report {}", path.display())]
    Report {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the report {} is not one of a validation: {problem}", path.display())]
    NoReport { path: PathBuf, problem: String },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("`{reference}` ({digest}) has no signature")]
    Unsigned { reference: String, digest: Digest },
    #[error("no signature of `{reference}` ({digest}) was made with this key; it has {found}")]
    ForeignKey {
        reference: String,
        digest: Digest,
        found: usize,
    },
    #[error("the signature that lies beside `{reference}` is for {signed}, and this is {digest}")]
    Changed {
        reference: String,
        digest: Digest,
        signed: String,
    },
    #[error("`{reference}` is signed as {}, and {wanted} is wanted", signed.join(", "))]
    OtherName {
        reference: String,
        wanted: String,
        signed: Vec<String>,
    },
    #[error("`{reference}` is not what its digest says")]
    Altered {
        reference: String,
        #[source]
        source: Box<RegistryError>,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("read the key {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("write the key {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the key {name}: the environment has no variable `{variable}`")]
    Variable { name: String, variable: String },
    #[error("the key {name} is not PEM")]
    NoPem { name: String },
    #[error("the key {name} is encrypted in cosign's own form, which is not read")]
    Cosign { name: String },
    #[error("the key {name} is encrypted")]
    Encrypted { name: String },
    #[error("the key {name} is a private one, and a public one is wanted")]
    Private { name: String },
    #[error("the key {name} is a public one, and a private one is wanted")]
    Public { name: String },
    #[error("the key {name} is not an ECDSA key on P-256 (`{label}`)")]
    Kind { name: String, label: String },
}

impl Explained for EvidenceError {
    fn code(&self) -> Code {
        match self {
            Self::Registry(e) => e.code(),
            Self::Image(e) => e.code(),
            Self::Key(e) => e.code(),
            Self::Malformed { .. } => codes::IMAGE_UNREADABLE,
            Self::OtherStack { .. } => codes::EVIDENCE_OTHER_STACK,
            Self::NotAttached { .. } => codes::EVIDENCE_MISSING,
            Self::Report { .. } => codes::UNREADABLE,
            Self::NoReport { .. } => codes::NO_REPORT,
            Self::Unsigned { .. } => codes::SIGNATURE_MISSING,
            Self::ForeignKey { .. } => codes::SIGNATURE_FOREIGN,
            Self::Changed { .. } | Self::Altered { .. } => codes::SIGNATURE_OTHER,
            Self::OtherName { .. } => codes::SIGNATURE_NAME,
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Registry(e) => e.help(),
            Self::Altered { source, .. } => source.help(),
            Self::Image(_) | Self::Malformed { .. } => {
                "push the image again; `stackforge inspect` reads what is there".into()
            }
            Self::OtherStack { .. } => {
                "name the stack, and the variant of a matrix, that the image was built from, with the lock of that time".into()
            }
            Self::NotAttached { .. } => {
                "`stackforge inspect` lists what is; `stackforge attach` attaches it".into()
            }
            Self::Report { .. } => "check the path and its permissions".into(),
            Self::NoReport { .. } => {
                "`stackforge validate IMAGE -o FILE` writes a report".into()
            }
            Self::Key(e) => e.help(),
            Self::Unsigned { .. } => {
                "`stackforge sign` signs it; a tag may also have been moved to an image that nobody signed".into()
            }
            Self::ForeignKey { .. } => {
                "check that the key is its publisher's; an image that somebody else signed is not to be trusted".into()
            }
            Self::OtherName { .. } => {
                "if this is a mirror of that repository, say so with `--verify-name`; else the tag was moved to another product of the same publisher".into()
            }
            Self::Changed { .. } => {
                "do not use it: the tag or the signature was moved; ask its publisher for the digest".into()
            }
        }
    }
}

impl Explained for KeyError {
    fn code(&self) -> Code {
        codes::KEY_UNUSABLE
    }

    fn help(&self) -> String {
        let help = match self {
            Self::Read { .. } | Self::Write { .. } => "check the path and its permissions",
            Self::Variable { .. } => "`env://NAME` takes the key's text from a variable",
            Self::Cosign { .. } => {
                "use a key of `stackforge sign --generate-key`; `cosign import-key-pair --key FILE` takes that into cosign"
            }
            Self::Encrypted { .. } => {
                "`openssl pkcs8 -in KEY -out PLAIN` decrypts it; keep the result out of reach of others, or in a secret of the CI"
            }
            Self::Private { .. } => {
                "`openssl pkey -in KEY -pubout` prints its public key; a private key stays with who signs"
            }
            Self::Public { .. } => "signing takes the private key, checking the public one",
            Self::NoPem { .. } | Self::Kind { .. } => {
                "`stackforge sign --generate-key NAME` makes a key pair, `openssl ecparam -name prime256v1 -genkey` too"
            }
        };
        help.to_owned()
    }
}

impl From<BadReference> for EvidenceError {
    fn from(e: BadReference) -> Self {
        RegistryError::from(e).into()
    }
}
