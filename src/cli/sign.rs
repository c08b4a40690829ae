//! `stackforge sign` and `stackforge verify`.

use super::Outcome;
use super::args::{Common, SignArgs, VerifyArgs};
use super::attach::{connect, waited};
use super::output::{Failure, json, print, shown};
use stackforge_distribute::evidence::{self, EvidenceError, PrivateKey, PublicKey, Signed, Trust};
use stackforge_stack::config::Config;
use stackforge_transfer::registry::Reference;
use stackforge_types::date::rfc3339;
use stackforge_types::printable;
use std::path::Path;
use std::str::FromStr as _;

pub fn sign(common: &Common, args: &SignArgs) -> Outcome {
    let (Some(reference), Some(key)) = (&args.reference, &args.key) else {
        // Clap requires both unless a new pair of keys is named.
        return args
            .generate_key
            .as_deref()
            .map_or(Ok(()), |name| generate(common, name).map_err(Failure::from));
    };
    let reference = Reference::from_str(reference)?;
    let key = PrivateKey::read(key).map_err(EvidenceError::from)?;
    let registry = connect(common, &reference, &[])?;
    let now = Some(evidence::now());
    let signed = waited(async {
        let repository = reference.repository();
        let manifest = evidence::resolve(&registry, &reference).await?.descriptor();
        let mut signed = Vec::new();
        if args.recursive {
            for image in evidence::named(&registry, &reference).await?.images {
                if image.digest != manifest.digest {
                    signed.push(
                        evidence::sign(&registry, repository, &image.descriptor, &key, now).await?,
                    );
                }
            }
        }
        signed.push(evidence::sign(&registry, repository, &manifest, &key, now).await?);
        Ok::<_, EvidenceError>(signed)
    })?;
    print_signatures(common, "signed", &reference, &key.public(), &signed);
    Ok(())
}

fn generate(common: &Common, name: &Path) -> Result<(), EvidenceError> {
    let key = PrivateKey::generate();
    let [private, public] = key.write(name)?;
    if common.json {
        json(&serde_json::json!({
            "private": private, "public": public,
            "key": key.public().fingerprint(),
        }))
    } else {
        print(&format!(
            "{}: written; whoever has it signs in your name\n{}: written\n",
            shown(&private),
            shown(&public),
        ))
    }
    Ok(())
}

pub fn verify(common: &Common, args: &VerifyArgs) -> Outcome {
    let reference = Reference::from_str(&args.reference)?;
    let key = PublicKey::read(&args.key).map_err(EvidenceError::from)?;
    let trust = Trust::new(key, args.verify_name.clone());
    let config = Config::load()?;
    let mirror = config.registries.get(reference.host()).cloned();
    let registry = connect(common, &reference, mirror.as_slice())?;
    let signed = waited(async {
        let manifest = evidence::resolve(&registry, &reference).await?;
        evidence::verify(&registry, &reference, &manifest.digest, &trust).await
    })?;
    print_signatures(common, "verified", &reference, &trust.key, &signed);
    Ok(())
}

fn print_signatures(
    common: &Common,
    done: &str,
    reference: &Reference,
    key: &PublicKey,
    signed: &[Signed],
) {
    let fingerprint = key.fingerprint();
    if common.json {
        json(&serde_json::json!({
            "reference": reference.to_string(),
            "key": fingerprint, "signatures": signed,
        }));
        return;
    }
    let key = fingerprint.map_or_else(String::new, |f| format!(", key {}", f.short()));
    let lines: String = signed.iter().map(statement).collect();
    print(&format!("{reference}: {done}{key}\n{lines}"));
}

/// Formats one statement for people.
pub(super) fn statement(signed: &Signed) -> String {
    let seconds = signed.time.and_then(|time| u32::try_from(time).ok());
    let at = seconds.map_or_else(String::new, |s| format!(", {}", rfc3339(s)));
    let name = printable::line(&signed.name);
    format!("  {name}@{}{at}\n", signed.digest)
}
