//! An engine's answers as plain JSON.
//!
//! The client library reads answers into types whose enums know the values of one release: one state of a
//! container, cgroup driver or kind of manifest that is newer fails the whole answer, though nobody asked
//! for it. In comes what the library made of an answer, out comes JSON that keeps such values, and readers
//! that take what has another type than they expect as absent.

use std::collections::BTreeMap;

use bollard::errors::Error as Client;
use serde::Serialize;
use serde_json::Value;

/// The answer itself, read or not. Other errors stay.
pub(super) fn raw<T: Serialize>(answer: Result<T, Client>) -> Result<Value, Client> {
    match answer {
        Ok(answer) => Ok(serde_json::to_value(answer)?),
        Err(Client::JsonDataError {
            contents,
            message,
            column,
        }) => match serde_json::from_str(&contents) {
            Ok(answer) => {
                tracing::debug!("an answer with something unknown: {message}");
                Ok(answer)
            }
            Err(_) => Err(Client::JsonDataError {
                contents,
                message,
                column,
            }),
        },
        Err(other) => Err(other),
    }
}

/// The text, empty if there is none.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The texts of a list.
pub(super) fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// The texts of a map, by name.
pub(super) fn map(value: &Value) -> BTreeMap<String, String> {
    let all = value.as_object().into_iter().flatten();
    all.filter_map(|(name, v)| Some((name.clone(), v.as_str()?.to_owned())))
        .collect()
}

/// The number, if it is one and not negative.
pub(super) fn number(value: &Value) -> Option<u64> {
    value.as_u64()
}

/// The members of a list.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
