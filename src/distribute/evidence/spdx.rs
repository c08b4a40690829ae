//! Writes a bill of materials as an SBOM in SPDX 2.3 (JSON).
//!
//! Source: "The Software Package Data Exchange Specification", version 2.3. Facts that are not known are
//! NOASSERTION, as the specification demands.

use super::bill::{Bill, Item, Role};
use super::licence::Licence;
use serde_json::{Value, json};
use stackforge_types::Digest;
use stackforge_types::date::rfc3339;

const NONE: &str = "NOASSERTION";
const IMAGE: &str = "SPDXRef-image";

pub fn document(bill: &Bill<'_>) -> Value {
    let mut packages = vec![image(bill)];
    packages.extend(bill.items.iter().map(package));
    let mut relations = vec![relation("SPDXRef-DOCUMENT", "DESCRIBES", IMAGE)];
    for item in &bill.items {
        relations.extend(of_item(bill, item));
    }
    let mut document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": bill.plan.variant,
        "creationInfo": {
            "created": rfc3339(bill.epoch),
            "creators": [concat!("Tool: stackforge-", env!("CARGO_PKG_VERSION"))],
        },
        "packages": packages,
        "relationships": relations,
    });
    // The namespace has to be unique for exactly this content.
    let digest = Digest::of(document.to_string().as_bytes());
    let name = format!("{}-{}", bill.plan.variant, digest.hex());
    document["documentNamespace"] = format!("https://spdx.org/spdxdocs/{name}").into();
    document
}

fn image(bill: &Bill<'_>) -> Value {
    let mut package = json!({
        "SPDXID": IMAGE,
        "name": bill.image.as_ref().map_or(bill.plan.variant.as_str(), |i| i.name.as_str()),
        "versionInfo": bill.plan.key().to_string(),
        "primaryPackagePurpose": "CONTAINER",
        "downloadLocation": NONE,
        "filesAnalyzed": false,
        "licenseConcluded": NONE,
        "licenseDeclared": NONE,
        "copyrightText": NONE,
    });
    if let Some(image) = &bill.image {
        package["checksums"] = checksums(&image.digest);
    }
    package
}

fn package(item: &Item) -> Value {
    let (declared, comment) = match &item.licence {
        Licence::Spdx(expression) => (expression.as_str(), None),
        Licence::Named(words) => (NONE, Some(format!("The package says: {words}"))),
        Licence::Unknown => (NONE, None),
    };
    let mut package = json!({
        "SPDXID": spdx_id(item),
        "name": item.name,
        "downloadLocation": location(item),
        "filesAnalyzed": false,
        "licenseConcluded": NONE,
        "licenseDeclared": declared,
        "copyrightText": NONE,
        "primaryPackagePurpose": match item.role {
            Role::Base => "CONTAINER",
            Role::Source => "SOURCE",
            Role::Content | Role::Tool => "LIBRARY",
        },
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": item.purl,
        }],
    });
    if !item.version.is_empty() {
        package["versionInfo"] = item.version.as_str().into();
    }
    if let Some(comment) = comment {
        package["licenseComments"] = comment.into();
    }
    if let Some(file) = &item.file {
        package["packageFileName"] = file.as_str().into();
    }
    if let Some(sha256) = &item.sha256 {
        package["checksums"] = checksums(sha256);
    }
    package
}

/// Returns the URL of a git source. The URL of a file is not known, because a lock names no host.
fn location(item: &Item) -> String {
    match &item.git {
        Some((url, revision)) => format!("git+{url}@{revision}"),
        None => NONE.to_owned(),
    }
}

fn checksums(sha256: &Digest) -> Value {
    json!([{ "algorithm": "SHA256", "checksumValue": sha256.hex() }])
}

fn spdx_id(item: &Item) -> String {
    format!("SPDXRef-{}", item.id)
}

fn of_item(bill: &Bill<'_>, item: &Item) -> Vec<Value> {
    let own = spdx_id(item);
    let mut relations = vec![match item.role {
        Role::Base => relation(IMAGE, "DESCENDANT_OF", &own),
        Role::Content => relation(IMAGE, "CONTAINS", &own),
        Role::Tool => relation(&own, "BUILD_TOOL_OF", IMAGE),
        Role::Source => relation(&own, "BUILD_DEPENDENCY_OF", IMAGE),
    }];
    if let Some(source) = &item.made_from {
        let source = format!("SPDXRef-{source}");
        relations.push(relation(&own, "GENERATED_FROM", &source));
    }
    if item.role == Role::Content {
        let asking = item.via.iter().filter_map(|name| bill.python(name));
        relations.extend(asking.map(|asks| relation(&spdx_id(asks), "DEPENDS_ON", &own)));
    }
    relations
}

fn relation(from: &str, kind: &str, to: &str) -> Value {
    json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to })
}
