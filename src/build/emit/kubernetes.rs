//! Data for a Kubernetes cluster only: names, and the files that a pod starts from.

use super::{EmitError, Group, Request};
use base64::Engine as _;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use stackforge_types::Digest;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Bytes of all values of a ConfigMap: <https://kubernetes.io/docs/concepts/configuration/configmap/>.
const CONFIG_MAP: usize = 1 << 20;
/// A DNS label has 63 characters; `-arm64` and a pod's index follow the name.
const NAME: usize = 63 - "-arm64".len() - "-99999".len();

pub(super) fn add(
    request: &Request<'_>,
    groups: &[Group<'_>],
    data: &mut Value,
) -> Result<(), EmitError> {
    let lock = compressed(request.lock.ok_or(EmitError::NoLock)?);
    let files = request.stack.local_files();
    if !files.is_empty() {
        return Err(EmitError::LocalFiles { files });
    }
    let files = catalog_files(request.overlay)?;
    let stack = &request.stack.source.text;
    let names = groups.iter().flat_map(|g| &g.variants);
    let names: usize = names.map(|v| v.name.len() + 1).sum();
    let texts: usize = files.iter().map(|(_, text)| text.len()).sum();
    let found = stack.len() + lock.len() + names + texts;
    if found > CONFIG_MAP {
        return Err(EmitError::TooLarge {
            found: found.div_ceil(1024),
            limit: CONFIG_MAP / 1024,
        });
    }
    data["name"] = dns_label(request.stack.stack.value.as_str(), NAME).into();
    data["text"] = stack.as_str().into();
    data["lock"] = base64::engine::general_purpose::STANDARD
        .encode(lock)
        .into();
    data["files"] = files
        .iter()
        .enumerate()
        .map(|(n, (path, text))| {
            json!({ "key": format!("catalog-{n}"), "path": format!(".stackforge/{path}"), "text": text })
        })
        .collect();
    for (group, value) in groups
        .iter()
        .zip(data["groups"].as_array_mut().into_iter().flatten())
    {
        let names = group.variants.iter().map(|v| v.name.as_str());
        value["list"] = names.map(|n| format!("{n}\n")).collect::<String>().into();
    }
    Ok(())
}

/// Compresses a lock. Locks are repetitive: that of a hundred variants then fits a ConfigMap.
fn compressed(lock: &str) -> Vec<u8> {
    let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
    // Writing to a Vec cannot fail.
    let _ = gzip.write_all(lock.as_bytes());
    gzip.finish().unwrap_or_default()
}

/// Returns the files of the catalog's overlay, by path inside it.
fn catalog_files(overlay: Option<&Path>) -> Result<Vec<(String, String)>, EmitError> {
    let mut out = Vec::new();
    let mut folders: Vec<PathBuf> = overlay.map(Path::to_owned).into_iter().collect();
    while let Some(folder) = folders.pop() {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| EmitError::Read { path, source }
        };
        for entry in std::fs::read_dir(&folder).map_err(failed(&folder))? {
            let path = entry.map_err(failed(&folder))?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
            let inside = overlay.and_then(|o| path.strip_prefix(o).ok());
            let inside = inside.unwrap_or(&path).to_string_lossy().into_owned();
            out.push((inside, text));
        }
    }
    out.sort();
    Ok(out)
}

/// Converts a name to RFC 1123, with at most `max` characters. A changed name ends with a digest of the
/// original, so that two names stay different.
fn dns_label(name: &str, max: usize) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let label: String = name.chars().map(plain).collect();
    if label == name && label.len() <= max {
        return label;
    }
    let digest = Digest::of(name.as_bytes());
    let kept = &label[..label.len().min(max - 9)];
    format!("{}-{}", kept.trim_end_matches('-'), &digest.hex()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stackforge_stack::spec::StackName;

    #[test]
    fn names_that_are_labels_stay() {
        assert_eq!(dns_label("vllm-2", NAME), "vllm-2");
        assert_eq!(dns_label("vllm.2", NAME), "vllm-2-3265f180");
    }

    proptest! {
        #[test]
        fn every_stack_has_a_name(name in "[a-z0-9]([-_.]?[a-z0-9]){0,40}") {
            prop_assume!(name.parse::<StackName>().is_ok());
            let label = dns_label(&name, NAME);
            let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            prop_assert!(label.len() <= NAME, "{label}");
            prop_assert!(ends(label.chars().next()) && ends(label.chars().last()));
            prop_assert!(label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        }

        #[test]
        fn names_stay_two(name in "[a-z0-9]([-_.]?[a-z0-9]){0,31}") {
            let other = name.replace(['_', '.'], "-");
            prop_assert_eq!(name == other, dns_label(&name, NAME) == dns_label(&other, NAME));
        }
    }
}
