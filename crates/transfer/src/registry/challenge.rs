//! `WWW-Authenticate`: how a server wants a client to authenticate (RFC 9110, 11.6.1).
//!
//! In: the header's values, which may each hold several challenges. Out: schemes with their parameters.
//! Parsing stops at the first malformed challenge; it never fails, because a challenge that is not
//! understood cannot be met anyway.

/// A scheme and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// `Bearer` or `Basic`, in lower case.
    pub scheme: String,
    /// The parameters in the header's order: names in lower case, values unchanged.
    pub parameters: Vec<(String, String)>,
}

impl Challenge {
    /// The value of the first parameter with this name, given in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Most challenges, and most parameters of one, that are read.
pub const MOST: usize = 32;

/// Reads the challenges of a header up to the first malformed one, and at most [`MOST`].
pub fn parse(header: &str) -> Vec<Challenge> {
    let mut text = Text { rest: header };
    let mut found: Vec<Challenge> = Vec::new();
    loop {
        text.skip(|c| c == ',' || c.is_ascii_whitespace());
        let Some(word) = text.token() else {
            return found;
        };
        text.skip(|c| c == ' ' || c == '\t');
        if text.take('=') {
            text.skip(|c| c == ' ' || c == '\t');
            let (Some(value), Some(last)) = (text.value(), found.last_mut()) else {
                return found;
            };
            if last.parameters.len() == MOST {
                return found;
            }
            last.parameters.push((word.to_ascii_lowercase(), value));
        } else {
            if found.len() == MOST {
                return found;
            }
            found.push(Challenge {
                scheme: word.to_ascii_lowercase(),
                parameters: Vec::new(),
            });
        }
    }
}

struct Text<'a> {
    rest: &'a str,
}

impl<'a> Text<'a> {
    fn skip(&mut self, any_of: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(any_of);
    }

    fn take(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn token(&mut self) -> Option<&'a str> {
        let of_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let end = self.rest.find(|c| !of_token(c)).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }

    /// A quoted string or a token; the latter may also contain characters that careless servers leave
    /// unquoted.
    fn value(&mut self) -> Option<String> {
        if !self.take('"') {
            let stop = |c: char| c == ',' || c == '"' || c.is_ascii_whitespace();
            let end = self.rest.find(stop).unwrap_or(self.rest.len());
            let (value, rest) = self.rest.split_at(end);
            self.rest = rest;
            return (!value.is_empty()).then(|| value.to_owned());
        }
        let mut value = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Some(value);
                }
                '\\' => value.push(chars.next()?.1),
                c => value.push(c),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_service_is_named() {
        let found = parse(
            r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#,
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].scheme, "bearer");
        assert_eq!(found[0].get("realm"), Some("https://auth.docker.io/token"));
        assert_eq!(found[0].get("scope"), Some("repository:a/b:pull,push"));
    }

    #[test]
    fn several_schemes_stand_in_one_header() {
        let found = parse(r#"Basic realm="a \"b\", c", BEARER Realm = http://x/t , service=s"#);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].get("realm"), Some("a \"b\", c"));
        assert_eq!(found[1].scheme, "bearer");
        assert_eq!(found[1].get("realm"), Some("http://x/t"));
        assert_eq!(found[1].get("service"), Some("s"));
    }

    #[test]
    fn damage_ends_the_list() {
        assert_eq!(parse(r#"Bearer realm="open"#).len(), 1);
        assert!(parse(r#"realm="no scheme""#).is_empty());
        assert!(parse("\"").is_empty());
        assert!(parse("").is_empty());
        assert!(parse(&"a ,".repeat(10_000)).len() <= MOST);
    }

    proptest! {
        #[test]
        fn no_header_panics(text in "[ -~é]{0,80}") {
            parse(&text);
        }

        #[test]
        fn parameters_come_back(values in proptest::collection::vec("[ -~]{0,20}", 0..6)) {
            let mut header = "Bearer ".to_owned();
            for (at, value) in values.iter().enumerate() {
                let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
                header += &format!("{}p{at}=\"{quoted}\"", if at > 0 { "," } else { "" });
            }
            let found = parse(&header);
            prop_assert_eq!(found.len(), 1);
            for (at, value) in values.iter().enumerate() {
                prop_assert_eq!(found[0].get(&format!("p{at}")), Some(value.as_str()));
            }
        }
    }
}
