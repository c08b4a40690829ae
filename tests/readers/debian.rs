//! What a mirror of Debian serves: stanzas, indices, releases and packages.

use std::io::Read as _;
use std::time::{Duration, SystemTime};

use stackforge_debian::contents::Contents;
use stackforge_debian::control::{MAX_STANZA, StanzaReader};
use stackforge_debian::deb::Deb;
use stackforge_debian::index::IndexBuilder;
use stackforge_debian::package::is_package_name;
use stackforge_debian::release;
use stackforge_openpgp::{Keyring, SignedText};

use super::{MAX_CONTENT, scratch};

/// Stanzas: fields have names, and a value is part of the stanza's text.
pub fn control(bytes: &[u8]) {
    let mut reader = StanzaReader::new(bytes);
    while let Ok(Some(stanza)) = reader.next_stanza() {
        assert!(stanza.text().len() <= MAX_STANZA);
        for (name, value) in stanza.iter() {
            assert!(!name.is_empty() && !name.contains([':', '\n']));
            assert!(stanza.get(name).is_some());
            assert!(value.len() <= stanza.text().len());
        }
    }
}

/// An index of packages: what is found by a name has that name.
pub fn packages(bytes: &[u8]) {
    contents(bytes);
    let mut builder = IndexBuilder::new("amd64");
    if builder.add("main", bytes).is_err() {
        return;
    }
    let index = builder.finish();
    for package in index.packages() {
        let newest = index.newest(package.name()).expect("it was listed");
        assert_eq!(newest.name(), package.name());
        let mut versions = index.versions(package.name());
        assert!(versions.any(|other| other.version() == package.version()));
        for (provided, _) in package.provides() {
            let mut providers = index.providers(provided);
            assert!(providers.any(|other| other.name() == package.name()));
        }
        assert!(package.locked().check().is_ok());
    }
}

/// An index of files: a name that is looked up has packages, which have names.
fn contents(bytes: &[u8]) {
    let mut contents = Contents::default();
    contents.add(bytes, "amd64").expect("a slice can be read");
    for line in String::from_utf8_lossy(bytes).lines() {
        let name = line.split([' ', '/']).next_back().unwrap_or(line);
        let packages = contents.library(name).iter().chain(contents.program(name));
        assert!(packages.into_iter().all(|p| is_package_name(p)));
    }
}

/// A keyring or a clear-signed text by the first byte. No key here has signed the texts.
pub fn signed(bytes: &[u8]) {
    let trusted = include_bytes!("../../images/keyrings/debian-archive-trixie.gpg");
    match bytes.split_first() {
        Some((b'k', keyring)) => {
            if let Ok(keyring) = Keyring::parse(keyring) {
                assert!(!keyring.fingerprints().is_empty());
            }
        }
        Some((_, text)) => {
            if let Ok(signed) = SignedText::parse(text) {
                let trusted = Keyring::parse(trusted).unwrap();
                let _ = signed.signers();
                assert_eq!(signed.verified(&trusted, SystemTime::UNIX_EPOCH), None);
            }
        }
        None => {}
    }
}

/// The text of a release: what it vouches for lies below the suite's directory.
pub fn release(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    if let Ok(release) = release::parse(text, "bookworm", now) {
        for path in release.files.keys() {
            assert!(!path.starts_with('/') && !path.split('/').any(|part| part == ".."));
        }
    }
}

/// A package file: its control files have plain names, and its data ends.
pub fn deb(bytes: &[u8]) {
    let dir = scratch();
    let file = dir.path().join("x.deb");
    std::fs::write(&file, bytes).expect("the scratch directory takes files");
    let Ok(deb) = Deb::open(&file) else { return };
    assert!(!deb.name().is_empty() && !deb.version().is_empty());
    assert!(deb.control_files.keys().all(|name| !name.contains('/')));
    assert!(deb.conffiles().all(|path| path.starts_with('/')));
    if let Ok(data) = deb.data() {
        let _ = std::io::copy(&mut data.take(MAX_CONTENT), &mut std::io::sink());
    }
}
