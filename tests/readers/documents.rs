//! Documents that a person wrote, or another program: stacks, locks, CDI specifications and the
//! settings of Docker.

use stackforge_device::containers::{cdi_devices, docker_runtimes};
use stackforge_stack::diag::{Source, render};
use stackforge_stack::lock::Lock;
use stackforge_stack::spec;

/// A stack, or every fault of it, each within the text.
pub fn stack(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Err(report) = spec::read("stack.yaml", text) else {
        return;
    };
    assert!(report.has_errors());
    let Source { text, .. } = &report.source;
    for span in report.diagnostics.iter().filter_map(|d| d.span) {
        assert!(span.offset <= text.len());
    }
    render(&report, false);
}

/// A lock that was understood is written so that it is understood again.
pub fn lock(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(lock) = Lock::from_toml(text) {
        let written = lock.to_toml().expect("it was read");
        assert_eq!(Lock::from_toml(&written).ok(), Some(lock));
    }
}

/// Names of devices and runtimes can be printed.
pub fn cdi(bytes: &[u8]) {
    let mut names = cdi_devices(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let (runtimes, default) = docker_runtimes(text);
        names.extend(runtimes);
        names.extend(default);
    }
    assert!(names.iter().all(|name| !name.contains(char::is_control)));
}
