//! Findings in SARIF 2.1.0, which code scanning of CI services reads.
//!
//! In: an [`Audit`]. Out: one run with the rules that it has findings of. A file of a directory is an
//! artifact of its own; what lies in a wheel is a logical location of the wheel.

use super::tree::Kind;
use super::{Audit, Finding};
use crate::diag::{Code, Severity};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

pub fn sarif(audit: &Audit) -> Value {
    let codes: BTreeSet<Code> = audit.findings.iter().map(Finding::code).collect();
    let codes: Vec<Code> = codes.into_iter().collect();
    let rules: Vec<Value> = codes.iter().copied().map(rule).collect();
    let results: Vec<Value> = (audit.findings.iter())
        .map(|f| result(audit, f, &codes))
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
    let (title, why, fix) = match code.explanation() {
        Some(e) => (e.title, e.why, e.fix),
        None => ("", "", ""),
    };
    json!({
        "id": code,
        "shortDescription": { "text": title },
        "fullDescription": { "text": why },
        "help": { "text": fix },
    })
}

fn result(audit: &Audit, finding: &Finding, codes: &[Code]) -> Value {
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
        Kind::Directory => format!("{}/{}", audit.target.trim_end_matches('/'), finding.object),
        Kind::Wheel | Kind::Object | Kind::Image => audit.target.clone(),
    };
    let mut location = json!({
        "physicalLocation": { "artifactLocation": { "uri": uri(&artifact) } },
    });
    if matches!(audit.kind, Kind::Wheel | Kind::Image) {
        location["logicalLocations"] =
            json!([{ "fullyQualifiedName": finding.object, "kind": "member" }]);
    }
    json!({
        "ruleId": finding.code(),
        "ruleIndex": codes.iter().position(|c| *c == finding.code()),
        "level": level,
        "message": { "text": message },
        "locations": [location],
    })
}

/// A path as a URI reference (RFC 3986).
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
}
