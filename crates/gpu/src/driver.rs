//! Versions of NVIDIA's driver, and how far one supports a CUDA toolkit.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Version of NVIDIA's Linux driver: `580.65.06`.
#[derive(Debug, Clone)]
pub struct DriverVersion {
    parts: Vec<u32>,
    /// The version as it was written: the number of digits varies (580.65.06, 540.4.0).
    text: String,
}

impl FromStr for DriverVersion {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let parts: Option<Vec<u32>> = s
            .trim()
            .split('.')
            .map(|p| p.parse().ok().filter(|_| !p.starts_with('+')))
            .collect();
        match parts {
            Some(parts) if (1..=4).contains(&parts.len()) => Ok(Self {
                parts,
                text: s.trim().to_owned(),
            }),
            _ => Err(format!("`{s}` is not a driver version such as `580.65.06`")),
        }
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Ord for DriverVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts.cmp(&other.parts)
    }
}

impl PartialOrd for DriverVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DriverVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for DriverVersion {}

/// How far a driver supports a toolkit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Everything works, code that the driver compiles included.
    Full,
    /// Minor-version compatibility: SASS only.
    SassOnly,
    /// The driver is too old.
    No,
    /// The toolkit's minimum driver is not known.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_compare_by_number() {
        let driver = |s: &str| s.parse::<DriverVersion>().unwrap();
        assert!(driver("580.65.06") > driver("580.9"));
        assert!(driver("580.65.06") > driver("580.9.99"));
        for written in ["580.65.06", "540.4.0", "580.00"] {
            assert_eq!(driver(written).to_string(), written);
        }
        for wrong in ["", "580.", "580.x", "1.2.3.4.5", "+1"] {
            assert!(wrong.parse::<DriverVersion>().is_err(), "{wrong}");
        }
    }
}
