//! Where an installation puts the parts of a wheel, as Python's `sysconfig` names them.
//!
//! In: absolute folders of the image. Out: paths below its root. A folder that is not plainly
//! absolute is refused, so nothing that is joined to it can leave it.

use super::LayerError;

/// Absolute folders of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// For wheels without machine code: `site-packages`.
    pub purelib: String,
    /// For wheels with machine code; mostly the same folder.
    pub platlib: String,
    /// For entry points and scripts.
    pub scripts: String,
    /// For everything else that a wheel has.
    pub data: String,
    /// Of all headers; each distribution has a folder in it.
    pub headers: String,
}

impl Scheme {
    /// `posix_prefix`: what a Python that was built for `prefix`, or a virtual environment, has.
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

    /// `posix_local`: Debian's and Ubuntu's Python, for what is not of the distribution.
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

    /// Below the root, where the wheel's own part `name` goes; none if there is no such part.
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

/// From the folder `base` to `path`, both below the root: what RECORD calls a file.
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
