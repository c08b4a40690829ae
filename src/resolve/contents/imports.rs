//! Reads which modules a Python file imports as soon as it is imported itself.
//!
//! In: the text of a file. Out: its import statements without indentation, and those right below a `with` or a `class`.
//! One below `if`, `try` or `def` may not run, or its failure may be caught, so it is left out. Nothing is run. Of a text
//! that is not Python, the lines that look like import statements are returned.

/// An import statement, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Import {
    /// Number of dots before the module: 1 for the package of the file.
    pub level: usize,
    /// The module's name, empty for `from . import x`.
    pub module: String,
    /// Names of `from … import`, which may be modules.
    pub names: Vec<String>,
}

/// Returns the import statements of a file that run whenever it is imported.
pub(super) fn imports(text: &str) -> Vec<Import> {
    let mut out = Vec::new();
    for line in lines(text) {
        for statement in line.split(';').map(str::trim) {
            if let Some(modules) = statement.strip_prefix("import ") {
                let modules = modules.split(',').filter_map(first_word);
                out.extend(modules.map(|module| Import {
                    level: 0,
                    module: module.to_owned(),
                    names: Vec::new(),
                }));
            } else if let Some(rest) = statement.strip_prefix("from ") {
                out.extend(of_from(rest));
            }
        }
    }
    out
}

/// Reads what follows `from`.
fn of_from(rest: &str) -> Option<Import> {
    let rest = rest.trim_start();
    let dots = rest.len() - rest.trim_start_matches(['.', ' ']).len();
    let (before, rest) = rest.split_at(dots);
    let level = before.matches('.').count();
    let alone = rest.strip_prefix("import").filter(|_| level > 0);
    let alone = alone.filter(|names| names.starts_with([' ', '(', '*']));
    let (module, names) = match alone {
        Some(names) => ("", names),
        None => {
            let (module, names) = rest.split_once(" import")?;
            (first_word(module)?, names)
        }
    };
    let plain = names.replace(['(', ')'], " ");
    let names = plain.split(',').filter_map(first_word);
    Some(Import {
        level,
        module: module.to_owned(),
        names: names.map(str::to_owned).collect(),
    })
}

/// Returns the dotted name that a text begins with.
fn first_word(text: &str) -> Option<&str> {
    let word = text.split_whitespace().next()?;
    let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    word.chars().all(plain).then_some(word)
}

/// Tells which lines of a file run whenever it is imported.
#[derive(Default)]
struct Running {
    /// `Some` below a `with` or a `class` at the top level; then the indentation of its body, once a line of that was read.
    below: Option<Option<usize>>,
}

impl Running {
    fn takes(&mut self, line: &str) -> bool {
        let indentation = line.len() - line.trim_start().len();
        if indentation > 0 {
            let below = self.below.as_mut();
            return below.is_some_and(|own| *own.get_or_insert(indentation) == indentation);
        }
        let begins = ["with ", "class "]
            .iter()
            .any(|word| line.starts_with(word));
        let opens = begins && line.trim_end().ends_with(':');
        // `contextlib.suppress` catches what fails.
        self.below = (opens && !line.contains("suppress")).then_some(None);
        true
    }
}

/// Returns the logical lines that run, without comments, and with empty strings for all strings.
fn lines(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut line: Vec<u8> = Vec::new();
    let (mut at, mut depth) = (0, 0_usize);
    let mut running = Running::default();
    let mut end = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        if !line.trim().is_empty() && running.takes(&line) {
            out.push(line.into_owned());
        }
    };
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'#' => {
                at += until_newline(&bytes[at..]);
                continue;
            }
            b'"' | b'\'' => {
                at += string(&bytes[at..]);
                line.extend(b"''");
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'\\' => {
                // It continues the line, whatever follows.
                at += 1 + usize::from(bytes.get(at + 1) == Some(&b'\r'));
                at += 1;
                line.push(b' ');
                continue;
            }
            b'\n' if depth == 0 => {
                end(&line);
                line.clear();
                at += 1;
                continue;
            }
            _ => {}
        }
        line.push(if byte.is_ascii_whitespace() {
            b' '
        } else {
            *byte
        });
        at += 1;
    }
    end(&line);
    out
}

fn until_newline(bytes: &[u8]) -> usize {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.unwrap_or(bytes.len())
}

/// Returns the length of the string literal that a text begins with.
fn string(bytes: &[u8]) -> usize {
    let quote = bytes[0];
    let is_long = bytes.starts_with(&[quote; 3]);
    let mut at = if is_long { 3 } else { 1 };
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'\n' if !is_long => return at,
            _ if *byte == quote && !is_long => return at + 1,
            _ if *byte == quote && bytes[at..].starts_with(&[quote; 3]) => return at + 3,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> Vec<String> {
        let shown =
            |i: Import| format!("{}{}:{}", ".".repeat(i.level), i.module, i.names.join(","));
        imports(text).into_iter().map(shown).collect()
    }

    #[test]
    fn the_body_of_a_class_runs() {
        let text = "class A(B):\n    '''Doc'''\n    from a import b\n    if x:\n        import c\n    def f(self):\n        import d\nclass E: pass\n    import not_python\n";
        assert_eq!(shown(text), ["a:b"]);
    }

    #[test]
    fn what_runs_at_once_is_read() {
        let text = r#""""A docstring.

import nothing
"""
import os, six.moves as moves  # import more
from .  import (a, b as c,  # first
    d)
from ..x.y import *; import z
import \
    w
try:
    import caught
except ImportError:
    caught = None
text = 'it''s' "import a" r'\'
'''
import x
'''
if True:
    import below
def f(): import never
from pkg.sub import (
    one,
    two,
)
from .important import(thing)
from .import near
import end"#;
        assert_eq!(
            shown(text),
            [
                "os:",
                "six.moves:",
                ".:a,b,d",
                "..x.y:",
                "z:",
                "w:",
                "pkg.sub:one,two",
                ".important:thing",
                ".:near",
                "end:",
            ]
        );
    }

    #[test]
    fn what_stands_right_below_a_with_runs_too() {
        let text = "with warnings.catch_warnings():\n    # quietly\n\n    warnings.simplefilter('ignore')\n    import a\n\
            \x20   if True:\n        import below\n    import b\nimport c\n\
            with contextlib.suppress(ImportError):\n    import caught\n\
            with open('x',\n        'r') as x: import same\n    import odd\n\
            if c:\n    with d:\n        import deeper\n";
        assert_eq!(shown(text), ["a:", "b:", "c:"]);
    }

    #[test]
    fn what_only_looks_like_an_import_is_none() {
        for text in [
            "imports = 1",
            "from_ = 2",
            "x.import y",
            "import",
            "from x",
            "from import",
            "",
        ] {
            assert_eq!(imports(text), [], "{text}");
        }
        // Windows' lines.
        assert_eq!(shown("import a\r\nfrom b import c\r\n"), ["a:", "b:c"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(import |from |\\.|[a-z]|\"|'|\\\\|\n|\r|\\(|\\)|#|;|,| |é){0,40}") {
            let _ = imports(&text);
        }
    }
}
