//! Responses of an engine as plain JSON.
//!
//! The client library parses responses into types whose enums have the values of one release: a newer
//! state of a container, cgroup driver or kind of manifest makes it reject the whole response, even if
//! the value is not needed. The input here is the library's result; the output is JSON that keeps such
//! values. The readers below return nothing for values that do not have the expected type.

use std::collections::BTreeMap;

use bollard::errors::Error as Client;
use serde::Serialize;
use serde_json::Value;

/// Returns the response as JSON, even if the library could not parse it. Other errors stay.
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

/// Returns the string. Empty if the value is not a string.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the strings of a list.
pub(super) fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// Returns the string values of an object, by name.
pub(super) fn map(value: &Value) -> BTreeMap<String, String> {
    let all = value.as_object().into_iter().flatten();
    all.filter_map(|(name, v)| Some((name.clone(), v.as_str()?.to_owned())))
        .collect()
}

/// Returns the number. `None` if the value is not a non-negative integer.
pub(super) fn number(value: &Value) -> Option<u64> {
    value.as_u64()
}

/// Iterates over the members of a list.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
