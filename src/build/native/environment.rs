//! Makes the virtual environment that wheels are installed into. It has no pip and uses the base's
//! interpreter.

use super::super::BuildError;
use super::layers::{Maker, Member};
use crate::spec::PythonVersion;
use stackforge_image::Layer;
use stackforge_image::layer::Scheme;

pub(super) const HOME: &str = "/opt/venv";
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

pub(super) fn scheme(python: PythonVersion) -> Scheme {
    Scheme::posix_prefix(HOME, &python.to_string())
}

pub(super) fn interpreter() -> String {
    format!("{HOME}/bin/python")
}

impl Maker<'_, '_> {
    /// Makes the layer with the environment's folders, links to the base's interpreter, and `pyvenv.cfg` (PEP 405).
    pub fn environment(&mut self) -> Result<Layer, BuildError> {
        let members = members(HOME, self.plan.python);
        self.files("environment", "the Python environment", &members)
    }
}

/// Returns the files of an environment at `home`.
pub(super) fn members(home: &str, python: PythonVersion) -> Vec<Member> {
    let link = |path: &str, to: &str| Member::Link(format!("{home}/{path}"), to.to_owned());
    let config =
        format!("home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n");
    vec![
        Member::Folder(format!("{home}/lib/python{python}/site-packages")),
        link("bin/python", &format!("/usr/bin/python{python}")),
        link("bin/python3", "python"),
        link(&format!("bin/python{python}"), "python"),
        link("lib64", "lib"),
        Member::file(&format!("{home}/pyvenv.cfg"), config),
    ]
}
