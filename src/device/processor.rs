//! Processors and memory: /proc/cpuinfo and /proc/meminfo.

use serde::Serialize;
use stackforge_types::Platform;
use stackforge_types::root::clean;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cpu {
    pub model: Option<String>,
    /// Number of logical processors; 0 if it is not known.
    pub count: u32,
    /// Flags that all processors have, with the kernel's names.
    pub flags: BTreeSet<String>,
}

/// Amounts of memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    pub total: Option<u64>,
    pub available: Option<u64>,
}

/// Reads the processors from /proc/cpuinfo, and the platform that the file's format belongs to.
pub fn cpuinfo(text: &str) -> (Cpu, Option<Platform>) {
    let mut cpu = Cpu::default();
    let mut platform = None;
    let mut flags: Option<BTreeSet<&str>> = None;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        match key.trim() {
            "processor" if value.trim().parse::<u32>().is_ok() => cpu.count += 1,
            // Jetson modules name the processor once, after the list, from the device tree.
            "model name" | "Model" if cpu.model.is_none() => {
                cpu.model = Some(clean(value)).filter(|m| !m.is_empty());
            }
            own @ ("flags" | "Features") => {
                platform = Some(match own {
                    "flags" => Platform::LinuxAmd64,
                    _ => Platform::LinuxArm64,
                });
                let these: BTreeSet<&str> = value.split_whitespace().collect();
                flags = Some(match flags {
                    Some(before) => before.intersection(&these).copied().collect(),
                    None => these,
                });
            }
            _ => {}
        }
    }
    let flags = flags.unwrap_or_default();
    cpu.flags = flags
        .into_iter()
        .filter(|f| f.len() <= 32)
        .map(clean)
        .collect();
    (cpu, platform)
}

pub fn meminfo(text: &str) -> Memory {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        let kib: u64 = line
            .strip_prefix(':')?
            .split_whitespace()
            .next()?
            .parse()
            .ok()?;
        kib.checked_mul(1024)
    };
    Memory {
        total: bytes("MemTotal"),
        available: bytes("MemAvailable"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_flags_of_every_processor_count() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx avx2\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx\n";
        let (cpu, platform) = cpuinfo(text);
        assert_eq!(platform, Some(Platform::LinuxAmd64));
        assert_eq!((cpu.count, cpu.model.as_deref()), (2, Some("AMD EPYC")));
        assert_eq!(cpu.flags.into_iter().collect::<Vec<_>>(), ["avx", "fpu"]);
        let (cpu, platform) = cpuinfo("processor : 0\nFeatures : fp asimd asimddp\n");
        assert_eq!(platform, Some(Platform::LinuxArm64));
        assert!(cpu.flags.contains("asimddp"));
    }

    #[test]
    fn memory_is_in_bytes() {
        let memory = meminfo("MemTotal:       24576 kB\nMemFree: 1 kB\nMemAvailable:  1024 kB\n");
        assert_eq!(memory.total, Some(24 << 20));
        assert_eq!(memory.available, Some(1 << 20));
        assert_eq!(
            meminfo("MemTotal: 99999999999999999999 kB"),
            Memory::default()
        );
    }

    proptest! {
        #[test]
        fn parsers_never_panic(s in "(?s).*", n in "[0-9]{1,30}") {
            let (cpu, _) = cpuinfo(&format!("processor:{s}\nflags:{s}\nFeatures: {s}"));
            prop_assert!(cpu.flags.iter().all(|f| f.len() <= 32));
            let _ = meminfo(&s);
            let _ = meminfo(&format!("MemTotal:{n} kB\nMemAvailable:{s}"));
        }
    }
}
