//! Reads specifications of the Container Device Interface (CDI) into an [`Access`].
//!
//! All of NVIDIA's GPUs are taken: the device `all` of a specification, otherwise each device. A
//! specification's hooks would run programs of the host. Those whose effect is a link or a directory
//! for the loader are done here; the others concern container runtimes only.
//! The format: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use stackforge_types::yaml;

use super::access::Access;
use crate::request::Mount;

const DIRECTORIES: [&str; 2] = ["etc/cdi", "var/run/cdi"];
const ENDS: [&str; 3] = ["yaml", "yml", "json"];
/// Longest specification, in bytes. That of a machine with many GPUs has some hundred kilobytes.
const LONGEST: u64 = 4 << 20;
const KIND: &str = "nvidia.com/gpu";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Specification {
    kind: String,
    #[serde(default)]
    devices: Vec<Device>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: Name,
    #[serde(default)]
    container_edits: Edits,
}

/// A device name. Some writers do not quote names that are numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Number(#[expect(dead_code, reason = "only a name that is `all` matters")] u64),
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Edits {
    env: Vec<String>,
    device_nodes: Vec<DeviceNode>,
    mounts: Vec<Bind>,
    hooks: Vec<Hook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceNode {
    path: PathBuf,
    host_path: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bind {
    host_path: PathBuf,
    container_path: PathBuf,
    #[serde(default)]
    options: Vec<String>,
}

#[derive(Deserialize)]
struct Hook {
    #[serde(default)]
    args: Vec<String>,
}

/// Reads the first specification of NVIDIA's GPUs.
pub(super) fn find(host: &Path) -> Option<Access> {
    for directory in DIRECTORIES {
        let mut files: Vec<PathBuf> = std::fs::read_dir(host.join(directory))
            .into_iter()
            .flatten()
            .filter_map(|e| Some(e.ok()?.path()))
            .filter(|p| {
                p.extension()
                    .is_some_and(|e| ENDS.iter().any(|end| e == *end))
            })
            .collect();
        files.sort();
        for file in files {
            if let Some(access) = read(&file).and_then(|b| access(host, &file, &b)) {
                return Some(access);
            }
        }
    }
    None
}

fn read(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(file).ok()?;
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn access(host: &Path, file: &Path, bytes: &[u8]) -> Option<Access> {
    let specification: Specification = yaml::from_slice(bytes).ok()?;
    if specification.kind != KIND {
        return None;
    }
    let is_all = |d: &&Device| matches!(&d.name, Name::Text(name) if name == "all");
    let devices: Vec<&Device> = match specification.devices.iter().find(is_all) {
        Some(all) => vec![all],
        // A GPU is listed by index and by UUID with the same nodes; each node is taken once.
        None => specification.devices.iter().collect(),
    };
    let mut access = Access {
        from: file.to_owned(),
        ..Access::default()
    };
    take(host, &specification.container_edits, &mut access);
    for device in devices {
        take(host, &device.container_edits, &mut access);
    }
    Some(access)
}

fn take(host: &Path, edits: &Edits, access: &mut Access) {
    let mut add = |source: &Path, target: &Path, writable: bool| {
        let source = below(host, source);
        let mount = Mount::Bind {
            source,
            target: target.to_owned(),
            writable,
        };
        let is_mounted = |m: &Mount| m.target() == target;
        if target.is_absolute() && !access.mounts.iter().any(is_mounted) {
            access.mounts.push(mount);
        }
    };
    for node in &edits.device_nodes {
        add(
            node.host_path.as_ref().unwrap_or(&node.path),
            &node.path,
            true,
        );
    }
    for bind in &edits.mounts {
        let writable = bind.options.iter().any(|o| o == "rw");
        add(&bind.host_path, &bind.container_path, writable);
    }
    for variable in &edits.env {
        if let Some((name, value)) = variable.split_once('=') {
            access.env.push((name.into(), value.into()));
        }
    }
    for hook in &edits.hooks {
        take_hook(&hook.args, access);
    }
}

fn take_hook(arguments: &[String], access: &mut Access) {
    let values = |option: &str| -> Vec<String> {
        let mut out = Vec::new();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if word == option {
                out.extend(words.next().cloned());
            } else if let Some(value) = word.strip_prefix(option) {
                out.extend(value.strip_prefix('=').map(str::to_owned));
            }
        }
        out
    };
    if arguments.iter().any(|a| a == "create-symlinks") {
        for link in values("--link") {
            if let Some((to, target)) = link.split_once("::").filter(|(_, t)| t.starts_with('/')) {
                access.mounts.push(Mount::Link {
                    target: target.into(),
                    to: to.into(),
                });
            }
        }
    }
    if arguments.iter().any(|a| a == "update-ldcache") {
        for folder in values("--folder") {
            if !access.libraries.contains(&PathBuf::from(&folder)) {
                access.libraries.push(folder.into());
            }
        }
    }
}

fn below(host: &Path, path: &Path) -> PathBuf {
    host.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const YAML: &str = r#"
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes: [{ path: /dev/nvidia0 }]
- name: all
  containerEdits:
    deviceNodes: [{ path: /dev/nvidia0 }, { path: /dev/nvidia1, hostPath: /dev/other1 }]
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [{ path: /dev/nvidiactl }]
  mounts:
  - hostPath: /lib/libcuda.so.580.1
    containerPath: /usr/lib/libcuda.so.580.1
    options: [ro, nosuid, nodev, bind]
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, create-symlinks, --link, "libcuda.so.1::/usr/lib/libcuda.so", --link=x::relative]
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib]
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, disable-device-node-modification]
"#;

    #[test]
    fn a_specification_becomes_mounts() {
        let host = tempfile::tempdir().unwrap();
        let dir = host.path().join("var/run/cdi");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(
            dir.join("a.json"),
            r#"{"kind":"vendor.com/net","devices":[]}"#,
        )
        .unwrap();
        std::fs::write(dir.join("nvidia.yaml"), YAML).unwrap();
        let access = find(host.path()).unwrap();
        assert_eq!(access.from, dir.join("nvidia.yaml"));
        let bind = |source: &str, target: &str, writable| Mount::Bind {
            source: host.path().join(source),
            target: target.into(),
            writable,
        };
        assert_eq!(
            access.mounts,
            [
                bind("dev/nvidiactl", "/dev/nvidiactl", true),
                bind("lib/libcuda.so.580.1", "/usr/lib/libcuda.so.580.1", false),
                Mount::Link {
                    target: "/usr/lib/libcuda.so".into(),
                    to: "libcuda.so.1".into(),
                },
                bind("dev/nvidia0", "/dev/nvidia0", true),
                bind("dev/other1", "/dev/nvidia1", true),
            ]
        );
        assert_eq!(access.libraries, [Path::new("/usr/lib")]);
        assert_eq!(
            access.env,
            [("NVIDIA_VISIBLE_DEVICES".into(), "void".into())]
        );
    }

    proptest! {
        #[test]
        fn any_file_is_fine(b in proptest::collection::vec(any::<u8>(), 0..200), s in "(?s).*") {
            let (host, file) = (Path::new("/"), Path::new("x"));
            let _ = access(host, file, &b);
            let _ = access(host, file, format!("kind: {KIND}\ncontainerEdits: {s}").as_bytes());
        }
    }
}
