//! Releases of L4T (NVIDIA's Linux for Jetson): `catalog/jetson.yaml`.

use super::{Catalog, CatalogError, Image};
use serde::{Deserialize, Serialize};
use stackforge_types::{Platform, Sm};

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JetsonRelease {
    /// L4T releases. Each stands for all its revisions: `36.4` for 36.4.0, 36.4.3 and so on.
    pub l4t: Vec<String>,
    pub jetpack: String,
    /// CUDA toolkits of this JetPack.
    pub cuda: Vec<String>,
    pub ubuntu: String,
    pub gpus: Vec<Sm>,
    /// Driver of this L4T, if a source names it.
    #[serde(default)]
    pub driver: Option<String>,
    #[serde(default)]
    pub note: Option<String>,
    /// Bases (names in images/) that run on it, the preferred one first.
    pub bases: Vec<String>,
    pub source: String,
}

impl JetsonRelease {
    /// Whether an L4T version such as `36.4.3` or `36.4` belongs to this release.
    pub fn is(&self, l4t: &str) -> bool {
        self.l4t.iter().any(|own| {
            l4t.strip_prefix(own.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// Checks that the catalog has every SM, toolkit and base that a release names.
pub(super) fn check(catalog: &Catalog) -> Result<(), CatalogError> {
    for release in &catalog.jetson {
        let wrong = |what: String| {
            Err(CatalogError::Inconsistent {
                file: "jetson.yaml".into(),
                message: format!("L4T {}: {what}", release.l4t.join(", ")),
            })
        };
        for sm in &release.gpus {
            if !catalog.sms.iter().any(|f| f.sm == *sm && f.tegra) {
                return wrong(format!("{sm} is not the SM of a Tegra module"));
            }
        }
        if let Some(cuda) = release.cuda.iter().find(|c| catalog.toolkit(c).is_none()) {
            return wrong(format!("CUDA {cuda} is not in cuda.yaml"));
        }
        for base in &release.bases {
            let arm64 = |i: &Image| i.platforms.contains(&Platform::LinuxArm64);
            if !catalog.images.get(base).is_some_and(arm64) {
                return wrong(format!("`{base}` is not a base for linux/arm64"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    #[test]
    fn a_release_is_found_by_its_revisions_and_not_by_its_digits() {
        let catalog = crate::tests::catalog();
        let cuda = |l4t: &str| catalog.jetson_release(l4t).map(|r| r.cuda[0].as_str());
        assert_eq!(cuda("36.4"), Some("12.6"));
        assert_eq!(cuda("36.4.3"), Some("12.6"));
        assert_eq!(cuda("38.2.0"), Some("13.0"));
        assert_eq!(cuda("36.40"), None);
        assert_eq!(cuda("35.4.1"), None);
        assert_eq!(cuda(""), None);
    }
}
