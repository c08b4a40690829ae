//! Remembers the repositories that were pushed to: blobs may be mounted from them.
//!
//! The list is a hint, kept as an action of the store. If it cannot be read or written, it is empty.

use stackforge_image::store::{Action, Store};
use stackforge_transfer::registry::Repository;
use stackforge_types::Digest;

/// Repositories that are tried for a blob; each that does not have the blob costs a request.
pub const MOST: usize = 3;
/// Repositories that are remembered.
const KEPT: usize = 8;

/// Returns the repositories of a registry, the latest first.
pub fn read(store: &Store, host: &str) -> Vec<Repository> {
    let names = store.action(&key(host)).and_then(|action| action.made);
    let names: Vec<String> = names
        .and_then(|made| serde_json::from_value(made).ok())
        .unwrap_or_default();
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

pub fn add(store: &Store, host: &str, repository: &Repository) {
    let mut all = read(store, host);
    if all.first() == Some(repository) {
        return;
    }
    all.retain(|other| other != repository);
    all.insert(0, repository.clone());
    all.truncate(KEPT);
    let names: Vec<&str> = all.iter().map(Repository::as_str).collect();
    let action = Action {
        step: "pushed".to_owned(),
        made: serde_json::to_value(names).ok(),
        ..Action::default()
    };
    if let Err(error) = store.record(&key(host), &action) {
        tracing::debug!(%error, "not remembered");
    }
}

fn key(host: &str) -> Digest {
    Digest::of(format!("pushed to {host}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_repositories_of_a_registry_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let repository = |n: usize| format!("team/app{n}").parse::<Repository>().unwrap();
        assert!(read(&store, "a.example").is_empty());
        for n in (0..12).chain([5]) {
            add(&store, "a.example", &repository(n));
        }
        let found = read(&store, "a.example");
        assert_eq!(found.len(), KEPT);
        assert_eq!(&found[..2], [repository(5), repository(11)]);
        assert!(read(&store, "b.example").is_empty());
    }
}
