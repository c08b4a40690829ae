//! Which drivers a toolkit runs on.

use super::Toolkit;
use stackforge_gpu::{DriverVersion, Support};

impl Toolkit {
    /// Returns how far a driver supports this toolkit.
    pub fn supported_by(&self, driver: &DriverVersion) -> Support {
        let floor = |text: &Option<String>| {
            text.as_deref()
                .and_then(|t| t.parse::<DriverVersion>().ok())
        };
        match (floor(&self.driver.toolkit), floor(&self.driver.minor)) {
            (Some(full), _) if *driver >= full => Support::Full,
            (_, Some(minor)) if *driver >= minor => Support::SassOnly,
            (None, None) => Support::Unknown,
            _ => Support::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minor_version_compatibility_runs_sass_only() {
        let catalog = crate::tests::catalog();
        let of = |cuda: &str, driver: &str| {
            catalog
                .toolkit(cuda)
                .unwrap()
                .supported_by(&driver.parse().unwrap())
        };
        assert_eq!(of("12.8", "570.26"), Support::Full);
        assert_eq!(of("12.8", "550.54.14"), Support::SassOnly);
        assert_eq!(of("12.8", "470.10"), Support::No);
        assert_eq!(of("13.0", "575.51.03"), Support::No);
    }
}
