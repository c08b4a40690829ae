//! Logins from a netrc file.
//!
//! In: the file that NETRC names, else `~/.netrc`. Out: user and password for a host. The
//! grammar is that of ftp(1) with curl's quotes and comments: words, of which `machine NAME` or `default`
//! begins an entry and `login`, `password` and `account` each take one more; `macdef` runs to an empty line.
//! Anything else is an error with its line number, and then no login of the file is used.

use stackforge_types::login::{Login, Secret};
use std::path::{Path, PathBuf};

const LARGEST_FILE: u64 = 1 << 20;
const LONGEST_WORD: usize = 4096;

/// The entries in the order of the file; the host is `None` for `default`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Netrc(Vec<(Option<String>, Login)>);

/// What is wrong with a netrc file. It quotes nothing from the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct NetrcError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong in that line.
    pub what: &'static str,
}

impl Netrc {
    /// Reads the text of a netrc file.
    ///
    /// # Errors
    /// At the first word that is not in the grammar, or is longer than 4096 bytes.
    pub fn parse(text: &str) -> Result<Self, NetrcError> {
        let mut words = Words { text, line: 1 };
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(word) = words.next()? {
            match word.as_str() {
                "machine" => {
                    let host = words.value("`machine` without a host")?;
                    entries.push(Entry::of(Some(host.to_ascii_lowercase())));
                }
                "default" => entries.push(Entry::of(None)),
                "macdef" => words.skip_macro(),
                "login" | "password" | "account" => {
                    let value = words.value("a word without its value")?;
                    let Some(entry) = entries.last_mut() else {
                        return Err(words.wrong("a login before any `machine`"));
                    };
                    match word.as_str() {
                        "login" => entry.user = value,
                        "password" => entry.password = value,
                        _ => {}
                    }
                }
                _ => return Err(words.wrong("a word that netrc does not have")),
            }
        }
        Ok(Self(entries.into_iter().map(Entry::login).collect()))
    }

    /// The login for a host: its own entry, else `default`.
    pub fn of_host(&self, host: &str) -> Option<&Login> {
        let own = |name: &Option<String>| {
            let name = name.as_deref();
            name.is_some_and(|n| n.eq_ignore_ascii_case(host))
        };
        let entries = || self.0.iter();
        entries()
            .find(|(name, _)| own(name))
            .or_else(|| entries().find(|(name, _)| name.is_none()))
            .map(|(_, login)| login)
            .filter(|login| **login != Login::Anonymous)
    }
}

/// An entry that is being read. User and password are empty if the entry has none.
struct Entry {
    host: Option<String>,
    user: String,
    password: String,
}

impl Entry {
    fn of(host: Option<String>) -> Self {
        Self {
            host,
            user: String::new(),
            password: String::new(),
        }
    }

    fn login(self) -> (Option<String>, Login) {
        if self.user.is_empty() && self.password.is_empty() {
            return (self.host, Login::Anonymous);
        }
        let login = Login::Password {
            user: self.user,
            password: Secret::new(self.password),
        };
        (self.host, login)
    }
}

struct Words<'a> {
    text: &'a str,
    line: usize,
}

impl Words<'_> {
    fn wrong(&self, what: &'static str) -> NetrcError {
        NetrcError {
            line: self.line,
            what,
        }
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.text.chars().next()?;
        self.text = &self.text[c.len_utf8()..];
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn skip_space(&mut self) {
        while self.text.starts_with(|c: char| c.is_ascii_whitespace()) {
            self.bump();
        }
    }

    fn next(&mut self) -> Result<Option<String>, NetrcError> {
        self.skip_space();
        while self.text.starts_with('#') {
            while self.bump().is_some_and(|c| c != '\n') {}
            self.skip_space();
        }
        if self.text.is_empty() {
            return Ok(None);
        }
        self.word().map(Some)
    }

    /// The next word, which may start with `#`, as passwords can.
    fn value(&mut self, missing: &'static str) -> Result<String, NetrcError> {
        self.skip_space();
        if self.text.is_empty() {
            return Err(self.wrong(missing));
        }
        self.word()
    }

    fn word(&mut self) -> Result<String, NetrcError> {
        let mut word = String::new();
        let quoted = self.text.starts_with('"');
        if quoted {
            self.bump();
        }
        loop {
            if !quoted && self.text.starts_with(|c: char| c.is_ascii_whitespace()) {
                return Ok(word);
            }
            match self.bump() {
                None | Some('\n') if quoted => return Err(self.wrong("a quote without its end")),
                None => return Ok(word),
                Some('"') if quoted => return Ok(word),
                Some('\\') if quoted => match self.bump() {
                    Some('n') => word.push('\n'),
                    Some('r') => word.push('\r'),
                    Some('t') => word.push('\t'),
                    Some(c) if c != '\n' => word.push(c),
                    _ => return Err(self.wrong("a quote without its end")),
                },
                Some(c) => word.push(c),
            }
            if word.len() > LONGEST_WORD {
                return Err(self.wrong("a word of more than 4096 bytes"));
            }
        }
    }

    /// Skips to the first empty line.
    fn skip_macro(&mut self) {
        let mut empty = false;
        while let Some(c) = self.bump() {
            if c == '\n' && std::mem::replace(&mut empty, true) {
                return;
            }
            empty &= c == '\n' || c == '\r';
        }
    }
}

/// The user's logins, or what is wrong with their file.
pub(super) struct Logins(Result<Netrc, String>);

impl Logins {
    pub(crate) fn of(netrc: Netrc) -> Self {
        Self(Ok(netrc))
    }

    pub(crate) fn of_user() -> Self {
        let env = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let path = env("NETRC")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(env("HOME")?).join(".netrc")));
        let logins = path.map_or_else(|| Ok(Netrc::default()), |p| read(&p));
        if let Err(wrong) = &logins {
            tracing::warn!("{wrong}");
        }
        Self(logins)
    }

    pub(crate) fn of_host(&self, host: &str) -> Option<&Login> {
        self.0.as_ref().ok()?.of_host(host)
    }

    pub(crate) fn wrong(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }
}

fn read(path: &Path) -> Result<Netrc, String> {
    use std::io::Read as _;
    let unread = |what: &str| format!("`{}` is not used: {what}", path.display());
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Netrc::default()),
        Err(e) => return Err(unread(&e.to_string())),
    };
    let mut text = String::new();
    let count = file.take(LARGEST_FILE + 1).read_to_string(&mut text);
    match count {
        Ok(count) if count as u64 > LARGEST_FILE => Err(unread("it is larger than 1 MiB")),
        Ok(_) => Netrc::parse(&text).map_err(|e| unread(&e.to_string())),
        Err(e) => Err(unread(&e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn login(text: &str, host: &str) -> Option<(String, String)> {
        let netrc = Netrc::parse(text).unwrap();
        match netrc.of_host(host)? {
            Login::Password { user, password } => {
                Some((user.clone(), password.expose_text().into_owned()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn pair(user: &str, password: &str) -> Option<(String, String)> {
        Some((user.into(), password.into()))
    }

    const TEXT: &str = "# mine\nmachine a.test login u password #p account x\n\
        machine B.test\n  login v\n  password \"two \\\"words\\\"\"\n\
        macdef init\nmachine evil.test login x\n\nmachine a.test login later password q\n";

    #[test]
    fn the_first_entry_of_a_host_counts() {
        assert_eq!(login(TEXT, "A.TEST"), pair("u", "#p"));
        assert_eq!(login(TEXT, "b.test"), pair("v", "two \"words\""));
        assert_eq!(login(TEXT, "evil.test"), None);
        assert_eq!(login(TEXT, "sub.a.test"), None);
        let default = format!("{TEXT}default login anonymous password me");
        assert_eq!(login(&default, "c.test"), pair("anonymous", "me"));
        assert_eq!(login(&default, "a.test"), pair("u", "#p"));
    }

    #[test]
    fn what_is_no_netrc_is_refused_with_its_line() {
        for (text, line) in [
            ("machine a login", 1),
            ("\nlogin u", 2),
            ("machine a\nuser u", 2),
            ("machine a password \"x\n", 2),
            ("machine", 1),
        ] {
            assert_eq!(Netrc::parse(text).err().unwrap().line, line, "{text}");
        }
        assert!(Netrc::parse(&format!("machine {}", "x".repeat(5000))).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "\\PC*", words in "(machine|default|login|macdef|\"|\\\\|#|x| |\n){0,40}") {
            let _ = Netrc::parse(&s);
            let _ = Netrc::parse(&words);
        }

        #[test]
        fn a_quoted_password_comes_back(password in "[ -~]{1,40}") {
            let quoted = password.replace('\\', "\\\\").replace('"', "\\\"");
            let text = format!("machine h login u password \"{quoted}\"\n");
            prop_assert_eq!(login(&text, "h"), pair("u", &password));
        }
    }
}
