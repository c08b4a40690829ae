//! What a clear-signed file says, if a key of a keyring signed it.
use std::time::SystemTime;

use stackforge_openpgp::{Keyring, SignedText};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [keyring, file] = &args[..] else {
        return Err("usage: signed KEYRING FILE".into());
    };
    let keyring = Keyring::parse(&std::fs::read(keyring)?)?;
    let signed = SignedText::parse(&std::fs::read(file)?)?;
    let text = signed
        .verified(&keyring, SystemTime::now())
        .ok_or("no key of the keyring signed it")?;
    println!("{}", text.lines().next().unwrap_or_default());
    Ok(())
}
