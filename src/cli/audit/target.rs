//! Parses the target of `audit`.

use stackforge_binary::source::{FileSource, array};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A shared object, a wheel or a directory.
    Path(PathBuf),
    /// An OCI layout, or an archive of images; `reference` chooses among several images.
    Image {
        path: PathBuf,
        reference: Option<String>,
    },
    /// An image of the engine.
    Engine(String),
    /// An image of a registry.
    Registry(String),
    /// A wheel of the index.
    Package(String),
}

/// Prefixes before the first `:`, as in skopeo and podman.
const FILES: [&str; 3] = ["oci", "oci-archive", "docker-archive"];
const ENGINES: [&str; 2] = ["docker", "docker-daemon"];

impl Target {
    pub fn read(text: &str) -> Self {
        // An existing path wins, whatever its name looks like.
        let path = Path::new(text);
        if path.exists() {
            return of_path(path);
        }
        match text.split_once(':') {
            Some((kind, rest)) if FILES.contains(&kind) => at_rest(rest),
            Some((kind, rest)) if ENGINES.contains(&kind) && !rest.starts_with("//") => {
                Self::Engine(rest.to_owned())
            }
            Some(("registry", rest)) => Self::Registry(rest.to_owned()),
            Some(("docker", rest)) => Self::Registry(rest[2..].to_owned()),
            _ => match text.split_once("==") {
                Some((name, version)) if !name.is_empty() && !version.is_empty() => {
                    Self::Package(text.to_owned())
                }
                // Reading the path reports that it does not exist.
                _ => Self::Path(path.to_owned()),
            },
        }
    }
}

fn of_path(path: &Path) -> Target {
    let is_tar = || {
        let magic = FileSource::open(path)
            .ok()
            .and_then(|mut s| array::<5>(&mut s, 257).ok());
        magic == Some(*b"ustar")
    };
    let is_image = path.join("oci-layout").is_file() || path.is_file() && is_tar();
    let path = path.to_owned();
    if is_image {
        Target::Image {
            path,
            reference: None,
        }
    } else {
        Target::Path(path)
    }
}

/// Parses `PATH[:TAG]` or `PATH@DIGEST`. An existing path may contain `:` or `@` itself, and a tag `:`.
fn at_rest(text: &str) -> Target {
    let image = |path: &str, reference: Option<&str>| Target::Image {
        path: path.into(),
        reference: reference.map(str::to_owned),
    };
    if Path::new(text).exists() {
        return image(text, None);
    }
    let signs = text.match_indices(['@', ':']);
    let parts = signs.map(|(at, sign)| (&text[..at], &text[at + sign.len()..]));
    let whole = |(path, reference): &(&str, &str)| !path.is_empty() && !reference.is_empty();
    let existing = parts
        .filter(whole)
        .find(|(path, _)| Path::new(path).exists());
    let last = || text.split_once('@').or_else(|| text.rsplit_once(':'));
    match existing.or_else(|| last().filter(whole)) {
        Some((path, reference)) => image(path, Some(reference)),
        None => image(text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_target_is_told_from_the_others() {
        let read = Target::read;
        let image = |path: &str, reference: Option<&str>| Target::Image {
            path: path.into(),
            reference: reference.map(str::to_owned),
        };
        assert_eq!(read("no/x.so"), Target::Path("no/x.so".into()));
        assert_eq!(read("oci:no/dir"), image("no/dir", None));
        assert_eq!(read("oci:no/dir:1.0"), image("no/dir", Some("1.0")));
        assert_eq!(
            read("oci-archive:x.tar@sha256:00"),
            image("x.tar", Some("sha256:00"))
        );
        assert_eq!(
            read("docker-archive:src:host:5000/a:1"),
            image("src", Some("host:5000/a:1"))
        );
        assert_eq!(read("oci:no/dir:"), image("no/dir:", None));
        assert_eq!(read("docker:a/b:1"), Target::Engine("a/b:1".to_owned()));
        for text in ["registry:h:5000/a:1", "docker://h:5000/a:1"] {
            assert_eq!(read(text), Target::Registry("h:5000/a:1".to_owned()));
        }
        assert_eq!(
            read("torch==2.13.0"),
            Target::Package("torch==2.13.0".to_owned())
        );
        assert_eq!(read("src"), Target::Path("src".into()));
    }
}
