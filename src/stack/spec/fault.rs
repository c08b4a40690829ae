//! Converts the YAML parser's errors to the stack's terms and our codes.

use super::raw::span_of;
use crate::diag::{Diagnostic, Span, codes};
use crate::fix::Fix;
use serde_saphyr::Error as YamlError;

/// Converts the parser's error to our words and codes.
pub(crate) fn structural(error: &YamlError, text: &str) -> Diagnostic {
    let span = error.location().map(|l| span_of(&l)).unwrap_or_default();
    let at = |d: Diagnostic| d.at(widen(span, text));
    match error {
        YamlError::SerdeUnknownField {
            field, expected, ..
        } => {
            let d = Diagnostic::error(codes::UNKNOWN_KEY, format!("unknown key `{field}`"));
            let d = d
                .suggest(field, span, expected.iter().copied())
                .or_help(|| format!("valid keys here: {}", expected.join(", ")));
            at(d).label("not a key of a stack")
        }
        YamlError::SerdeMissingField { field, .. } => {
            at(
                Diagnostic::error(codes::MISSING_KEY, format!("missing key `{field}`")).help(
                    format!("add `{field}:` here; `stackforge init` writes a complete stack"),
                ),
            )
        }
        YamlError::DuplicateMappingKey { key, .. } => {
            let name = key.as_deref().unwrap_or("?");
            at(
                Diagnostic::error(codes::DUPLICATE_KEY, format!("duplicate key `{name}`"))
                    .help("remove one of the two"),
            )
        }
        YamlError::Budget { .. }
        | YamlError::AliasReplayLimitExceeded { .. }
        | YamlError::AliasExpansionLimitExceeded { .. }
        | YamlError::AliasReplayStackDepthExceeded { .. }
        | YamlError::AliasReplayCounterOverflow { .. } => at(Diagnostic::error(
            codes::ALIAS_BOMB,
            "the file expands to more than a stack can be",
        )
        .help("write values out instead of YAML aliases, and nest less")),
        YamlError::SerdeUnknownVariant {
            variant, expected, ..
        } => {
            let message = format!("`{variant}` is none of {}", expected.join(", "));
            let d = Diagnostic::error(codes::WRONG_TYPE, message);
            at(d.suggest(variant, span, expected.iter().copied()))
        }
        YamlError::AliasError { error, .. } => structural(error, text),
        other => {
            let message = plain_words(&other.to_string());
            let type_error = matches!(
                other,
                YamlError::SerdeInvalidType { .. }
                    | YamlError::SerdeInvalidValue { .. }
                    | YamlError::Unexpected { .. }
                    | YamlError::NullIntoString { .. }
                    | YamlError::InvalidScalar { .. }
                    | YamlError::Message { .. }
            );
            let code = if type_error {
                codes::WRONG_TYPE
            } else {
                codes::YAML_SYNTAX
            };
            let word = word_at(span, text);
            let help = if message == "expected a list" && !word.is_empty() {
                format!("write a list of one: `[{word}]`")
            } else if type_error {
                "write the value in the form that the message names; versions need quotes"
                    .to_owned()
            } else {
                "check indentation, quotes and brackets here and on the line above".to_owned()
            };
            let wants_quotes = type_error && message.contains("specifier in quotes");
            let unquoted = wants_quotes.then(|| unquoted(span, text)).flatten();
            let mut d = at(Diagnostic::error(code, message).help(help));
            d.fix = unquoted.map(Box::new);
            d
        }
    }
}

/// Returns the word at a place, if it can stand in brackets as it is.
fn word_at(span: Span, text: &str) -> &str {
    let rest = text.get(span.offset..).unwrap_or_default();
    let line = rest.lines().next().unwrap_or_default();
    let end = line.find([',', '}', '#']).unwrap_or(line.len());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.\"'".contains(c);
    Some(line[..end].trim_end())
        .filter(|word| word.chars().all(plain))
        .unwrap_or_default()
}

/// Returns the quotes that the number after a key needs to be a version.
fn unquoted(key: Span, text: &str) -> Option<Fix> {
    let after = key.offset + text.get(key.offset..)?.find(':')? + 1;
    let rest = text.get(after..)?;
    let start = after + rest.find(|c: char| c != ' ')?;
    let number = text.get(start..)?;
    let end = number.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let number = &number[..end.unwrap_or(number.len())];
    (!number.is_empty()).then(|| Fix::Replace {
        span: Span::of(text, start..start + number.len()),
        from: number.to_owned(),
        to: number.to_owned(),
    })
}

pub(super) fn first_line(s: &str) -> String {
    let line = s.lines().next().unwrap_or(s);
    let line = line
        .split_once(": ")
        .filter(|(head, _)| head.starts_with("error"))
        .map_or(line, |(_, tail)| tail);
    line.chars().take(300).collect()
}

/// Returns a parser's message without its location, which is shown anyway, and without its own terms.
fn plain_words(message: &str) -> String {
    let line = first_line(message);
    let line = match line.rfind(" at line ") {
        Some(at) => &line[..at],
        None => &line,
    };
    [
        ("sequence start", "a list"),
        ("mapping start", "a mapping"),
        ("string scalar", "text"),
    ]
    .into_iter()
    .fold(line.to_owned(), |text, (term, word)| {
        text.replace(term, word)
    })
}

/// Extends a location without a length to the word at that place.
pub(crate) fn widen(span: Span, text: &str) -> Span {
    let offset = span.offset.min(text.len());
    let rest = text.get(offset..).unwrap_or("");
    let word = rest
        .find(|c: char| c.is_whitespace() || c == ':')
        .unwrap_or(rest.len());
    Span {
        offset,
        len: if span.len > 1 { span.len } else { word.max(1) }
            .min(rest.len())
            .min(80),
        ..span
    }
}
