#![no_main]

#[path = "../../tests/support/readers.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::fatbin(bytes));
