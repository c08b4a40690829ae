//! The package that a shared library most likely lies in, by its name alone.
//!
//! Debian Policy (8.1, "Run-time shared libraries") names the package after the SONAME: the library's name and its
//! version, with a hyphen between two digits. What does not follow it stands in a table. The answer is a
//! guess for a message: an archive's Contents index knows.

/// Libraries whose package has another name, by the SONAME up to its version, as bookworm has them.
const OTHERS: [(&str, &str); 24] = [
    ("ld-linux-x86-64.so.2", "libc6"),
    ("ld-linux-aarch64.so.1", "libc6"),
    ("libanl.so.1", "libc6"),
    ("libdl.so.2", "libc6"),
    ("libm.so.6", "libc6"),
    ("libmvec.so.1", "libc6"),
    ("libpthread.so.0", "libc6"),
    ("libresolv.so.2", "libc6"),
    ("librt.so.1", "libc6"),
    ("libutil.so.1", "libc6"),
    ("libglib-2.0.so.0", "libglib2.0-0"),
    ("libgobject-2.0.so.0", "libglib2.0-0"),
    ("libgio-2.0.so.0", "libglib2.0-0"),
    ("libgmodule-2.0.so.0", "libglib2.0-0"),
    ("libgthread-2.0.so.0", "libglib2.0-0"),
    ("libGLU.so.1", "libglu1-mesa"),
    ("libOSMesa.so.8", "libosmesa6"),
    ("libglut.so.3", "libglut3.12"),
    ("libz.so.1", "zlib1g"),
    ("libcrypto.so.3", "libssl3"),
    ("libjpeg.so.62", "libjpeg62-turbo"),
    ("libmpi.so.40", "libopenmpi3"),
    ("libnss3.so", "libnss3"),
    ("libnspr4.so", "libnspr4"),
];

/// Returns the package that a library of this SONAME most likely lies in. `None` for a name without a
/// version.
///
/// ```
/// use stackforge_debian::soname::likely_package;
///
/// assert_eq!(likely_package("libgomp.so.1").as_deref(), Some("libgomp1"));
/// assert_eq!(likely_package("libX11.so.6").as_deref(), Some("libx11-6"));
/// assert_eq!(likely_package("libplugin.so"), None);
/// ```
pub fn likely_package(soname: &str) -> Option<String> {
    if let Some((_, package)) = OTHERS.iter().find(|(name, _)| *name == soname) {
        return Some((*package).to_owned());
    }
    let (stem, version) = soname.split_once(".so.")?;
    if let Some(python) = stem.strip_prefix("libpython") {
        return Some(format!("libpython{python}"));
    }
    let version = version.split('.').next().filter(|v| !v.is_empty())?;
    let name = stem.to_ascii_lowercase().replace('_', "-");
    let hyphen = if name.ends_with(|c: char| c.is_ascii_digit()) {
        "-"
    } else {
        ""
    };
    let package = format!("{name}{hyphen}{version}");
    crate::package::is_package_name(&package).then_some(package)
}

#[cfg(test)]
mod tests {
    use super::likely_package;

    /// Pairs of bookworm's Contents index.
    #[test]
    fn libraries_are_found_by_their_names() {
        for (soname, package) in [
            ("libGL.so.1", "libgl1"),
            ("libc.so.6", "libc6"),
            ("libm.so.6", "libc6"),
            ("libSM.so.6", "libsm6"),
            ("libXext.so.6", "libxext6"),
            ("libdbus-1.so.3", "libdbus-1-3"),
            ("libgcc_s.so.1", "libgcc-s1"),
            ("libglib-2.0.so.0", "libglib2.0-0"),
            ("libpython3.11.so.1.0", "libpython3.11"),
            ("libsndfile.so.1", "libsndfile1"),
            ("libstdc++.so.6", "libstdc++6"),
            ("libxcb.so.1", "libxcb1"),
            ("libz.so.1", "zlib1g"),
        ] {
            assert_eq!(likely_package(soname).as_deref(), Some(package), "{soname}");
        }
        for soname in ["libfoo.so", "libfoo.so.", "lib foo.so.1", ".so.1", ""] {
            assert_eq!(likely_package(soname), None, "{soname}");
        }
    }
}
