//! Reading the catalog: embedded files first, then a directory over them.

use super::{
    Catalog, Component, Conflict, Gpu, Image, Isa, JetsonRelease, Loader, Recipe, SmFacts, Tool,
    Toolkit,
};
use crate::spec::nouns::Digest;
use include_dir::{Dir, include_dir};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) static CATALOG: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/catalog");
static IMAGES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/images");
static TEMPLATES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates");

#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("catalog file {file} is not valid: {message}")]
    Invalid { file: String, message: String },
    #[error("read catalog file {}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("catalog {file}: {message}")]
    Inconsistent { file: String, message: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuFile {
    schema: u32,
    #[serde(default)]
    sms: Vec<SmFacts>,
    #[serde(default)]
    gpus: Vec<Gpu>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CudaFile {
    schema: u32,
    toolkits: Vec<Toolkit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuFile {
    schema: u32,
    isas: Vec<Isa>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComponentsFile {
    schema: u32,
    components: Vec<Component>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConflictsFile {
    schema: u32,
    conflicts: Vec<Conflict>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolsFile {
    schema: u32,
    tools: Vec<Tool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JetsonFile {
    schema: u32,
    releases: Vec<JetsonRelease>,
}

impl Catalog {
    /// The embedded catalog, with `overlay`'s entries added or in place of those of the
    /// same name. An overlay has the layout of the catalog: `gpus.yaml`, `cuda.yaml`,
    /// `cpus.yaml`, `jetson.yaml`, `tools.yaml`, `diagnoses.yaml` ([`super::Diagnoses`]),
    /// `components.yaml`, `conflicts.yaml`, `loader.yaml`, `libraries/`, `images/`, `templates/`.
    pub fn load(overlay: Option<&Path>) -> Result<Self, CatalogError> {
        let mut catalog = Self {
            sms: Vec::new(),
            gpus: Vec::new(),
            toolkits: Vec::new(),
            isas: Vec::new(),
            tools: Vec::new(),
            jetson: Vec::new(),
            images: BTreeMap::new(),
            recipes: BTreeMap::new(),
            components: BTreeMap::new(),
            conflicts: Vec::new(),
            loader: Loader::default(),
            templates: None,
        };
        for file in CATALOG.files().chain(CATALOG.dirs().flat_map(Dir::files)) {
            catalog.add(
                file.path(),
                &format!("catalog/{}", file.path().display()),
                file.contents(),
            )?;
        }
        for file in IMAGES.files() {
            let path = Path::new("images").join(file.path());
            catalog.add(&path, &path.display().to_string(), file.contents())?;
        }
        if let Some(dir) = overlay {
            for sub in ["", "libraries", "images"] {
                for path in yaml_files(&dir.join(sub))? {
                    let content = std::fs::read(&path).map_err(|source| CatalogError::Read {
                        path: path.clone(),
                        source,
                    })?;
                    let inside = path.strip_prefix(dir).unwrap_or(&path);
                    catalog.add(inside, &path.display().to_string(), &content)?;
                }
            }
        }
        catalog.templates = overlay
            .map(|dir| own_templates(&dir.join("templates")))
            .unwrap_or_default();
        super::check::check(&catalog)?;
        Ok(catalog)
    }

    fn add(&mut self, inside: &Path, shown: &str, content: &[u8]) -> Result<(), CatalogError> {
        if inside.extension().is_none_or(|e| e != "yaml") {
            return Ok(());
        }
        let folder = inside.parent().and_then(Path::to_str).unwrap_or("");
        let stem = inside.file_stem().and_then(|s| s.to_str()).unwrap_or("");
        match (folder, stem) {
            ("", "gpus") => {
                let file: GpuFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                merge(&mut self.sms, file.sms, |a, b| a.sm == b.sm);
                merge(&mut self.gpus, file.gpus, |a, b| a.name == b.name);
            }
            ("", "cuda") => {
                let file: CudaFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                merge(&mut self.toolkits, file.toolkits, |a, b| {
                    a.version == b.version
                });
            }
            ("", "cpus") => {
                let file: CpuFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                merge(&mut self.isas, file.isas, |a, b| a.name == b.name);
            }
            ("", "tools") => {
                let file: ToolsFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                merge(&mut self.tools, file.tools, |a, b| a.name == b.name);
            }
            ("", "components") => {
                let file: ComponentsFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                let named = file
                    .components
                    .into_iter()
                    .map(|c| (c.distribution.clone(), c));
                self.components.extend(named);
            }
            ("", "conflicts") => {
                let file: ConflictsFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                merge(&mut self.conflicts, file.conflicts, |a, b| a.id == b.id);
            }
            ("", "loader") => {
                self.loader = parse(shown, content)?;
                schema(shown, self.loader.schema)?;
            }
            ("", "jetson") => {
                let file: JetsonFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                merge(&mut self.jetson, file.releases, |a, b| {
                    a.l4t.iter().any(|l4t| b.l4t.contains(l4t))
                });
            }
            // Read when a log is diagnosed: its expressions are nothing that a plan waits for.
            ("", "diagnoses") => {}
            ("libraries", _) => {
                let recipe: Recipe = parse(shown, content)?;
                schema(shown, recipe.schema)?;
                same_name(shown, stem, &recipe.library)?;
                self.recipes.insert(recipe.library.clone(), recipe);
            }
            ("images", _) => {
                let image: Image = parse(shown, content)?;
                schema(shown, image.schema)?;
                same_name(shown, stem, &image.image)?;
                self.images.insert(image.image.clone(), image);
            }
            _ => {
                return Err(CatalogError::Inconsistent {
                    file: shown.to_owned(),
                    message: "not a file that a catalog has".into(),
                });
            }
        }
        Ok(())
    }
}

/// Digest of a directory's templates by path and content; None without any.
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

/// Text of a template, from `overlay`'s `templates/` if it is there, else embedded.
pub fn template(overlay: Option<&Path>, name: &str) -> Option<Cow<'static, str>> {
    if let Some(dir) = overlay
        && let Ok(text) = std::fs::read_to_string(dir.join("templates").join(name))
    {
        return Some(Cow::Owned(text));
    }
    TEMPLATES
        .get_file(name)
        .and_then(|f| f.contents_utf8())
        .map(Cow::Borrowed)
}

/// Embedded templates below a folder: (path below the folder, text), in path order.
pub fn templates_in(folder: &str) -> Vec<(String, &'static str)> {
    fn walk(dir: &'static Dir<'static>, root: &str, out: &mut Vec<(String, &'static str)>) {
        for file in dir.files() {
            let path = file.path().strip_prefix(root).unwrap_or(file.path());
            if let Some(text) = file.contents_utf8() {
                out.push((path.display().to_string(), text));
            }
        }
        for sub in dir.dirs() {
            walk(sub, root, out);
        }
    }
    let mut out = Vec::new();
    let dir = match folder {
        "" => Some(&TEMPLATES),
        _ => TEMPLATES.get_dir(folder),
    };
    if let Some(dir) = dir {
        walk(dir, folder, &mut out);
    }
    out.sort();
    out
}

/// Public keys of a package archive, from images/keyrings/.
pub fn keyring(name: &str) -> Option<&'static [u8]> {
    IMAGES
        .get_file(format!("keyrings/{name}.gpg"))
        .map(|f| f.contents())
}

pub(super) fn parse<T: DeserializeOwned>(shown: &str, content: &[u8]) -> Result<T, CatalogError> {
    serde_saphyr::from_slice(content).map_err(|e| CatalogError::Invalid {
        file: shown.to_owned(),
        message: e.without_snippet().to_string(),
    })
}

pub(super) fn schema(shown: &str, version: u32) -> Result<(), CatalogError> {
    if version == 1 {
        return Ok(());
    }
    Err(CatalogError::Invalid {
        file: shown.to_owned(),
        message: format!("schema {version} is not one that this stackforge reads (1)"),
    })
}

fn same_name(shown: &str, stem: &str, name: &str) -> Result<(), CatalogError> {
    if stem == name {
        return Ok(());
    }
    Err(CatalogError::Inconsistent {
        file: shown.to_owned(),
        message: format!("the file is named `{stem}`, its content `{name}`"),
    })
}

fn merge<T>(into: &mut Vec<T>, from: Vec<T>, same: impl Fn(&T, &T) -> bool) {
    for entry in from {
        match into.iter_mut().find(|e| same(e, &entry)) {
            Some(old) => *old = entry,
            None => into.push(entry),
        }
    }
}

fn yaml_files(dir: &Path) -> Result<Vec<PathBuf>, CatalogError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(CatalogError::Read {
                path: dir.to_owned(),
                source,
            });
        }
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_catalog_is_consistent() {
        let catalog = Catalog::load(None).unwrap();
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
        let catalog = Catalog::load(Some(dir.path())).unwrap();
        assert_eq!(catalog.sm("desk").unwrap().to_string(), "9.0");
        assert!(catalog.sm("thor").is_some());
        assert!(catalog.templates.is_none());
        std::fs::create_dir_all(dir.path().join("templates/steps")).unwrap();
        std::fs::write(dir.path().join("templates/steps/net.sh"), "#").unwrap();
        let own = Catalog::load(Some(dir.path())).unwrap().templates;
        assert!(own.is_some(), "own templates are part of every key");
        std::fs::write(dir.path().join("gpus.yaml"), "schema: 1\ngpu: []\n").unwrap();
        let e = Catalog::load(Some(dir.path())).unwrap_err().to_string();
        assert!(e.contains("gpus.yaml"), "{e}");
    }
}
