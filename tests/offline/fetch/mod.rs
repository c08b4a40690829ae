//! Fetching from a server that does everything wrong that servers and lines do.

mod faults;
mod killed;
mod machine;
mod shared;

use server::Server;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::{Download, Fetcher, Netrc};
use stackforge_types::Digest;
use std::path::Path;
use std::time::Duration;
use support::fetching::bytes;
use support::http as server;

/// Patient as a user's, but in a hurry.
fn policy() -> RetryPolicy {
    RetryPolicy {
        attempts: 5,
        first_pause: Duration::from_millis(2),
        longest_pause: Duration::from_secs(2),
        stall: Duration::from_secs(2),
    }
}

fn fetcher() -> Fetcher {
    Fetcher::with_netrc(policy(), Netrc::default())
        .unwrap()
        .with_parallel(4)
}

fn download(server: &Server, body: &[u8], size: Option<u64>) -> Download {
    Download {
        name: "thing-1.0-py3-none-any.whl".into(),
        urls: vec![format!("{}/thing", server.url)],
        sha256: Digest::of(body),
        size,
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
