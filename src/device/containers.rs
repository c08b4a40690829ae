//! Reads how containers get this machine's GPUs: CDI specifications and Docker's configuration.

use serde::{Deserialize, Serialize};
use stackforge_types::root::{Root, clean};
use stackforge_types::yaml;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Containers {
    /// Devices in NVIDIA's CDI specifications: `nvidia.com/gpu=0`.
    pub cdi: Vec<String>,
    /// Paths of NVIDIA's CDI specifications.
    pub cdi_specs: Vec<String>,
    /// Path of the NVIDIA Container Toolkit's program that Docker asks for GPUs.
    pub toolkit: Option<String>,
    /// Runtimes in Docker's configuration, without the built-in ones.
    pub runtimes: Vec<String>,
    pub default_runtime: Option<String>,
}

const CDI: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// The program has been called by both names.
const TOOLKIT: [&str; 4] = [
    "/usr/bin/nvidia-container-runtime-hook",
    "/usr/local/bin/nvidia-container-runtime-hook",
    "/usr/bin/nvidia-container-toolkit",
    "/usr/local/nvidia/toolkit/nvidia-container-runtime-hook",
];
const LONGEST_SPEC: u64 = 1 << 20;
const MOST_DEVICES: usize = 256;

pub fn read(root: &Root) -> Containers {
    let files = CDI.iter().flat_map(|dir| {
        let names = root.list(dir).into_iter();
        names.map(move |name| format!("{dir}/{name}"))
    });
    let mut cdi = Vec::new();
    let mut cdi_specs = Vec::new();
    for path in files {
        let ends = [".yaml", ".yml", ".json"];
        if !ends.iter().any(|end| path.ends_with(end)) {
            continue;
        }
        let devices = root.bytes(&path, LONGEST_SPEC).map(|b| cdi_devices(&b));
        let devices = devices.unwrap_or_default();
        if !devices.is_empty() {
            cdi_specs.push(clean(&path));
            cdi.extend(devices);
        }
    }
    cdi.sort();
    cdi.dedup();
    cdi.truncate(MOST_DEVICES);
    let toolkit = TOOLKIT.iter().find(|path| root.exists(path));
    let docker = root.text("/etc/docker/daemon.json");
    let (runtimes, default_runtime) = docker.map(|t| docker_runtimes(&t)).unwrap_or_default();
    Containers {
        cdi,
        cdi_specs,
        toolkit: toolkit.map(|path| (*path).to_owned()),
        runtimes,
        default_runtime,
    }
}

#[derive(Deserialize)]
struct CdiSpec {
    kind: String,
    #[serde(default)]
    devices: Vec<CdiDevice>,
}

#[derive(Deserialize)]
struct CdiDevice {
    name: CdiName,
}

/// A device's name in a CDI specification. `nvidia-ctk` quotes names that are numbers; other programs do not.
#[derive(Deserialize)]
#[serde(untagged)]
enum CdiName {
    Text(String),
    Number(u64),
}

/// Returns the devices of a CDI specification (YAML or JSON); none if it is not NVIDIA's.
pub fn cdi_devices(spec: &[u8]) -> Vec<String> {
    let Ok(spec) = yaml::from_slice::<CdiSpec>(spec) else {
        return Vec::new();
    };
    if !spec.kind.starts_with("nvidia.com/") {
        return Vec::new();
    }
    let name = |d: &CdiDevice| match &d.name {
        CdiName::Text(text) => text.clone(),
        CdiName::Number(number) => number.to_string(),
    };
    spec.devices
        .iter()
        .take(MOST_DEVICES)
        .map(|d| clean(&format!("{}={}", spec.kind, name(d))))
        .collect()
}

/// Returns the runtimes and the default runtime in Docker's `daemon.json`.
pub fn docker_runtimes(text: &str) -> (Vec<String>, Option<String>) {
    let Ok(config) = serde_json::from_str::<serde_json::Value>(text) else {
        return Default::default();
    };
    let runtimes = config.get("runtimes").and_then(|r| r.as_object());
    let names = runtimes.into_iter().flat_map(|r| r.keys());
    let default = config.get("default-runtime").and_then(|r| r.as_str());
    (
        names.take(MOST_DEVICES).map(|n| clean(n)).collect(),
        default.map(clean),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_specification_names_its_devices_in_either_language() {
        let yaml = b"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits: { deviceNodes: [{ path: /dev/nvidia0 }] }\n- name: 1\n- name: all\n";
        let devices = ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=all"];
        assert_eq!(cdi_devices(yaml), devices);
        let json = br#"{"cdiVersion":"0.5.0","kind":"vendor.com/net","devices":[{"name":"a"}]}"#;
        assert!(cdi_devices(json).is_empty(), "not NVIDIA's");
    }

    #[test]
    fn docker_says_its_runtimes() {
        let text = r#"{"default-runtime":"nvidia","runtimes":{"nvidia":{"path":"nvidia-container-runtime","args":[]}}}"#;
        assert_eq!(
            docker_runtimes(text),
            (vec!["nvidia".to_owned()], Some("nvidia".to_owned()))
        );
        assert_eq!(docker_runtimes("[]"), Default::default());
    }

    proptest! {
        #[test]
        fn parsers_never_panic(s in "(?s).*", b in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = cdi_devices(&b);
            let _ = cdi_devices(format!("kind: nvidia.com/gpu\ndevices: [{{name: {s}}}]").as_bytes());
            let _ = docker_runtimes(&s);
        }
    }
}
