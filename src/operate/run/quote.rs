//! A command line that a shell reads as exactly these arguments.

use stackforge_types::printable::{is_plain, word};

/// Returns the arguments as one line. What cannot be printed is written as `$'…'`, which bash, zsh, ksh and
/// POSIX of 2024 read.
pub(crate) fn line<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = arguments.into_iter().map(quoted).collect();
    words.join(" ")
}

fn quoted(text: &str) -> String {
    if text.chars().all(is_plain) {
        return word(text).into_owned();
    }
    let mut out = String::from("$'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => out.extend(['\\', c]),
            c if is_plain(c) => out.push(c),
            c => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    // Three digits always, so that a digit after it is not taken for one of its own.
                    out += &format!("\\{byte:03o}");
                }
            }
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn plain_words_stay_and_others_are_quoted() {
        let of = |all: &[&str]| line(all.iter().copied());
        assert_eq!(of(&["docker", "-e", "A=b"]), "docker -e A=b");
        assert_eq!(of(&["a b", "it's", ""]), r"'a b' 'it'\''s' ''");
        assert_eq!(of(&["\"device=0,1\""]), "'\"device=0,1\"'");
        assert_eq!(of(&["a\n1\u{1b}'\\"]), r"$'a\0121\033\'\\'");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
        #[test]
        fn a_shell_reads_back_what_was_written(words in proptest::collection::vec("[^\0]{0,12}", 1..4)) {
            let script = format!("printf '%s\\0' {}", line(words.iter().map(String::as_str)));
            // dash reads no `$'…'`.
            let Ok(out) = Command::new("bash").args(["-c", &script]).output() else {
                return Ok(());
            };
            let read = String::from_utf8(out.stdout).unwrap();
            let read: Vec<&str> = read.split_terminator('\0').collect();
            prop_assert_eq!(read, words);
        }
    }
}
