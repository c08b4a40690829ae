//! Checks installed files against each wheel's RECORD, and writes the new RECORD.
//!
//! In: a layer's entries and the digests of their contents. Out: RECORDs, which list every file of their
//! wheel with its actual digest.

use super::LayerError;
use super::install::{Install, Plan};
use super::layout::Entry;
use super::record::{self, Sha256};
use super::scheme;
use super::tree::File;
use super::wheel::Stated;
use stackforge_binary::source::Source;

pub(super) struct Installed<'a> {
    files: Vec<(&'a str, &'a File, Sha256)>,
    pub unlisted: Vec<String>,
    pub misstated: Vec<String>,
}

/// `digests` are those of the entries with content, in the same order.
pub(super) fn check<'a, S: Source + Clone>(
    entries: &[Entry<'a>],
    digests: &[Sha256],
    installs: &[Install<'_, S>],
) -> Result<Installed<'a>, LayerError> {
    let mut installed = Installed {
        files: Vec::with_capacity(entries.len()),
        unlisted: Vec::new(),
        misstated: Vec::new(),
    };
    let empty = record::sha256(b"");
    let mut digests = digests.iter();
    for entry in entries {
        let Entry::File(path, file) = *entry else {
            continue;
        };
        let digest = if file.size == 0 {
            Some(&empty)
        } else {
            digests.next()
        };
        let digest = digest.ok_or(LayerError::Thread)?;
        for (place, member) in &file.owners {
            let Install { wheel, changed, .. } = installs[*place];
            let Some(member) = member.map(|m| &wheel.archive.members[m]) else {
                continue;
            };
            // RECORD states the digest of the original content.
            if changed.contains_key(&member.name) {
                continue;
            }
            let name = || format!("{}: {}", wheel.file, member.name);
            match wheel.check_record(member, digest)? {
                Stated::Right => {}
                Stated::Nothing if is_signature(&member.name) => {}
                Stated::Nothing => installed.unlisted.push(name()),
                Stated::Another => installed.misstated.push(name()),
            }
        }
        installed.files.push((path, file, *digest));
    }
    Ok(installed)
}

/// Signatures of RECORD: it cannot list files that sign it.
fn is_signature(name: &str) -> bool {
    [".dist-info/RECORD.jws", ".dist-info/RECORD.p7s"]
        .iter()
        .any(|end| name.ends_with(end))
}

impl Installed<'_> {
    /// The path of each wheel's RECORD and its text, by path.
    pub(super) fn records<S: Source + Clone>(
        &self,
        plan: &Plan<'_>,
        installs: &[Install<'_, S>],
    ) -> Vec<(String, String)> {
        let record = |place: usize| {
            let wheel = installs[place].wheel;
            let (site, own) = (plan.site_packages(wheel), wheel.metadata("RECORD"));
            let files = self
                .files
                .iter()
                .filter(|(_, file, _)| file.owners.iter().any(|(owner, _)| *owner == place));
            let listed = files.map(|(path, file, digest)| {
                (scheme::relative(site, path), Some((digest, file.size)))
            });
            let mut lines: Vec<_> = listed.chain([(own.clone(), None)]).collect();
            lines.sort_unstable();
            let mut text = String::new();
            for (path, file) in lines {
                record::line(&mut text, &path, file);
            }
            (format!("{site}/{own}"), text)
        };
        let mut records: Vec<_> = (0..installs.len()).map(record).collect();
        records.sort_unstable();
        records
    }
}
