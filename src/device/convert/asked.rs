//! A requirement of a foreign file, whatever notation it was in.

use super::item::{Item, Note};
use pep440_rs::VersionSpecifiers;
use pep508_rs::{MarkerEnvironment, MarkerEnvironmentBuilder, MarkerTree, VersionOrUrl};
use stackforge_stack::spec::{
    DirectFile, DirectFileError, From, Platform, PythonVersion, requirement,
};
use std::path::Path;

#[derive(Debug, Clone)]
pub struct Asked {
    /// Its place: `FILE:LINE`.
    pub at: String,
    /// Normalized name of the distribution.
    pub name: String,
    pub extras: Vec<String>,
    pub wants: Wants,
    pub marker: MarkerTree,
    /// The index that this distribution alone comes from.
    pub index: Option<String>,
    pub from: From,
    /// What the file's author wrote behind it.
    pub remark: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wants {
    /// Versions; empty: any.
    Versions(VersionSpecifiers),
    /// The address or path of a wheel or source distribution.
    File(String),
    Git {
        url: String,
        reference: Option<String>,
    },
}

/// Help for what is a folder in an image.
pub(super) const FOLDER: &str = "a stack installs wheels and source distributions, not folders: build a wheel of it (`pip wheel --no-deps FOLDER`) and name that file in `libraries`";

/// Why a library whose index is not known is left out: elsewhere its name may mean another distribution.
pub(super) const NO_INDEX: &str = "the file gives no address for its index: write the library out, with the address as its `index`";

/// Help for what is installed as editable.
pub(super) const EDITABLE: &str =
    "an image takes no editable installs: build a wheel of it and name that file in `libraries`";

/// Why a login is not written down.
pub(super) const SECRET: &str =
    "a stack is not a place for secrets: keep it in a .netrc or in uv's settings";

/// Fails for an address with a login: without it, it would lead nowhere.
pub(super) fn no_login(address: &str) -> Result<(), String> {
    match login(address) {
        Some(_) => Err(format!("its login is left out, since {SECRET}")),
        None => Ok(()),
    }
}

/// Returns where the login of an address is in a text. `git@` is none: the key is elsewhere.
fn login(text: &str) -> Option<std::ops::Range<usize>> {
    let start = text.find("://")? + 3;
    let host = text[start..]
        .find(['/', '?', '#'])
        .map_or(text.len(), |at| start + at);
    let at = start + text[start..host].rfind('@')?;
    (&text[start..at] != "git").then_some(start..at + 1)
}

/// Returns a text without the login of its address.
pub(super) fn without_login(text: &str) -> String {
    let mut out = text.to_owned();
    if let Some(range) = login(text) {
        out.replace_range(range, "");
    }
    out
}

impl Asked {
    /// A distribution of an index.
    pub fn versions(at: &str, name: &str, versions: VersionSpecifiers) -> Self {
        Self {
            at: at.to_owned(),
            name: stackforge_types::wheel::normalized(name),
            extras: Vec::new(),
            wants: Wants::Versions(versions),
            marker: MarkerTree::TRUE,
            index: None,
            from: From::Auto,
            remark: None,
        }
    }

    /// Reads a requirement (PEP 508), or what pip takes in its place: an address or a path.
    /// Paths start at `folder`.
    pub fn parse(at: &str, text: &str, folder: &Path) -> Item<Self> {
        match Self::parsed(at, text, folder) {
            Ok(asked) => Item::Take(asked),
            Err(why) => Item::Note(Note::new(at, without_login(text), why)),
        }
    }

    fn parsed(at: &str, text: &str, folder: &Path) -> Result<Self, String> {
        if text.contains("${") {
            return Err("it has an environment variable: write the requirement out".to_owned());
        }
        let text = text.trim();
        no_login(text)?;
        let addressed = text.contains("://") || text.starts_with(['.', '/', '~']);
        let named = text.split_once('@').is_some_and(|(name, _)| {
            let name = name.split('[').next().unwrap_or(name).trim();
            !name.is_empty() && name.parse::<pep508_rs::PackageName>().is_ok()
        });
        if addressed && !named || text.ends_with(".whl") && !text.contains([' ', '@']) {
            return Self::place(at, None, text, folder);
        }
        if named && addressed {
            return Self::at_place(at, text, folder);
        }
        let read = requirement(text)
            .map_err(|why| format!("it is not a requirement ({why}): write it as `name>=1.0`"))?;
        let versions = match read.version_or_url {
            Some(VersionOrUrl::VersionSpecifier(versions)) => versions,
            Some(VersionOrUrl::Url(url)) => {
                let text = url.given().map_or_else(|| url.to_string(), str::to_owned);
                return Err(format!("`{text}` is a folder: {FOLDER}"));
            }
            None => VersionSpecifiers::empty(),
        };
        Ok(Self {
            extras: read.extras.iter().map(ToString::to_string).collect(),
            marker: read.marker,
            ..Self::versions(at, read.name.as_ref(), versions)
        })
    }

    /// Reads `name[extra] @ ADDRESS ; marker`.
    fn at_place(at: &str, text: &str, folder: &Path) -> Result<Self, String> {
        let (name, place) = text.split_once('@').unwrap_or((text, ""));
        let (place, marker) = split_marker(place);
        let read = requirement(name.trim())
            .map_err(|why| format!("its name is not one of a distribution ({why})"))?;
        let mut asked = Self::place(at, Some(read.name.as_ref()), place.trim(), folder)?;
        asked.extras = read.extras.iter().map(ToString::to_string).collect();
        if let Some(marker) = marker {
            asked.marker = marker_of(marker)?;
        }
        Ok(asked)
    }

    /// Reads the address or path of a file or repository, whose fragment may hold the name.
    fn place(at: &str, name: Option<&str>, text: &str, folder: &Path) -> Result<Self, String> {
        let (text, marker) = split_marker(text);
        let marker = marker.map_or(Ok(MarkerTree::TRUE), marker_of)?;
        let asked = |name: &str, wants| Self {
            wants,
            marker,
            ..Self::versions(at, name, VersionSpecifiers::empty())
        };
        match DirectFile::parse(text, None) {
            Ok(file) => {
                let name = name.unwrap_or(file.kind.distribution());
                let path = !text.contains("://");
                let text = if path && !Path::new(text).is_absolute() {
                    folder.join(text).display().to_string()
                } else {
                    text.to_owned()
                };
                Ok(asked(name, Wants::File(text)))
            }
            Err(DirectFileError::Repository(_)) => {
                let (url, reference, egg) = repository(text);
                let last = url
                    .trim_end_matches('/')
                    .rsplit('/')
                    .next()
                    .unwrap_or_default();
                let last = last.strip_suffix(".git").unwrap_or(last).to_owned();
                let name = name.map(str::to_owned).or(egg).unwrap_or(last);
                Ok(asked(&name, Wants::Git { url, reference }))
            }
            Err(DirectFileError::Folder(_)) => Err(FOLDER.to_owned()),
            Err(other) => Err(format!("{other}: {}", other.help())),
        }
    }

    /// Whether only some of its releases will do.
    pub fn is_bounded(&self) -> bool {
        matches!(&self.wants, Wants::Versions(versions) if !versions.is_empty())
    }

    /// Whether its marker holds there.
    pub fn holds(&self, environment: &MarkerEnvironment) -> bool {
        self.marker.evaluate(environment, &[])
    }
}

/// Splits what follows an address: pip takes the `;` with white space on either side.
fn split_marker(text: &str) -> (&str, Option<&str>) {
    let at = text.find(" ;").or_else(|| text.find("; "));
    match at {
        Some(at) => (
            text[..at].trim(),
            Some(text[at..].trim_start_matches([' ', ';'])),
        ),
        None => (text.trim(), None),
    }
}

/// Reads a marker (PEP 508).
///
/// # Errors
/// If it is not one, in one line.
pub(super) fn marker_of(text: &str) -> Result<MarkerTree, String> {
    let text = text.trim();
    let whole = format!("x ; {text}");
    match requirement(&whole) {
        Ok(read) => Ok(read.marker),
        Err(_) => Err(format!("`{text}` is not a marker")),
    }
}

/// Splits `git+https://host/name.git@ref#egg=name` into address, revision and name.
fn repository(text: &str) -> (String, Option<String>, Option<String>) {
    let text = text.strip_prefix("git+").unwrap_or(text);
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut parts = fragment.split('&');
    let egg = parts.find_map(|part| part.strip_prefix("egg="));
    let egg = egg.map(|egg| egg.split('[').next().unwrap_or(egg).to_owned());
    // What follows an `@` behind the last `/` of the path is the revision; a revision may have a `/` too.
    let path = text.find("://").map_or(0, |at| at + 3);
    let host = text[path..].find('/').map_or(text.len(), |at| path + at);
    match text[host..].find('@') {
        Some(at) => {
            let (url, reference) = text.split_at(host + at);
            (url.to_owned(), Some(reference[1..].to_owned()), egg)
        }
        None => (text.to_owned(), None, egg),
    }
}

/// Returns what markers are judged by: CPython on Linux.
pub fn environment(python: PythonVersion, platform: Platform) -> Option<MarkerEnvironment> {
    let python = python.to_string();
    let full = format!("{python}.0");
    let builder = MarkerEnvironmentBuilder {
        implementation_name: "cpython",
        implementation_version: &full,
        os_name: "posix",
        platform_machine: platform.machine(),
        platform_python_implementation: "CPython",
        platform_release: "",
        platform_system: "Linux",
        platform_version: "",
        python_full_version: &full,
        python_version: &python,
        sys_platform: "linux",
    };
    builder.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(text: &str) -> Asked {
        match Asked::parse("r:1", text, Path::new("sub")) {
            Item::Take(asked) => asked,
            Item::Note(note) => panic!("{text}: {}", note.why),
        }
    }

    #[test]
    fn requirements_of_every_form_are_read() {
        let pinned = take("Torch == 2.9.1+cu128");
        assert_eq!(pinned.name, "torch");
        let Wants::Versions(versions) = pinned.wants else {
            panic!("versions");
        };
        assert_eq!(versions.to_string(), "==2.9.1+cu128");
        assert_eq!(
            take("uvicorn[standard]>=0.30 ; python_version < '3.13'").extras,
            ["standard"]
        );
        let wheel = "https://h.test/d/x-1.0-py3-none-any.whl#sha256=ab";
        assert_eq!(
            take("./w/x-1.0-py3-none-any.whl").wants,
            Wants::File("sub/./w/x-1.0-py3-none-any.whl".into())
        );
        let fault = Asked::parse("r:1", wheel, Path::new(""));
        assert!(matches!(fault, Item::Note(_)), "its digest is not one");
        let repository =
            take("sam @ git+https://github.com/a/sam.git@feature/x ; sys_platform == 'linux'");
        assert_eq!(
            repository.wants,
            Wants::Git {
                url: "https://github.com/a/sam.git".into(),
                reference: Some("feature/x".into())
            }
        );
        assert_eq!(take("git+https://github.com/a/c#egg=b[x]").name, "b");
        assert_eq!(take("git+https://github.com/a/C_d.git@v1").name, "c-d");
        assert_eq!(
            take("git+ssh://git@github.com/a/b.git@v1#egg=b").wants,
            Wants::Git {
                url: "ssh://git@github.com/a/b.git".into(),
                reference: Some("v1".into()),
            }
        );
    }

    #[test]
    fn what_is_not_taken_says_why() {
        for (text, why) in [
            (".", "folders"),
            ("./pkg", "folders"),
            ("pkg @ file:///srv/pkg", "folders"),
            ("=1", "not a requirement"),
            (
                "https://${TOKEN}@h.test/x-1.0.tar.gz",
                "environment variable",
            ),
            ("x @ https://h.test/main.zip", "neither a wheel"),
        ] {
            match Asked::parse("r:1", text, Path::new("")) {
                Item::Note(note) => assert!(note.why.contains(why), "{text}: {}", note.why),
                Item::Take(asked) => panic!("{text}: {asked:?}"),
            }
        }
    }

    #[test]
    fn a_login_is_written_nowhere() {
        for text in [
            "x @ https://user:secret@h.test/x-1-py3-none-any.whl",
            "git+https://secret@github.com/a/b@v1",
            "https://u:secret@h.test/x-1.0.tar.gz#egg=x",
        ] {
            let Item::Note(note) = Asked::parse("r:1", text, Path::new("")) else {
                panic!("{text}");
            };
            assert!(
                !note.text.contains("secret") && note.text.contains("://"),
                "{}",
                note.text
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ a-c0-9._\\[\\]<>=;@#:+/'~-]{0,32}|\\PC{0,40}") {
            let _ = Asked::parse("r:1", &text, Path::new("a"));
        }
    }
}
