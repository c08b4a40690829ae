//! The errors of the libraries that a command can end with.

use super::output::Failure;
use stackforge_build::locking::LockingError;
use stackforge_plan::project::ProjectError;
use stackforge_run::RunError;
use stackforge_stack::diag::Explained as _;

macro_rules! ends {
    ($($error:path),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(e: $error) -> Self {
                Self::ending(e.exit(), e.diagnostic())
            }
        })*
    };
}

ends!(
    stackforge_audit::TreeError,
    stackforge_build::BuildError,
    stackforge_build::emit::EmitError,
    stackforge_build::render::RenderError,
    stackforge_deploy::DeployError,
    stackforge_device::convert::ConvertError,
    stackforge_distribute::evidence::EvidenceError,
    stackforge_distribute::evidence::KeyError,
    stackforge_distribute::publish::PublishError,
    stackforge_distribute::pull::PullError,
    stackforge_engine::EngineError,
    stackforge_image::oci::OciError,
    stackforge_image::store::StoreError,
    stackforge_plan::PlanError,
    stackforge_resolve::PackageError,
    stackforge_stack::catalog::CatalogError,
    stackforge_stack::config::ConfigError,
    stackforge_transfer::registry::RegistryError,
    stackforge_types::reference::BadReference,
    stackforge_update::UpdateError,
);

impl From<RunError> for Failure {
    fn from(e: RunError) -> Self {
        let exit = e.of_program().unwrap_or_else(|| e.exit());
        Self::ending(exit, e.diagnostic())
    }
}

impl From<LockingError> for Failure {
    fn from(e: LockingError) -> Self {
        match e {
            LockingError::Project(e) => e.into(),
            other => Self::new(other.exit(), other.report()),
        }
    }
}

impl From<ProjectError> for Failure {
    fn from(e: ProjectError) -> Self {
        let refused = match &e {
            ProjectError::NoneLeft { expansion, .. } => Some(super::matrix::refused(expansion)),
            _ => None,
        };
        let mut failure = Self::new(e.exit(), e.report());
        if let Some((before, document)) = refused {
            failure.before = Some(before);
            failure.json.extend(document);
        }
        failure
    }
}
