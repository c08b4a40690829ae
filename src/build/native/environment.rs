//! Makes the virtual environment that wheels are installed into. It has no pip and uses the base's
//! interpreter.

use super::super::BuildError;
use super::layers::NativeBuilder;
use stackforge_image::Layer;
use stackforge_image::layer::Scheme;
use stackforge_plan::{Environment, HOME, Step};
use stackforge_stack::spec::PythonVersion;

const PATH: &str = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// PATH for compilers, with the CUDA toolkit of a devel base.
pub(super) const PATH_WITH_CUDA: &str = "/opt/venv/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Environment variables of images, so that programs find the virtual environment.
pub(super) fn variables() -> Vec<(String, String)> {
    // BuildKit sets PATH even for an empty base, so PATH is first there; both engines have one order.
    [("PATH", PATH), ("VIRTUAL_ENV", HOME)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

pub(in super::super) fn scheme(python: PythonVersion) -> Scheme {
    Scheme::posix_prefix(HOME, &python.to_string())
}

pub(in super::super) fn interpreter() -> String {
    format!("{HOME}/bin/python")
}

impl NativeBuilder<'_, '_> {
    /// Makes the layer with the environment's folders, links to the base's interpreter, and `pyvenv.cfg`.
    pub fn environment(
        &mut self,
        step: &Step,
        environment: &Environment,
    ) -> Result<Layer, BuildError> {
        let about = "the Python environment";
        let tar = self.small_tar(about, &environment.members)?;
        self.layer(step, |builder, file| builder.small(about, &tar, file))
    }
}
