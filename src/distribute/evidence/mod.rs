//! Evidence of where an image comes from, attached to it in a registry.
//!
//! In: a plan and the results of its build; a key; an image in a registry. Out: SBOMs in SPDX and
//! CycloneDX, SLSA provenance, the reports of audit and validation, each attached to the image as a
//! referrer; signatures in cosign's form; and a list of all that is attached. Documents depend only on the
//! lock and the files that it names: no clock, no random name. Never: evidence about an image that another
//! plan made, a bad signature called good, a private key printed.

mod attach;
mod bill;
mod cyclonedx;
mod error;
mod image;
mod inspect;
mod key;
mod kind;
mod licence;
mod provenance;
mod purl;
mod signature;
mod spdx;
mod trust;

pub use attach::{Attached, Paths, Request, attach, own};
pub use bill::{Bill, Item, Role, Subject};
pub use error::{EvidenceError, KeyError};
pub use image::{Found, Named, named, resolve};
pub use inspect::{Evidence, Inspected, Inspection, document, inspect};
pub use key::{PrivateKey, PublicKey};
pub use kind::EvidenceKind;
pub use licence::Licence;
pub use provenance::{Builder, Inputs, PREDICATE, statement};
pub use signature::{
    Signed, StoredSignature, now, read_statement, sign, signatures, verify, verify_any,
};
pub use trust::{Names, Trust};

/// The format of an SBOM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SbomFormat {
    /// SPDX 2.3.
    Spdx,
    /// CycloneDX 1.6.
    CycloneDx,
}

/// Returns the SBOM as the text of a file.
pub fn sbom(bill: &Bill<'_>, format: SbomFormat) -> String {
    let document = match format {
        SbomFormat::Spdx => spdx::document(bill),
        SbomFormat::CycloneDx => cyclonedx::document(bill),
    };
    // Cannot fail: texts, numbers and lists always serialize.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}
