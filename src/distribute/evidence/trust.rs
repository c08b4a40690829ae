//! Decides which signatures count: by which key and for which name.
//!
//! A key signs many images. A valid statement about another product of the same publisher does not allow
//! that product here: whoever controls a registry could put any of them under any tag.

use super::key::PublicKey;
use stackforge_transfer::registry::Reference;
use std::fmt;

/// The key and the names that are trusted.
#[derive(Debug, Clone)]
pub struct Trust {
    pub key: PublicKey,
    pub names: Names,
}

/// The names that a statement may give an image.
#[derive(Debug, Clone)]
pub enum Names {
    /// The repository of the reference itself.
    Own,
    /// These repositories, with their tags if they have one: for mirrors, whose images were signed elsewhere.
    These(Vec<Reference>),
}

impl Trust {
    /// Trusts a key for `names`, or for the reference's own repository if there are none.
    pub fn new(key: PublicKey, names: Vec<Reference>) -> Self {
        let names = if names.is_empty() {
            Names::Own
        } else {
            Names::These(names)
        };
        Self { key, names }
    }
}

impl Names {
    /// Whether a statement about `signed` holds for `reference`. A statement with a tag holds for that tag
    /// only.
    pub fn take(&self, signed: &str, reference: &Reference) -> bool {
        let Ok(signed) = signed.parse::<Reference>() else {
            return false;
        };
        let is = |wanted: &Reference| {
            let tags = signed.tag().zip(wanted.tag());
            signed.host() == wanted.host()
                && signed.repository() == wanted.repository()
                && tags.is_none_or(|(signed, wanted)| signed == wanted)
        };
        match self {
            Self::Own => is(reference),
            Self::These(names) => names.iter().any(is),
        }
    }

    /// Describes the trusted names for people.
    pub fn shown<'a>(&'a self, reference: &'a Reference) -> impl fmt::Display + 'a {
        let names = match self {
            Self::Own => std::slice::from_ref(reference),
            Self::These(names) => names,
        };
        let name = |r: &Reference| format!("{}/{}", r.host(), r.repository());
        names.iter().map(name).collect::<Vec<_>>().join(" or ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(text: &str) -> Reference {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_the_repository_and_a_tag_that_is_signed() {
        let wanted = reference("a.example/b/c:1");
        let takes = |signed: &str| Names::Own.take(signed, &wanted);
        assert!(takes("a.example/b/c") && takes("a.example/b/c:1"));
        for other in [
            "a.example/b/c:2",
            "a.example/b",
            "a.example/b/c/d",
            "b.example/b/c",
            "a.example:5000/b/c",
            "",
            "a.example/b/c\n",
        ] {
            assert!(!takes(other), "{other:?}");
        }
        let hub = reference("docker.io/library/nat:1");
        assert!(Names::Own.take("index.docker.io/library/nat", &hub));
    }

    #[test]
    fn a_mirror_wants_the_names_that_were_given() {
        let mirror = reference("mirror.example/x:1");
        let names = Names::These(vec![reference("a.example/b"), reference("a.example/c:2")]);
        let takes = |signed: &str| names.take(signed, &mirror);
        assert!(takes("a.example/b") && takes("a.example/b:7") && takes("a.example/c:2"));
        assert!(!takes("mirror.example/x") && !takes("a.example/c:3"));
    }
}
