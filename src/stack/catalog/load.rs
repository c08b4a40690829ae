//! Reads a catalog's files: those of the crate at compile time, those of an overlay at run time.

use super::{
    Catalog, Component, Conflict, FormerPackage, Gpu, Image, Isa, JetsonRelease, Misnomer, Recipe,
    RemovedModule, SameModules, SmFacts, SourceNeeds, Tool, Toolkit, Undeclared,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use stackforge_types::yaml;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
struct SourcesFile {
    schema: u32,
    libraries: BTreeMap<String, Vec<SourceNeeds>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetadataFile {
    schema: u32,
    undeclared: BTreeMap<String, Vec<Undeclared>>,
    same_modules: Vec<SameModules>,
    #[serde(default)]
    misnomers: BTreeMap<String, Misnomer>,
    #[serde(default)]
    modules: BTreeMap<String, String>,
    #[serde(default)]
    os_modules: BTreeMap<String, String>,
    #[serde(default)]
    removed_modules: BTreeMap<String, RemovedModule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackagesFile {
    schema: u32,
    former: BTreeMap<String, FormerPackage>,
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
    /// Reads and checks the files of `catalog` and the bases of `images`. `keyring` returns whether a keyring
    /// exists.
    pub fn read(
        catalog: &Path,
        images: &Path,
        keyring: &dyn Fn(&str) -> bool,
    ) -> Result<Self, CatalogError> {
        let mut all = Self::default();
        all.add_files(catalog, &["", "libraries"])?;
        all.add_files(images.parent().unwrap_or(images), &["images"])?;
        super::check::check(&all, keyring)?;
        Ok(all)
    }

    /// Adds an overlay's files to a catalog and checks the whole. `keyring` returns whether a keyring exists.
    pub fn extend(
        &mut self,
        overlay: &Path,
        keyring: &dyn Fn(&str) -> bool,
    ) -> Result<(), CatalogError> {
        self.add_files(overlay, &["", "libraries", "images"])?;
        super::check::check(self, keyring)
    }

    /// Adds the files in folders of a directory. They replace entries of the same name.
    fn add_files(&mut self, dir: &Path, folders: &[&str]) -> Result<(), CatalogError> {
        for folder in folders {
            for path in yaml_files(&dir.join(folder))? {
                let content = std::fs::read(&path).map_err(|source| CatalogError::Read {
                    path: path.clone(),
                    source,
                })?;
                let inside = path.strip_prefix(dir).unwrap_or(&path);
                self.add(inside, &path.display().to_string(), &content)?;
            }
        }
        Ok(())
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
            ("", "slim") => {
                self.slim = parse(shown, content)?;
                schema(shown, self.slim.schema)?;
            }
            ("", "loader") => {
                self.loader = parse(shown, content)?;
                schema(shown, self.loader.schema)?;
            }
            ("", "sources") => {
                let file: SourcesFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                self.sources.extend(file.libraries);
            }
            ("", "metadata") => {
                let file: MetadataFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                self.undeclared.extend(file.undeclared);
                self.same_modules.extend(file.same_modules);
                self.modules.extend(file.modules);
                self.os_modules.extend(file.os_modules);
                self.removed_modules.extend(file.removed_modules);
                self.misnomers.extend(file.misnomers);
            }
            ("", "packages") => {
                let file: PackagesFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                self.former_packages.extend(file.former);
            }
            ("", "jetson") => {
                let file: JetsonFile = parse(shown, content)?;
                schema(shown, file.schema)?;
                merge(&mut self.jetson, file.releases, |a, b| {
                    a.l4t.iter().any(|l4t| b.l4t.contains(l4t))
                });
            }
            // Read only to diagnose a log and to convert a file, so that plans do not wait for their expressions.
            ("", "diagnoses" | "foreign") => {}
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

pub fn parse<T: DeserializeOwned>(shown: &str, content: &[u8]) -> Result<T, CatalogError> {
    yaml::from_slice(content).map_err(|e| CatalogError::Invalid {
        file: shown.to_owned(),
        message: e.to_string(),
    })
}

pub fn schema(shown: &str, version: u32) -> Result<(), CatalogError> {
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
