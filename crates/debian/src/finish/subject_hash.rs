//! The hash of a certificate's subject, by which OpenSSL finds an authority in a directory.
//!
//! The input is a certificate in PEM. The output is the number that `openssl x509 -subject_hash` prints:
//! the first four bytes of the SHA-1 of the subject's canonical form, in which case, white space and
//! the type of a string do not count.
//!
//! Only the subject is decoded. Everything else is skipped by its length, because OpenSSL accepts old
//! roots whose serial numbers, times and extensions break the rules. For the same reason the PEM is
//! read without the limits that RFC 7468 sets on its lines. A `UniversalString`, which `der` does not
//! know, is an error: no authority that Debian ships has one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use der::asn1::{AnyRef, BmpString, Utf8StringRef};
use der::{Encode, Reader, SliceReader, Tag, Tagged};
use sha1::{Digest, Sha1};

use super::CertificateError;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END";

/// Returns the hash of the first certificate in `pem`. OpenSSL writes it as eight hexadecimal digits.
///
/// # Errors
/// If there is no certificate in PEM, its base64 is invalid, or it is malformed up to the end of its
/// subject.
pub(super) fn subject_hash(pem: &[u8]) -> Result<u32, CertificateError> {
    let body = std::str::from_utf8(pem)
        .ok()
        .and_then(|text| text.split_once(BEGIN))
        .and_then(|(_, text)| text.split_once(END))
        .ok_or(CertificateError::Pem)?
        .0;
    let body: String = body.split_whitespace().collect();
    let certificate = STANDARD.decode(body)?;
    let canonical = canonical(subject(&certificate)?)?;
    let [a, b, c, d, ..]: [u8; 20] = Sha1::digest(canonical).into();
    Ok(u32::from_le_bytes([a, b, c, d]))
}

/// Returns the content of a certificate's subject: its relative distinguished names.
fn subject(certificate: &[u8]) -> der::Result<SliceReader<'_>> {
    let mut certificate = enter(&mut SliceReader::new(certificate)?, Tag::Sequence)?;
    let mut fields = enter(&mut certificate, Tag::Sequence)?;
    // The subject comes after the version, which may be missing, and after the serial number, the
    // signature's algorithm, the issuer and the validity.
    let version = fields.peek_tag()?.is_context_specific();
    for _ in 0..4 + usize::from(version) {
        fields.decode::<AnyRef<'_>>()?;
    }
    enter(&mut fields, Tag::Sequence)
}

/// Reads the next element, which must have `tag`, and returns a reader of its content.
fn enter<'a>(reader: &mut SliceReader<'a>, tag: Tag) -> der::Result<SliceReader<'a>> {
    let element: AnyRef<'a> = reader.decode()?;
    element.tag().assert_eq(tag)?;
    SliceReader::new(element.value())
}

/// Does what OpenSSL's `x509_name_canon` does: encodes each relative name again with its texts folded,
/// without the sequence around them all.
fn canonical(mut name: SliceReader<'_>) -> der::Result<Vec<u8>> {
    let mut canonical = Vec::new();
    while !name.is_finished() {
        let mut set = enter(&mut name, Tag::Set)?;
        let mut attributes = Vec::new();
        while !set.is_finished() {
            let mut attribute = enter(&mut set, Tag::Sequence)?;
            let kind: AnyRef<'_> = attribute.decode()?;
            let value: AnyRef<'_> = attribute.decode()?;
            let mut content = kind.to_der()?;
            match text(value)? {
                Some(text) => Utf8StringRef::new(&fold(&text))?.encode_to_vec(&mut content)?,
                None => value.encode_to_vec(&mut content)?,
            };
            attributes.push(AnyRef::new(Tag::Sequence, &content)?.to_der()?);
        }
        // The members of a set are ordered by their encoding.
        attributes.sort_unstable();
        AnyRef::new(Tag::Set, &attributes.concat())?.encode_to_vec(&mut canonical)?;
    }
    Ok(canonical)
}

/// Decodes a string of the types that OpenSSL folds. `None` for every other type.
fn text(value: AnyRef<'_>) -> der::Result<Option<String>> {
    Ok(Some(match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>()?.as_str().to_owned(),
        // OpenSSL reads each of these as Latin-1, although only some of its characters are allowed.
        Tag::PrintableString | Tag::TeletexString | Tag::Ia5String | Tag::VisibleString => {
            value.value().iter().copied().map(char::from).collect()
        }
        Tag::BmpString => value.decode_as::<BmpString>()?.chars().collect(),
        _ => return Ok(None),
    }))
}

/// Folds ASCII letters to lower case and each run of ASCII white space to one blank, none at the ends.
fn fold(text: &str) -> String {
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    text.split(is_space)
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
        .to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// The organization's name, 2.5.4.10, in each of `values`.
    fn name(values: &[(Tag, &[u8])]) -> Vec<u8> {
        let mut sets = Vec::new();
        for (tag, value) in values {
            let mut attribute = vec![0x06, 3, 0x55, 0x04, 0x0a];
            let value = AnyRef::new(*tag, value).unwrap();
            value.encode_to_vec(&mut attribute).unwrap();
            let attribute = AnyRef::new(Tag::Sequence, &attribute).unwrap();
            let attribute = attribute.to_der().unwrap();
            let set = AnyRef::new(Tag::Set, &attribute).unwrap();
            set.encode_to_vec(&mut sets).unwrap();
        }
        sets
    }

    fn canonical_of(name: &[u8]) -> der::Result<Vec<u8>> {
        canonical(SliceReader::new(name)?)
    }

    #[test]
    fn case_spaces_and_encoding_do_not_matter() {
        let canonical = |tag, value: &[u8]| canonical_of(&name(&[(tag, value)])).unwrap();
        let a = canonical(Tag::PrintableString, b"  An  Authority ");
        let b = canonical(Tag::Utf8String, b"an authority");
        let c = canonical(Tag::BmpString, b"\0A\0N\0 \0a\0u\0t\0h\0o\0r\0i\0t\0y");
        assert!(a == b && b == c);
        assert_ne!(a, canonical(Tag::PrintableString, b"another"));
        // OpenSSL leaves other types as they are.
        assert_ne!(
            canonical(Tag::NumericString, b"1  2"),
            canonical(Tag::NumericString, b"1 2")
        );
        assert!(canonical_of(&[Tag::Set.octet(), 5, 0]).is_err());
    }

    #[test]
    fn a_file_that_is_not_a_certificate_is_an_error_that_says_why() {
        let pem = |body: &str| format!("{BEGIN}\n{body}\n{END} CERTIFICATE-----\n");
        for (text, expected) in [
            ("AAAA".to_owned(), "it is not in PEM"),
            (format!("{BEGIN}\nAAAA"), "it is not in PEM"),
            (pem("A*AA"), "it is not in base64"),
            (pem("AAAA"), "it is not an X.509 certificate in DER"),
            (pem(""), "it is not an X.509 certificate in DER"),
        ] {
            let error = subject_hash(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), expected, "{text}");
        }
    }

    fn openssl(arguments: &[&str], file: &Path) -> String {
        let asked = Command::new("openssl")
            .args(arguments)
            .arg(file)
            .output()
            .unwrap();
        assert!(asked.status.success(), "{}: {asked:?}", file.display());
        String::from_utf8(asked.stdout).unwrap()
    }

    fn assert_as_openssl(pem: &Path) {
        let expected = openssl(&["x509", "-noout", "-subject_hash", "-in"], pem);
        let hash = subject_hash(&std::fs::read(pem).unwrap());
        let hash = hash.unwrap_or_else(|e| panic!("{}: {e:?}", pem.display()));
        assert_eq!(format!("{hash:08x}\n"), expected, "{}", pem.display());
    }

    #[test]
    fn hashes_as_openssl_does() {
        let dir = tempfile::tempdir().unwrap();
        let (key, pem) = (dir.path().join("k"), dir.path().join("c.pem"));
        // RFC 5280 refuses the last two serial numbers: one is negative, one is longer than 20 bytes.
        let long = format!("0x{}", "7f".repeat(30));
        for (subject, serial) in [
            ("/C=DE/O=An  Öffentliche  Stelle/CN=Root CA 1", "1"),
            ("/O=x", "-5"),
            ("/C=US+O=Multi/OU=a b/CN=Q", &long),
        ] {
            let mut arguments = vec!["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-utf8"];
            arguments.extend(["-multivalue-rdn", "-subj", subject]);
            arguments.extend(["-set_serial", serial]);
            arguments.extend(["-keyout", key.to_str().unwrap(), "-out"]);
            openssl(&arguments, &pem);
            assert_as_openssl(&pem);
        }
    }

    /// The certificates of the machine that runs the test: most are roots that Debian ships.
    fn installed() -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut directories = vec![PathBuf::from("/usr/share/ca-certificates")];
        directories.push("/etc/ssl/certs".into());
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten() {
                let path = entry.unwrap().path();
                let pem = path.extension().is_some_and(|e| e == "crt" || e == "pem");
                if path.is_dir() {
                    directories.push(path);
                } else if pem {
                    found.push(path);
                }
            }
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn hashes_every_installed_certificate_as_openssl_does() {
        let found = installed();
        assert!(!found.is_empty(), "install the package ca-certificates");
        for pem in found {
            assert_as_openssl(&pem);
        }
    }
}
