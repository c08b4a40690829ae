//! Decides what the argument of `run` names.

use super::super::args::{Common, RunArgs};
use super::super::audit::Target;
use super::super::output::Failure;
use stackforge_distribute::pull::image_in;
use stackforge_image::oci::{self, Image};
use stackforge_plan::project::{Chosen, Project};
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::spec::Platform;
use std::path::{Path, PathBuf};

/// Prefix of a root file system's directory.
const ROOTFS: &str = "rootfs:";

/// What is to be run.
pub(super) enum Subject {
    /// The image of a stack, by the name that a build gives it.
    Stack {
        file: PathBuf,
        name: String,
        project: Box<Project>,
        chosen: Box<Chosen>,
    },
    /// An image at rest, outside of the store.
    AtRest(Box<(String, Image)>),
    /// A root file system.
    Root { path: PathBuf },
    /// The name of an image.
    Name(String),
}

impl Subject {
    pub fn read(common: &Common, args: &RunArgs) -> Result<Self, Failure> {
        let text = args.image.as_str();
        if let Some(path) = text.strip_prefix(ROOTFS) {
            return Self::root(path.into());
        }
        match Target::read(text) {
            Target::Image { path, reference } => {
                let image = oci::open(&path, reference.as_deref(), Platform::of_processor())?;
                Ok(Self::AtRest(Box::new((text.to_owned(), image))))
            }
            Target::Engine(name) | Target::Registry(name) => Ok(Self::Name(name)),
            Target::Package(_) => Ok(Self::Name(text.to_owned())),
            Target::Path(path) => Self::of_path(common, args, path),
        }
    }

    fn of_path(common: &Common, args: &RunArgs, path: PathBuf) -> Result<Self, Failure> {
        let is_yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        if is_yaml || path.is_file() {
            return Self::stack(common, args, path);
        }
        // An image may have the name of a directory that is not an image.
        let is_path = args.image.starts_with(['.', '/']) || args.image.ends_with('/');
        if path.is_dir() && image_in(&path).is_some() {
            return Self::root(path);
        }
        if is_path {
            let message = if path.is_dir() {
                "is not an image layout, and not a root file system that `pull` wrote"
            } else {
                "is not there"
            };
            return Err(Failure::of(
                Diagnostic::error(codes::NO_SUCH_IMAGE, format!("`{}` {message}", args.image))
                    .help("name any other root file system as `rootfs:DIR`"),
            ));
        }
        Ok(Self::Name(args.image.clone()))
    }

    fn root(path: PathBuf) -> Result<Self, Failure> {
        if path.is_dir() {
            return Ok(Self::Root { path });
        }
        Err(Failure::of(
            Diagnostic::error(
                codes::NO_SUCH_IMAGE,
                format!("`{}` is not a directory", path.display()),
            )
            .help("name the directory of a root file system, as `stackforge pull REF -o rootfs:DIR` writes it"),
        ))
    }

    fn stack(common: &Common, args: &RunArgs, file: PathBuf) -> Result<Self, Failure> {
        let project = Project::open(Path::new(&file), common.catalog.as_deref())?;
        let chosen = project.choose(args.variant.as_deref())?;
        Ok(Self::Stack {
            name: format!("{}:latest", chosen.stack.name()),
            file,
            project: Box::new(project),
            chosen: Box::new(chosen),
        })
    }

    /// Returns the name for messages.
    pub fn shown(&self) -> String {
        match self {
            Self::Stack { name, .. } | Self::Name(name) => name.clone(),
            Self::AtRest(at_rest) => at_rest.0.clone(),
            Self::Root { path } => path.display().to_string(),
        }
    }
}
