//! Reads a Jetson module's L4T release and device tree.

use serde::Serialize;
use stackforge_types::root::{Root, clean};

/// The board, from the device tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Board {
    pub model: Option<String>,
    /// Compatible strings, the most specific first: `nvidia,p3737-0000+p3701-0005`, …, `nvidia,tegra234`.
    pub compatible: Vec<String>,
}

const LONGEST_PROPERTY: u64 = 64 << 10;
const MOST_STRINGS: usize = 64;

pub fn board(root: &Root) -> Option<Board> {
    let property = |name: &str| {
        ["/proc/device-tree", "/sys/firmware/devicetree/base"]
            .into_iter()
            .find_map(|tree| root.bytes(&format!("{tree}/{name}"), LONGEST_PROPERTY))
            .map(|bytes| strings(&bytes))
            .unwrap_or_default()
    };
    let board = Board {
        model: property("model").into_iter().next(),
        compatible: property("compatible"),
    };
    (board != Board::default()).then_some(board)
}

/// Returns the strings of a device tree's property, each of which ends with a NUL.
pub fn strings(property: &[u8]) -> Vec<String> {
    property
        .split(|b| *b == 0)
        .take(MOST_STRINGS)
        .map(|s| clean(&String::from_utf8_lossy(s)))
        .filter(|s| !s.is_empty())
        .collect()
}

/// Parses `36.4.3` from `# R36 (release), REVISION: 4.3, GCID: …`.
pub fn l4t(text: &str) -> Option<String> {
    let line = text.lines().find(|l| l.contains("REVISION:"))?;
    let release = line.trim_start_matches(['#', ' ']).strip_prefix('R')?;
    let release = release.split([' ', ',']).next()?;
    let revision = line.split("REVISION:").nth(1)?.split(',').next()?.trim();
    let version = format!("{release}.{revision}");
    let numbers = |n: &str| !n.is_empty() && n.len() <= 4 && n.bytes().all(|b| b.is_ascii_digit());
    (version.split('.').count() <= 4 && version.split('.').all(numbers)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn releases_of_three_generations() {
        let line = |r: &str, v: &str| {
            format!(
                "# R{r} (release), REVISION: {v}, GCID: 1, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot\n"
            )
        };
        assert_eq!(l4t(&line("36", "4.3")).as_deref(), Some("36.4.3"));
        assert_eq!(l4t(&line("38", "2.0")).as_deref(), Some("38.2.0"));
        assert_eq!(l4t(&line("32", "7.1")).as_deref(), Some("32.7.1"));
        for odd in [
            "",
            "R36",
            "# R36 REVISION:",
            "# Rx REVISION: 4.3",
            "# R36, REVISION: $(id)",
        ] {
            assert_eq!(l4t(odd), None, "{odd}");
        }
    }

    #[test]
    fn properties_are_lists_of_strings() {
        assert_eq!(
            strings(b"nvidia,p3701-0005\0nvidia,tegra234\0"),
            ["nvidia,p3701-0005", "nvidia,tegra234"]
        );
        assert_eq!(strings(b"\0\0"), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn parsers_never_panic(s in "(?s).*", b in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = l4t(&s);
            if let Some(found) = l4t(&format!("# R{s} REVISION:{s}")) {
                prop_assert!(found.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
            }
            prop_assert!(strings(&b).len() <= MOST_STRINGS);
        }
    }
}
