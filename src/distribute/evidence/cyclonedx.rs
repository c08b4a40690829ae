//! Writes a bill of materials as an SBOM in CycloneDX 1.6 (JSON).
//!
//! Source: the CycloneDX specification (ECMA-424) and its JSON schema `bom-1.6`.

use super::bill::{Bill, Item, Role};
use super::licence::Licence;
use serde_json::{Value, json};
use stackforge_types::Digest;
use stackforge_types::date::rfc3339;
use std::collections::BTreeMap;

const IMAGE: &str = "image";

pub fn document(bill: &Bill<'_>) -> Value {
    let mut document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": rfc3339(bill.epoch),
            "tools": { "components": [{
                "type": "application",
                "name": "stackforge",
                "version": env!("CARGO_PKG_VERSION"),
            }] },
            "component": image(bill),
        },
        "components": bill.items.iter().map(component).collect::<Vec<_>>(),
        "dependencies": dependencies(bill),
    });
    let digest = Digest::of(document.to_string().as_bytes());
    document["serialNumber"] = format!("urn:uuid:{}", uuid(&digest)).into();
    document
}

fn image(bill: &Bill<'_>) -> Value {
    let plan = bill.plan;
    let mut component = json!({
        "type": "container",
        "bom-ref": IMAGE,
        "name": bill.image.as_ref().map_or(plan.variant.as_str(), |i| i.name.as_str()),
        "version": plan.key().to_string(),
    });
    if let Some(image) = &bill.image {
        component["hashes"] = hashes(&image.digest);
    }
    component
}

fn component(item: &Item) -> Value {
    let mut component = json!({
        "type": match item.role {
            Role::Base => "container",
            Role::Content | Role::Source | Role::Tool => "library",
        },
        "bom-ref": item.id,
        "name": item.name,
        "purl": item.purl,
        // What only the build used is not part of the image.
        "scope": match item.role {
            Role::Base | Role::Content => "required",
            Role::Source | Role::Tool => "excluded",
        },
    });
    if !item.version.is_empty() {
        component["version"] = item.version.as_str().into();
    }
    if let Some(sha256) = &item.sha256 {
        component["hashes"] = hashes(sha256);
    }
    match &item.licence {
        Licence::Spdx(expression) => {
            component["licenses"] = json!([{ "expression": expression }]);
        }
        Licence::Named(words) => {
            component["licenses"] = json!([{ "license": { "name": words } }]);
        }
        Licence::Unknown => {}
    }
    if let Some((url, revision)) = &item.git {
        component["externalReferences"] = json!([{
            "type": "vcs",
            "url": url,
            "comment": format!("revision {revision}"),
        }]);
    }
    component
}

fn hashes(sha256: &Digest) -> Value {
    json!([{ "alg": "SHA-256", "content": sha256.hex() }])
}

/// Returns the dependency graph. The image depends on everything that the stack itself names.
fn dependencies(bill: &Bill<'_>) -> Vec<Value> {
    let mut of: BTreeMap<&str, Vec<&str>> = BTreeMap::from([(IMAGE, Vec::new())]);
    for item in &bill.items {
        of.entry(&item.id).or_default();
        let within = matches!(item.role, Role::Base | Role::Content);
        let asking: Vec<&Item> = if within {
            item.via.iter().filter_map(|n| bill.python(n)).collect()
        } else {
            continue;
        };
        if asking.is_empty() {
            of.entry(IMAGE).or_default().push(&item.id);
        }
        for asks in asking {
            of.entry(&asks.id).or_default().push(&item.id);
        }
        if let Some(source) = &item.made_from {
            of.entry(&item.id).or_default().push(source);
        }
    }
    let entry = |(from, mut on): (&str, Vec<&str>)| {
        on.sort_unstable();
        on.dedup();
        on.retain(|to| *to != from);
        json!({ "ref": from, "dependsOn": on })
    };
    of.into_iter().map(entry).collect()
}

/// Returns a UUID of version 8 (RFC 9562), whose bits we may choose: they come from the digest.
fn uuid(digest: &Digest) -> String {
    let hex = digest.hex();
    let variant = match u8::from_str_radix(&hex[16..17], 16) {
        Ok(bits) => 8 | (bits & 3),
        Err(_) => 8,
    };
    format!(
        "{}-{}-8{}-{variant:x}{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..32]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_follows_from_the_content() {
        let one = uuid(&Digest::of(b"1"));
        assert_eq!(one, uuid(&Digest::of(b"1")));
        assert_ne!(one, uuid(&Digest::of(b"2")));
        let groups: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12]);
        assert!(one.split('-').nth(2).unwrap().starts_with('8'));
        assert!(
            one.split('-')
                .nth(3)
                .unwrap()
                .starts_with(['8', '9', 'a', 'b'])
        );
    }
}
