use super::super::members::tests::tar_of;
use super::*;
use proptest::prelude::*;
use std::io::{Cursor, Write};
use tar::EntryType;

fn ar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, content) in members {
        bytes.extend(
            format!(
                "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
                0,
                0,
                0,
                100644,
                content.len()
            )
            .bytes(),
        );
        bytes.extend_from_slice(content);
        bytes.extend(vec![b'\n'; content.len() % 2]);
    }
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Builds a package with the given control text, control files and data members.
pub(crate) fn deb_of(
    control: &str,
    files: &[(&str, &str)],
    data: &[(&str, EntryType, &str, &[u8])],
) -> Vec<u8> {
    let mut members = vec![
        ("./", EntryType::Directory, "", &b""[..]),
        ("./control", EntryType::Regular, "", control.as_bytes()),
    ];
    members.extend(
        files
            .iter()
            .map(|(name, text)| (*name, EntryType::Regular, "", text.as_bytes())),
    );
    ar(&[
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", &gzip(&tar_of(&members))),
        (
            "data.tar.zst",
            &zstd::encode_all(Cursor::new(tar_of(data)), 1).unwrap(),
        ),
    ])
}

const CONTROL: &str = "Package: tiny\nVersion: 1.0-1\nArchitecture: all\nDescription: x\n y\n";

fn open_bytes(bytes: &[u8]) -> Result<Deb, DebError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let deb = Deb::open(file.path());
    // The data is opened while the temporary file exists.
    deb.and_then(|deb| deb.data().map(|_| deb))
}

#[test]
fn opens_a_package() {
    let conffiles = "/etc/tiny\nremove-on-upgrade /etc/gone\n";
    let deb = open_bytes(&deb_of(
        CONTROL,
        &[("./conffiles", conffiles), ("./postinst", "#!/bin/sh\n")],
        &[],
    ))
    .unwrap();
    assert_eq!(
        (deb.name(), deb.version(), deb.architecture()),
        ("tiny", "1.0-1", "all")
    );
    assert_eq!(deb.conffiles().collect::<Vec<_>>(), ["/etc/tiny"]);
    assert_eq!(deb.stanza(), CONTROL);
    assert!(deb.control_files.contains_key("postinst"));
}

#[test]
fn refuses_what_is_no_package() {
    let good = tar_of(&[("./control", EntryType::Regular, "", CONTROL.as_bytes())]);
    let cases: &[(&[u8], &str)] = &[
        (b"", "cut short"),
        (b"PK\x03\x04aaaaaaaa", "ar archive"),
        (&ar(&[("data.tar", b"")]), "debian-binary"),
        (
            &ar(&[("debian-binary", b"2.0\n"), ("evil", b"")]),
            "unknown ar member",
        ),
        (
            &ar(&[("debian-binary", b"2.0\n"), ("control.tar.bz2", b"")]),
            "compression `.bz2`",
        ),
        (
            &ar(&[("debian-binary", b"2.0\n"), ("control.tar", &good)]),
            "no data archive",
        ),
        (
            &ar(&[
                ("debian-binary", b"2.0\n"),
                ("control.tar", &good),
                ("data.tar", b""),
            ])[..300],
            "cut short",
        ),
    ];
    for (bytes, reason) in cases {
        let error = open_bytes(bytes).unwrap_err().to_string();
        assert!(error.contains(reason), "{error} / {reason}");
    }
    for control in [
        "Package: tiny\nVersion: 1\n",
        "Package: T\nVersion: 1\nArchitecture: all\n",
        "Package: tiny\nVersion: a b\nArchitecture: all\n",
    ] {
        assert!(open_bytes(&deb_of(control, &[], &[])).is_err());
    }
    assert!(open_bytes(&deb_of(CONTROL, &[("./list", "/etc/passwd\n")], &[])).is_err());
    assert!(open_bytes(&deb_of(CONTROL, &[("./a/b", "")], &[])).is_err());
}

#[test]
fn stops_a_bomb() {
    let bomb = gzip(&vec![0; 4 << 20]);
    let mut reader = Bounded {
        inner: flate2::bufread::MultiGzDecoder::new(bomb.as_slice()),
        left: 1 << 20,
    };
    assert!(io::copy(&mut reader, &mut io::sink()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..400, byte: u8) {
        let _ = open_bytes(&bytes);
        let mut deb = deb_of(CONTROL, &[], &[]);
        let at = at % deb.len();
        deb[at] = byte;
        let _ = open_bytes(&deb);
    }
}
