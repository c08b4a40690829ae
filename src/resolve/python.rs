//! Asks uv for versions, and then for the files of exactly those versions.

use super::ResolveError;
use super::answer::{Files, Pins, ROOT, pin_lines, pins};
use super::project::{Question, UvSettings};
use super::uv::{Uv, UvError};
use std::path::Path;

/// uv with the settings that all questions about one stack share.
pub(super) struct Resolver<'a> {
    pub uv: &'a Uv,
    pub settings: UvSettings,
    /// Directory with one directory for each question.
    pub work: &'a Path,
}

impl Resolver<'_> {
    /// Returns the resolved versions, or uv's explanation (without URLs) why there are none.
    pub async fn versions(
        &self,
        question: &Question,
    ) -> Result<Result<Pins, String>, ResolveError> {
        Ok(self.ask(question).await?.map(|text| pins(&text)))
    }

    /// Returns the files of pinned versions. uv's cache usually has their metadata from resolving; the network is
    /// used only if it does not.
    pub async fn files(&self, wanted: &Pins) -> Result<Files, ResolveError> {
        let mut question = Question {
            requirements: pin_lines(wanted),
            no_deps: true,
            files: true,
            offline: true,
            ..Question::default()
        };
        let text = match self.ask(&question).await {
            Ok(Ok(text)) => text,
            _ => {
                question.offline = false;
                self.ask(&question)
                    .await?
                    .map_err(|explanation| ResolveError::Unsatisfiable {
                        of: "the resolved versions".to_owned(),
                        explanation,
                        offers: Vec::new(),
                    })?
            }
        };
        Files::parse(&text)
    }

    async fn ask(&self, question: &Question) -> Result<Result<String, String>, ResolveError> {
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| ResolveError::Io {
                doing,
                path,
                source,
            }
        };
        let dir =
            tempfile::tempdir_in(self.work).map_err(io("create a directory in", self.work))?;
        let arguments = self.settings.write(question, dir.path())?;
        let answer = self.uv.run(dir.path(), &arguments).await?;
        if !answer.ok {
            let message = if answer.stderr.trim().is_empty() {
                &answer.stdout
            } else {
                &answer.stderr
            };
            let message = explanation(message);
            if lacks_network(&message) {
                return Err(UvError::NotCached { message }.into());
            }
            return Ok(Err(message));
        }
        let path = dir.path().join(question.answer());
        Ok(Ok(
            std::fs::read_to_string(&path).map_err(io("read", &path))?
        ))
    }
}

/// Whether uv found nothing because it may not ask the network: its cache has an index and not the files, or nothing.
fn lacks_network(explanation: &str) -> bool {
    explanation.contains("because the network was disabled")
}

/// Returns uv's explanation, one sentence per line, without uv's framing.
fn explanation(stderr: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in stderr.lines().map(str::trim) {
        let line = line.strip_prefix("cause:").map_or(line, str::trim);
        let line = line.trim_start_matches(['×', '╰', '─', '▶', '│', ' ']);
        let framing = [
            "error:",
            "warning:",
            "No solution found",
            "hint: The resolution failed",
        ];
        if line.is_empty() || framing.iter().any(|f| line.starts_with(f)) {
            continue;
        }
        out.push(
            line.replace(&format!("{ROOT} depends on"), "the stack asks for")
                .replace(ROOT, "the stack"),
        );
    }
    // The conclusions are at the end; what leads to them may be a page long.
    let last = out.len().saturating_sub(8);
    let begins = |line: &String| line.starts_with("Because ") || line.starts_with("And because ");
    let from = out.iter().take(last + 1).rposition(begins).unwrap_or(last);
    without_middles(&out[from..]).join("\n")
}

/// Returns lines with `…` for the middle of each long list of releases, one on a line.
fn without_middles(lines: &[String]) -> Vec<&str> {
    let is_item = |line: &String| !line.contains(' ');
    let parts = lines.chunk_by(|a, b| is_item(a) == is_item(b));
    let shortened = parts.flat_map(|part| match part {
        [first, second, .., last] if part.len() > 5 && is_item(first) => {
            vec![first.as_str(), second, "…", last]
        }
        _ => part.iter().map(String::as_str).collect(),
    });
    shortened.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_lose_their_framing() {
        let message = "error: No solution found when resolving dependencies\n  cause: Because vllm==0.32.0 depends on torch==2.13.0 and you require torch==2.9.1, we can conclude that X.\n         And because you require vllm==0.32.0, we can conclude that your requirements are unsatisfiable.\n";
        assert_eq!(
            explanation(message),
            "Because vllm==0.32.0 depends on torch==2.13.0 and you require torch==2.9.1, we can conclude that X.\nAnd because you require vllm==0.32.0, we can conclude that your requirements are unsatisfiable."
        );
        assert!(explanation(&"a line\n".repeat(100)).lines().count() <= 8);
    }

    #[test]
    fn an_explanation_begins_with_a_sentence_and_its_long_lists_lose_their_middles() {
        let items = (0..9).map(|n| format!("    protobuf>4.21.{n},<4.21.{}\n", n + 1));
        let items: String = items.collect();
        let long = format!(
            "Because nothing is as it was, we go on.\nBecause only the following versions of protobuf are available:\n{items}we can conclude that a and b are incompatible.\nAnd because the stack asks for both, they cannot be met.\n"
        );
        assert_eq!(
            explanation(&long),
            "Because only the following versions of protobuf are available:\nprotobuf>4.21.0,<4.21.1\nprotobuf>4.21.1,<4.21.2\n…\nprotobuf>4.21.8,<4.21.9\nwe can conclude that a and b are incompatible.\nAnd because the stack asks for both, they cannot be met."
        );
    }

    /// As uv 0.13 says it.
    #[test]
    fn an_answer_that_needs_the_network_is_told_from_one_that_does_not_exist() {
        let cached = "error: No solution found when resolving dependencies\n  cause: Because six==1.16.0 needs to be downloaded from a registry and you require six==1.16.0, we can conclude that your requirements are unsatisfiable.\n\nhint: Packages were unavailable because the network was disabled. When the network is disabled, registry packages may only be read from the cache.\n";
        assert!(lacks_network(&explanation(cached)));
        let never = "error: No solution found when resolving dependencies\n  cause: Because there is no version of six==9 and you require six==9, we can conclude that your requirements are unsatisfiable.\n";
        assert!(!lacks_network(&explanation(never)));
    }
}
