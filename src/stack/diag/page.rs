//! The page docs/rules.md, made from the one table.

use super::codes::{Explanation, TABLE};

/// What the hundreds of a code's number mean.
const GROUPS: [(u16, &str); 14] = [
    (0, "The stack file"),
    (1, "The target"),
    (2, "Locking"),
    (3, "The machine and its engine"),
    (4, "Building"),
    (5, "Validation"),
    (6, "Compatibility"),
    (7, "Failures that `diagnose` recognises in logs"),
    (8, "What `doctor` finds on a machine"),
    (9, "What `audit` finds in binaries"),
    (10, "Publishing and pulling"),
    (11, "What is attached to images"),
    (12, "Running images"),
    (13, "Starting services elsewhere"),
];

/// Every code in Markdown.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Rules and diagnostics\n\n\
         Made from the table that `stackforge explain` prints; `make docs` writes it anew.\n\
         `stackforge check` decides by those about the target and about compatibility, before\n\
         anything is built.\n",
    );
    for (group, title) in GROUPS {
        let entries: Vec<&Explanation> = TABLE.iter().filter(|e| e.code.0 / 100 == group).collect();
        if entries.is_empty() {
            continue;
        }
        out.push_str(&format!("\n## {title}\n"));
        for e in entries {
            out.push_str(&format!("\n### {}: {}\n\n{}\n\n", e.code, e.title, e.why));
            out.push_str(&format!("**Fix:** {}\n", e.fix));
            if let Some(source) = e.source {
                out.push_str(&format!("\n**Source:** {source}\n"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_on_the_page() {
        let page = markdown();
        for e in TABLE {
            assert!(page.contains(&format!("### {}: ", e.code)), "{}", e.code);
        }
    }
}
