//! One program for all targets, since each links the whole crate: `FUZZ_TARGET` names the one.

#![no_main]

use std::sync::LazyLock;

static READ: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let target = readers::TARGETS.iter().find(|target| target.name == name);
    let Some(target) = target else {
        let names = readers::TARGETS.map(|target| target.name);
        panic!("set FUZZ_TARGET to one of: {}", names.join(" "));
    };
    target.read
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| READ(bytes));
