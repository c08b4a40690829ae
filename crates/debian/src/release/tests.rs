use super::*;
use proptest::prelude::*;
use std::time::{Duration, UNIX_EPOCH};

const BOOKWORM: &[u8] = include_bytes!("../../../../images/keyrings/debian-archive-bookworm.gpg");

fn body(extra: &str) -> String {
    format!(
        "Suite: stable\nCodename: tiny\n{extra}Acquire-By-Hash: yes\nArchitectures: amd64 arm64\nMD5Sum:\n 0 1 x\nSHA256:\n {} 12 main/binary-amd64/Packages.xz\n",
        "ab".repeat(32)
    )
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn lists_the_files_of_the_right_suite_until_it_expires() {
    let release = parse(&body(""), "tiny", at(9)).unwrap();
    assert_eq!(release.files["main/binary-amd64/Packages.xz"].size, 12);
    assert_eq!(release.files.len(), 1);
    assert!(release.by_hash && release.date.is_none());
    let dated = parse(
        &body("Date: Thu, 01 Jan 1970 00:00:07 UTC\n"),
        "tiny",
        at(9),
    )
    .unwrap();
    assert_eq!(dated.date, Some(at(7)));
    assert!(parse(&body(""), "stable", at(9)).is_ok());
    assert!(matches!(
        parse(&body(""), "other", at(9)),
        Err(ReleaseError::OtherSuite { .. })
    ));
    let expiring = body("Valid-Until: Thu, 01 Jan 1970 00:01:00 UTC\n");
    assert!(parse(&expiring, "tiny", at(59)).is_ok());
    let error = parse(&expiring, "tiny", at(61)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "InRelease of `tiny` expired on Thu, 01 Jan 1970 00:01:00 UTC"
    );
}

#[test]
fn refuses_lists_that_lie() {
    for (from, to) in [
        ("12 main", "12 ../main"),
        ("12 main", "-1 main"),
        (&"ab".repeat(32), "ab"),
        ("SHA256:", "SHA1:"),
    ] {
        assert!(
            parse(&body("").replace(from, to), "tiny", at(9)).is_err(),
            "{to}"
        );
    }
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in any::<String>()) {
        let keyring = Keyring::parse(BOOKWORM).unwrap();
        let armoured = format!("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{text}\n-----BEGIN PGP SIGNATURE-----\n\n{text}\n-----END PGP SIGNATURE-----\n");
        prop_assert!(Release::verify(&bytes, "tiny", &keyring, at(9)).is_err());
        prop_assert!(Release::verify(armoured.as_bytes(), "tiny", &keyring, at(9)).is_err());
        let _ = parse(&text, "tiny", at(9));
    }
}
