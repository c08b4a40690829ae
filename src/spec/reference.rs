//! Image references, by the grammar of the distribution project.

use super::nouns::Digest;

/// Whether the text is `[REGISTRY[:PORT]/]NAME[:TAG][@sha256:…]`.
pub(crate) fn image_reference(s: &str) -> bool {
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
    let mut parts = path.split('/').peekable();
    let mut first = true;
    let mut ok = s.len() <= 512;
    while let Some(part) = parts.next() {
        let host =
            first && parts.peek().is_some() && (part.contains(['.', ':']) || part == "localhost");
        ok &= if host {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b".-:".contains(&b))
        } else {
            !part.is_empty()
                && !part.starts_with(['.', '-', '_'])
                && !part.ends_with(['.', '-', '_'])
                && part
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
        };
        first = false;
    }
    ok && tag_ok
}

/// Whether the text is `REGISTRY/NAME`: a repository and nothing of it.
pub(crate) fn repository(s: &str) -> bool {
    let last = s.rsplit('/').next().unwrap_or(s);
    image_reference(s) && s.contains('/') && !last.contains([':', '@'])
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "a@sha256:0000000000000000000000000000000000000000000000000000000000000000",
        ] {
            assert!(image_reference(ok), "{ok}");
        }
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
        ] {
            assert!(!image_reference(bad), "{bad}");
        }
    }
}
