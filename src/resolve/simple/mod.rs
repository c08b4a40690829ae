//! Parses a project's page of the Simple API: JSON (PEP 691) or HTML (PEP 503).
//!
//! In: a page's bytes, media type and URL. Out: its [`Listed`] files with absolute URLs. Files that are neither
//! a wheel nor a source archive are left out; a page that cannot be parsed is an error. Uses no network.

mod html;

use pep440_rs::Version;
use reqwest::Url;
use serde::Deserialize;
use stackforge_types::Digest;
use stackforge_types::wheel::{SdistName, WheelName};
use std::collections::BTreeMap;

/// Value of the Accept header, the preferred type first.
pub(super) const ACCEPT: &str = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01";

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PageError {
    #[error("its page is of type `{0}`, which is neither JSON nor HTML")]
    Type(String),
    #[error("its page is not valid JSON of the Simple API: {0}")]
    Json(String),
    #[error("its page uses version {0} of the Simple API; only 1 is supported")]
    Version(String),
    #[error("its page is not valid HTML: {what} at byte {at}")]
    Html { what: &'static str, at: usize },
}

/// A file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub file: String,
    pub kind: PackageFile,
    /// URL, which may hold credentials or a signature.
    pub url: Url,
    pub sha256: Option<Digest>,
    pub size: Option<u64>,
    pub requires_python: Option<String>,
    /// The reason if the file is yanked, which may be empty.
    pub yanked: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageFile {
    Wheel(WheelName),
    Source(Version),
}

impl PackageFile {
    /// Parses a file's name. `None` for another project's file, or one that is not a package.
    pub fn parse(file: &str, project: &str) -> Option<Self> {
        if let Ok(wheel) = file.parse::<WheelName>() {
            return (wheel.name == project).then_some(Self::Wheel(wheel));
        }
        let sdist = SdistName::parse(file)?;
        (sdist.name == project).then_some(Self::Source(sdist.version))
    }

    pub fn version(&self) -> &Version {
        match self {
            Self::Wheel(wheel) => &wheel.version,
            Self::Source(version) => version,
        }
    }
}

/// Returns the files of `project` on a page that came from `url`.
pub fn read(
    body: &[u8],
    content_type: Option<&str>,
    url: &Url,
    project: &str,
) -> Result<Vec<Listed>, PageError> {
    let media = content_type.unwrap_or("text/html");
    let media = media.split(';').next().unwrap_or_default().trim();
    let media = media.to_ascii_lowercase();
    match media.as_str() {
        "application/json" => json(body, url, project),
        "text/html" => html::read(body, url, project),
        _ if media.starts_with("application/vnd.pypi.simple.") => {
            let rest = media.trim_start_matches("application/vnd.pypi.simple.");
            match rest.split_once('+') {
                Some(("v1" | "latest", "json")) => json(body, url, project),
                Some(("v1" | "latest", "html")) => html::read(body, url, project),
                _ => Err(PageError::Type(shown(&media))),
            }
        }
        _ => Err(PageError::Type(shown(&media))),
    }
}

fn shown(text: &str) -> String {
    text.escape_debug().take(80).collect()
}

#[derive(Deserialize)]
struct Page {
    meta: Meta,
    files: Vec<File>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "api-version")]
    api_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    filename: String,
    url: String,
    hashes: BTreeMap<String, String>,
    requires_python: Option<String>,
    size: Option<u64>,
    #[serde(default)]
    yanked: Yanked,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Yanked {
    Flag(bool),
    Reason(String),
}

impl Default for Yanked {
    fn default() -> Self {
        Self::Flag(false)
    }
}

fn json(body: &[u8], url: &Url, project: &str) -> Result<Vec<Listed>, PageError> {
    let page: Page =
        serde_json::from_slice(body).map_err(|e| PageError::Json(shown(&e.to_string())))?;
    if page.meta.api_version.split('.').next() != Some("1") {
        return Err(PageError::Version(shown(&page.meta.api_version)));
    }
    let files = page.files.into_iter().filter_map(|file| {
        Some(Listed {
            kind: PackageFile::parse(&file.filename, project)?,
            url: url.join(&file.url).ok()?,
            sha256: file.hashes.get("sha256").and_then(|hex| digest(hex)),
            size: file.size,
            requires_python: file.requires_python,
            yanked: match file.yanked {
                Yanked::Flag(false) => None,
                Yanked::Flag(true) => Some(String::new()),
                Yanked::Reason(reason) => Some(reason),
            },
            file: file.filename,
        })
    });
    Ok(files.collect())
}

/// Parses a digest, of which indexes also write the hex digits in upper case.
fn digest(hex: &str) -> Option<Digest> {
    Digest::from_hex(&hex.to_ascii_lowercase()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn url() -> Url {
        Url::parse("https://h.test/simple/foo-bar/").unwrap()
    }

    #[test]
    fn json_is_read_with_what_is_optional() {
        let hex = "A".repeat(64);
        let body = format!(
            r#"{{"meta": {{"api-version": "1.4"}}, "name": "foo-bar", "versions": ["1.0"], "files": [
            {{"filename": "foo_bar-1.0-py3-none-any.whl", "url": "../../f/a.whl", "hashes": {{"sha256": "{hex}"}},
              "requires-python": ">=3.9", "size": 7, "yanked": "broken", "core-metadata": false}},
            {{"filename": "Foo.Bar-0.9.tar.gz", "url": "https://o.test/b", "hashes": {{}}, "requires-python": null}},
            {{"filename": "other-1.0-py3-none-any.whl", "url": "x", "hashes": {{}}}},
            {{"filename": "foo_bar-1.0.win32.exe", "url": "x", "hashes": {{}}}}]}}"#
        );
        let kind = Some("application/vnd.pypi.simple.v1+json");
        let files = read(body.as_bytes(), kind, &url(), "foo-bar").unwrap();
        let [wheel, source] = files.as_slice() else {
            panic!("{files:?}")
        };
        assert_eq!(wheel.url.as_str(), "https://h.test/f/a.whl");
        assert_eq!(wheel.sha256.as_ref().unwrap().hex(), "a".repeat(64));
        assert_eq!(
            (wheel.size, wheel.yanked.as_deref()),
            (Some(7), Some("broken"))
        );
        assert_eq!(source.kind, PackageFile::Source("0.9".parse().unwrap()));
        assert_eq!((&source.sha256, &source.yanked), (&None, &None));
    }

    #[test]
    fn what_is_no_page_is_refused() {
        let of = |body: &str, kind| read(body.as_bytes(), Some(kind), &url(), "x").unwrap_err();
        let v2 = r#"{"meta": {"api-version": "2.0"}, "files": []}"#;
        assert_eq!(of(v2, "application/json"), PageError::Version("2.0".into()));
        assert!(matches!(of("[]", "application/json"), PageError::Json(_)));
        assert!(matches!(of("", "image/png"), PageError::Type(_)));
        let next = "application/vnd.pypi.simple.v2+json";
        assert!(matches!(of(v2, next), PageError::Type(_)));
    }

    proptest! {
        #[test]
        fn any_page_is_read_or_refused(s in "\\PC*", kind in "(text/html|application/json)") {
            let _ = read(s.as_bytes(), Some(&kind), &url(), "x");
        }
    }
}
