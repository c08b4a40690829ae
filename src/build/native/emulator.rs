//! What runs programs of a platform on this machine: its processor, or QEMU's emulator of user programs.

use stackforge_binary::elf::Object;
use stackforge_binary::source::FileSource;
use stackforge_sandbox::supported;
use stackforge_types::Platform;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Where the kernel lists the interpreters of programs of other machines.
const BINFMT: &str = "/proc/sys/fs/binfmt_misc";

/// How a program of a platform is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runner {
    /// As it is: the processor or the kernel knows what to do.
    Kernel,
    /// By this emulator, a program that needs no library.
    Emulator(PathBuf),
}

impl Runner {
    /// Returns what runs programs of a platform. `None` if nothing on this machine does.
    pub fn of(platform: Platform) -> Option<Self> {
        supported().ok()?;
        if Platform::host() == Some(platform) || emulated(platform, Path::new(BINFMT)) {
            return Some(Self::Kernel);
        }
        emulator(platform, &std::env::var_os("PATH")?).map(Self::Emulator)
    }
}

/// Says why nothing runs programs of a platform, where [`Runner::of`] returns nothing, and what to do.
pub(super) fn missing(platform: Platform) -> String {
    match supported() {
        Ok(()) => {
            format!("no program of {platform} runs on this machine: install qemu-user-static")
        }
        Err(e) => format!("{e}; {}", e.help()),
    }
}

fn name(platform: Platform) -> &'static str {
    match platform.arch() {
        "arm64" => "qemu-aarch64",
        _ => "qemu-x86_64",
    }
}

/// Whether the kernel runs programs of a platform by an emulator that it holds open: one that it looks up at
/// each start (without the flag F) is not found in another root.
pub(super) fn emulated_by_kernel(platform: Platform) -> bool {
    emulated(platform, Path::new(BINFMT))
}

fn emulated(platform: Platform, binfmt: &Path) -> bool {
    let entry = std::fs::read_to_string(binfmt.join(name(platform))).unwrap_or_default();
    let flags = entry.lines().find_map(|line| line.strip_prefix("flags: "));
    entry.starts_with("enabled") && flags.is_some_and(|flags| flags.contains('F'))
}

/// Returns the first emulator in the directories of `path` that is linked statically, so that it runs in any root.
fn emulator(platform: Platform, path: &OsStr) -> Option<PathBuf> {
    let name = name(platform);
    let names = [format!("{name}-static"), name.to_owned()];
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let mut all = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    all.find(|path| is_static(path))
}

fn is_static(path: &Path) -> bool {
    let Ok(mut file) = FileSource::open(path) else {
        return false;
    };
    Object::read("the emulator", &mut file, &[]).is_ok_and(|object| object.needed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulator_counts_if_the_kernel_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let arm = Platform::LinuxArm64;
        let entry = |text: &str| std::fs::write(dir.path().join("qemu-aarch64"), text).unwrap();
        assert!(!emulated(arm, dir.path()));
        let body = "interpreter /usr/bin/qemu-aarch64\nflags: POCF\noffset 0\n";
        entry(&format!("enabled\n{body}"));
        assert!(emulated(arm, dir.path()) && !emulated(Platform::LinuxAmd64, dir.path()));
        entry(&format!("disabled\n{body}"));
        assert!(!emulated(arm, dir.path()));
        entry("enabled\ninterpreter /usr/bin/qemu-aarch64\nflags: \n");
        assert!(!emulated(arm, dir.path()));
    }

    #[test]
    fn what_is_no_static_program_is_no_emulator() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qemu-aarch64");
        assert_eq!(emulator(Platform::LinuxArm64, dir.path().as_os_str()), None);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert_eq!(emulator(Platform::LinuxArm64, dir.path().as_os_str()), None);
        // This test's own program needs the C library.
        std::fs::copy("/proc/self/exe", &path).unwrap();
        assert_eq!(emulator(Platform::LinuxArm64, dir.path().as_os_str()), None);
        assert!(Runner::of(Platform::host().unwrap()) == Some(Runner::Kernel));
    }
}
