//! Errors of publishing.

use stackforge_image::oci::OciError;
use stackforge_stack::diag::{Code, Explained, codes};
use stackforge_transfer::registry::RegistryError;
use stackforge_types::Digest;

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Image(#[from] OciError),
    #[error("the image has no manifest: it is what `docker save` wrote")]
    NoManifest,
    #[error("the image is for `{0}`, which is not a platform of stacks")]
    Platform(String),
    #[error("the image is {own}, and the reference names {asked}")]
    OtherDigest {
        asked: Box<Digest>,
        own: Box<Digest>,
    },
    #[error("a tag is needed there, and the reference names a digest")]
    NoTag,
    #[error("`{0}` is not the name of a variant")]
    Name(String),
    #[error("`{0}` is an image, not an index of variants")]
    NotAnIndex(String),
    #[error("{0}")]
    Fact(String),
    #[error("`{0}` is not the image that was pushed there just now")]
    Another(String),
    #[error("others change the index `{0}` faster than it can be read")]
    Busy(String),
    #[error("writing the index as JSON")]
    Json(#[source] serde_json::Error),
}

impl Explained for PublishError {
    fn code(&self) -> Code {
        match self {
            Self::Registry(e) => e.code(),
            Self::Image(e) => e.code(),
            Self::NoTag | Self::Name(_) => codes::BAD_REFERENCE,
            Self::NoManifest | Self::Platform(_) | Self::OtherDigest { .. } => {
                codes::IMAGE_UNREADABLE
            }
            Self::NotAnIndex(_) => codes::NOT_AN_INDEX,
            Self::Fact(_) => codes::BAD_VALUE,
            Self::Busy(_) | Self::Another(_) => codes::INDEX_BUSY,
            Self::Json(_) => codes::STORE_IO,
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Registry(e) => e.help(),
            Self::Image(e) => e.help(),
            Self::NoManifest => {
                "write it with `skopeo copy docker-archive:FILE oci:DIR` and push that".to_owned()
            }
            Self::OtherDigest { .. } => "leave the digest out, or push that image".to_owned(),
            Self::NoTag => "write it like `registry.example/team/stack:1`".to_owned(),
            Self::Name(_) => {
                "use letters, digits, `_`, `.` and `-`; with the index's tag at most 127 characters"
                    .to_owned()
            }
            Self::Fact(_) => {
                "facts are sm, ptx, cuda, driver, isa, l4t and stack: `--fact sm=90,100`".to_owned()
            }
            other => other.code().fix().to_owned(),
        }
    }
}
