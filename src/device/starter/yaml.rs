//! YAML as `init` writes it: scalars that are read back as the same text, comments of bounded width.

/// Widest line of a comment, in characters.
const WIDTH: usize = 110;
/// Plain words that YAML reads as something else.
const OTHERS: [&str; 13] = [
    "null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "~", "none",
];

/// Returns a scalar: plain where that is safe, else in double quotes.
pub(super) fn scalar(text: &str) -> String {
    let of_word = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
    // An option of a program begins with dashes, a number does not have a letter behind them.
    let plain = text
        .trim_start_matches('-')
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'/')
        && !text.starts_with("---")
        && text.bytes().all(of_word)
        && !OTHERS.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { quoted(text) }
}

/// Returns a scalar in double quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if hidden(c) => match u32::from(c) {
                code @ ..=0xffff => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Returns a flow list of scalars.
pub(super) fn list<'a>(items: impl IntoIterator<Item = &'a String>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| scalar(item)).collect();
    format!("[{}]", items.join(", "))
}

/// Adds a comment in as many lines as it takes. What it quotes may be anything.
pub(super) fn comment(out: &mut String, indent: usize, text: &str) {
    let margin = " ".repeat(indent);
    let mut line = format!("{margin}#");
    let mut width = line.len();
    let plain: String = text
        .chars()
        .map(|c| if hidden(c) { ' ' } else { c })
        .collect();
    for word in plain.split_whitespace() {
        let length = word.chars().count();
        if width + 1 + length > WIDTH && width > indent + 3 {
            out.push_str(&line);
            out.push('\n');
            line = format!("{margin}#  ");
            width = line.len();
        }
        line.push(' ');
        line.push_str(word);
        width += 1 + length;
    }
    out.push_str(&line);
    out.push('\n');
}

/// Returns text for the end of a line, behind a `#`.
pub(super) fn remark(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| if hidden(c) { ' ' } else { c })
        .collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether YAML or a reader's eye would not take the character as it is.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(yaml: &str) -> serde_json::Value {
        stackforge_types::yaml::from_slice(yaml.as_bytes()).unwrap()
    }

    #[test]
    fn words_of_yaml_are_quoted() {
        for text in [
            "no", "1.10", "3e5", "", "-", "a: b", "a #b", "~", "0x1f", "\u{85}x", "\"\\",
        ] {
            assert_eq!(read(&format!("k: {}", scalar(text)))["k"], text, "{text:?}");
        }
        assert_eq!(scalar("/app/main.py"), "/app/main.py");
    }

    proptest! {
        #[test]
        fn each_scalar_is_read_back(text in "\\PC{0,20}|[\n\t\u{0}-\u{ff}:#'\"-]{0,20}") {
            let yaml = format!("k: {}\nl: {}\n", scalar(&text), list([&text]));
            let value = read(&yaml);
            prop_assert_eq!(value["k"].as_str(), Some(text.as_str()));
            prop_assert_eq!(value["l"][0].as_str(), Some(text.as_str()));
        }

        #[test]
        fn a_comment_stays_a_comment(text in "\\PC{0,300}|[\n\r\u{0}-\u{ff}\u{2028}]{0,40}") {
            let mut yaml = "k: 1\n".to_owned();
            comment(&mut yaml, 2, &text);
            prop_assert!(yaml.lines().skip(1).all(|l| l.starts_with("  #")));
            prop_assert_eq!(read(&yaml), serde_json::json!({ "k": 1 }));
        }
    }
}
