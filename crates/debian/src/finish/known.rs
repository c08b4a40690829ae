//! Scripts that were read by a person: `scripts.yaml`.
//!
//! A script is known by the digest of what debhelper did not generate; a script that changed is
//! unknown again. Parsed when it is first asked for; a test reads all of it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::alternatives::Alternative;

/// What a script leaves behind on a fresh installation. Paths are absolute; `{triplet}` and
/// `{loader}` stand for the architecture's library directory and dynamic loader.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Effect {
    /// A file, with its mode, where there is none yet.
    Copy { from: String, to: String },
    /// A directory where there is none yet. Modes are octal.
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
    /// A symbolic link where nothing is yet.
    Link { path: String, to: String },
    /// A symbolic link in the place of an empty directory that the package ships.
    Migrate { path: String, to: String },
    /// Where another package's file of this name would go; no file is moved.
    Divert { path: String, to: String },
    /// A system account, unless the name is there.
    User { name: String, home: String },
    /// The script's own `update-alternatives --install` commands.
    Alternatives,
    /// `/etc/passwd` and `/etc/group` from base-passwd's masters.
    Accounts,
    /// `/etc/shadow` and `/etc/gshadow`, and passwords moved there.
    Shadow,
    /// `/etc/shells` from what packages offer.
    Shells,
    /// ldconfig's cache and links.
    LoaderCache,
    /// The bundle, the links and the list of certificate authorities.
    Certificates,
    /// `/etc/pam.d/common-*` from the profiles that packages offer.
    Pam,
    /// dpkg's note of its own architecture.
    NativeArchitecture,
    #[serde(skip)]
    Alternative(Vec<Alternative>),
    /// A systemd unit that is enabled.
    #[serde(skip)]
    Unit(String),
    /// A System V service with its default run levels.
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
    /// `preinst` or `postinst` by digest, of each version that was read.
    #[serde(default)]
    preinst: BTreeMap<String, String>,
    #[serde(default)]
    postinst: BTreeMap<String, String>,
    #[serde(default)]
    does: Vec<Effect>,
    /// What was read, and why what it does besides leaves nothing behind.
    source: String,
}

/// The table by package, script and digest.
type Table = BTreeMap<(String, String), Vec<Effect>>;

/// The table's text: what a system is made with.
pub const TEXT: &str = include_str!("../../scripts.yaml");

fn read(text: &str) -> Result<Table, String> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let mut table = Table::new();
    for known in file.scripts {
        if known.source.is_empty() {
            return Err(format!("{}: no source", known.package));
        }
        for (script, digests) in [("preinst", &known.preinst), ("postinst", &known.postinst)] {
            // Where a package has both, the effects are the postinst's, which runs last.
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

/// What a package's script does, if it is known.
pub(super) fn effects(package: &str, script: &str, digest: &str) -> Option<&'static [Effect]> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    // The text is the crate's own and a test reads it; without it no script would be known.
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
