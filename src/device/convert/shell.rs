//! Splits what a shell would run into commands and words, as far as no program has to run for it.
//!
//! A stack needs to know which packages `apt-get install` and `pip install` are given, not what a script does: so
//! control flow is only recognised, and words that depend on other programs are marked.

use std::collections::BTreeMap;

/// One simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    pub words: Vec<Word>,
    /// As it was written.
    pub text: String,
    /// Whether it takes its input or leaves its output elsewhere.
    pub redirected: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    /// Whether part of it is what another program prints, or a variable that is not known.
    pub opaque: bool,
}

/// A script in its commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    pub commands: Vec<Command>,
    /// Whether some of the commands run only under a condition, or more than once.
    pub conditional: bool,
}

const CONTROL: [&str; 12] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "case", "esac", "do", "done",
];

/// Splits a script. `escape` joins lines at their end, as in a Dockerfile.
pub fn script(text: &str, variables: &BTreeMap<String, String>, escape: char) -> Script {
    let joined = joined(text, escape);
    let mut lexer = Lexer {
        chars: joined.chars().collect(),
        at: 0,
        variables,
        script: Script::default(),
        command: Command::default(),
        start: 0,
    };
    lexer.run();
    lexer.script
}

/// Splits one line into words as a shell does, with those variables.
pub fn words(text: &str, variables: &BTreeMap<String, String>) -> Vec<Word> {
    let mut lexer = Lexer {
        chars: text.chars().collect(),
        at: 0,
        variables,
        script: Script::default(),
        command: Command::default(),
        start: 0,
    };
    let mut words = Vec::new();
    while lexer.at < lexer.chars.len() {
        match lexer.chars[lexer.at] {
            c if c.is_whitespace() => lexer.at += 1,
            _ => words.push(lexer.word(|_| false)),
        }
    }
    words
}

/// Fills in variables without splitting words.
pub fn filled(text: &str, variables: &BTreeMap<String, String>) -> Word {
    let mut lexer = Lexer {
        chars: text.chars().collect(),
        at: 0,
        variables,
        script: Script::default(),
        command: Command::default(),
        start: 0,
    };
    let mut word = Word::default();
    while let Some(&c) = lexer.chars.get(lexer.at) {
        match c {
            '$' => lexer.variable(&mut word),
            '\\' if lexer.chars.get(lexer.at + 1) == Some(&'$') => {
                word.text.push('$');
                lexer.at += 2;
            }
            _ => {
                word.text.push(c);
                lexer.at += 1;
            }
        }
    }
    word
}

/// Joins lines that end with the escape character, without comments and empty lines between them.
pub(super) fn joined(text: &str, escape: char) -> String {
    let mut out = String::with_capacity(text.len());
    let mut goes_on = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with('#') || (goes_on && trimmed.is_empty()) {
            continue;
        }
        match line.trim_end().strip_suffix(escape) {
            Some(part) => {
                out.push_str(part);
                goes_on = true;
            }
            None => {
                out.push_str(line);
                out.push('\n');
                goes_on = false;
            }
        }
    }
    out
}

struct Lexer<'a> {
    chars: Vec<char>,
    at: usize,
    variables: &'a BTreeMap<String, String>,
    script: Script,
    command: Command,
    start: usize,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(&c) = self.chars.get(self.at) {
            match c {
                '\n' | ';' | '|' | '(' | ')' => {
                    self.end(self.at);
                    self.at += 1;
                }
                '&' if self.chars.get(self.at + 1) == Some(&'>') => self.redirection(),
                '&' => {
                    self.end(self.at);
                    self.at += 1;
                }
                '<' | '>' => self.redirection(),
                '#' => self.skip_line(),
                c if c.is_whitespace() => self.at += 1,
                _ => self.next_word(),
            }
        }
        self.end(self.chars.len());
    }

    fn next_word(&mut self) {
        if self.command.words.is_empty() {
            self.start = self.at;
        }
        let ends = |c: char| matches!(c, ';' | '|' | '&' | '(' | ')' | '<' | '>');
        let word = self.word(ends);
        // The number before a redirection belongs to it.
        let number = !word.text.is_empty() && word.text.bytes().all(|b| b.is_ascii_digit());
        if number && matches!(self.chars.get(self.at), Some('<' | '>')) {
            return;
        }
        if self.command.words.is_empty() {
            if CONTROL.contains(&word.text.as_str()) {
                self.script.conditional = true;
                return;
            }
            if ["{", "}", "!"].contains(&word.text.as_str()) {
                return;
            }
        }
        self.command.words.push(word);
    }

    /// Skips a redirection and what it names.
    fn redirection(&mut self) {
        if !self.command.words.is_empty() {
            self.command.redirected = true;
        }
        while matches!(self.chars.get(self.at), Some('<' | '>' | '&' | ' ')) {
            self.at += 1;
        }
        if self.chars.get(self.at).is_some_and(|c| *c != '\n') {
            self.word(|c| matches!(c, ';' | '|' | '&' | '(' | ')' | '<' | '>'));
        }
    }

    fn skip_line(&mut self) {
        while self.chars.get(self.at).is_some_and(|c| *c != '\n') {
            self.at += 1;
        }
    }

    fn end(&mut self, at: usize) {
        if self.command.words.is_empty() {
            self.command = Command::default();
            return;
        }
        let text: String = self.chars[self.start..at].iter().collect();
        self.command.text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.script.commands.push(std::mem::take(&mut self.command));
    }

    /// Reads a word. It takes at least one character.
    fn word(&mut self, ends: impl Fn(char) -> bool) -> Word {
        let mut word = Word::default();
        let from = self.at;
        while let Some(&c) = self.chars.get(self.at) {
            match c {
                c if c.is_whitespace() || (ends(c) && self.at > from) => break,
                '\'' => self.single(&mut word),
                '"' => self.double(&mut word),
                '\\' => {
                    self.at += 1;
                    if let Some(&next) = self.chars.get(self.at) {
                        word.text.push(next);
                        self.at += 1;
                    }
                }
                '$' => self.variable(&mut word),
                '`' => self.backticks(&mut word),
                c => {
                    word.text.push(c);
                    self.at += 1;
                }
            }
        }
        word
    }

    fn single(&mut self, word: &mut Word) {
        self.at += 1;
        while let Some(&c) = self.chars.get(self.at) {
            self.at += 1;
            if c == '\'' {
                return;
            }
            word.text.push(c);
        }
    }

    fn double(&mut self, word: &mut Word) {
        self.at += 1;
        while let Some(&c) = self.chars.get(self.at) {
            match c {
                '"' => {
                    self.at += 1;
                    return;
                }
                '\\' => {
                    self.at += 1;
                    if let Some(&next) = self.chars.get(self.at) {
                        if !matches!(next, '"' | '\\' | '$' | '`') {
                            word.text.push('\\');
                        }
                        word.text.push(next);
                        self.at += 1;
                    }
                }
                '$' => self.variable(word),
                '`' => self.backticks(word),
                c => {
                    word.text.push(c);
                    self.at += 1;
                }
            }
        }
    }

    fn backticks(&mut self, word: &mut Word) {
        let from = self.at;
        self.at += 1;
        while let Some(&c) = self.chars.get(self.at) {
            self.at += 1;
            if c == '`' {
                break;
            }
        }
        word.opaque = true;
        word.text.extend(&self.chars[from..self.at]);
    }

    /// Reads `$NAME`, `${NAME}`, `${NAME:-other}` or `$(command)`.
    fn variable(&mut self, word: &mut Word) {
        self.at += 1;
        match self.chars.get(self.at) {
            Some('(') => {
                let from = self.at - 1;
                self.nested('(', ')');
                word.opaque = true;
                word.text.extend(&self.chars[from..self.at]);
            }
            Some('{') => {
                let from = self.at + 1;
                self.nested('{', '}');
                let to = self.at.saturating_sub(1).max(from);
                let inside: String = self.chars[from..to.min(self.chars.len())].iter().collect();
                self.parameter(&inside, word);
            }
            Some(c) if c.is_ascii_alphabetic() || *c == '_' => {
                let from = self.at;
                let named = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
                while self.chars.get(self.at).is_some_and(named) {
                    self.at += 1;
                }
                let name: String = self.chars[from..self.at].iter().collect();
                self.parameter(&name, word);
            }
            _ => word.text.push('$'),
        }
    }

    fn parameter(&mut self, inside: &str, word: &mut Word) {
        let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = inside.split_at(end.unwrap_or(inside.len()));
        let known = self.variables.get(name);
        let plain = |text: &str| !text.contains('$') && !text.contains('`');
        let value = match (rest, known) {
            ("", Some(value)) => Some(value.clone()),
            (rest, known) => match (rest.strip_prefix(":-").or(rest.strip_prefix('-')), known) {
                (Some(_), Some(value)) if !value.is_empty() => Some(value.clone()),
                (Some(other), _) if plain(other) => Some(other.to_owned()),
                _ => None,
            },
        };
        match value {
            Some(value) => word.text.push_str(&value),
            None => {
                word.opaque = true;
                word.text.push_str("${");
                word.text.push_str(inside);
                word.text.push('}');
            }
        }
    }

    /// Skips a bracket with those in it.
    fn nested(&mut self, open: char, close: char) {
        let mut depth = 0usize;
        while let Some(&c) = self.chars.get(self.at) {
            self.at += 1;
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<Vec<String>> {
        let variables = BTreeMap::from([("V".to_owned(), "1.0".to_owned())]);
        let script = script(text, &variables, '\\');
        let words = |c: Command| c.words.into_iter().map(|w| w.text).collect();
        script.commands.into_iter().map(words).collect()
    }

    #[test]
    fn commands_and_words_as_a_shell_has_them() {
        let text = "set -ex; apt-get update && apt-get install -y \\\n  # tools\n  git \\\n\n  'a b' \"c$V\" ${W:-d} 2>/dev/null || true\n(cd /x && pip install x==\"$V\" > log) # end\n";
        let expected: [&[&str]; 7] = [
            &["set", "-ex"],
            &["apt-get", "update"],
            &["apt-get", "install", "-y", "git", "a b", "c1.0", "d"],
            &["true"],
            &["cd", "/x"],
            &["pip", "install", "x==1.0"],
            &[],
        ];
        assert_eq!(split(text), expected[..6]);
    }

    #[test]
    fn what_no_one_can_know_is_marked() {
        let variables = BTreeMap::new();
        let found = script(
            "pip install a-$(uname -r) `x` $Y \"${Z:+z}\"",
            &variables,
            '\\',
        );
        let opaque: Vec<bool> = found.commands[0].words.iter().map(|w| w.opaque).collect();
        assert_eq!(opaque, [false, false, true, true, true, true]);
        let found = script("if [ -f x ]; then pip install y; fi", &variables, '\\');
        assert!(found.conditional);
    }

    proptest::proptest! {
        #[test]
        fn no_script_panics(text in "[ a-c\\\\'\"$(){}`;&|<>#:\n=-]{0,40}|\\PC{0,40}") {
            let variables = BTreeMap::new();
            let found = script(&text, &variables, '`');
            let length: usize = found.commands.iter().map(|c| c.text.len()).sum();
            proptest::prop_assert!(length <= text.len());
            words(&text, &variables);
            filled(&text, &variables);
        }
    }
}
