//! Prints a clear-signed file's text if a key of the keyring signed it.
//!
//! ```sh
//! cargo run --example verify -- /usr/share/keyrings/debian-archive-keyring.gpg InRelease
//! ```

use std::time::SystemTime;

use stackforge_openpgp::{Keyring, SignedText};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [keyring, file] = &args[..] else {
        return Err("usage: verify KEYRING FILE".into());
    };
    let keyring = Keyring::parse(&std::fs::read(keyring)?)?;
    let signed = SignedText::parse(&std::fs::read(file)?)?;
    let text = signed
        .verified(&keyring, SystemTime::now())
        .ok_or_else(|| format!("no good signature; signed by {:?}", signed.signers()))?;
    print!("{text}");
    Ok(())
}
