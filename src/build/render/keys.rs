//! Adds a key to the end of each RUN line: the digest of everything that the RUN mounts.
//!
//! In: a Dockerfile and its context. Out: the same Dockerfile, in which each RUN ends with a shell
//! comment `# sha256:…`. BuildKit hashes the files that a RUN mounts. Buildah, with which Podman builds,
//! hashes only the RUN's text, and would reuse a layer that was made from other files.
//!
//! A RUN in exec form or with a here-document has no place for a comment and stays as it is. The
//! Dockerfile of this project has neither; a user's own template may.

use super::{Content, Context, RenderError};
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Returns `dockerfile` with a key at the end of each RUN.
///
/// # Errors
/// A file of the context cannot be read.
pub fn keyed(dockerfile: &str, context: &Context) -> Result<String, RenderError> {
    let mut keys = Keys {
        context,
        files: BTreeMap::new(),
        stages: Vec::new(),
    };
    let mut out = String::with_capacity(dockerfile.len() * 2);
    for instruction in instructions(dockerfile) {
        let Instruction::Words(text) = instruction else {
            out.push_str(instruction.text());
            continue;
        };
        out.push_str(&keys.instruction(text)?);
    }
    Ok(out)
}

struct Keys<'a> {
    context: &'a Context,
    /// Digests of the context's files, by path.
    files: BTreeMap<&'a str, Digest>,
    stages: Vec<Stage>,
}

/// A stage and the digests that decide its files.
struct Stage {
    name: String,
    inputs: Vec<String>,
}

impl Keys<'_> {
    /// Returns the instruction's text, with its key if it is a RUN.
    fn instruction(&mut self, text: &str) -> Result<String, RenderError> {
        let mut words = text.split_ascii_whitespace();
        let keyword = words.next().unwrap_or_default().to_ascii_uppercase();
        let mut reads = Vec::new();
        match keyword.as_str() {
            "FROM" => {
                let mut names = words.filter(|w| !w.starts_with("--"));
                let from = names.next().unwrap_or_default();
                let name = names.nth(1).unwrap_or_default().to_ascii_lowercase();
                let inputs = self.stage(from).into_iter().collect();
                self.stages.push(Stage { name, inputs });
            }
            "RUN" => {
                for mount in flags(text).filter_map(|f| f.strip_prefix("--mount=")) {
                    self.mount(mount, &mut reads)?;
                }
            }
            "COPY" | "ADD" => {
                let from = flags(text).find_map(|f| f.strip_prefix("--from="));
                match from {
                    Some(from) => reads.extend(self.stage(from)),
                    None => {
                        let sources: Vec<&str> = words.filter(|w| !w.starts_with("--")).collect();
                        let last = sources.len().saturating_sub(1);
                        for source in &sources[..last] {
                            self.files(source, &mut reads)?;
                        }
                    }
                }
            }
            _ => {}
        }
        let text = if keyword == "RUN" && takes_comment(text) {
            let line = text.trim_end();
            let key = digest(line, &reads);
            format!("{line} # {key}\n")
        } else {
            text.to_owned()
        };
        if let Some(stage) = self.stages.last_mut() {
            stage.inputs.push(digest(&text, &reads).to_string());
        }
        Ok(text)
    }

    /// Returns the key of an earlier stage, by name or number. `None` for an image: its name is already in
    /// the instruction's text.
    fn stage(&self, name: &str) -> Option<String> {
        let lower = name.to_ascii_lowercase();
        let by_name = self.stages.iter().rev().find(|s| s.name == lower);
        let number = name.parse::<usize>().ok();
        let stage = by_name.or_else(|| self.stages.get(number?))?;
        Some(digest(&stage.name, &stage.inputs).to_string())
    }

    /// Adds what a bind mount (`--mount=`) reads.
    fn mount(&mut self, mount: &str, reads: &mut Vec<String>) -> Result<(), RenderError> {
        let options: BTreeMap<&str, &str> = mount
            .split(',')
            .map(|o| o.split_once('=').unwrap_or((o, "")))
            .collect();
        if options.get("type").is_some_and(|kind| *kind != "bind") {
            return Ok(());
        }
        match options.get("from") {
            Some(from) => reads.extend(self.stage(from)),
            None => {
                let source = options.get("source").or_else(|| options.get("src"));
                self.files(source.unwrap_or(&""), reads)?;
            }
        }
        Ok(())
    }

    /// Adds the path and digest of each file of the context at `source` or below it.
    fn files(&mut self, source: &str, reads: &mut Vec<String>) -> Result<(), RenderError> {
        let source = source.trim_start_matches("./").trim_matches('/');
        let is_below = |path: &str| match path.strip_prefix(source) {
            Some(rest) => source.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        let context = self.context;
        for (path, content) in context.iter().filter(|(path, _)| is_below(path)) {
            let digest = match self.files.get(path.as_str()) {
                Some(digest) => digest.clone(),
                None => {
                    let digest = content_digest(content)?;
                    self.files.insert(path, digest.clone());
                    digest
                }
            };
            reads.push(format!("{path} {digest}"));
        }
        Ok(())
    }
}

fn digest(text: &str, reads: &[String]) -> Digest {
    Digest::of(serde_json::json!([text, reads]).to_string().as_bytes())
}

fn content_digest(content: &Content) -> Result<Digest, RenderError> {
    match content {
        Content::Text(text) => Ok(Digest::of(text.as_bytes())),
        Content::File(path) => match of_store(path) {
            Some(digest) => Ok(digest),
            None => File::open(path)
                .and_then(Digest::of_reader)
                .map_err(|source| RenderError::Read {
                    path: path.clone(),
                    source,
                }),
        },
    }
}

/// Reads a file's digest from the store's own path, `blobs/sha256/HEX` or `names/HEX/FILE`. The content
/// was verified when it got that path.
fn of_store(path: &Path) -> Option<Digest> {
    let named = |part: Option<&std::ffi::OsStr>| Digest::from_hex(part?.to_str()?).ok();
    named(path.file_name()).or_else(|| named(path.parent()?.file_name()))
}

/// Returns the flags of an instruction: the words with two dashes after its keyword.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split_ascii_whitespace().skip(1);
    words
        .filter(|w| *w != "\\")
        .take_while(|w| w.starts_with("--"))
}

/// Whether a shell reads the whole instruction, so that a comment may follow it.
fn takes_comment(run: &str) -> bool {
    let words = run.split_ascii_whitespace().skip(1);
    let mut words = words.filter(|w| *w != "\\" && !w.starts_with("--"));
    !run.contains("<<") && words.next().is_some_and(|first| !first.starts_with('['))
}

enum Instruction<'a> {
    /// A comment or an empty line.
    Other(&'a str),
    Words(&'a str),
}

impl<'a> Instruction<'a> {
    fn text(&self) -> &'a str {
        match self {
            Self::Other(text) | Self::Words(text) => text,
        }
    }
}

/// Splits a Dockerfile into instructions with all their lines, and the text between them.
fn instructions(dockerfile: &str) -> Vec<Instruction<'_>> {
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in dockerfile.split_inclusive('\n') {
        let own = line.trim();
        let open = start < at;
        at += line.len();
        let other = own.is_empty() || own.starts_with('#');
        if !other && own.ends_with('\\') || other && open {
            // A comment between continued lines belongs to the instruction.
            continue;
        }
        let text = &dockerfile[start..at];
        found.push(if other {
            Instruction::Other(text)
        } else {
            Instruction::Words(text)
        });
        start = at;
    }
    if start < at {
        found.push(Instruction::Words(&dockerfile[start..]));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCKERFILE: &str = "# a comment\n\
        FROM debian AS tools\n\
        RUN --mount=type=bind,source=lock,target=/l --mount=type=secret,id=x make tools\n\
        \n\
        FROM debian AS image\n\
        COPY --from=tools /a /a\n\
        RUN --mount=from=tools,source=/opt,target=/t \\\n  # why\n  install\n\
        RUN [\"exec\", \"form\"]\n\
        RUN --mount=source=folder,target=/f run\n";

    fn keys(files: &[(&str, &str)]) -> Vec<String> {
        let context = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), Content::Text((*text).to_owned())))
            .collect();
        let out = keyed(DOCKERFILE, &context).unwrap();
        let plain: String = out
            .lines()
            .map(|l| l.split(" # sha256:").next().unwrap_or(l).to_owned() + "\n")
            .collect();
        assert_eq!(plain, DOCKERFILE, "nothing else changes");
        out.lines()
            .filter_map(|l| Some(l.split_once(" # sha256:")?.1.to_owned()))
            .collect()
    }

    #[test]
    fn a_run_says_what_it_reads() {
        let base = [("lock", "1"), ("folder/a", "x"), ("folder2", "y")];
        let of = |path: &str, text: &'static str| {
            let changed = base.map(|(p, t)| (p, if p == path { text } else { t }));
            keys(&changed)
        };
        let before = keys(&base);
        assert_eq!(before.len(), 3);
        assert!(before.iter().all(|key| key.len() == 64));
        // The first RUN reads the lock; the other one mounts the stage that it made.
        let lock = of("lock", "2");
        assert!(lock[0] != before[0] && lock[1] != before[1] && lock[2] == before[2]);
        let folder = of("folder/a", "z");
        assert_eq!(folder[..2], before[..2]);
        assert_ne!(folder[2], before[2]);
        assert_eq!(of("folder2", "z"), before, "nobody reads it");
    }

    #[test]
    fn files_count_by_content_and_a_missing_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "one").unwrap();
        let text = "FROM a\nRUN --mount=source=f,target=/f x\n";
        let of = |content| keyed(text, &Context::from([("f".to_owned(), content)]));
        let file = of(Content::File(path.clone())).unwrap();
        assert_eq!(file, of(Content::Text("one".into())).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(
            of(Content::File(path)),
            Err(RenderError::Read { .. })
        ));
        // The digest is taken from the store's path.
        let hex = "ab".repeat(32);
        let digest = Digest::from_hex(&hex).ok();
        assert_eq!(
            of_store(Path::new(&format!("/s/blobs/sha256/{hex}"))),
            digest
        );
        assert_eq!(
            of_store(Path::new(&format!("/s/names/{hex}/a.whl"))),
            digest
        );
    }
}
