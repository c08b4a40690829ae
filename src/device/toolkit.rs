//! Finds installed CUDA toolkits and torches: the second and third of the "CUDA versions".
//!
//! A toolkit is a directory with an nvcc; PATH, CUDA_HOME and CUDA_PATH decide which one a build uses. A torch
//! has its own CUDA runtime, which `torch/version.py` names; nothing is imported.

use super::program;
use serde::Serialize;
use stackforge_types::root::{Root, clean, leading_version};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Toolkit {
    /// Path of the compiler.
    pub nvcc: PathBuf,
    /// Version, as in `13.0`; `None` if nvcc does not run.
    pub version: Option<String>,
    /// The settings that lead to it: `PATH`, `CUDA_HOME`, `CUDA_PATH`, `/usr/local`.
    pub found: Vec<&'static str>,
    /// Whether plain `nvcc` runs this one.
    pub first: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Torch {
    /// Directory in which it is installed.
    pub site: PathBuf,
    pub version: String,
    /// The CUDA version that it was built with; `None` for a CPU-only torch.
    pub cuda: Option<String>,
}

/// Returns the toolkits below /usr/local, with the versions that they record.
pub fn installed(root: &Root) -> Vec<Toolkit> {
    let mut toolkits: Vec<Toolkit> = Vec::new();
    for name in root.list("/usr/local") {
        let home = format!("/usr/local/{name}");
        // `cuda` and `cuda-13` are symbolic links to `cuda-13.0`.
        let Some(nvcc) = root.real(&format!("{home}/bin/nvcc")) else {
            continue;
        };
        let known = toolkits.iter().any(|t| t.nvcc == nvcc);
        if !name.starts_with("cuda") || known || !root.exists(&format!("{home}/bin/nvcc")) {
            continue;
        }
        toolkits.push(Toolkit {
            version: root
                .text(&format!("{home}/version.json"))
                .and_then(|t| version_json(&t)),
            nvcc,
            found: vec!["/usr/local"],
            first: false,
        });
    }
    toolkits
}

/// Returns every nvcc that a setting of this machine leads to, with the version that it prints.
pub fn here() -> Vec<Toolkit> {
    let variable = |name: &str| {
        let home = std::env::var_os(name).filter(|v| !v.is_empty())?;
        Some(Path::new(&home).join("bin/nvcc")).filter(|p| program::executable(p))
    };
    let mut found: Vec<(&'static str, PathBuf)> = program::on_path("nvcc")
        .into_iter()
        .map(|p| ("PATH", p))
        .collect();
    found.extend(variable("CUDA_HOME").map(|p| ("CUDA_HOME", p)));
    found.extend(variable("CUDA_PATH").map(|p| ("CUDA_PATH", p)));
    let local = installed(&Root::new(Path::new("/")));
    found.extend(local.into_iter().map(|t| ("/usr/local", t.nvcc)));
    merge(found)
        .into_iter()
        .map(|mut toolkit| {
            toolkit.version =
                program::output(&toolkit.nvcc, &["--version"]).and_then(|text| nvcc_version(&text));
            toolkit
        })
        .collect()
}

/// Returns one toolkit for each compiler: several paths may lead to it.
fn merge(found: Vec<(&'static str, PathBuf)>) -> Vec<Toolkit> {
    let mut toolkits: Vec<(Option<PathBuf>, Toolkit)> = Vec::new();
    for (how, nvcc) in found {
        let real = nvcc.canonicalize().ok();
        match toolkits.iter_mut().find(|(other, _)| *other == real) {
            Some((_, toolkit)) => {
                if !toolkit.found.contains(&how) {
                    toolkit.found.push(how);
                }
            }
            None => {
                let first = toolkits.is_empty() && how == "PATH";
                let toolkit = Toolkit {
                    nvcc,
                    version: None,
                    found: vec![how],
                    first,
                };
                toolkits.push((real, toolkit));
            }
        }
    }
    toolkits.into_iter().map(|(_, toolkit)| toolkit).collect()
}

/// Parses `13.0` from `Cuda compilation tools, release 13.0, V13.0.88`.
pub fn nvcc_version(text: &str) -> Option<String> {
    text.match_indices("release ")
        .find_map(|(at, word)| leading_version(&text[at + word.len()..]))
}

/// Reads the version, such as `13.0`, from a toolkit's `version.json`.
pub fn version_json(text: &str) -> Option<String> {
    let document: serde_json::Value = serde_json::from_str(text).ok()?;
    let whole = document.get("cuda")?.get("version")?.as_str()?;
    let whole = leading_version(whole)?;
    Some(whole.split('.').take(2).collect::<Vec<_>>().join("."))
}

/// Returns the torches in the system's directories.
pub fn torches(root: &Root) -> Vec<Torch> {
    let mut sites = vec!["/usr/lib/python3/dist-packages".to_owned()];
    for lib in ["/usr/lib", "/usr/local/lib"] {
        for python in root
            .list(lib)
            .into_iter()
            .filter(|n| n.starts_with("python3."))
        {
            for packages in ["site-packages", "dist-packages"] {
                sites.push(format!("{lib}/{python}/{packages}"));
            }
        }
    }
    sites
        .into_iter()
        .filter_map(|site| torch_in(root, &site))
        .collect()
}

/// Returns also the torches of this user's environments: the active one, and those beside each python3 on PATH.
pub fn torches_here() -> Vec<Torch> {
    let root = Root::new(Path::new("/"));
    let mut homes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(std::env::var_os)
        .map(PathBuf::from)
        .collect();
    for python in program::on_path("python3") {
        let real = python.canonicalize().ok();
        let bins = [Some(python), real];
        homes.extend(
            bins.into_iter()
                .flatten()
                .filter_map(|p| Some(p.parent()?.parent()?.to_owned())),
        );
    }
    if let Some(home) = std::env::var_os("HOME") {
        homes.push(Path::new(&home).join(".local"));
        let pyenv = Path::new(&home).join(".pyenv/versions");
        let versions = std::fs::read_dir(pyenv).into_iter().flatten().flatten();
        homes.extend(versions.map(|v| v.path()));
    }
    let mut found = Vec::new();
    for lib in homes
        .iter()
        .filter(|h| h.is_absolute())
        .map(|h| h.join("lib"))
    {
        let Some(lib) = lib.to_str() else { continue };
        for python in root
            .list(lib)
            .into_iter()
            .filter(|n| n.starts_with("python3."))
        {
            found.extend(torch_in(&root, &format!("{lib}/{python}/site-packages")));
        }
    }
    found.extend(torches(&root));
    let mut seen = Vec::new();
    found.retain(|torch: &Torch| {
        let real = torch.site.canonicalize().ok();
        let new = !seen.contains(&real);
        seen.push(real);
        new
    });
    found
}

fn torch_in(root: &Root, site: &str) -> Option<Torch> {
    let text = root.text(&format!("{site}/torch/version.py"))?;
    let (version, cuda) = torch_version(&text)?;
    Some(Torch {
        site: site.into(),
        version,
        cuda,
    })
}

/// Reads the versions of torch and CUDA from `torch/version.py`: `__version__ = '2.13.0+cu130'`,
/// `cuda: Optional[str] = '13.0'`.
pub fn torch_version(text: &str) -> Option<(String, Option<String>)> {
    let value = |name: &str| {
        let line = text.lines().find_map(|l| {
            l.strip_prefix(name)
                .filter(|rest| rest.starts_with([' ', ':', '=']))
        })?;
        let quoted = line.split_once('=')?.1.trim();
        let quote = quoted.chars().next().filter(|c| ['\'', '"'].contains(c))?;
        let value = quoted[1..].split(quote).next()?;
        Some(clean(value)).filter(|v| !v.is_empty())
    };
    let cuda = value("cuda").and_then(|c| leading_version(&c));
    Some((value("__version__")?, cuda))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nvcc_says_its_release() {
        let text = "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\nCuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0\n";
        assert_eq!(nvcc_version(text).as_deref(), Some("13.0"));
        assert_eq!(nvcc_version("release 13"), None);
        let json = r#"{"cuda":{"name":"CUDA SDK","version":"12.4.20240405"},"cuda_nvcc":{"version":"12.4.131"}}"#;
        assert_eq!(version_json(json).as_deref(), Some("12.4"));
    }

    #[test]
    fn torch_names_its_cuda_or_none() {
        let with = "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda']\n__version__ = '2.13.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\ngit_version = 'x'\nhip: Optional[str] = None\n";
        assert_eq!(
            torch_version(with),
            Some(("2.13.0+cu130".into(), Some("13.0".into())))
        );
        let without = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n";
        assert_eq!(torch_version(without), Some(("2.13.0+cpu".into(), None)));
        assert_eq!(torch_version("cuda = '12.8'"), None);
    }

    #[test]
    fn two_ways_to_one_compiler_are_one_toolkit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nvcc");
        std::fs::write(&path, "").unwrap();
        let toolkits = merge(vec![
            ("PATH", path.clone()),
            ("CUDA_HOME", path.clone()),
            ("/usr/local", dir.path().join("other")),
        ]);
        assert_eq!(toolkits.len(), 2);
        assert_eq!(toolkits[0].found, ["PATH", "CUDA_HOME"]);
        assert!(toolkits[0].first && !toolkits[1].first);
        let toolkits = merge(vec![("/usr/local", path)]);
        assert!(!toolkits[0].first, "PATH does not lead to it");
    }

    proptest! {
        #[test]
        fn parsers_never_panic(s in "(?s).*") {
            let _ = nvcc_version(&s);
            let _ = nvcc_version(&format!("release {s}"));
            let _ = version_json(&s);
            let _ = torch_version(&s);
            let _ = torch_version(&format!("__version__ = {s}\ncuda = '{s}"));
        }
    }
}
