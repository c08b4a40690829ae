//! A decision that nobody asked for, with its reason.

use serde::Serialize;

/// What was decided about one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The subject: `GPU`, `shared memory`.
    pub what: &'static str,
    /// The engine's arguments for it; empty if it needs none.
    pub arguments: Vec<String>,
    /// The reason, as a fragment.
    pub why: String,
}

impl Choice {
    pub(crate) fn new<S: Into<String>>(
        what: &'static str,
        arguments: impl IntoIterator<Item = S>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            what,
            arguments: arguments.into_iter().map(Into::into).collect(),
            why: why.into(),
        }
    }

    /// A decision that adds no argument.
    pub(crate) fn nothing(what: &'static str, why: impl Into<String>) -> Self {
        Self::new(what, [] as [&str; 0], why)
    }
}
