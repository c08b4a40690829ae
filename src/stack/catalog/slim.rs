//! The files that a run-time image leaves out of a wheel.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Slim {
    pub schema: u32,
    pub slim: Vec<SlimRule>,
}

/// A rule about files that are left out.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SlimRule {
    /// Normalized name of a distribution; a `*` at its end stands for any rest.
    pub distributions: String,
    /// Names in the wheel: `*` and `?` within a folder, `**` across.
    pub drop: Vec<String>,
    pub why: String,
    pub source: String,
}

impl Slim {
    /// Returns the globs of files that a distribution's wheel is installed without.
    pub fn dropped_files(&self, distribution: &str) -> Vec<String> {
        let applies = |rule: &&SlimRule| match rule.distributions.strip_suffix('*') {
            Some(start) => distribution.starts_with(start),
            None => rule.distributions == distribution,
        };
        let rules = self.slim.iter().filter(applies);
        rules.flat_map(|rule| rule.drop.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_rest() {
        let rule = |distributions: &str, drop: &str| SlimRule {
            distributions: distributions.into(),
            drop: vec![drop.into()],
            why: String::new(),
            source: String::new(),
        };
        let slim = Slim {
            schema: 1,
            slim: vec![
                rule("nvidia-*", "a"),
                rule("nvidia-x", "b"),
                rule("torch", "c"),
            ],
        };
        assert_eq!(slim.dropped_files("nvidia-x"), ["a", "b"]);
        assert_eq!(slim.dropped_files("nvidia-y"), ["a"]);
        assert!(slim.dropped_files("torchvision").is_empty());
    }
}
