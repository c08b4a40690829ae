//! How an engine finds out whether a service works.

use serde::Serialize;
use std::time::Duration;

/// Docker's health check. The OCI format has no such key; engines that do not know it ignore it. What is `None` is
/// the engine's default: 30 s, 30 s, 0 s, 3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    pub cmd: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_period: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

impl Health {
    /// Returns the key `Healthcheck` of an image's configuration, with times in nanoseconds.
    pub fn document(&self) -> serde_json::Value {
        let mut document = serde_json::json!({ "Test": self.test() });
        let times = [
            ("Interval", self.interval),
            ("Timeout", self.timeout),
            ("StartPeriod", self.start_period),
        ];
        for (key, time) in times {
            let nanoseconds = time.and_then(|time| u64::try_from(time.as_nanos()).ok());
            if let Some(nanoseconds) = nanoseconds {
                document[key] = nanoseconds.into();
            }
        }
        if let Some(retries) = self.retries {
            document["Retries"] = retries.into();
        }
        document
    }

    fn test(&self) -> Vec<String> {
        let cmd = self.cmd.iter().cloned();
        std::iter::once("CMD".to_owned()).chain(cmd).collect()
    }
}
