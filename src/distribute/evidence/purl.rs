//! Package URLs, by which scanners look packages up.
//!
//! Source: the purl specification (ECMA-427) and its types `pypi`, `deb`, `oci`, `github`, `generic`.

use stackforge_stack::catalog::Os;
use stackforge_stack::lock::OsPackageLock;
use stackforge_types::Digest;
use std::fmt::Write as _;

pub fn pypi(name: &str, version: &str, file: Option<&str>) -> String {
    let start = format!("pkg:pypi/{}@{}", escaped(name), escaped(version));
    with(start, &[("file_name", file)])
}

/// Returns the purl of a Debian package. Its namespace (`debian` or `ubuntu`) is the start of the archive's
/// name, else that of the base.
pub fn deb(package: &OsPackageLock, os: Option<&Os>) -> String {
    let archive = package.archive.as_deref().unwrap_or_default();
    let vendor = match (archive.split('-').next(), os) {
        (Some(vendor @ ("debian" | "ubuntu")), _) => vendor,
        (_, Some(os)) => os.id.as_str(),
        _ => "debian",
    };
    let mut start = format!("pkg:deb/{}/{}", escaped(vendor), escaped(&package.name));
    if let Some(version) = &package.version {
        let _ = write!(start, "@{}", escaped(version));
    }
    let distro = os.map(|os| os.codename.as_str());
    with(
        start,
        &[
            ("arch", package.architecture.as_deref()),
            ("distro", distro),
        ],
    )
}

pub fn image(reference: &str, digest: Option<&Digest>) -> String {
    let path = reference.split('@').next().unwrap_or_default();
    let (path, tag) = match path.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (path, None),
    };
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut start = format!("pkg:oci/{}", escaped(name));
    if let Some(digest) = digest {
        let _ = write!(start, "@{}", digest.to_string().replace(':', "%3A"));
    }
    with(start, &[("repository_url", Some(path)), ("tag", tag)])
}

pub fn git(name: &str, version: &str, url: &str, revision: &str) -> String {
    let bare = url.trim_end_matches('/').trim_end_matches(".git");
    let path = bare.strip_prefix("https://github.com/");
    if let Some((owner, repository)) = path.and_then(|p| p.split_once('/'))
        && !repository.contains('/')
    {
        let lower = |text: &str| escaped(&text.to_ascii_lowercase());
        let (owner, repository) = (lower(owner), lower(repository));
        return format!("pkg:github/{owner}/{repository}@{}", escaped(revision));
    }
    let start = format!("pkg:generic/{}@{}", escaped(name), escaped(version));
    let vcs = format!("git+{url}@{revision}");
    with(start, &[("vcs_url", Some(&vcs))])
}

/// Adds qualifiers, which have to be sorted by name.
fn with(mut purl: String, qualifiers: &[(&str, Option<&str>)]) -> String {
    let present = qualifiers
        .iter()
        .filter_map(|(name, value)| Some((*name, (*value)?)));
    for (n, (name, value)) in present.enumerate() {
        let sign = if n == 0 { '?' } else { '&' };
        let _ = write!(purl, "{sign}{name}={}", escaped(value));
    }
    purl
}

/// Percent-encodes every character but those that a purl may contain, which include the colon.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b".-_~:".contains(&byte) {
            out.push(char::from(byte))
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_written_as_the_specification_says() {
        assert_eq!(
            pypi("torch", "2.13.0+cu130", Some("torch-2.13.0+cu130.whl")),
            "pkg:pypi/torch@2.13.0%2Bcu130?file_name=torch-2.13.0%2Bcu130.whl"
        );
        let package = OsPackageLock {
            name: "libstdc++6".into(),
            version: Some("1:2.4.47-2+b1".into()),
            architecture: Some("amd64".into()),
            archive: Some("debian-security".into()),
            path: None,
            size: 0,
            sha256: None,
            reasons: Vec::new(),
        };
        let os = Os {
            id: "debian".into(),
            version: "12".into(),
            codename: "bookworm".into(),
        };
        assert_eq!(
            deb(&package, Some(&os)),
            "pkg:deb/debian/libstdc%2B%2B6@1:2.4.47-2%2Bb1?arch=amd64&distro=bookworm"
        );
        let digest = Digest::of(b"");
        assert_eq!(
            image("nvcr.io/nvidia/cuda:13.0", Some(&digest)),
            format!(
                "pkg:oci/cuda@sha256%3A{}?repository_url=nvcr.io%2Fnvidia%2Fcuda&tag=13.0",
                digest.hex()
            )
        );
        assert_eq!(
            git(
                "torch",
                "2.8.0",
                "https://github.com/PyTorch/pytorch.git",
                "5811a8"
            ),
            "pkg:github/pytorch/pytorch@5811a8"
        );
        assert_eq!(
            git("x", "1", "https://git.example/a/x", "00"),
            "pkg:generic/x@1?vcs_url=git%2Bhttps:%2F%2Fgit.example%2Fa%2Fx%4000"
        );
    }
}
