//! A decision that nobody asked for, with its reason.

use crate::setting::Setting;
use serde::{Serialize, Serializer};

/// What was decided about one subject. As JSON: `what`, `arguments` of the engine's command, `why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The subject: `GPU`, `shared memory`.
    pub what: &'static str,
    /// What the engine is asked for. May be empty.
    #[serde(rename = "arguments", serialize_with = "as_arguments")]
    pub settings: Vec<Setting>,
    /// The reason, as a fragment.
    pub why: String,
}

impl Choice {
    pub(crate) fn new(
        what: &'static str,
        settings: impl IntoIterator<Item = Setting>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            what,
            settings: settings.into_iter().collect(),
            why: why.into(),
        }
    }

    /// A decision that asks nothing of the engine.
    pub(crate) fn nothing(what: &'static str, why: impl Into<String>) -> Self {
        Self::new(what, [], why)
    }

    /// Returns the arguments of the engine's command.
    pub fn arguments(&self) -> Vec<String> {
        self.settings.iter().flat_map(Setting::arguments).collect()
    }
}

fn as_arguments<S: Serializer>(settings: &[Setting], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(settings.iter().flat_map(Setting::arguments))
}
