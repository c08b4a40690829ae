//! The requirements for the resolver: one for each library, and how each library is installed.
//!
//! In: the stack's libraries with their recipes. Out: [`Need`]s. A compiled library always has static
//! metadata, so that resolving never runs its code.

use super::ResolveError;
use pep440_rs::{Operator, Version, VersionSpecifiers};
use stackforge_stack::catalog::{Build, BuildSource, Recipe, StaticMetadata, WheelSource};
use stackforge_stack::spec::{FileKind, From, Library, Stack, Wanted};
use stackforge_stack::target::Target;
use stackforge_types::wheel::normalized;
use std::str::FromStr;

/// How a library gets into the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PackageSource {
    Wheel,
    Sdist,
    /// The file that the stack names: a wheel, or a source distribution without a recipe.
    File,
    /// `reference` may contain `{version}`.
    Git {
        url: String,
        reference: String,
    },
    /// A wheel if one fits, else the recipe's build: decided by what the index has.
    Open,
}

#[derive(Debug, Clone)]
pub(super) struct Need<'a> {
    pub library: &'a Library,
    pub recipe: Option<&'a Recipe>,
    /// Normalized name of the distribution.
    pub distribution: String,
    pub source: PackageSource,
    /// The only version that the static metadata describes.
    pub pinned: Option<Version>,
    /// Whether no static metadata describes a version that the stack accepts, so that its archive is read.
    pub undescribed: bool,
}

/// Returns every library of the stack, in the stack's order.
pub(super) fn needs<'a>(stack: &'a Stack, target: &Target<'a>) -> Vec<Need<'a>> {
    let recipe = |library: &Library| target.recipes.get(library.name.value.as_str()).copied();
    stack
        .libraries
        .iter()
        .map(|library| {
            let recipe = recipe(library);
            Need {
                library,
                recipe,
                distribution: normalized(
                    recipe.map_or(library.name.value.as_str(), |r| &r.distribution),
                ),
                source: package_source(library, recipe),
                pinned: None,
                undescribed: false,
            }
        })
        .collect()
}

fn package_source(library: &Library, recipe: Option<&Recipe>) -> PackageSource {
    let build = recipe.and_then(|r| r.build.as_ref());
    if let Some(file) = &library.file {
        return match file.kind {
            FileKind::Sdist(..) if build.is_some() => PackageSource::Sdist,
            _ => PackageSource::File,
        };
    }
    let Some(build) = build else {
        return PackageSource::Wheel;
    };
    let own_source = library.git.is_some() || library.git_ref.is_some();
    let no_wheels = recipe.is_some_and(|r| r.wheels == WheelSource::None);
    match library.from {
        From::Wheel => PackageSource::Wheel,
        From::Source => source(library, build),
        From::Auto if own_source || no_wheels => source(library, build),
        From::Auto => PackageSource::Open,
    }
}

/// Returns the source of a compiled library. The stack's setting wins over the recipe's.
pub(super) fn source(library: &Library, build: &Build) -> PackageSource {
    let recipe = match &build.source {
        BuildSource::Git { git, git_ref, .. } => Some((git, git_ref)),
        BuildSource::Sdist => None,
    };
    let url = library.git.as_ref().or(recipe.map(|r| r.0));
    match url {
        None => PackageSource::Sdist,
        Some(url) => PackageSource::Git {
            url: url.clone(),
            reference: library
                .git_ref
                .clone()
                .or_else(|| recipe.map(|r| r.1.clone()))
                .unwrap_or_else(|| "v{version}".to_owned()),
        },
    }
}

impl<'a> Need<'a> {
    pub fn name(&self) -> &'a str {
        self.library.name.value.as_str()
    }

    pub fn build(&self) -> Option<&'a Build> {
        self.recipe.and_then(|r| r.build.as_ref())
    }

    pub fn compiled(&self) -> bool {
        matches!(
            self.source,
            PackageSource::Sdist | PackageSource::Git { .. }
        )
    }

    pub fn specifiers(&self) -> Option<&VersionSpecifiers> {
        match &self.library.version {
            Wanted::Specifier(s) => Some(s),
            Wanted::Auto => None,
        }
    }

    /// Returns the line for a requirements file.
    pub fn line(&self) -> String {
        let specifiers = match (&self.pinned, self.specifiers()) {
            (Some(version), _) => format!("=={version}"),
            (None, Some(specifiers)) => specifiers.to_string().replace(' ', ""),
            (None, None) => String::new(),
        };
        format!("{}{specifiers}", self.line_without_version())
    }

    pub fn line_without_version(&self) -> String {
        match self.library.extras.as_slice() {
            [] => self.distribution.clone(),
            extras => format!("{}[{}]", self.distribution, extras.join(",")),
        }
    }

    /// Returns the version that the stack pins exactly.
    pub fn exact(&self) -> Option<Version> {
        self.specifiers()?
            .iter()
            .find(|s| matches!(s.operator(), Operator::Equal | Operator::ExactEqual))
            .map(|s| s.version().clone())
    }

    /// Whether the specifier leaves the minor release open.
    pub fn is_open(&self) -> bool {
        match &self.library.version {
            Wanted::Auto => true,
            Wanted::Specifier(specifiers) => !specifiers.iter().any(|s| {
                let parts = s.version().release().len();
                match s.operator() {
                    Operator::Equal | Operator::ExactEqual => true,
                    Operator::EqualStar => parts >= 2,
                    Operator::TildeEqual => parts >= 3,
                    _ => false,
                }
            }),
        }
    }

    /// Whether the specifier says from which minor release to which: `>=0.32,<0.34`, but neither `>=2,<3` nor `>=0.32`.
    pub fn names_minor_releases(&self) -> bool {
        let has = |operators: &[Operator], parts: usize| {
            let mut all = self.specifiers().into_iter().flat_map(|all| all.iter());
            all.any(|one| {
                operators.contains(one.operator()) && one.version().release().len() >= parts
            })
        };
        has(&[Operator::GreaterThanEqual, Operator::GreaterThan], 2)
            && has(&[Operator::LessThan, Operator::LessThanEqual], 1)
    }

    /// Returns the static metadata of a compiled library: (exact version or any, metadata).
    pub fn metadata(&self) -> Vec<(Option<Version>, &'a StaticMetadata)> {
        if self.compiled() {
            self.described()
        } else {
            Vec::new()
        }
    }

    /// Returns the static metadata that the recipe has.
    fn described(&self) -> Vec<(Option<Version>, &'a StaticMetadata)> {
        let metadata = self.build().map(|build| build.metadata.iter());
        metadata
            .into_iter()
            .flatten()
            .filter_map(|(version, metadata)| match version.as_str() {
                "*" => Some((None, metadata)),
                exact => Some((Some(Version::from_str(exact).ok()?), metadata)),
            })
            .collect()
    }

    /// Returns the newest version that static metadata describe and the stack accepts.
    fn newest_described(&self) -> Option<Version> {
        self.described()
            .into_iter()
            .filter_map(|(version, _)| version)
            .filter(|v| self.specifiers().is_none_or(|s| s.contains(v)))
            .max()
    }

    /// Returns the version that is compiled from git. `None` if the stack leaves it open.
    pub fn of_git(&self) -> Option<Version> {
        self.exact().or_else(|| self.newest_described())
    }

    /// Fixes the version of what is compiled: a git source needs one, and an sdist takes the newest that its recipe
    /// describes. If the stack accepts none of those, its archive is read.
    pub fn settle(&mut self) -> Result<(), ResolveError> {
        match &self.source {
            PackageSource::Wheel | PackageSource::Open | PackageSource::File => {}
            PackageSource::Sdist if self.library.file.is_some() => self.pinned = self.exact(),
            PackageSource::Sdist if self.metadata().iter().any(|(v, _)| v.is_none()) => {}
            PackageSource::Sdist => {
                self.pinned = self.newest_described();
                self.undescribed = self.pinned.is_none();
            }
            PackageSource::Git { .. } => {
                let open = || ResolveError::OpenGitVersion {
                    library: self.name().to_owned(),
                };
                self.pinned = Some(self.of_git().ok_or_else(open)?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: &str = r#"stack: t
base: b
target: { platform: linux/amd64, gpu: [h100] }
python: "3.12"
libraries:
  vllm: { version: ">=0.32,<0.34", extras: [audio] }
  torch: "2.13.*"
  triton: auto
  flash-attn: { version: "2.8.3.post2", from: source }
  six: "~=1.16"
"#;

    fn recipe(extra: &str) -> Recipe {
        let text = format!(
            "schema: 1\nlibrary: x\ndistribution: X_y\nabout: a\nimports: [x]\nwheels: index\nsources: []\nbuild:\n  source: sdist\n  jobs: {{ variable: MAX_JOBS, memory_gb: 1.0, source: s }}\n{extra}"
        );
        serde_saphyr::from_str(&text).unwrap()
    }

    fn need<'a>(library: &'a Library, recipe: Option<&'a Recipe>) -> Need<'a> {
        Need {
            library,
            recipe,
            distribution: normalized(
                recipe.map_or(library.name.value.as_str(), |r| &r.distribution),
            ),
            source: package_source(library, recipe),
            pinned: None,
            undescribed: false,
        }
    }

    #[test]
    fn lines_and_openness() {
        let stack = stackforge_stack::spec::read("t.yaml", STACK)
            .unwrap()
            .pattern;
        let of = |name: &str| need(stack.library(name).unwrap(), None);
        assert_eq!(of("vllm").line(), "vllm[audio]>=0.32,<0.34");
        assert_eq!(of("triton").line(), "triton");
        assert_eq!(of("flash-attn").line(), "flash-attn==2.8.3.post2");
        let open: Vec<_> = stack
            .libraries
            .iter()
            .filter(|l| need(l, None).is_open())
            .collect();
        let names: Vec<_> = open.iter().map(|l| l.name.value.as_str()).collect();
        assert_eq!(names, ["six", "triton", "vllm"]);
    }

    #[test]
    fn a_range_of_minor_releases_is_meant_as_it_stands() {
        for (range, names) in [
            (">=0.32,<0.34", true),
            (">0.32,<=1", true),
            (">=2,<3", false),
            (">=0.32", false),
            ("<0.34", false),
            ("~=1.16", false),
        ] {
            let text = STACK.replace(">=0.32,<0.34", range);
            let stack = stackforge_stack::spec::read("t.yaml", &text)
                .unwrap()
                .pattern;
            let vllm = need(stack.library("vllm").unwrap(), None);
            assert_eq!(vllm.names_minor_releases(), names, "{range}");
        }
    }

    #[test]
    fn a_compiled_library_is_held_to_versions_with_metadata() {
        let stack = stackforge_stack::spec::read("t.yaml", STACK)
            .unwrap()
            .pattern;
        let flash = stack.library("flash-attn").unwrap();
        let any = recipe("  metadata: { '*': { requires_dist: [torch] } }\n");
        let mut n = need(flash, Some(&any));
        assert_eq!(
            (n.source.clone(), n.distribution.as_str()),
            (PackageSource::Sdist, "x-y")
        );
        n.settle().unwrap();
        assert_eq!(n.pinned, None);
        let some = recipe("  metadata: { '2.8.3.post2': {}, '2.9.0': {} }\n");
        let mut n = need(flash, Some(&some));
        n.settle().unwrap();
        assert_eq!(n.line(), "x-y==2.8.3.post2");
        let other = recipe("  metadata: { '2.9.0': {} }\n");
        let mut n = need(flash, Some(&other));
        n.settle().unwrap();
        assert!(n.undescribed);
        assert_eq!(n.line(), "x-y==2.8.3.post2");
    }

    #[test]
    fn a_git_source_needs_a_version() {
        let stack = stackforge_stack::spec::read("t.yaml", STACK)
            .unwrap()
            .pattern;
        let mut library = stack.library("triton").unwrap().clone();
        library.git = Some("https://example.test/x".into());
        let any = recipe("  metadata: { '*': {} }\n");
        let mut n = need(&library, Some(&any));
        assert!(
            matches!(&n.source, PackageSource::Git { reference, .. } if reference == "v{version}")
        );
        assert!(matches!(
            n.settle(),
            Err(ResolveError::OpenGitVersion { .. })
        ));
    }

    #[test]
    fn a_wheel_is_looked_for_first_where_the_index_has_some() {
        let stack = stackforge_stack::spec::read("t.yaml", STACK)
            .unwrap()
            .pattern;
        let any = recipe("");
        assert_eq!(
            need(stack.library("torch").unwrap(), Some(&any)).source,
            PackageSource::Open
        );
        assert_eq!(
            need(stack.library("torch").unwrap(), None).source,
            PackageSource::Wheel
        );
    }
}
