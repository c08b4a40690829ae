//! Scripts that a person has read: `scripts.yaml`.
//!
//! A script is known by the digest of the part that debhelper did not generate, so a changed script is
//! unknown again. The file is parsed on first use; a test reads all of it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;
use stackforge_types::yaml;

use super::alternatives::Alternative;

/// An effect of a script on a fresh installation. Paths are absolute. `{triplet}` and `{loader}` stand
/// for the architecture's library directory and dynamic loader.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Effect {
    /// Copies a file with its mode, unless the target exists.
    Copy { from: String, to: String },
    /// Creates a directory unless it exists. Modes are octal.
    Directory {
        path: String,
        #[serde(default)]
        mode: Option<String>,
        #[serde(default)]
        gid: u64,
    },
    File {
        path: String,
        #[serde(default)]
        content: String,
        #[serde(default)]
        mode: Option<String>,
        #[serde(default)]
        gid: u64,
    },
    /// Creates a symbolic link unless the path exists.
    Link { path: String, to: String },
    /// Creates a symbolic link instead of an empty directory that the package ships.
    Migrate { path: String, to: String },
    /// Records where another package's file of this name would go. No file is moved.
    Divert { path: String, to: String },
    /// Creates a system account unless the name exists.
    User { name: String, home: String },
    /// Runs the script's own `update-alternatives --install` commands.
    Alternatives,
    /// Writes `/etc/passwd` and `/etc/group` from base-passwd's master files.
    Accounts,
    /// Writes `/etc/shadow` and `/etc/gshadow`, and moves the passwords there.
    Shadow,
    /// Writes `/etc/shells` from the shells that packages offer.
    Shells,
    /// Writes ldconfig's cache and links.
    LoaderCache,
    /// Writes the bundle, the links and the list of certificate authorities.
    Certificates,
    /// Writes `/etc/pam.d/common-*` from the profiles that packages offer.
    Pam,
    /// Writes dpkg's record of its own architecture.
    NativeArchitecture,
    #[serde(skip)]
    Alternative(Vec<Alternative>),
    /// Enables a systemd unit.
    #[serde(skip)]
    Unit(String),
    /// Enables a System V service with its default run levels.
    #[serde(skip)]
    Init(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[allow(dead_code, reason = "a file of another schema must not parse")]
    schema: u32,
    scripts: Vec<Known>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    package: String,
    /// Digests of the `preinst` and the `postinst` of each version that was read.
    #[serde(default)]
    preinst: BTreeMap<String, String>,
    #[serde(default)]
    postinst: BTreeMap<String, String>,
    #[serde(default)]
    does: Vec<Effect>,
    /// What was read, and why the script's other actions leave nothing behind.
    source: String,
}

/// Effects by package and script, and digest.
type Table = BTreeMap<(String, String), Vec<Effect>>;

/// Text of the table. A system depends on it.
pub const TEXT: &str = include_str!("../../scripts.yaml");

fn read(text: &str) -> Result<Table, String> {
    let file: File = yaml::from_slice(text.as_bytes()).map_err(|error| error.to_string())?;
    let mut table = Table::new();
    for known in file.scripts {
        if known.source.is_empty() {
            return Err(format!("{}: no source", known.package));
        }
        for (script, digests) in [("preinst", &known.preinst), ("postinst", &known.postinst)] {
            // If a package has both, the effects belong to the postinst, which runs last.
            let leads = script == "postinst" || known.postinst.is_empty();
            for digest in digests.keys() {
                let does = if leads {
                    known.does.clone()
                } else {
                    Vec::new()
                };
                let key = (format!("{}/{script}", known.package), digest.clone());
                if table.insert(key, does).is_some() {
                    return Err(format!("{}: {digest} stands twice", known.package));
                }
            }
        }
    }
    Ok(table)
}

/// Returns the effects of a package's script. `None` if the script is not known.
pub(super) fn effects(package: &str, script: &str, digest: &str) -> Option<&'static [Effect]> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    // The text is a part of this crate and a test reads it. If it did not parse, no script would be
    // known.
    let table = TABLE.get_or_init(|| read(TEXT).unwrap_or_default());
    table
        .get(&(format!("{package}/{script}"), digest.to_owned()))
        .map(Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_well_formed() {
        let table = read(TEXT).unwrap();
        assert!(table.len() > 80);
        for effect in table.values().flatten() {
            let (Effect::Copy { to: path, .. }
            | Effect::Directory { path, .. }
            | Effect::File { path, .. }
            | Effect::Link { path, .. }
            | Effect::Migrate { path, .. }
            | Effect::Divert { path, .. }) = effect
            else {
                continue;
            };
            let absolute = path.starts_with('/') || path.starts_with("{loader}");
            assert!(absolute && !path.contains(".."), "{path}");
        }
    }

    #[test]
    fn a_digest_belongs_to_one_package() {
        assert!(effects("no-such-package", "postinst", "0").is_none());
        let twice = "schema: 1\nscripts:\n  - {package: a, postinst: {x: y}, source: s}\n  - {package: a, postinst: {x: y}, source: s}\n";
        assert!(read(twice).unwrap_err().contains("twice"));
        assert!(
            read("schema: 1\nscripts:\n  - {package: a, postinst: {x: y}, source: ''}\n").is_err()
        );
    }
}
