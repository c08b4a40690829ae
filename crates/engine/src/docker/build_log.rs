//! Lines of a build: joined from chunks, stripped of secrets, written to the log file.
//!
//! The input is chunks of bytes from the engine; the output is whole lines. A displayed line must never
//! have a secret of the build or a terminal escape.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::{EngineError, Secret};

/// Longest line in bytes; a longer one is cut. Nobody reads more, and memory needs a bound.
const LINE_LIMIT: usize = 64 << 10;

/// Joins chunks of one stream of one step into lines.
#[derive(Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Returns the lines that `chunk` completes.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Vec<String> {
        let mut whole = Vec::new();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            for piece in text.chunks(LINE_LIMIT) {
                if self.0.len() + piece.len() > LINE_LIMIT {
                    whole.extend(self.rest());
                }
                self.0.extend_from_slice(piece);
            }
            if ends {
                whole.push(self.rest().unwrap_or_default());
            }
        }
        whole
    }

    /// Returns the remaining text without a line break, if there is any.
    pub(super) fn rest(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.0);
        (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned())
    }
}

/// Returns `line` as a terminal would show it: without what a carriage return overwrites, and without
/// escape sequences and other control characters.
pub(super) fn shown(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let last = line.rsplit('\r').next().unwrap_or(line);
    let mut clean = String::with_capacity(last.len());
    let mut chars = last.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' && chars.next_if_eq(&'[').is_some() {
            // A control sequence ends with the first byte from `@` to `~`.
            while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
        } else if c == '\t' || !c.is_control() {
            clean.push(c);
        }
    }
    clean
}

/// The secrets of a build, which are removed from its lines in case a step prints one.
pub(super) struct Redaction(Vec<String>);

impl Redaction {
    /// Shortest word that is removed, in bytes: a shorter one would also match innocent text. A long
    /// text is not a credential but a file, such as a bundle of certificates.
    const SHORTEST: usize = 6;
    const LONGEST: usize = 4096;

    pub(super) fn of(secrets: &BTreeMap<String, Secret>) -> Self {
        let mut words: Vec<String> = secrets
            .values()
            .filter(|secret| secret.expose().len() <= Self::LONGEST)
            .filter_map(|secret| std::str::from_utf8(secret.expose()).ok())
            .flat_map(str::lines)
            .map(str::trim)
            .filter(|line| line.len() >= Self::SHORTEST)
            .map(str::to_owned)
            .collect();
        // A secret may contain another one, so longer ones come first.
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.dedup();
        Redaction(words)
    }

    pub(super) fn strike(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, word| {
            if text.contains(word) {
                text.replace(word, "***")
            } else {
                text
            }
        })
    }
}

/// The file that gets every line of every step:
///
/// ```text
/// #3 [build 2/4] RUN make -j8
/// #3 [build 2/4] RUN | gcc -c a.c
/// #3 [build 2/4] RUN done in 4.2 s
/// ```
///
/// A write error is kept until [`LogFile::check`], and nothing is written after it.
pub(super) struct LogFile(Option<Open>);

struct Open {
    path: PathBuf,
    file: BufWriter<File>,
    failed: Option<std::io::Error>,
}

impl LogFile {
    pub(super) fn create(path: Option<&Path>) -> Result<Self, EngineError> {
        let Some(path) = path else {
            return Ok(LogFile(None));
        };
        // All builds of a plan append to the same log.
        match File::options().create(true).append(true).open(path) {
            Ok(file) => Ok(LogFile(Some(Open {
                path: path.to_owned(),
                file: BufWriter::new(file),
                failed: None,
            }))),
            Err(source) => Err(EngineError::Log {
                path: path.to_owned(),
                source,
            }),
        }
    }

    pub(super) fn starts(&mut self, id: u32, name: &str) {
        self.write(format_args!("#{id} {name}"));
    }

    pub(super) fn line(&mut self, id: u32, name: &str, text: &str) {
        self.write(format_args!("#{id} {} | {text}", short(name)));
    }

    pub(super) fn ends(&mut self, id: u32, name: &str, how: &str) {
        self.write(format_args!("#{id} {} {how}", short(name)));
    }

    /// Flushes the file, so that another reader sees the lines, and returns an error if a write failed.
    pub(super) fn check(&mut self) -> Result<(), EngineError> {
        let Some(open) = &mut self.0 else {
            return Ok(());
        };
        match open.failed.take().map_or_else(|| open.file.flush(), Err) {
            Ok(()) => Ok(()),
            Err(source) => Err(EngineError::Log {
                path: open.path.clone(),
                source,
            }),
        }
    }

    fn write(&mut self, line: std::fmt::Arguments<'_>) {
        if let Some(Open { file, failed, .. }) = &mut self.0
            && failed.is_none()
        {
            *failed = writeln!(file, "{line}").err();
        }
    }
}

/// Shortens `[build 2/4] RUN make …` to `[build 2/4] RUN`, which is enough to find a line's step.
fn short(name: &str) -> &str {
    let instruction = name.find("] ").map_or(0, |at| at + 2);
    match name[instruction..].find(' ') {
        Some(end) if instruction > 0 => &name[..instruction + end],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let text = "one\n\ntwo\r\nthr\u{e9}e\nlast";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut all: Vec<String> = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                all.extend(lines.push(chunk));
            }
            all.extend(lines.rest());
            assert_eq!(all, ["one", "", "two\r", "thr\u{e9}e", "last"], "{size}");
        }
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut lines = Lines::default();
        let cut = lines.push(&vec![b'x'; 5 * LINE_LIMIT / 2]);
        let lengths: Vec<usize> = cut.iter().map(String::len).collect();
        assert_eq!(lengths, [LINE_LIMIT, LINE_LIMIT]);
        assert_eq!(lines.rest().unwrap().len(), LINE_LIMIT / 2);
    }

    #[test]
    fn a_shown_line_drives_no_terminal() {
        assert_eq!(shown("10%\r50%\r100% done\r"), "100% done");
        assert_eq!(shown("\u{1b}[1;31merror\u{1b}[0m:\tx\u{7}"), "error:\tx");
        assert_eq!(shown("\u{1b}]0;title"), "]0;title");
        assert_eq!(shown("\u{1b}["), "");
    }

    #[test]
    fn the_log_names_a_step_in_full_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = LogFile::create(Some(&path)).unwrap();
        log.starts(2, "[build  2/10] RUN a | b");
        log.line(2, "[build  2/10] RUN a | b", "said");
        log.ends(2, "[build  2/10] RUN a | b", "done in 1.0 s");
        log.line(0, "engine", "more");
        log.check().unwrap();
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            "#2 [build  2/10] RUN a | b\n#2 [build  2/10] RUN | said\n\
             #2 [build  2/10] RUN done in 1.0 s\n#0 engine | more\n"
        );
    }

    #[test]
    fn a_log_that_cannot_be_written_is_an_error() {
        assert!(LogFile::create(Some(Path::new("/nonexistent/log"))).is_err());
        let mut full = LogFile::create(Some(Path::new("/dev/full"))).unwrap();
        full.line(1, "x", "text");
        assert!(matches!(full.check(), Err(EngineError::Log { .. })));
    }

    #[test]
    fn secrets_are_struck_but_not_short_words_or_files() {
        let redaction = Redaction::of(&BTreeMap::from([
            ("a".into(), Secret::new("tok-12345")),
            ("b".into(), Secret::new("tok-12345-longer\n")),
            ("c".into(), Secret::new("on")),
            ("d".into(), Secret::new("certificate\n".repeat(1000))),
        ]));
        assert_eq!(
            redaction.strike("https://tok-12345-longer@host tok-12345 on certificate"),
            "https://***@host *** on certificate"
        );
    }
}
