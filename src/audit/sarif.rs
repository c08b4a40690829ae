//! Writes findings in SARIF 2.1.0, which the code scanning of CI services reads.
//!
//! In: an [`Audit`]. Out: one run with the rules of its findings. A file of a directory is an artifact of its
//! own; an object in a wheel is a logical location of the wheel.

use super::tree::TreeKind;
use super::{Audit, Finding};
use serde_json::{Value, json};
use stackforge_stack::diag::{Code, Severity};
use stackforge_types::Sha256;
use std::collections::BTreeSet;
use std::path::Path;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The base of relative locations.
const ROOT: &str = "%SRCROOT%";

pub fn sarif(audit: &Audit) -> Value {
    let codes: BTreeSet<Code> = audit.findings.iter().map(Finding::code).collect();
    let codes: Vec<Code> = codes.into_iter().collect();
    let from = std::env::current_dir().unwrap_or_default();
    let rules: Vec<Value> = codes.iter().copied().map(rule).collect();
    let results: Vec<Value> = (audit.findings.iter())
        .map(|f| result(audit, f, &codes, &from))
        .collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "stackforge",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(code: Code) -> Value {
    let mut rule = json!({ "id": code });
    if let Some(e) = code.explanation() {
        rule["shortDescription"] = json!({ "text": sentence(e.title) });
        rule["fullDescription"] = json!({ "text": e.why });
        let source = e
            .source
            .map_or_else(String::new, |s| format!("\n\nSource: {s}"));
        rule["help"] = json!({
            "text": format!("{}{source}", e.fix),
            "markdown": format!("{}\n\n{}{source}", e.why, e.fix),
        });
        rule["properties"] = json!({ "tags": ["compatibility"] });
    }
    rule
}

fn sentence(title: &str) -> String {
    let mut chars = title.chars();
    let first = chars.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(chars).collect()
}

fn result(audit: &Audit, finding: &Finding, codes: &[Code], from: &Path) -> Value {
    let diagnostic = &finding.diagnostic;
    let message = match &diagnostic.help {
        Some(help) => format!("{}\n{help}", diagnostic.message),
        None => diagnostic.message.clone(),
    };
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let artifact = match audit.kind {
        TreeKind::Directory => format!("{}/{}", audit.target.trim_end_matches('/'), finding.object),
        _ => audit.target.clone(),
    };
    let inside = !matches!(audit.kind, TreeKind::Directory | TreeKind::Object);
    // An object has no lines, but viewers require one.
    let mut location = json!({
        "physicalLocation": {
            "artifactLocation": artifact_location(&artifact, from),
            "region": { "startLine": 1 },
        },
    });
    if inside {
        location["logicalLocations"] =
            json!([{ "fullyQualifiedName": finding.object, "kind": "member" }]);
    }
    json!({
        "ruleId": finding.code(),
        "ruleIndex": codes.iter().position(|c| *c == finding.code()),
        "level": level,
        "message": { "text": message },
        "locations": [location],
        "partialFingerprints": { "primaryLocationLineHash": fingerprint(finding) },
    })
}

/// Returns what is stable from run to run: the code, the object, and the message without its numbers.
fn fingerprint(finding: &Finding) -> String {
    let text: String = (finding.diagnostic.message.chars())
        .filter(|c| !c.is_ascii_digit())
        .collect();
    let digest = Sha256::digest(format!("{}\n{}\n{text}", finding.code(), finding.object));
    let hex: String = digest[..8].iter().map(|b| format!("{b:02x}")).collect();
    format!("{hex}:1")
}

/// Makes a path relative to the working directory, which in CI is the repository.
fn artifact_location(path: &str, from: &Path) -> Value {
    let inside = Path::new(path).strip_prefix(from).ok();
    let path = inside.and_then(Path::to_str).unwrap_or(path);
    if path.starts_with('/') {
        json!({ "uri": uri(path) })
    } else {
        json!({ "uri": uri(path), "uriBaseId": ROOT })
    }
}

/// Writes a path as a URI reference (RFC 3986).
fn uri(path: &str) -> String {
    let mut out = String::from(if path.starts_with('/') { "file://" } else { "" });
    let relative = path.strip_prefix("./").unwrap_or(path);
    for byte in relative.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'/' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri("dist/a b+c.whl"), "dist/a%20b%2Bc.whl");
        assert_eq!(uri("/opt/x.so"), "file:///opt/x.so");
        assert_eq!(uri("./x/ü.so"), "x/%C3%BC.so");
        assert_eq!(uri("a:b"), "a%3Ab", "no scheme");
    }

    #[test]
    fn locations_are_relative_where_they_can_be() {
        let at = |path| artifact_location(path, Path::new("/repo"))["uri"].clone();
        assert_eq!(at("/repo/dist/a.whl"), "dist/a.whl");
        assert_eq!(at("/repository/a.whl"), "file:///repository/a.whl");
        assert_eq!(at("./dist/a.whl"), "dist/a.whl");
    }

    #[test]
    fn fingerprints_outlive_numbers_only() {
        let of = |object: &str, message: &str| {
            let diagnostic = stackforge_stack::diag::Diagnostic::note(
                stackforge_stack::diag::codes::SECOND_COPY,
                message,
            );
            fingerprint(&Finding::new(object, diagnostic))
        };
        assert_eq!(of("a", "3 of 4"), of("a", "13 of 17"));
        assert_ne!(of("a", "3 of 4"), of("b", "3 of 4"));
        assert_ne!(of("a", "3 of 4"), of("a", "3 in 4"));
    }
}
