#![no_main]

#[path = "../../tests/support/readers/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each target uses a part")]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::tar(bytes));
