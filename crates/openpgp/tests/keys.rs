//! Keyrings that Debian ships, and bytes that are not a keyring. Real releases are verified where they are fetched
//! (`tests/engine/debian_real.rs`).

use proptest::prelude::*;
use stackforge_openpgp::{Keyring, KeyringError, SignedText};
use std::time::UNIX_EPOCH;

const BOOKWORM: &[u8] = include_bytes!("../../../images/keyrings/debian-archive-bookworm.gpg");
const TRIXIE: &[u8] = include_bytes!("../../../images/keyrings/debian-archive-trixie.gpg");

#[test]
fn shipped_keyrings_hold_three_keys_each() {
    for (bytes, prints) in [
        (
            BOOKWORM,
            [
                "b8b80b5b623eab6ad8775c45b7c5d7d6350947f8",
                "05ab90340c0c5e797f44a8c8254cf3b5aec0a8f0",
                "4d64fec119c2029067d6e791f8d2585b8783d481",
            ],
        ),
        (
            TRIXIE,
            [
                "04b54c3cdca79751b16bc6b5225629df75b188bd",
                "5e04a1e3223a19a20706e20f9904613d4cce68c6",
                "41587f7db8c774bccf131416762f67a0b2c39de4",
            ],
        ),
    ] {
        assert_eq!(Keyring::parse(bytes).unwrap().fingerprints(), prints);
    }
    assert!(matches!(Keyring::parse(b""), Err(KeyringError::Empty)));
    assert!(Keyring::parse(&BOOKWORM[..40]).is_err());
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in any::<String>()) {
        let keyring = Keyring::parse(BOOKWORM).unwrap();
        let armoured = format!("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{text}\n-----BEGIN PGP SIGNATURE-----\n\n{text}\n-----END PGP SIGNATURE-----\n");
        for signed in [&bytes[..], armoured.as_bytes()] {
            let verified = SignedText::parse(signed)
                .is_ok_and(|signed| signed.verified(&keyring, UNIX_EPOCH).is_some());
            prop_assert!(!verified);
        }
        let _ = Keyring::parse(&bytes);
    }
}
