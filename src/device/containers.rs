//! Reads how containers get this machine's GPUs: CDI specifications and Docker's configuration.

use serde::{Deserialize, Serialize};
use stackforge_types::root::{Root, clean};
use stackforge_types::yaml;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Containers {
    /// Devices in NVIDIA's CDI specifications: `nvidia.com/gpu=0`.
    pub cdi: Vec<String>,
    /// Runtimes in Docker's configuration, without the built-in ones.
    pub runtimes: Vec<String>,
    pub default_runtime: Option<String>,
}

const CDI: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
const LONGEST_SPEC: u64 = 1 << 20;
const MOST_DEVICES: usize = 256;

pub fn read(root: &Root) -> Containers {
    let mut cdi: Vec<String> = CDI
        .iter()
        .flat_map(|dir| {
            root.list(dir)
                .into_iter()
                .map(move |f| format!("{dir}/{f}"))
        })
        .filter(|p| {
            [".yaml", ".yml", ".json"]
                .iter()
                .any(|end| p.ends_with(end))
        })
        .filter_map(|p| root.bytes(&p, LONGEST_SPEC))
        .flat_map(|bytes| cdi_devices(&bytes))
        .collect();
    cdi.sort();
    cdi.dedup();
    cdi.truncate(MOST_DEVICES);
    let docker = root.text("/etc/docker/daemon.json");
    let (runtimes, default_runtime) = docker.map(|t| docker_runtimes(&t)).unwrap_or_default();
    Containers {
        cdi,
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
