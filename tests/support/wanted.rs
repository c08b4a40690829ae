//! One published wheel, asked for in a process of its own.

use super::process::again;
use stackforge_image::store::Store;
use stackforge_resolve::{Pin, package};
use stackforge_stack::diag::Explained as _;
use std::path::{Path, PathBuf};

/// Asks in a process of its own, whose settings the environment holds: what was chosen, or the error and its
/// help. The process is the one of the test `test`, which calls [`asks_for_another_process`] there.
pub fn ask(
    test: &str,
    pinned: &str,
    platform: &str,
    store: &Path,
    settings: &[(&str, &str)],
    offline: bool,
) -> Result<PathBuf, String> {
    let mut command = again(test);
    command
        .env("PACKAGE", pinned)
        .env("PACKAGE_PLATFORM", platform)
        .env("PACKAGE_STORE", store)
        .env("PACKAGE_OFFLINE", if offline { "1" } else { "0" });
    if !settings.is_empty() {
        // No other setting of this machine's.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("UV_") || name.starts_with("PIP_") || name == "NETRC" {
                command.env_remove(name);
            }
        }
        command.env("HOME", store).env_remove("XDG_CONFIG_HOME");
        command.envs(settings.iter().copied());
    }
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |mark: &str| {
        stdout
            .split_once(mark)
            .map(|(_, rest)| rest.lines().next().unwrap())
    };
    match (line("FOUND "), line("REFUSED ")) {
        (Some(path), None) => Ok(path.into()),
        (None, Some(error)) => Err(error.to_owned()),
        _ => panic!("{stdout}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Asks for the wheel that [`ask`] wants, and prints what was chosen.
#[tokio::main(flavor = "multi_thread")]
pub async fn asks_for_another_process() {
    let env = |name: &str| std::env::var(name).unwrap();
    let python = "3.12".parse().unwrap();
    let platform = env("PACKAGE_PLATFORM").parse().unwrap();
    let pin = Pin::parse(&env("PACKAGE"), python, platform).unwrap();
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let (store, offline) = (env("PACKAGE_STORE"), env("PACKAGE_OFFLINE") == "1");
    let store = Store::open(Some(Path::new(&store))).unwrap();
    match package(&pin, &catalog, &store, offline, &|_| {}).await {
        Ok(found) => {
            assert!(found.path.ends_with(&found.file));
            println!("FOUND {}", found.path.display());
        }
        Err(e) => println!("REFUSED {e} | {}", e.help()),
    }
}
