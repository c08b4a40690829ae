//! Finds the driver that is installed on a host and reads it into an [`Access`].
//!
//! Files of the driver are recognized by the names that NVIDIA's installers give them. Of several files
//! with one name, the first in the loader's order is taken, as programs of the host do.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::access::Access;
use crate::request::{Mount, OWN};

/// Name prefixes of the driver's libraries.
const LIBRARIES: [&str; 6] = [
    "libcuda.so",
    "libcudadebugger.so",
    "libnvcuvid.so",
    "libnvidia-",
    "libnvoptix.so",
    "libdxcore.so",
];
/// Directories that installers use; searched after those of the loader's configuration.
const DIRECTORIES: [&str; 9] = [
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/wsl/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "run/opengl-driver/lib",
];
/// Directories of L4T in which every library belongs to the driver.
const JETSON: [&str; 2] = [
    "usr/lib/aarch64-linux-gnu/nvidia",
    "usr/lib/aarch64-linux-gnu/tegra",
];
const PROGRAMS: [&str; 3] = [
    "usr/bin/nvidia-smi",
    "usr/local/nvidia/bin/nvidia-smi",
    "usr/lib/wsl/lib/nvidia-smi",
];
/// Most files of a driver; more are a mistake.
const MOST: usize = 2000;

pub(super) fn find(host: &Path, searched: &[PathBuf]) -> Option<Access> {
    let devices = devices(host);
    if devices.is_empty() {
        return None;
    }
    let mut access = Access::default();
    for path in devices {
        let target = Path::new("/").join(&path);
        access.mounts.push(Mount::Bind {
            source: host.join(path),
            target,
            writable: true,
        });
    }
    let own = Path::new(OWN).join("nvidia");
    let libraries = libraries(host, searched);
    if let Some(first) = libraries.iter().find(|l| is_cuda(l)) {
        access.from = first.parent().unwrap_or(host).to_owned();
        access.libraries.push(own.join("lib64"));
    }
    for file in libraries {
        let Some(name) = file.file_name() else {
            continue;
        };
        let target = own.join("lib64").join(name);
        access.mounts.push(Mount::read_only(file, target));
    }
    if let Some(program) = PROGRAMS.iter().map(|p| host.join(p)).find(|p| p.is_file()) {
        let target = own.join("bin/nvidia-smi");
        access.mounts.push(Mount::read_only(program, target));
        access.programs.push(own.join("bin"));
    }
    Some(access)
}

fn is_cuda(path: &Path) -> bool {
    path.file_name()
        .and_then(|n| n.to_str())
        .is_some_and(|n| n.starts_with("libcuda.so"))
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .take(MOST)
        .collect()
}

/// Returns the device nodes, relative to the host's root: only those for computing, not for display.
fn devices(host: &Path) -> Vec<PathBuf> {
    let dev = host.join("dev");
    let is_ours = |name: &String| {
        let number = name.strip_prefix("nvidia").unwrap_or("-");
        number.bytes().all(|b| b.is_ascii_digit())
            || [
                "nvidiactl",
                "nvidia-uvm",
                "nvidia-uvm-tools",
                "nvidia-modeset",
            ]
            .contains(&name.as_str())
            || ["nvidia-caps", "nvidia-caps-imex-channels", "nvgpu"].contains(&name.as_str())
            || ["nvmap", "nvsciipc", "dxg"].contains(&name.as_str())
            || name.starts_with("nvhost-")
    };
    let all = names(&dev).into_iter().filter(is_ours);
    all.map(|n| Path::new("dev").join(n)).collect()
}

/// Finds files in the order of the directories, each name once. Links are resolved on the host.
fn libraries(host: &Path, searched: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    let directories = searched.iter().cloned().chain(configured(host));
    let directories = directories.map(|d| host.join(d.strip_prefix("/").unwrap_or(&d)));
    let directories = directories.chain(DIRECTORIES.iter().map(|d| host.join(d)));
    let directories = directories.map(|d| (d, false));
    for (directory, all) in directories.chain(JETSON.iter().map(|d| (host.join(d), true))) {
        for name in names(&directory) {
            let ours = all || LIBRARIES.iter().any(|l| name.starts_with(l));
            let file = directory.join(&name);
            if ours && name.contains(".so") && file.is_file() && seen.insert(name) {
                out.push(file);
            }
        }
    }
    out.truncate(MOST);
    out
}

/// Reads the directories of the loader's configuration, with one level of included files.
fn configured(host: &Path) -> Vec<PathBuf> {
    let directory = host.join("etc/ld.so.conf.d");
    let files = names(&directory)
        .into_iter()
        .filter(|n| n.ends_with(".conf"));
    files
        .filter_map(|n| std::fs::read_to_string(directory.join(n)).ok())
        .flat_map(|text| {
            let lines = text.lines().map(str::trim).filter(|l| l.starts_with('/'));
            lines.map(PathBuf::from).collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[&str]) -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        for file in files {
            let path = host.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        host
    }

    fn targets(access: &Access) -> Vec<&str> {
        let all = access.mounts.iter().map(|m| m.target().to_str().unwrap());
        all.map(|t| t.trim_start_matches("/dev/")).collect()
    }

    #[test]
    fn a_driver_is_found_by_its_names() {
        let host = host(&[
            "dev/nvidia0",
            "dev/nvidiactl",
            "dev/nvidia-uvm",
            "dev/nvme0",
            "dev/null",
            "opt/driver/libcuda.so.1",
            "usr/lib/x86_64-linux-gnu/libcuda.so.1",
            "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
            "usr/lib/x86_64-linux-gnu/libc.so.6",
            "usr/bin/nvidia-smi",
            "etc/ld.so.conf.d/a.conf",
        ]);
        std::fs::write(
            host.path().join("etc/ld.so.conf.d/a.conf"),
            "# x\n/opt/driver\n",
        )
        .unwrap();
        let access = find(host.path(), &[]).unwrap();
        assert_eq!(
            targets(&access),
            [
                "nvidia-uvm",
                "nvidia0",
                "nvidiactl",
                "stackforge/nvidia/lib64/libcuda.so.1",
                "stackforge/nvidia/lib64/libnvidia-ml.so.1",
                "stackforge/nvidia/bin/nvidia-smi",
            ]
        );
        assert_eq!(access.from, host.path().join("opt/driver"));
        assert_eq!(
            access.libraries,
            [Path::new("/dev/stackforge/nvidia/lib64")]
        );
    }

    #[test]
    fn a_jetsons_driver_is_a_directory() {
        let host = host(&[
            "dev/nvmap",
            "dev/nvhost-ctrl",
            "dev/nvgpu/igpu0/ctrl",
            "usr/lib/aarch64-linux-gnu/nvidia/libnvrm_gpu.so",
            "usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1",
        ]);
        let access = find(host.path(), &[]).unwrap();
        assert_eq!(
            targets(&access),
            [
                "nvgpu",
                "nvhost-ctrl",
                "nvmap",
                "stackforge/nvidia/lib64/libcuda.so.1.1",
                "stackforge/nvidia/lib64/libnvrm_gpu.so",
            ]
        );
    }

    #[test]
    fn without_devices_there_is_no_gpu() {
        assert_eq!(
            find(host(&["usr/lib/libcuda.so.1", "dev/null"]).path(), &[]),
            None
        );
    }
}
