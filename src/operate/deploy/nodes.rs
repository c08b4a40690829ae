//! Decides which nodes of a cluster an image is for, in the labels that NVIDIA's GPU feature discovery gives nodes.
//!
//! Every SM of the catalog is a device for which the image is chosen that `pull` would choose. PTX counts, as it does
//! there. What a node's labels do not say (instruction sets, drivers, L4T releases) decides nothing.

use crate::yaml::{Map, Yaml};
use crate::{DeployError, Instance};
use stackforge_distribute::publish::{Facts, Variant};
use stackforge_distribute::pull::{Machine, choose, doubt};
use stackforge_stack::catalog::Catalog;
use stackforge_stack::spec::Platform;
use stackforge_types::{Digest, Sm};
use std::collections::{BTreeMap, BTreeSet};

/// Label with the number before the dot of a node's compute capability, and the one after it.
const MAJOR: &str = "nvidia.com/gpu.compute.major";
const MINOR: &str = "nvidia.com/gpu.compute.minor";

/// The GPUs that each image is for. `None` for an image without device code, which runs everywhere.
pub(crate) type Served = Option<BTreeSet<(u8, u8)>>;

/// Decides for all images together. One that stands alone gets every GPU that it runs on.
///
/// # Errors
/// If for every GPU of an image another one is better or as good.
pub(crate) fn served(
    instances: &[Instance],
    catalog: &Catalog,
) -> Result<Vec<Served>, DeployError> {
    let variants: Vec<Variant> = instances.iter().map(variant).collect();
    let mut served: Vec<Served> = variants.iter().map(no_gpu_yet).collect();
    let mut instead: BTreeMap<usize, String> = BTreeMap::new();
    for platform in platforms(instances) {
        for sm in sms(catalog) {
            let machine = Machine {
                platform: Some(platform),
                gpus: vec![sm],
                ..Machine::default()
            };
            let choice = choose(&machine, &variants);
            let Some(taken) = choice.taken else {
                continue;
            };
            if let Some(Some(own)) = served.get_mut(taken.place) {
                own.insert((sm.major, sm.minor));
            }
            for other in choice
                .others
                .iter()
                .filter(|o| runs(&machine, &variants, o.place))
            {
                instead
                    .entry(other.place)
                    .or_insert_with(|| taken.variant.clone());
            }
        }
    }
    let forgotten = served
        .iter()
        .position(|own| own.as_ref().is_some_and(BTreeSet::is_empty));
    match forgotten {
        None => Ok(served),
        Some(place) => Err(DeployError::NoNode {
            variant: instances[place].name.clone(),
            better: instead.remove(&place),
        }),
    }
}

fn runs(machine: &Machine, variants: &[Variant], place: usize) -> bool {
    let variant = &variants[place];
    doubt(machine, variant.platform, &variant.facts).is_none()
}

/// Returns the image as an entry of an index. Labels that cannot be read name no GPU.
fn variant(instance: &Instance) -> Variant {
    let facts = Facts::read(instance.labels()).map(|facts| Facts {
        // Nodes have no labels for these.
        isa: None,
        l4t: Vec::new(),
        driver: None,
        jit_driver: None,
        ..facts
    });
    Variant {
        name: Some(instance.name.clone()),
        platform: Some(instance.platform()),
        digest: Digest::of(instance.name.as_bytes()),
        size: 0,
        media_type: String::new(),
        facts,
    }
}

fn no_gpu_yet(variant: &Variant) -> Served {
    let none = |facts: &Facts| facts.sms.is_empty() && facts.ptx.is_empty();
    match &variant.facts {
        Ok(facts) if none(facts) => None,
        _ => Some(BTreeSet::new()),
    }
}

fn platforms(instances: &[Instance]) -> Vec<Platform> {
    let mut all: Vec<Platform> = Vec::new();
    for instance in instances {
        if !all.contains(&instance.platform()) {
            all.push(instance.platform());
        }
    }
    all
}

fn sms(catalog: &Catalog) -> BTreeSet<Sm> {
    catalog.gpus.iter().map(|gpu| gpu.sm.base()).collect()
}

/// Returns the terms of a node affinity, of which a node has to fulfil one.
pub(crate) fn terms(served: &BTreeSet<(u8, u8)>) -> Vec<Yaml> {
    let mut minors: BTreeMap<u8, Vec<String>> = BTreeMap::new();
    for (major, minor) in served {
        minors.entry(*major).or_default().push(minor.to_string());
    }
    let one_of = |key: &str, values: Vec<String>| {
        Map::new()
            .with("key", key)
            .with("operator", "In")
            .with("values", values)
    };
    let term = |(major, minors): (u8, Vec<String>)| {
        let expressions = vec![
            one_of(MAJOR, vec![major.to_string()]),
            one_of(MINOR, minors),
        ];
        Yaml::from(Map::new().with("matchExpressions", expressions))
    };
    minors.into_iter().map(term).collect()
}
