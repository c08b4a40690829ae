//! What an index has in place of a requirement that nothing meets, and how it is told.

use pep440_rs::{Operator, Version, VersionSpecifiers};
use std::fmt;

/// A requirement that no release meets, and what there is in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// The index does not have the name; what the catalog knows of it.
    Unknown {
        name: String,
        known: Option<String>,
    },
    Releases(Releases),
}

/// The releases of what is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Releases {
    pub(super) name: String,
    /// The specifiers, `==0.24.4`.
    pub(super) asked: VersionSpecifiers,
    /// Python and platform, for people.
    pub(super) target: String,
    /// The oldest and the newest release with a wheel for the target.
    pub(super) fitting: Option<(Version, Version)>,
    /// Of these the nearest to what is asked for.
    pub(super) nearest: Option<Version>,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known: None } => write!(
                f,
                "the index has no `{name}`: correct its name, or give it the `index` that has it"
            ),
            Self::Unknown {
                name,
                known: Some(known),
            } => write!(f, "the index has no `{name}`: {known}"),
            Self::Releases(releases) => releases.fmt(f),
        }
    }
}

impl fmt::Display for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, target) = (&self.name, &self.target);
        match &self.fitting {
            None => write!(f, "no release of `{name}` has a wheel for {target}"),
            Some((oldest, newest)) if oldest == newest => write!(
                f,
                "the one release of `{name}` with a wheel for {target} is {newest}"
            ),
            Some((oldest, newest)) => write!(
                f,
                "`{name}` has wheels for {target} from {oldest} to {newest}; the nearest to `{}` is `{name}: \"{}\"`",
                self.asked,
                self.nearest.as_ref().unwrap_or(oldest),
            ),
        }
    }
}

impl Releases {
    /// The lowest version that is asked for.
    pub(super) fn wanted(asked: &VersionSpecifiers) -> Option<&Version> {
        let least = [
            Operator::Equal,
            Operator::ExactEqual,
            Operator::EqualStar,
            Operator::TildeEqual,
            Operator::GreaterThan,
            Operator::GreaterThanEqual,
        ];
        let bounds = asked.iter().filter(|s| least.contains(s.operator()));
        bounds.map(|s| s.version()).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(asked: &str, fitting: Option<(&str, &str)>, nearest: Option<&str>) -> String {
        let version = |text: &str| text.parse().unwrap();
        Releases {
            name: "acme".to_owned(),
            asked: asked.parse().unwrap(),
            target: "Python 3.11 on linux/amd64".to_owned(),
            fitting: fitting.map(|(a, b)| (version(a), version(b))),
            nearest: nearest.map(version),
        }
        .to_string()
    }

    #[test]
    fn the_nearest_release_is_said() {
        let all = Some(("1.1.1", "1.2.10"));
        assert_eq!(
            offer("==0.24.4", all, None),
            "`acme` has wheels for Python 3.11 on linux/amd64 from 1.1.1 to 1.2.10; the nearest to `==0.24.4` is `acme: \"1.1.1\"`"
        );
        let within = offer("==1.2.3", all, Some("1.2.2"));
        assert!(within.ends_with("`acme: \"1.2.2\"`"), "{within}");
        let one = offer("==2", Some(("1.0", "1.0")), None);
        assert!(one.ends_with("is 1.0"), "{one}");
        assert!(offer("==2", None, None).starts_with("no release of `acme` has a wheel"));
    }

    #[test]
    fn what_is_wanted_is_the_least_that_will_do() {
        let wanted = |asked: &str| {
            let asked = asked.parse().unwrap();
            Releases::wanted(&asked).map(Version::to_string)
        };
        for (asked, least) in [("==1.2", "1.2"), (">=2,<3", "2"), ("~=1.4.2", "1.4.2")] {
            assert_eq!(wanted(asked).as_deref(), Some(least));
        }
        assert_eq!(wanted("<1"), None);
    }
}
