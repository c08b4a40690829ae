//! Directories that the parts of a wheel are installed to, with the names of Python's `sysconfig`.
//!
//! In: absolute directories of the image. Out: paths below its root. A directory that is not a plain
//! absolute path is refused, so no path that is joined to it can leave it.

use super::LayerError;

/// The install directories of an image, as absolute paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// `site-packages`, for wheels without machine code.
    pub purelib: String,
    /// The directory for wheels with machine code; usually the same.
    pub platlib: String,
    /// The directory for entry points and scripts.
    pub scripts: String,
    /// The directory for everything else in a wheel.
    pub data: String,
    /// The directory for headers; each distribution has a subdirectory.
    pub headers: String,
}

impl Scheme {
    /// `posix_prefix`: the scheme of a Python that was built for `prefix`, or of a virtual environment.
    /// `version` is its `3.N`.
    pub fn posix_prefix(prefix: &str, version: &str) -> Self {
        let prefix = prefix.trim_end_matches('/');
        let site = format!("{prefix}/lib/python{version}/site-packages");
        Self {
            purelib: site.clone(),
            platlib: site,
            scripts: format!("{prefix}/bin"),
            data: prefix.to_owned(),
            headers: format!("{prefix}/include/python{version}"),
        }
    }

    /// `posix_local`: the scheme of Debian's and Ubuntu's Python for packages that are not the
    /// distribution's own.
    pub fn posix_local(version: &str) -> Self {
        let site = format!("/usr/local/lib/python{version}/dist-packages");
        Self {
            purelib: site.clone(),
            platlib: site,
            ..Self::posix_prefix("/usr/local", version)
        }
    }

    pub(super) fn check(&self) -> Result<(), LayerError> {
        let folders = [&self.purelib, &self.platlib, &self.scripts, &self.data];
        for folder in folders.into_iter().chain([&self.headers]) {
            let mut parts = folder.strip_prefix('/').unwrap_or_default().split('/');
            let plain = |part: &str| {
                !matches!(part, "" | "." | "..") && !part.chars().any(char::is_control)
            };
            if !parts.all(plain) {
                return Err(LayerError::Folder(folder.clone()));
            }
        }
        Ok(())
    }

    /// The directory, below the root, for the wheel's `.data` part `name`. `None` if the format has no such
    /// part.
    pub(super) fn part(&self, name: &str, distribution: &str) -> Option<String> {
        Some(match name {
            "purelib" => below(&self.purelib).to_owned(),
            "platlib" => below(&self.platlib).to_owned(),
            "scripts" => below(&self.scripts).to_owned(),
            "data" => below(&self.data).to_owned(),
            "headers" => format!("{}/{distribution}", below(&self.headers)),
            _ => return None,
        })
    }
}

fn below(folder: &str) -> &str {
    folder.trim_start_matches('/')
}

/// The path from the directory `base` to `path`, both below the root, as RECORD writes it.
pub(super) fn relative(base: &str, path: &str) -> String {
    let mut base: Vec<&str> = base.split('/').collect();
    let mut rest: Vec<&str> = path.split('/').collect();
    let same = base.iter().zip(&rest).take_while(|(a, b)| a == b).count();
    base.drain(..same);
    rest.drain(..same);
    base.iter()
        .map(|_| "..")
        .chain(rest)
        .collect::<Vec<_>>()
        .join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_record_are_relative_to_its_root() {
        let site = "usr/lib/python3.12/site-packages";
        assert_eq!(
            relative(site, "usr/lib/python3.12/site-packages/a/b.py"),
            "a/b.py"
        );
        assert_eq!(relative(site, "usr/bin/f2py"), "../../../bin/f2py");
        assert_eq!(relative(site, "opt/x"), "../../../../opt/x");
    }

    #[test]
    fn folders_must_be_plainly_absolute() {
        assert!(Scheme::posix_prefix("/opt/venv", "3.12").check().is_ok());
        assert!(Scheme::posix_local("3.12").check().is_ok());
        for bad in ["opt", "/opt/../etc", "//opt", "/opt/./x", "", "/opt\n"] {
            assert!(
                Scheme::posix_prefix(bad, "3.12").check().is_err() || bad.is_empty(),
                "{bad}"
            );
        }
    }
}
