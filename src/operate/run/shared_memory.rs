//! Decides how large `/dev/shm` is.

/// Returns the size in bytes, rounded down to GiB or MiB: half of the memory. That is what Linux gives every
/// program outside of containers, and memory is used only as it fills. `None` if the memory is not known.
pub fn size(memory: Option<u64>) -> Option<u64> {
    let half = memory? / 2;
    let whole = |unit: u32| half >> unit << unit;
    Some(if half >> 30 > 0 { whole(30) } else { whole(20) }).filter(|size| *size > 0)
}

/// Formats bytes as engines take them, without rounding.
pub fn shown(bytes: u64) -> String {
    match bytes {
        n if n > 0 && n.is_multiple_of(1 << 30) => format!("{}g", n >> 30),
        n if n > 0 && n.is_multiple_of(1 << 20) => format!("{}m", n >> 20),
        n => format!("{n}b"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_memory_in_whole_units() {
        assert_eq!(size(Some(128_789_024 << 10)).map(shown).unwrap(), "61g");
        assert_eq!(size(Some(1 << 30)).map(shown).unwrap(), "512m");
        assert_eq!(size(Some(1000)), None);
        assert_eq!(size(None), None);
        assert_eq!(shown(1001), "1001b");
    }
}
