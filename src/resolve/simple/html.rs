//! Parses the HTML of the Simple API (PEP 503): anchors whose text is a file's name.
//!
//! Reads `a` and `base` elements and skips all others. A tag, quote or comment without an end is an error,
//! since what follows could be anything.

use super::{Listed, PackageFile, PageError, digest};
use reqwest::Url;

pub(super) fn read(body: &[u8], url: &Url, project: &str) -> Result<Vec<Listed>, PageError> {
    let text = String::from_utf8_lossy(body);
    let mut reader = Reader { text: &text, at: 0 };
    let mut base = url.clone();
    let mut out = Vec::new();
    while let Some(tag) = reader.tag()? {
        match tag.name.as_str() {
            "base" => {
                if let Some(joined) = tag.get("href").and_then(|href| url.join(&href).ok()) {
                    base = joined;
                }
            }
            "script" | "style" => reader.skip_past(&format!("</{}", tag.name))?,
            "a" => {
                let name = reader.text_to_tag();
                out.extend(listed(&tag, name, &base, project));
            }
            _ => {}
        }
    }
    Ok(out)
}

fn listed(tag: &Tag<'_>, text: &str, base: &Url, project: &str) -> Option<Listed> {
    let file = unescaped(text).trim().to_owned();
    let kind = PackageFile::parse(&file, project)?;
    let mut url = base.join(tag.get("href")?.trim()).ok()?;
    let sha256 = url
        .fragment()
        .and_then(|f| digest(f.strip_prefix("sha256=")?));
    url.set_fragment(None);
    Some(Listed {
        file,
        kind,
        url,
        sha256,
        size: None,
        requires_python: tag.get("data-requires-python"),
        yanked: tag.get("data-yanked"),
    })
}

struct Tag<'a> {
    name: String,
    attributes: Vec<(&'a str, &'a str)>,
}

impl Tag<'_> {
    fn get(&self, name: &str) -> Option<String> {
        let named = |(n, _): &&(&str, &str)| n.eq_ignore_ascii_case(name);
        let (_, value) = self.attributes.iter().find(named)?;
        Some(unescaped(value))
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong(&self, what: &'static str) -> PageError {
        PageError::Html { what, at: self.at }
    }

    /// Returns the next opening tag.
    fn tag(&mut self) -> Result<Option<Tag<'a>>, PageError> {
        while let Some(found) = self.rest().find('<') {
            self.at += found;
            if self.rest().starts_with("<!--") {
                self.at += 4;
                self.skip_past("-->")?;
            } else if self.rest()[1..].starts_with(['!', '/', '?']) {
                self.skip_past(">")?;
            } else if self.rest()[1..].starts_with(|c: char| c.is_ascii_alphabetic()) {
                return self.opened().map(Some);
            } else {
                self.at += 1;
            }
        }
        Ok(None)
    }

    /// Reads a tag from its `<` to after its `>`.
    fn opened(&mut self) -> Result<Tag<'a>, PageError> {
        self.at += 1;
        let name = self.word(|c| c.is_ascii_whitespace() || "/>".contains(c));
        let mut tag = Tag {
            name: name.to_ascii_lowercase(),
            attributes: Vec::new(),
        };
        loop {
            self.word(|c| !(c.is_ascii_whitespace() || c == '/'));
            if self.rest().starts_with('>') {
                self.at += 1;
                return Ok(tag);
            }
            let name = self.word(|c| c.is_ascii_whitespace() || "=/>".contains(c));
            self.space();
            let value = if self.rest().starts_with('=') {
                self.at += 1;
                self.space();
                self.value()?
            } else if name.is_empty() {
                return Err(self.wrong("a tag without its end"));
            } else {
                ""
            };
            tag.attributes.push((name, value));
        }
    }

    fn value(&mut self) -> Result<&'a str, PageError> {
        let quote = self.rest().chars().next().filter(|c| "'\"".contains(*c));
        let Some(quote) = quote else {
            return Ok(self.word(|c| c.is_ascii_whitespace() || c == '>'));
        };
        self.at += 1;
        let value = self.word(|c| c == quote);
        if self.rest().is_empty() {
            return Err(self.wrong("a quote without its end"));
        }
        self.at += 1;
        Ok(value)
    }

    fn space(&mut self) {
        self.word(|c| !c.is_ascii_whitespace());
    }

    /// Reads up to a character for which `ends` is true, or to the end.
    fn word(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn text_to_tag(&mut self) -> &'a str {
        self.word(|c| c == '<')
    }

    fn skip_past(&mut self, end: &str) -> Result<(), PageError> {
        // The searched ends are ASCII, and element names may be in either case.
        let rest = self.rest().as_bytes();
        let found = rest
            .windows(end.len())
            .position(|w| w.eq_ignore_ascii_case(end.as_bytes()));
        match found {
            Some(found) => {
                self.at += found + end.len();
                Ok(())
            }
            None => Err(self.wrong("something opened without its end")),
        }
    }
}

/// Replaces the character references that names, versions and URLs are written with.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let reference = rest.find(';').filter(|end| *end <= 10).and_then(|end| {
            let c = character(&rest[1..end])?;
            Some((c, end + 1))
        });
        let (c, length) = reference.unwrap_or(('&', 1));
        out.push(c);
        rest = &rest[length..];
    }
    out.push_str(rest);
    out
}

fn character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            code.ok().and_then(char::from_u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_text(text: &str) -> Result<Vec<Listed>, PageError> {
        let url = Url::parse("https://h.test/simple/foo/").unwrap();
        read(text.as_bytes(), &url, "foo")
    }

    #[test]
    fn anchors_are_files() {
        let hex = "b".repeat(64);
        let page = format!(
            "<!DOCTYPE html><html><head><meta name=x content='a>b'><!-- <a href=c>foo-9-py3-none-any.whl</a> -->\n\
             <script>if (a < b) {{ '<a href=x>foo-8-py3-none-any.whl</a>' }}</SCRIPT></head><body>\n\
             <h1>Links for foo</h1>\n\
             <a href=\"/whl/foo-1.0%2Bcpu-py3-none-any.whl#sha256={hex}\" data-requires-python=\"&gt;=3.9,&lt;3.14\">foo-1.0+cpu-py3-none-any.whl</a><br/>\n\
             <A HREF='foo-2-py3-none-any.whl?a=1&amp;b=2' data-yanked>\n foo-2-py3-none-any.whl </A>\n\
             <a href=foo-3.tar.gz>foo-3.tar.gz</a> <a>foo-4-py3-none-any.whl</a> <a href=\"bar\">bar-1-py3-none-any.whl</a>"
        );
        let files = read_text(&page).unwrap();
        let names: Vec<&str> = files.iter().map(|f| f.file.as_str()).collect();
        assert_eq!(
            names,
            [
                "foo-1.0+cpu-py3-none-any.whl",
                "foo-2-py3-none-any.whl",
                "foo-3.tar.gz"
            ]
        );
        assert_eq!(
            files[0].url.as_str(),
            "https://h.test/whl/foo-1.0%2Bcpu-py3-none-any.whl"
        );
        assert_eq!(files[0].sha256.as_ref().unwrap().hex(), hex);
        assert_eq!(files[0].requires_python.as_deref(), Some(">=3.9,<3.14"));
        assert_eq!(files[0].yanked, None);
        assert_eq!(
            files[1].url.as_str(),
            "https://h.test/simple/foo/foo-2-py3-none-any.whl?a=1&b=2"
        );
        assert_eq!(
            (&files[1].sha256, files[1].yanked.as_deref()),
            (&None, Some(""))
        );
    }

    #[test]
    fn a_base_moves_relative_addresses() {
        let page = "<base href='/files/'><a href=a>foo-1-py3-none-any.whl</a>";
        assert_eq!(
            read_text(page).unwrap()[0].url.as_str(),
            "https://h.test/files/a"
        );
    }

    #[test]
    fn what_has_no_end_is_refused() {
        for bad in [
            "<a",
            "<a href",
            "<a href=\"x>y</a>",
            "<!-- x",
            "<script>",
            "<a href='x' ",
            "</a",
        ] {
            assert!(read_text(bad).is_err(), "{bad}");
        }
        assert!(read_text("1 < 2 & 3 <").unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "\\PC*", tags in "(<a |<a>|</a>|href=|'|\"|>|<!--|-->|&#x41;|&|;| |é){0,30}") {
            let _ = read_text(&s);
            let _ = read_text(&tags);
        }

        #[test]
        fn what_is_escaped_comes_back(s in "[ -~]{0,30}") {
            let escaped: String = s.chars().map(|c| format!("&#{};", c as u32)).collect();
            prop_assert_eq!(unescaped(&escaped), s);
        }
    }
}
