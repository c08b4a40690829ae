//! Short texts of others: file names of wheels, versions of symbols, SMs, names of libraries.

use std::fmt::Display;
use std::str::FromStr;

use stackforge_binary::elf::{self, Version};
use stackforge_stack::spec::{Platform, PythonVersion, Sm};
use stackforge_types::wheel::{WheelName, WheelTarget, normalized};
use stackforge_types::{Digest, LibraryName, OsPackage, StackName};

pub fn names(bytes: &[u8]) {
    elf::mentions(bytes, &["c10", "at", "torch"]);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let once = normalized(text);
    assert_eq!(normalized(&once), once);
    for line in text.lines() {
        wheel(line);
        if let Some(version) = Version::parse(line) {
            assert_eq!(Version::parse(&version.to_string()), Some(version));
        }
        round::<Sm>(line);
        round::<Platform>(line);
        round::<PythonVersion>(line);
        round::<StackName>(line);
        round::<LibraryName>(line);
        round::<OsPackage>(line);
        round::<Digest>(line);
    }
}

fn wheel(file: &str) {
    let Ok(name) = file.parse::<WheelName>() else {
        return;
    };
    assert!(!file.contains('/') && file.len() <= 255);
    assert!(normalized(&name.name) == name.name && !name.name.is_empty());
    let python = name.python();
    name.is_for_one_system();
    for platform in Platform::ALL {
        for minor in [6, 12, 255] {
            let target = WheelTarget {
                python: python.unwrap_or(PythonVersion { major: 3, minor }),
                platform,
                glibc: 39,
            };
            let rank = name.rank(&target);
            // What fits an old glibc fits a new one.
            let newer = WheelTarget {
                glibc: 40,
                ..target
            };
            assert!(rank.is_none() || name.rank(&newer).is_some());
        }
    }
}

/// What was understood is written so that it is understood again.
fn round<T: FromStr + Display + PartialEq + std::fmt::Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let again = value.to_string().parse::<T>();
        assert_eq!(again.ok(), Some(value));
    }
}
