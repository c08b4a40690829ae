//! Quoting: the only ways in which text from a stack enters a Dockerfile, a script or a pipeline.

use super::yaml;
use handlebars::{
    Context, Handlebars, Helper, HelperDef, HelperResult, Output, RenderContext, RenderErrorReason,
};
use stackforge_types::printable::is_plain;
use stackforge_types::reference::image_reference;

/// Quotes `text` as one word of a POSIX shell, without special characters.
pub fn sh(text: &str) -> String {
    let plain = !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&b));
    if plain {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes `text` as a double-quoted word of a Dockerfile instruction, without expansion. Control
/// characters, which such a word cannot hold, become spaces.
pub fn dockerfile_word(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() || c == '\u{2028}' || c == '\u{2029}' => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Makes `text` safe as the rest of a comment line: no line end, and no trailing backslash.
pub fn comment(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if is_plain(c) { c } else { ' ' })
        .collect();
    line.trim_end_matches(['\\', ' ']).to_owned()
}

macro_rules! helper {
    ($(#[$doc:meta])* $name:ident, $convert:expr) => {
        $(#[$doc])*
        pub struct $name;

        impl HelperDef for $name {
            fn call<'reg: 'rc, 'rc>(
                &self,
                h: &Helper<'rc>,
                _: &'reg Handlebars<'reg>,
                _: &'rc Context,
                _: &mut RenderContext<'reg, 'rc>,
                out: &mut dyn Output,
            ) -> HelperResult {
                let name = h.name();
                let value = h
                    .param(0)
                    .and_then(|p| p.value().as_str())
                    .ok_or_else(|| RenderErrorReason::Other(format!("`{name}` needs one text")))?;
                let convert: fn(&str) -> Result<String, String> = $convert;
                out.write(&convert(value).map_err(RenderErrorReason::Other)?)?;
                Ok(())
            }
        }
    };
}

helper!(
    /// `{{sh value}}`
    ShHelper,
    |v| Ok(sh(v))
);
helper!(
    /// `{{quoted value}}`
    QuotedHelper,
    |v| Ok(dockerfile_word(v))
);
helper!(
    /// `{{comment value}}`
    CommentHelper,
    |v| Ok(comment(v))
);
helper!(
    /// `{{yaml value}}`: a YAML scalar.
    YamlHelper,
    |v| Ok(yaml::scalar(v))
);
helper!(
    /// `{{block value}}`: the value of a key that is indented by two spaces, as a literal block.
    BlockHelper,
    |v| Ok(yaml::block(v, 2))
);
helper!(
    /// `{{reference value}}`: fails if the value is not an image reference.
    ReferenceHelper,
    |v| if image_reference(v) {
        Ok(v.to_owned())
    } else {
        Err(format!("`{}` is not an image reference", comment(v)))
    }
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A real shell has to pass exactly the quoted text to a command.
        #[test]
        fn no_text_breaks_out_of_the_shell(text in "[^\0]{0,40}") {
            let script = format!("printf %s {}", sh(&text));
            let out = Command::new("sh").args(["-c", &script]).output().unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&out.stdout), text);
            prop_assert!(out.stderr.is_empty());
        }

        /// The word ends at its last character, not before, and stays on its line.
        #[test]
        fn no_text_breaks_out_of_a_dockerfile_word(text in "\\PC*|(.|\n|\"|\\\\|\\$){0,30}") {
            let word = dockerfile_word(&text);
            prop_assert!(!word.contains('\n') && !word.contains('\r'));
            let mut inner = word[1..word.len() - 1].chars();
            while let Some(c) = inner.next() {
                prop_assert!(c != '"' && c != '$', "unescaped {} in {}", c, word);
                if c == '\\' {
                    prop_assert!(matches!(inner.next(), Some('"' | '\\' | '$')));
                }
            }
        }

        #[test]
        fn a_comment_stays_one_line(text in "(.|\n|\r|\\\\){0,30}") {
            let line = comment(&text);
            prop_assert!(!line.contains(['\n', '\r']) && !line.ends_with('\\'));
        }
    }
}
