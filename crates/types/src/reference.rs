//! Image references, `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`, and Docker Hub's short forms.
//!
//! Stacks and configurations are checked with the same grammar. Printing gives the long form, which means
//! the same to every client.

use std::fmt;
use std::str::FromStr;

use crate::Digest;

/// Docker Hub's host in references.
pub const DOCKER_HUB: &str = "docker.io";

/// Text that is not an image reference, or not a part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("reading the reference `{}`: {reason}", text.escape_debug())]
pub struct BadReference {
    /// The text, its first 200 characters.
    pub text: String,
    /// What is wrong with it, for people.
    pub reason: String,
}

/// A path in a registry: `library/ubuntu`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository(String);

/// A tag: `[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}` (OCI distribution specification, "Pulling
/// manifests").
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

/// How a reference selects a manifest of its repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The manifest that a tag points to now.
    Tag(Tag),
    /// The manifest with this digest.
    Digest(Digest),
}

/// The full name of an image. Short forms of Docker Hub are completed when they are parsed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    host: String,
    repository: Repository,
    tag: Option<Tag>,
    digest: Option<Digest>,
}

impl Reference {
    /// A reference to one manifest. `host` is `HOST[:PORT]`, or [`DOCKER_HUB`]; it is not checked
    /// here.
    pub fn new(host: &str, repository: &Repository, target: Target) -> Self {
        let (tag, digest) = match target {
            Target::Tag(tag) => (Some(tag), None),
            Target::Digest(digest) => (None, Some(digest)),
        };
        Self {
            host: host.to_owned(),
            repository: repository.clone(),
            tag,
            digest,
        }
    }

    /// `HOST[:PORT]`; `docker.io` for Docker Hub.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The path in the registry; Docker Hub's `library/` is written out.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The tag that was written, if there was one.
    pub fn tag(&self) -> Option<&Tag> {
        self.tag.as_ref()
    }

    /// The digest that was written, if there was one.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// What to request from the registry: the digest, else the tag, else `latest`.
    pub fn target(&self) -> Target {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => Target::Digest(digest.clone()),
            (None, Some(tag)) => Target::Tag(tag.clone()),
            (None, None) => Target::Tag(Tag("latest".to_owned())),
        }
    }
}

impl FromStr for Reference {
    type Err = BadReference;

    fn from_str(text: &str) -> Result<Self, BadReference> {
        let wrong = |reason: &str| BadReference {
            text: text.chars().take(200).collect(),
            reason: reason.to_owned(),
        };
        if !image_reference(text) {
            return Err(wrong("write `[HOST[:PORT]/]PATH[:TAG][@sha256:…]`"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = digest
                    .parse()
                    .map_err(|_| wrong("its digest is not a sha256"))?;
                (rest, Some(digest))
            }
            None => (text, None),
        };
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag.parse::<Tag>()?)),
            _ => (rest, None),
        };
        let (host, path) = match path.split_once('/') {
            Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
            _ => (DOCKER_HUB, path),
        };
        if !is_host(host) {
            return Err(wrong("its host is not a `HOST[:PORT]`"));
        }
        let host = match host {
            "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
            other => other,
        };
        let repository = if host == DOCKER_HUB && !path.contains('/') {
            format!("library/{path}").parse()?
        } else {
            path.parse()?
        };
        Ok(Self {
            host: host.to_owned(),
            repository,
            tag,
            digest,
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository.0)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{}", tag.0)?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// Whether the text is `[REGISTRY[:PORT]/]NAME[:TAG][@sha256:…]`.
pub fn image_reference(s: &str) -> bool {
    let (name, digest) = match s.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (s, None),
    };
    if let Some(d) = digest
        && d.parse::<Digest>().is_err()
    {
        return false;
    }
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    let tag_ok = tag.is_none_or(|t| {
        !t.is_empty()
            && t.len() <= 128
            && !t.starts_with(['.', '-'])
            && t.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    });
    let (host, path) = match path.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => {
            (Some(host), rest)
        }
        _ => (None, path),
    };
    name.len() - tag.map_or(0, |tag| tag.len() + 1) <= LONGEST
        && host.is_none_or(is_host)
        && path.split('/').all(is_component)
        && tag_ok
}

/// Longest name without tag and digest, in bytes; engines accept no longer ones.
const LONGEST: usize = 255;

/// Lower-case letters and digits, with `.`, `_`, `__` or any number of `-` between them.
fn is_component(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = text.split(plain).filter(|s| !s.is_empty());
    text.starts_with(plain)
        && text.ends_with(plain)
        && separators
            .into_iter()
            .all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

/// Whether the text is `REGISTRY/NAME`, without a tag or a digest.
pub fn repository(s: &str) -> bool {
    let last = s.rsplit('/').next().unwrap_or(s);
    image_reference(s) && s.contains('/') && !last.contains([':', '@'])
}

/// The full form of an image's name, `HOST/REPOSITORY:TAG` or `HOST/REPOSITORY@DIGEST`, the only form that
/// containerd knows. `None` for text that is not a reference.
pub fn canonical(name: &str) -> Option<String> {
    let name: Reference = name.parse().ok()?;
    Some(Reference::new(name.host(), name.repository(), name.target()).to_string())
}

/// Whether this is `HOST[:PORT]`; references cannot contain IPv6 addresses.
pub fn is_host(text: &str) -> bool {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let label = |l: &str| {
        !l.is_empty()
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    name.len() <= 253
        && name.split('.').all(label)
        && port.is_none_or(|p| {
            p.bytes().all(|b| b.is_ascii_digit()) && p.parse::<u16>().is_ok_and(|p| p > 0)
        })
}

macro_rules! text {
    ($name:ident, $valid:expr, $what:literal) => {
        impl FromStr for $name {
            type Err = BadReference;

            fn from_str(text: &str) -> Result<Self, BadReference> {
                if $valid(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(BadReference {
                        text: text.chars().take(200).collect(),
                        reason: format!("`{}` is no {}", text.escape_debug(), $what),
                    })
                }
            }
        }

        impl $name {
            /// The text as it was parsed.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

// The host in front keeps the path's first part from being read as a host.
text!(
    Repository,
    |t: &str| !t.contains([':', '@']) && image_reference(&format!("localhost/{t}")),
    "path of a repository"
);
text!(
    Tag,
    |t: &str| !t.contains(['/', '@', ':']) && image_reference(&format!("a:{t}")),
    "tag"
);

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => tag.fmt(f),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn short_forms_mean_docker_hub() {
        for (text, long) in [
            ("ubuntu", "docker.io/library/ubuntu"),
            ("ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
            ("nvidia/cuda:13", "docker.io/nvidia/cuda:13"),
            ("docker.io/ubuntu", "docker.io/library/ubuntu"),
            ("index.docker.io/a/b", "docker.io/a/b"),
            ("localhost/a", "localhost/a"),
            ("127.0.0.1:5000/a:b", "127.0.0.1:5000/a:b"),
            ("nvcr.io/nvidia/l4t-base:r36", "nvcr.io/nvidia/l4t-base:r36"),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), long);
        }
        let both = format!("ghcr.io/a/b:v1@sha256:{HEX}");
        let reference: Reference = both.parse().unwrap();
        assert_eq!(reference.to_string(), both);
        assert_eq!(reference.target().to_string(), format!("sha256:{HEX}"));
        assert_eq!(
            "a".parse::<Reference>().unwrap().target().to_string(),
            "latest"
        );
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for bad in [
            "",
            "host.:/a",
            "a.b:/c",
            "a.b:0/c",
            "a.b:65536/c",
            "a.b:+5/c",
            ".a/b",
            "a..b/c",
            "a.b/../c",
            "a.b/c?x=y",
            "a.b/c%2f",
            "A/b",
            "a@sha512:0",
            "http://a.b/c",
        ] {
            assert!(bad.parse::<Reference>().is_err(), "{bad}");
        }
        for bad in ["", "/a", "a/", "a:b", "a@b", "..", "a/../b", "a b"] {
            assert!(bad.parse::<Repository>().is_err(), "{bad}");
        }
        for bad in ["", "a/b", "-a", ".a", "a@b", "a b"] {
            assert!(bad.parse::<Tag>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_parsed_prints_as_what_parses_to_the_same(text in "[a-zA-Z0-9._:/@-]{0,40}") {
            if let Ok(reference) = text.parse::<Reference>() {
                let printed = reference.to_string();
                prop_assert_eq!(&printed.parse::<Reference>().unwrap(), &reference);
                prop_assert!(is_host(reference.host()));
            }
        }

        #[test]
        fn well_formed_references_are_taken(
            host in "[a-z0-9]{1,8}\\.[a-z]{2,3}(:[1-9][0-9]{0,3})?",
            path in "[a-z0-9]{1,8}(/[a-z0-9]{1,5}([._-][a-z0-9]{1,4})?){0,3}",
            tag in "[A-Za-z0-9_][A-Za-z0-9._-]{0,20}",
        ) {
            let text = format!("{host}/{path}:{tag}");
            let reference: Reference = text.parse().unwrap();
            prop_assert_eq!(reference.host(), host);
            prop_assert_eq!(reference.repository().as_str(), path);
            prop_assert_eq!(reference.to_string(), text);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let _ = text.parse::<Reference>();
        }
    }

    #[test]
    fn a_repository_has_a_registry_and_no_tag() {
        assert!(repository("localhost:5000/a") && repository("ghcr.io/team/cache"));
        for bad in [
            "a",
            "ghcr.io/team/cache:1",
            "A/b",
            "localhost:5000/",
            "a/b@sha256:0",
        ] {
            assert!(!repository(bad), "{bad}");
        }
    }

    #[test]
    fn references_by_the_distribution_projects_grammar() {
        for ok in [
            "ubuntu",
            "ubuntu:24.04",
            "nvcr.io/nvidia/cuda:13.0.0-devel",
            "localhost:5000/a/b",
            "a--b/c__d/e.f_g",
            "Reg-1.example:5000/a",
            "a@sha256:0000000000000000000000000000000000000000000000000000000000000000",
        ] {
            assert!(image_reference(ok), "{ok}");
        }
        let long = |n: usize| format!("localhost/{}", "a".repeat(n - "localhost/".len()));
        assert!(image_reference(&format!("{}:1", long(255))) && !image_reference(&long(256)));
        for bad in [
            "",
            "A",
            "a b",
            "a:",
            "a/",
            "/a",
            "a@sha256:0",
            "a\nRUN id",
            "a:b c",
            "$(id)",
            "-a",
            "x..y",
            "x.-y",
            "x___y",
            "a/x_-y",
            "a:b/c",
            "a..b/c",
            "a-.b/c",
            "a:/b",
        ] {
            assert!(!image_reference(bad), "{bad}");
        }
    }

    #[test]
    fn names_in_full_have_a_host_and_a_tag() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (name, full) in [
            ("nat", "docker.io/library/nat:latest"),
            ("nat:1", "docker.io/library/nat:1"),
            ("a/b:2", "docker.io/a/b:2"),
            ("index.docker.io/a:1", "docker.io/library/a:1"),
            ("localhost/a", "localhost/a:latest"),
            ("local.example:5000/nat:3", "local.example:5000/nat:3"),
        ] {
            assert_eq!(canonical(name).as_deref(), Some(full), "{name}");
        }
        let pinned = format!("a@{digest}");
        assert_eq!(
            canonical(&pinned),
            Some(format!("docker.io/library/{pinned}"))
        );
        for none in ["", "a b", "h:5000/a:1~2", "stackforge cache"] {
            assert_eq!(canonical(none), None, "{none}");
        }
    }
}
