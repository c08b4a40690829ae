//! Makes comments of what a file says of its container and a stack cannot have.
//!
//! In: the text of a stack. Out: the text in which each line of `app` and `image` is one that the reader of stacks
//! takes. A comment in its place says why; it leaves the value of a secret out.

use super::yaml::comment;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::spec;
use std::collections::BTreeMap;

/// Keys whose lines may become comments.
const KEYS: [&str; 2] = ["app:", "image:"];
/// Most times that the text is read. The reader tells nearly all faults at once.
const ROUNDS: usize = 16;

/// Returns the text, and how many lines of it became comments.
pub(super) fn commented(mut text: String) -> (String, usize) {
    let mut count = 0;
    for _ in 0..ROUNDS {
        let Err(report) = spec::read("the stack", &text) else {
            break;
        };
        let faults = faults(&text, report.diagnostics);
        if faults.is_empty() {
            break;
        }
        count += faults.len();
        text = without_empty(&replaced(&text, &faults));
    }
    (text, count)
}

/// Returns the faults of lines that may become comments, by the number of the line, which starts at 0.
fn faults(text: &str, diagnostics: Vec<Diagnostic>) -> BTreeMap<usize, Diagnostic> {
    let lines: Vec<&str> = text.lines().collect();
    let mut faults = BTreeMap::new();
    for fault in diagnostics {
        let Some(at) = fault
            .span
            .map(|span| span.line)
            .and_then(|n| usize::try_from(n).ok()?.checked_sub(1))
        else {
            continue;
        };
        let above = lines.iter().take(at + 1).rev();
        let key = above.copied().find(|line| indent(line) == Some(0));
        if key.is_some_and(|key| KEYS.contains(&key)) {
            faults.entry(at).or_insert(fault);
        }
    }
    faults
}

/// Returns the number of spaces before a line's text. `None` if it is a comment or empty.
fn indent(line: &str) -> Option<usize> {
    let rest = line.trim_start_matches(' ');
    let counts = !rest.is_empty() && !rest.starts_with('#');
    counts.then(|| line.len() - rest.len())
}

fn replaced(text: &str, faults: &BTreeMap<usize, Diagnostic>) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, line) in text.lines().enumerate() {
        let Some(fault) = faults.get(&number) else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let is_secret = fault.code == codes::SECRET_IN_IMAGE;
        let shown = if is_secret {
            String::new()
        } else {
            format!("`{}`: ", line.trim())
        };
        let help = fault.help.as_ref().map(|help| format!(": {help}"));
        let note = format!("{shown}{}{}", fault.message, help.unwrap_or_default());
        comment(&mut out, indent(line).unwrap_or(0), &note);
    }
    out
}

/// Makes comments of keys that have nothing but comments below them.
fn without_empty(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_empty = |at: usize| {
        let Some(own) = indent(lines[at]).filter(|_| lines[at].ends_with(':')) else {
            return false;
        };
        let below = lines[at + 1..].iter().find_map(|line| indent(line));
        below.is_none_or(|below| below <= own)
    };
    let mut out = String::with_capacity(text.len());
    for (at, line) in lines.iter().enumerate() {
        if is_empty(at) {
            let own = indent(line).unwrap_or(0);
            out.push_str(&format!("{}# {}\n", " ".repeat(own), line.trim()));
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: &str = "stack: s\nbase: debian-bookworm\ntarget:\n  platform: linux/amd64\n  gpu: [h100]\npython: \"3.11\"\nlibraries:\n  six: \"1.17.0\"\n";

    #[test]
    fn what_a_stack_cannot_have_becomes_a_comment() {
        let image = "image:\n  user: Bad User\n  workdir: relative\n  ports: [8000]\n  env:\n    A: \"x\"\n    B-C: \"x\"\n    API_KEY: \"f3a9c1e07b5d4a6e8c2f\"\n  labels:\n    io.stackforge.key: \"x\"\n";
        let (text, count) = commented(format!("{STACK}{image}"));
        let file = spec::read("s.yaml", &text).unwrap();
        assert_eq!(count, 5);
        assert!(!text.contains("f3a9c1e07b5d4a6e8c2f"), "{text}");
        assert!(text.contains("# labels:"), "{text}");
        let image = file.pattern.image.unwrap();
        assert_eq!(image.env.keys().collect::<Vec<_>>(), ["A"]);
        assert_eq!((image.ports.len(), image.user), (1, None));
    }

    #[test]
    fn a_section_without_a_line_is_a_comment() {
        let (text, _) = commented(format!(
            "{STACK}app:\n  source: .\n  to: ../x\nimage:\n  workdir: x\n"
        ));
        let file = spec::read("s.yaml", &text).unwrap();
        assert!(file.pattern.image.is_none());
        assert_eq!(file.pattern.app.unwrap().to, "/app");
    }

    #[test]
    fn other_faults_stay() {
        let wrong = STACK.replace("\"1.17.0\"", "[1]");
        assert_eq!(commented(wrong.clone()), (wrong, 0));
    }
}
