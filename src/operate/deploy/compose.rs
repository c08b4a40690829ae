//! Writes a Compose file: the service on one machine, as `run` starts it.

use crate::yaml::{Map, Yaml};
use crate::{DeployError, GRACE, Gpus, Instance, Located, Service, User, VISIBLE, heading, names};
use stackforge_run::shared_memory;
use stackforge_stack::spec::service::{Health, Port, Protocol};
use std::time::Duration;

/// Returns the text of the file. `command` is what is run to write it again.
///
/// # Errors
/// If nothing says what the image starts.
pub fn compose(
    service: &Service,
    instance: &Instance,
    command: &str,
) -> Result<String, DeployError> {
    instance.starts()?;
    let name = names::of_stack(&service.name);
    let volumes = instance.config.volumes.iter();
    let volumes = volumes.fold(Map::new(), |all, path| {
        all.with(&names::of_path(path), Map::new())
    });
    let document = Map::new().with(
        "services",
        Map::new().with(&name, container(service, instance)),
    );
    let document = document.maybe("volumes", Some(volumes).filter(|v| !v.is_empty()));
    let change = "a second file, `docker compose -f FILE -f CHANGES`";
    Ok(heading(command, change) + &document.document())
}

fn container(service: &Service, instance: &Instance) -> Map {
    let config = &instance.config;
    let gpus = gpus(service, instance);
    let map = image(instance)
        .with("platform", instance.platform().to_string())
        .with("init", true)
        .why("The kernel ignores SIGTERM for a process 1 without handlers.");
    let map = match (instance.is_for_jetson(), gpus) {
        (true, Some(_)) => map
            .with("runtime", "nvidia")
            .why("On a Jetson this runtime brings the libraries of L4T."),
        _ => map,
    };
    let map = match instance.user() {
        User::Ids { uid, gid } => map.with("user", format!("{uid}:{gid}")),
        User::Root | User::Named => map,
    };
    let map = map
        .with("restart", "unless-stopped")
        .maybe("environment", environment(instance, gpus))
        .maybe("ports", some(config.ports.iter().map(port).collect()))
        .maybe(
            "volumes",
            some(config.volumes.iter().map(|path| volume(path)).collect()),
        );
    let map = shared(service, map)
        .maybe("healthcheck", config.health.as_ref().map(health))
        .maybe("stop_signal", config.stop_signal.as_deref())
        .with("stop_grace_period", format!("{GRACE}s"));
    match gpus {
        Some(gpus) if !instance.is_for_jetson() => map.with("deploy", reservation(gpus)),
        _ => map,
    }
}

fn image(instance: &Instance) -> Map {
    match &instance.image {
        Located::Registry(image) => {
            Map::new().with("image", format!("{}@{}", image.repository, image.digest))
        }
        Located::Engine(image) => Map::new()
            .with("image", image.id.as_str())
            .with("pull_policy", "never")
            .why("The image is in this machine's engine and in no registry."),
    }
}

/// Returns which GPUs it gets. `None` for none.
fn gpus(service: &Service, instance: &Instance) -> Option<Gpus> {
    match service.gpus {
        Some(Gpus::Count(0)) => None,
        Some(gpus) => Some(gpus),
        None => instance.wants_gpu().then_some(Gpus::All),
    }
}

fn reservation(gpus: Gpus) -> Map {
    let device = Map::new().with("driver", "nvidia");
    let device = match gpus {
        Gpus::All => device.with("count", "all"),
        Gpus::Count(count) => device.with("count", u64::from(count)),
    };
    let device = device.with("capabilities", vec!["gpu"]);
    let reservations = Map::new().with("devices", vec![device]);
    Map::new().with("resources", Map::new().with("reservations", reservations))
}

fn environment(instance: &Instance, gpus: Option<Gpus>) -> Option<Map> {
    let variables = instance.config.env.iter();
    let own = |name: &String| gpus.is_some() || name != VISIBLE;
    let map = variables
        .filter(|(name, _)| own(name))
        .fold(Map::new(), |map, (name, value)| {
            map.with(name, literal(value))
        });
    let is_set = instance.config.env.contains_key(VISIBLE);
    let map = match gpus {
        None => map
            .with(VISIBLE, "void")
            .why("The image's own value gives it every GPU."),
        Some(_) if instance.is_for_jetson() && !is_set => map.with(VISIBLE, "all"),
        Some(_) => map,
    };
    Some(map).filter(|map| !map.is_empty())
}

fn port(port: &Port) -> Map {
    let protocol = match port.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    Map::new()
        .with("target", u64::from(port.number))
        .with("published", u64::from(port.number))
        .with("protocol", protocol)
}

fn volume(path: &str) -> Map {
    Map::new()
        .with("type", "volume")
        .with("source", names::of_path(path))
        .with("target", literal(path))
}

fn shared(service: &Service, map: Map) -> Map {
    if let Some(size) = service.shared_memory {
        return map.with("shm_size", shared_memory::shown(size));
    }
    match shared_memory::size(service.memory) {
        None => map,
        Some(size) => map.with("shm_size", shared_memory::shown(size)).why(
            "Half of the memory of the machine that wrote this, as outside of containers; engines give 64 MB. \
             `--shm-size` decides otherwise.",
        ),
    }
}

fn health(health: &Health) -> Map {
    let words = std::iter::once("CMD".to_owned());
    let test: Vec<String> = words
        .chain(health.cmd.iter().map(|word| literal(word)))
        .collect();
    Map::new()
        .with("test", test)
        .maybe("interval", health.interval.map(time))
        .maybe("timeout", health.timeout.map(time))
        .maybe("start_period", health.start_period.map(time))
        .maybe("retries", health.retries.map(u64::from))
}

fn time(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

/// Compose puts variables of its own environment in place of `$NAME`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn some(list: Vec<Map>) -> Option<Yaml> {
    (!list.is_empty()).then(|| list.into())
}
