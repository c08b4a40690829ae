//! Errors of locking, and how they are reported.

use super::offer::Offer;
use super::redact::redact;
use super::uv::UvError;
use stackforge_debian::KeyringError;
use stackforge_debian::archive::ArchiveError;
use stackforge_debian::finish::FinishError;
use stackforge_debian::mirror::MirrorError;
use stackforge_debian::resolve::ResolveError as DebianError;
use stackforge_stack::catalog::{Catalog, FormerPackage};
use stackforge_stack::diag::{Code, Diagnostic, Explained, Report, chain, codes, of_disk};
use stackforge_stack::spec::{Stack, Wanted};
use stackforge_transfer::fetch::FetchError;
use stackforge_types::wheel::{is_of_name, normalized};
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error(transparent)]
    Uv(#[from] UvError),
    #[error("no versions satisfy {of}: {explanation}")]
    Unsatisfiable {
        of: String,
        explanation: String,
        offers: Vec<Offer>,
    },
    #[error("`{name}` {version} has no file for {target}")]
    NoFile {
        name: String,
        version: String,
        target: String,
    },
    #[error("the index gives no sha256 for `{file}`")]
    NoHash { file: String },
    #[error("read what uv resolved: {0}")]
    Pylock(String),
    #[error("`{library}` is built from git, and its version is open")]
    OpenGitVersion { library: String },
    #[error("`{library}` is compiled with CUDA, and {why}")]
    NoToolkit { library: String, why: String },
    #[error("find revision `{reference}` of `{library}`: {message}")]
    Git {
        library: String,
        reference: String,
        message: String,
    },
    #[error("compiled libraries need each other in a circle: {0}")]
    Circle(String),
    #[error("{} of the stack's rules are broken", .0.len())]
    Policy(Vec<Diagnostic>),
    #[error("the source of `{name}` {version} cannot be used: {why}")]
    Source {
        name: String,
        version: String,
        why: String,
    },
    #[error("`{file}` of `{library}`: {why}")]
    File {
        library: String,
        file: String,
        why: String,
        code: Code,
        help: String,
    },
    #[error("the version of `{0}` would have to be chosen, and stackforge is offline")]
    OfflineChoice(String),
    #[error("OS packages")]
    OsPackages(#[source] Box<OsPackagesError>),
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Why a registry's base could not be read as a Debian or Ubuntu system.
#[derive(Debug, thiserror::Error)]
pub enum BaseSystemError {
    #[error("reading the base's packages")]
    Installed(#[from] FinishError),
    #[error("reading the base's {path}")]
    Read { path: String, source: io::Error },
    #[error("the base is neither Debian nor Ubuntu but `{0}`")]
    Other(String),
    #[error("the base has no package database")]
    NoPackages,
    #[error("the base has no keys of its distribution's archive")]
    NoKeys,
    #[error(transparent)]
    Keyring(#[from] KeyringError),
}

/// Why OS packages could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum OsPackagesError {
    #[error("the archive must be asked, and stackforge is offline")]
    Offline,
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Client(#[from] FetchError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Choice(#[from] DebianError),
    /// The base's root file system is not one of Debian or Ubuntu.
    #[error(transparent)]
    System(#[from] BaseSystemError),
    /// The base could not be fetched.
    #[error("{}", chain(.0.as_ref()))]
    Base(Box<dyn Explained + Send + Sync>),
}

impl From<OsPackagesError> for ResolveError {
    fn from(e: OsPackagesError) -> Self {
        Self::OsPackages(Box::new(e))
    }
}

impl Explained for OsPackagesError {
    fn code(&self) -> Code {
        match self {
            Self::Offline => codes::OFFLINE,
            Self::Keyring(e) => e.code(),
            Self::Mirror(e) => e.code(),
            Self::Client(e) => e.code(),
            Self::Archive(e) => e.code(),
            Self::Choice(e) => e.code(),
            Self::System(_) => codes::IMAGE_UNREADABLE,
            Self::Base(e) => e.code(),
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Offline => "lock once without `--offline`".to_owned(),
            Self::System(_) => "name the packages of a Debian or Ubuntu base; others install them by themselves with `--engine docker`".to_owned(),
            Self::Keyring(e) => Explained::help(e),
            Self::Mirror(e) => e.help(),
            Self::Client(e) => Explained::help(e),
            Self::Archive(e) => e.help(),
            Self::Choice(e) => Explained::help(e),
            Self::Base(e) => e.help(),
        }
    }
}

impl ResolveError {
    /// Adds what there is in place of what cannot be had.
    pub(super) fn with_offer(mut self, offer: Option<Offer>) -> Self {
        if let Self::Unsatisfiable { offers, .. } = &mut self {
            offers.extend(offer);
        }
        self
    }

    /// Adds what the catalog knows of OS packages that an archive no longer has.
    pub(super) fn with_former_names(mut self, catalog: &Catalog) -> Self {
        if let Self::OsPackages(e) = &mut self
            && let OsPackagesError::Choice(DebianError::Unknown(unknown)) = &mut **e
        {
            for package in unknown {
                let former = catalog.former_packages.get(&package.name);
                package.known = former.map(FormerPackage::advice);
            }
        }
        self
    }

    /// Returns the exit status of a command that ends with this error.
    pub fn exit(&self, stack: &Stack) -> u8 {
        match self {
            Self::Policy(_) => 1,
            other => other.diagnostic(stack).code.exit(),
        }
    }

    /// Returns the findings, at the lines of the stack that cause them.
    pub fn report(&self, stack: &Stack) -> Report {
        let diagnostics = match self {
            Self::Policy(findings) => findings.clone(),
            other => vec![other.diagnostic(stack)],
        };
        Report::new(stack.source.clone(), diagnostics)
    }

    fn diagnostic(&self, stack: &Stack) -> Diagnostic {
        let (code, library, help) = match self {
            Self::Uv(e) => (e.code(), None, e.help()),
            Self::Unsatisfiable {
                explanation,
                offers,
                ..
            } => (
                codes::UNSATISFIABLE,
                named_in(stack, explanation),
                advice(stack, explanation, offers),
            ),
            Self::NoFile { name, .. } => (
                codes::NO_MATCHING_FILE,
                Some(name.as_str()),
                "choose another version, or `from: source` where a recipe exists".to_owned(),
            ),
            Self::NoHash { .. } => (
                codes::RESOLVER_FAILED,
                None,
                "use an index that publishes sha256 digests: a lock cannot do without".to_owned(),
            ),
            Self::Pylock(_) => (
                codes::RESOLVER_FAILED,
                None,
                "put a newer uv on PATH".to_owned(),
            ),
            Self::OpenGitVersion { library } => (
                codes::BAD_VALUE,
                Some(library.as_str()),
                "give its exact version: `version: \"1.2.3\"`".to_owned(),
            ),
            Self::NoToolkit { library, .. } => (
                codes::LIBRARY_REFUSED,
                Some(library.as_str()),
                "use a base with a CUDA toolkit of that major version, or a published wheel".to_owned(),
            ),
            Self::Git { library, .. } => (
                codes::NETWORK,
                Some(library.as_str()),
                "check the network, or give the commit itself as `ref`".to_owned(),
            ),
            Self::Circle(_) => (
                codes::CATALOG_INVALID,
                None,
                "correct `needs` of one of their recipes".to_owned(),
            ),
            Self::Source { name, .. } => (
                codes::NO_MATCHING_FILE,
                Some(name.as_str()),
                "choose a version that has a wheel, of it or of what needs it, or write a recipe under `.stackforge/libraries/`".to_owned(),
            ),
            Self::File {
                library,
                code,
                help,
                ..
            } => (*code, Some(library.as_str()), help.clone()),
            Self::OfflineChoice(_) => (
                codes::RESOLVER_FAILED,
                None,
                "lock without `--offline`".to_owned(),
            ),
            Self::OsPackages(e) => (e.code(), None, e.help()),
            Self::Io { source, .. } => (
                of_disk(source),
                None,
                "check permissions and free space of the store".to_owned(),
            ),
            // `report` returns the policy's findings unchanged.
            Self::Policy(_) => (codes::UNSATISFIABLE, None, String::new()),
        };
        let message = match self {
            Self::Io { source, .. } => format!("{self}: {source}"),
            Self::OsPackages(_) => redact(&chain(self)),
            _ => self.to_string(),
        };
        let diagnostic = Diagnostic::error(code, message).help(help);
        match library.and_then(|l| stack.library(l)) {
            Some(library) => diagnostic.at(match library.version {
                Wanted::Specifier(_) => library.version_span,
                Wanted::Auto => library.name.span,
            }),
            None => match stack.app.as_ref().and_then(|app| app.requirements.first()) {
                Some(file) if matches!(self, Self::Unsatisfiable { .. }) => {
                    diagnostic.at(file.span)
                }
                _ => diagnostic,
            },
        }
    }
}

/// Returns what to do about requirements that nothing satisfies.
fn advice(stack: &Stack, explanation: &str, offers: &[Offer]) -> String {
    if let Some(name) = by_address(explanation) {
        return format!(
            "a dependency asks for `{name}` by an address, not from an index. To take the index's, add `overrides: [\"{name}\"]`"
        );
    }
    let lines = lines_of_app(stack, explanation);
    if offers.is_empty() {
        return format!("{lines}loosen one of these requirements, or add an entry to `overrides`");
    }
    let offers: Vec<String> = offers.iter().map(Offer::to_string).collect();
    format!("{lines}{}", offers.join("\n"))
}

/// Most lines of an app's requirements that a message names.
const MOST_LINES: usize = 5;

/// Returns which lines of the app's requirements an explanation speaks of, for the beginning of a help.
fn lines_of_app(stack: &Stack, explanation: &str) -> String {
    let words = words(explanation);
    let asked = stack.app.iter().flat_map(|app| &app.asked);
    let named = asked.filter(|asked| {
        let name = asked.requirement.split(|c: char| !is_of_name(c)).next();
        name.is_some_and(|name| words.contains(&normalized(name)))
    });
    let lines: Vec<String> = named
        .map(|asked| format!("{} asks for `{}`", asked.place, asked.requirement))
        .collect();
    match lines.as_slice() {
        [] => String::new(),
        lines => format!("{}; ", lines[..lines.len().min(MOST_LINES)].join(", ")),
    }
}

pub(super) fn words(text: &str) -> Vec<String> {
    let words = text.split(|c| !is_of_name(c)).filter(|w| !w.is_empty());
    words.map(normalized).collect()
}

/// Returns the distribution that a dependency asks for by an address, by uv's words for it.
fn by_address(explanation: &str) -> Option<&str> {
    let (before, _) = explanation.split_once("` was included as a URL dependency")?;
    Some(before.rsplit_once('`')?.1)
}

/// Returns the first library of the stack that an explanation mentions.
fn named_in<'a>(stack: &'a Stack, explanation: &str) -> Option<&'a str> {
    let words: Vec<&str> = explanation.split(|c| !is_of_name(c)).collect();
    stack
        .libraries
        .iter()
        .map(|l| l.name.value.as_str())
        .filter_map(|n| Some((words.iter().position(|w| *w == n)?, n)))
        .min()
        .map(|(_, n)| n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_by_an_address_is_read_from_uvs_words() {
        let text = "Package `torch-complex` was included as a URL dependency. URL dependencies must be expressed as direct requirements or constraints. Consider adding `torch-complex @ <url>` to your dependencies or constraints file.";
        assert_eq!(by_address(text), Some("torch-complex"));
        assert_eq!(by_address("Because six==99 has no usable wheels"), None);
    }
}
