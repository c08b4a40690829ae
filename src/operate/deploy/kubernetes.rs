//! Writes manifests for Kubernetes: a Deployment for each image, claims for its volumes, and one Service for all.

use crate::nodes::{self, Served};
use crate::probes::literal;
use crate::yaml::{Map, Yaml};
use crate::{
    DeployError, GRACE, Gpus, Instance, Located, Service, User, VISIBLE, heading, names, probes,
};
use stackforge_stack::catalog::Catalog;
use stackforge_stack::labels;
use stackforge_stack::spec::service::{Port, Protocol};

/// What the cluster's nodes offer as GPUs.
const GPU: &str = "nvidia.com/gpu";
/// Label of every object, with the stack's name.
const NAME: &str = "app.kubernetes.io/name";
/// Label with the variant's name.
const INSTANCE: &str = "app.kubernetes.io/instance";
/// Ports below need a privilege, or a setting of the pod.
const PRIVILEGED: u16 = 1024;

/// Returns the text of the manifests. `command` is what is run to write them again.
///
/// # Errors
/// If nothing says what an image starts, if an image is in no registry, or if no node would be one's.
pub fn kubernetes(
    service: &Service,
    catalog: &Catalog,
    command: &str,
) -> Result<String, DeployError> {
    let served = match service.gpus {
        Some(Gpus::Count(0)) => vec![None; service.instances.len()],
        _ => nodes::served(&service.instances, catalog)?,
    };
    let mut documents = Vec::new();
    for (instance, served) in service.instances.iter().zip(&served) {
        instance.starts()?;
        let name = names::of_stack(&instance.name);
        for path in &instance.config.volumes {
            documents.push(claim(service, &name, path));
        }
        documents.push(deployment(service, instance, &name, served)?);
    }
    documents.extend(network(service));
    let change = "a kustomization that has this file as a resource";
    let texts: Vec<String> = documents.iter().map(Map::document).collect();
    Ok(heading(command, change) + &texts.join("---\n"))
}

fn metadata(service: &Service, name: &str) -> Map {
    let labels = Map::new().with(NAME, names::of_stack(&service.name));
    Map::new().with("name", name).with("labels", labels)
}

fn object(version: &str, kind: &str, metadata: Map) -> Map {
    Map::new()
        .with("apiVersion", version)
        .with("kind", kind)
        .with("metadata", metadata)
}

fn claim(service: &Service, name: &str, path: &str) -> Map {
    let requests = Map::new().with("storage", quantity(service.storage));
    let spec = Map::new()
        .with("accessModes", vec!["ReadWriteOnce"])
        .with("resources", Map::new().with("requests", requests));
    let name = names::join(name, &names::of_path(path));
    object("v1", "PersistentVolumeClaim", metadata(service, &name)).with("spec", spec)
}

fn deployment(
    service: &Service,
    instance: &Instance,
    name: &str,
    served: &Served,
) -> Result<Map, DeployError> {
    let selected = || {
        Map::new()
            .with(NAME, names::of_stack(&service.name))
            .with(INSTANCE, name)
    };
    let metadata = Map::new()
        .with("name", name)
        .with("labels", selected())
        .maybe("annotations", annotations(instance));
    let template = Map::new()
        .with("metadata", Map::new().with("labels", selected()))
        .with("spec", pod(service, instance, name, served)?);
    let spec = Map::new()
        .with("replicas", 1)
        .with("selector", Map::new().with("matchLabels", selected()))
        .with("strategy", strategy(instance))
        .why("A new pod would wait for the GPU or the volume that the old one has.")
        .with("template", template);
    Ok(object("apps/v1", "Deployment", metadata).with("spec", spec))
}

fn annotations(instance: &Instance) -> Option<Map> {
    let known = [labels::KEY, labels::VARIANT, labels::CUDA, labels::DRIVER];
    let map = known.iter().fold(Map::new(), |map, key| {
        let value = instance.labels().get(*key);
        map.maybe(key, value.map(String::as_str))
    });
    Some(map).filter(|map| !map.is_empty())
}

fn strategy(instance: &Instance) -> Map {
    if !instance.config.volumes.is_empty() {
        return Map::new().with("type", "Recreate");
    }
    let update = Map::new().with("maxSurge", 0).with("maxUnavailable", 1);
    Map::new()
        .with("type", "RollingUpdate")
        .with("rollingUpdate", update)
}

fn pod(
    service: &Service,
    instance: &Instance,
    name: &str,
    served: &Served,
) -> Result<Map, DeployError> {
    let gpus = gpus(service, instance);
    let pod = Map::new();
    let pod = match gpus {
        Some(_) if instance.is_for_jetson() => pod
            .with("runtimeClassName", "nvidia")
            .why("On a Jetson this runtime brings the libraries of L4T."),
        _ => pod,
    };
    let selector = Map::new()
        .with("kubernetes.io/os", "linux")
        .with("kubernetes.io/arch", instance.platform().arch());
    let pod = pod
        .with("nodeSelector", selector)
        .maybe("affinity", affinity(served, gpus));
    let pod = match gpus {
        Some(_) => pod.with("tolerations", vec![toleration()]),
        None => pod,
    };
    let pod = pod
        .maybe("securityContext", pod_security(instance))
        .with("terminationGracePeriodSeconds", GRACE)
        .with("containers", vec![container(service, instance, gpus)?])
        .with("volumes", volumes(service, instance, name));
    Ok(pod)
}

/// Returns the number of GPUs; `None` for none.
fn gpus(service: &Service, instance: &Instance) -> Option<u64> {
    let asked = match service.gpus {
        Some(Gpus::Count(count)) => u64::from(count),
        // A cluster hands out GPUs by number.
        Some(Gpus::All) => 1,
        None => u64::from(instance.wants_gpu()),
    };
    (asked > 0).then_some(asked)
}

fn affinity(served: &Served, gpus: Option<u64>) -> Option<Map> {
    gpus?;
    let terms = Map::new().with("nodeSelectorTerms", nodes::terms(served.as_ref()?));
    let node = Map::new()
        .with("requiredDuringSchedulingIgnoredDuringExecution", terms)
        .why("The GPUs that the audit found code for, in the labels of NVIDIA's GPU feature discovery.");
    Some(Map::new().with("nodeAffinity", node))
}

fn toleration() -> Map {
    Map::new()
        .with("key", GPU)
        .with("operator", "Exists")
        .with("effect", "NoSchedule")
}

fn pod_security(instance: &Instance) -> Option<Map> {
    let profile = Map::new().with("type", "RuntimeDefault");
    let map = Map::new().with("seccompProfile", profile);
    let user = instance.user();
    let map = match user {
        User::Root => map.why("The image's programs are root: `image.user` changes that."),
        User::Named => map,
        User::Ids { uid, gid } => {
            let map = map
                .with("runAsNonRoot", true)
                .with("runAsUser", u64::from(uid))
                .with("runAsGroup", u64::from(gid));
            if instance.config.volumes.is_empty() {
                map
            } else {
                map.with("fsGroup", u64::from(gid))
                    .with("fsGroupChangePolicy", "OnRootMismatch")
            }
        }
    };
    let low = instance.config.ports.iter().any(|p| p.number < PRIVILEGED);
    if !low || user == User::Root {
        return Some(map);
    }
    let open = Map::new()
        .with("name", "net.ipv4.ip_unprivileged_port_start")
        .with("value", "0");
    Some(map.with("sysctls", vec![open]))
}

fn container(
    service: &Service,
    instance: &Instance,
    gpus: Option<u64>,
) -> Result<Map, DeployError> {
    let config = &instance.config;
    let map = Map::new()
        .with("name", names::of_stack(&service.name))
        .with("image", reference(instance)?)
        .with("imagePullPolicy", "IfNotPresent");
    let env = environment(instance, gpus);
    let map = map
        .maybe("env", Some(env).filter(|env| !env.is_empty()))
        .maybe(
            "ports",
            Some(config.ports.iter().map(port).collect::<Vec<Map>>()).filter(|p| !p.is_empty()),
        );
    let map = match gpus {
        Some(count) => {
            let limits = Map::new().with(GPU, count);
            map.with("resources", Map::new().with("limits", limits))
        }
        None => map,
    };
    let map = map
        .with("securityContext", security(instance))
        .with("volumeMounts", mounts(instance));
    Ok(match &config.health {
        Some(health) => probes::add(map, health),
        None => map,
    })
}

fn reference(instance: &Instance) -> Result<String, DeployError> {
    match &instance.image {
        Located::Registry(image) => Ok(format!("{}@{}", image.repository, image.digest)),
        Located::Engine(_) => Err(DeployError::NotPushed {
            names: vec![instance.name.clone()],
            why: "a cluster's nodes pull from a registry",
            help: "push it: `stackforge push IMAGE REF`".to_owned(),
        }),
    }
}

fn environment(instance: &Instance, gpus: Option<u64>) -> Vec<Map> {
    let one = |name: &str, value: &str| Map::new().with("name", name).with("value", literal(value));
    // The device plugin gives the container the GPU that is its own.
    let own = instance
        .config
        .env
        .iter()
        .filter(|(name, _)| *name != VISIBLE);
    let mut env: Vec<Map> = own.map(|(name, value)| one(name, value)).collect();
    if gpus.is_none() {
        env.push(one(VISIBLE, "void").why("The image's own value gives it every GPU."));
    }
    env
}

fn protocol(port: &Port) -> &'static str {
    match port.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}

fn port_name(port: &Port) -> String {
    format!("{}-{}", protocol(port).to_ascii_lowercase(), port.number)
}

fn port(port: &Port) -> Map {
    Map::new()
        .with("name", port_name(port))
        .with("containerPort", u64::from(port.number))
        .with("protocol", protocol(port))
}

fn security(instance: &Instance) -> Map {
    let map = Map::new().with("allowPrivilegeEscalation", false);
    match instance.user() {
        User::Ids { .. } => map.with("capabilities", Map::new().with("drop", vec!["ALL"])),
        User::Root | User::Named => map,
    }
}

/// Name of the volume that is `/dev/shm`.
const SHARED: &str = "shared-memory";

fn mounts(instance: &Instance) -> Vec<Map> {
    let mount = |name: String, path: &str| Map::new().with("name", name).with("mountPath", path);
    let shared = mount(SHARED.to_owned(), "/dev/shm");
    let paths = instance.config.volumes.iter();
    std::iter::once(shared)
        .chain(paths.map(|path| mount(names::join("volume", &names::of_path(path)), path)))
        .collect()
}

fn volumes(service: &Service, instance: &Instance, name: &str) -> Vec<Map> {
    let memory = Map::new().with("medium", "Memory");
    let memory = match service.shared_memory {
        Some(size) => memory.with("sizeLimit", quantity(size)),
        None => memory.why(
            "Without a sizeLimit it takes what the node or the pod's memory limit allows; the runtime's own has 64 MB.",
        ),
    };
    let shared = Map::new().with("name", SHARED).with("emptyDir", memory);
    let claimed = |path: &String| {
        let part = names::of_path(path);
        let claim = Map::new().with("claimName", names::join(name, &part));
        Map::new()
            .with("name", names::join("volume", &part))
            .with("persistentVolumeClaim", claim)
    };
    std::iter::once(shared)
        .chain(instance.config.volumes.iter().map(claimed))
        .collect()
}

/// Returns the Service before all pods of the stack. `None` if no image listens.
fn network(service: &Service) -> Option<Map> {
    let all = service.instances.iter().flat_map(|i| &i.config.ports);
    let mut ports: Vec<&Port> = all.collect();
    ports.sort();
    ports.dedup();
    if ports.is_empty() {
        return None;
    }
    let entry = |port: &&Port| {
        Map::new()
            .with("name", port_name(port))
            .with("port", u64::from(port.number))
            .with("targetPort", port_name(port))
            .with("protocol", protocol(port))
    };
    let name = names::of_stack(&service.name);
    let spec = Map::new()
        .with("selector", Map::new().with(NAME, name.as_str()))
        .with("ports", ports.iter().map(entry).collect::<Vec<Map>>());
    Some(object("v1", "Service", metadata(service, &name)).with("spec", spec))
}

/// Returns bytes as Kubernetes writes them, without rounding.
fn quantity(bytes: u64) -> Yaml {
    match bytes {
        n if n > 0 && n.is_multiple_of(1 << 30) => format!("{}Gi", n >> 30).into(),
        n if n > 0 && n.is_multiple_of(1 << 20) => format!("{}Mi", n >> 20).into(),
        n => n.into(),
    }
}
