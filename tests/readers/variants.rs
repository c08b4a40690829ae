//! What an index says of its images, and which of them a device is given.

use std::collections::BTreeMap;

use stackforge_distribute::publish::{Facts, Variant};
use stackforge_distribute::pull::{Machine, choose};
use stackforge_stack::spec::Platform;

/// Entries of an index, and the choice among them for two devices.
pub fn variants(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else {
        return;
    };
    let entries = value["manifests"].as_array().cloned().unwrap_or_default();
    let variants: Vec<Variant> = entries.iter().filter_map(Variant::read).collect();
    for variant in &variants {
        variant.shown();
        let Ok(facts) = &variant.facts else { continue };
        let again: BTreeMap<String, String> = facts.annotations();
        assert_eq!(Facts::read(&again).ok().as_ref(), Some(facts));
    }
    let server = Machine {
        platform: Platform::ALL.into_iter().next(),
        gpus: "90".parse().into_iter().collect(),
        driver: "580.65.06".parse().ok(),
        ..Machine::default()
    };
    for machine in [server, Machine::default()] {
        let choice = choose(&machine, &variants);
        let chosen = choice.taken.iter().map(|reason| reason.place);
        let others = choice.others.iter().map(|reason| reason.place);
        let mut places: Vec<usize> = chosen.chain(others).collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..variants.len()), "each once");
    }
}
