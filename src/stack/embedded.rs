//! The catalog, the templates and the keyrings inside the binary.
//!
//! The build script reads and checks the catalog, so an invalid one never compiles, and embeds it as JSON,
//! which loads much faster than YAML, deflated, which makes the program smaller. An overlay's files are added at run time, and the whole is checked again.

use crate::diag::{Code, Explained, codes};
use include_dir::{Dir, include_dir};
use stackforge_catalog::{Catalog, CatalogError};
use stackforge_types::Digest;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

static COMPILED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/catalog.json"));
static KEYRINGS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../images/keyrings");
/// The templates by their path below templates/.
static TEMPLATES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let bytes = inflated(include_bytes!(concat!(env!("OUT_DIR"), "/templates.json")));
    serde_json::from_slice(&bytes).unwrap_or_default()
});

/// Inflates what the build script deflated: four bytes of length, then the content. It gives nothing for other bytes.
pub(crate) fn inflated(bytes: &[u8]) -> Vec<u8> {
    let Some((length, deflated)) = bytes.split_first_chunk() else {
        return Vec::new();
    };
    let mut content = vec![0; u32::from_le_bytes(*length) as usize];
    let read = libdeflater::Decompressor::new().deflate_decompress(deflated, &mut content);
    content.truncate(read.unwrap_or_default());
    content
}

/// Loads the embedded catalog, with `overlay`'s entries added or replacing those of the same name. An
/// overlay has the layout of the catalog: `gpus.yaml`, `cuda.yaml`,
/// `cpus.yaml`, `jetson.yaml`, `tools.yaml`, `components.yaml`, `conflicts.yaml`,
/// `diagnoses.yaml` ([`crate::diagnose::Diagnoses`]), `foreign.yaml` (what `init --from` knows), `loader.yaml`, `slim.yaml`, `libraries/`, `images/`, `templates/`.
pub fn load(overlay: Option<&Path>) -> Result<Catalog, CatalogError> {
    let mut catalog: Catalog =
        serde_json::from_slice(&inflated(COMPILED)).map_err(|e| CatalogError::Invalid {
            file: "inside this program".to_owned(),
            message: e.to_string(),
        })?;
    if let Some(dir) = overlay {
        catalog.extend(dir, &|name| keyring(name).is_some())?;
        catalog.templates = own_templates(&dir.join("templates"));
    }
    Ok(catalog)
}

impl Explained for CatalogError {
    fn code(&self) -> Code {
        codes::CATALOG_INVALID
    }

    fn help(&self) -> String {
        "catalog/README.md in stackforge's source describes every key".to_owned()
    }
}

/// Returns the digest of a directory's templates by path and content. `None` without any. Templates of
/// pipelines are left out, since they change no image.
fn own_templates(dir: &Path) -> Option<Digest> {
    let mut folders = vec![dir.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
        {
            if path == dir.join("ci") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut all = Vec::new();
    for file in &files {
        all.extend(
            file.strip_prefix(dir)
                .unwrap_or(file)
                .as_os_str()
                .as_encoded_bytes(),
        );
        all.push(0);
        all.extend(
            Digest::of(&std::fs::read(file).unwrap_or_default())
                .hex()
                .bytes(),
        );
    }
    (!files.is_empty()).then(|| Digest::of(&all))
}

/// Returns the text of a template from `overlay`'s `templates/`, else the embedded one.
pub fn template(overlay: Option<&Path>, name: &str) -> Option<Cow<'static, str>> {
    if let Some(dir) = overlay
        && let Ok(text) = std::fs::read_to_string(dir.join("templates").join(name))
    {
        return Some(Cow::Owned(text));
    }
    TEMPLATES.get(name).map(|text| Cow::Borrowed(text.as_str()))
}

/// Returns the embedded templates below a folder: (path below the folder, text), in path order.
pub fn templates_in(folder: &str) -> Vec<(String, &'static str)> {
    let prefix = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let below = TEMPLATES.iter().filter_map(|(path, text)| {
        let path = path.strip_prefix(&prefix)?;
        Some((path.to_owned(), text.as_str()))
    });
    below.collect()
}

/// Returns the public keys of a package archive, from images/keyrings/.
pub fn keyring(name: &str) -> Option<&'static [u8]> {
    KEYRINGS
        .get_file(format!("{name}.gpg"))
        .map(|f| f.contents())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_catalog_is_consistent() {
        let catalog = load(None).unwrap();
        assert_eq!(catalog.sm("thor").unwrap().to_string(), "11.0");
        assert_eq!(catalog.sm("sm_90").unwrap().to_string(), "9.0");
        assert!(catalog.sm("sm_91").is_none());
        assert!(catalog.recipe("torch").is_some());
        assert!(catalog.images.contains_key("debian-bookworm"));
    }

    #[test]
    fn an_overlay_replaces_and_adds_by_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("gpus.yaml"),
            "schema: 1\ngpus:\n- {name: desk, about: x, sm: '9.0', platforms: [linux/amd64], source: y}\n",
        )
        .unwrap();
        let catalog = load(Some(dir.path())).unwrap();
        assert_eq!(catalog.sm("desk").unwrap().to_string(), "9.0");
        assert!(catalog.sm("thor").is_some());
        assert!(catalog.templates.is_none());
        std::fs::create_dir_all(dir.path().join("templates/steps")).unwrap();
        std::fs::write(dir.path().join("templates/steps/net.sh"), "#").unwrap();
        let own = load(Some(dir.path())).unwrap().templates;
        assert!(own.is_some(), "own templates are part of every key");
        std::fs::create_dir_all(dir.path().join("templates/ci")).unwrap();
        std::fs::write(dir.path().join("templates/ci/slurm.sh.hbs"), "#").unwrap();
        let with_ci = load(Some(dir.path())).unwrap().templates;
        assert_eq!(own, with_ci, "pipelines are part of no key");
        std::fs::write(dir.path().join("gpus.yaml"), "schema: 1\ngpu: []\n").unwrap();
        let e = load(Some(dir.path())).unwrap_err().to_string();
        assert!(e.contains("gpus.yaml"), "{e}");
    }
}
