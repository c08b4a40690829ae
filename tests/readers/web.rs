//! What servers answer: headers with a meaning of their own, and pages of an index.

use reqwest::Url;
use stackforge_resolve::simple;
use stackforge_transfer::header;
use stackforge_transfer::registry::challenge;

/// Headers, one a line.
pub fn headers(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for line in text.lines() {
        let challenges = challenge::parse(line);
        assert!(challenges.len() <= challenge::MOST);
        for one in challenges {
            assert!(one.parameters.len() <= challenge::MOST);
            for (name, _) in &one.parameters {
                assert!(one.get(name).is_some());
            }
        }
        if let Some(range) = header::content_range(line) {
            assert!(range.first <= range.last);
            assert!(range.size.is_none_or(|size| range.last < size));
        }
        if let Some(address) = header::next_page(line) {
            assert!(line.contains(address));
        }
        header::received(line);
    }
}

/// A project's page, as JSON and as HTML.
pub fn page(bytes: &[u8]) {
    let url = Url::parse("https://h.example/simple/x/").expect("it is an address");
    for media in ["application/vnd.pypi.simple.v1+json", "text/html"] {
        for listed in simple::read(bytes, Some(media), &url, "x").unwrap_or_default() {
            assert!(listed.url.fragment().is_none() || media.ends_with("json"));
            assert_eq!(
                simple::PackageFile::parse(&listed.file, "x"),
                Some(listed.kind)
            );
        }
    }
}
