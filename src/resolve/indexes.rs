//! The package indexes: the stack's, else those of uv's configuration, else of pip's.
//!
//! In: the stack and the user's settings. Out: options for uv when locking, and uv's environment in builder
//! stages. URLs may contain credentials and name hosts, so they are never part of a lock, a message
//! ([`redact`]) or a key.

use super::settings::{Settings, pip_section, words};
use stackforge_stack::spec::Stack;
use std::collections::BTreeMap;
use std::path::Path;

/// Whose settings apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Origin {
    Stack,
    /// uv's. uv reads them itself.
    Uv,
    Pip,
    /// Nobody's: uv's default applies.
    #[default]
    Nobody,
}

#[derive(Clone, Default)]
pub(super) struct Indexes {
    pub origin: Origin,
    default: Option<String>,
    /// Indexes that are asked before the default one, in order.
    extra: Vec<String>,
    /// Indexes of single libraries, for builder stages.
    of_libraries: Vec<String>,
    find_links: Vec<String>,
    no_index: bool,
    insecure_hosts: Vec<String>,
    strategy: Option<String>,
    credentials: BTreeMap<String, String>,
    /// The configuration file in UV_CONFIG_FILE.
    pub config: Option<toml::Table>,
}

/// Returns environment variables with which uv in a builder stage finds the locked files. They may hold
/// credentials, so they are passed as a secret.
pub fn index_settings(stack: &Stack) -> BTreeMap<String, String> {
    Indexes::of(stack).environment()
}

/// The index in the user's settings, without any stack.
pub enum IndexAddress {
    /// A URL that may hold credentials: for requests, never for messages.
    Url(String),
    /// The settings disable all indexes.
    None,
    /// No index is set: only uv knows its default.
    DefaultOfUv,
}

impl Indexes {
    pub fn of(stack: &Stack) -> Self {
        let urls = stack.indexes.iter().map(|i| i.value.clone()).collect();
        let of_libraries = stack.libraries.iter().filter_map(|l| l.index.clone());
        Self::from(urls, of_libraries.collect(), &Settings::read())
    }

    /// Returns the settings that apply if a stack has none.
    pub fn of_user() -> Self {
        Self::from(Vec::new(), Vec::new(), &Settings::read())
    }

    /// Returns the index that is asked first.
    pub fn address(&self) -> IndexAddress {
        match self.default.iter().chain(&self.extra).next() {
            Some(index) => IndexAddress::Url(named(index).1.to_owned()),
            None if self.no_index => IndexAddress::None,
            None => IndexAddress::DefaultOfUv,
        }
    }

    /// Returns every index in the order in which it is asked, with its login. `None` stands for uv's default.
    pub fn addresses(&self) -> Vec<Option<String>> {
        if self.no_index {
            return Vec::new();
        }
        let extra = self.extra.iter().chain(&self.of_libraries);
        let extra = extra.map(|index| Some(self.with_login(index)));
        let default = self.default.as_ref().map(|index| self.with_login(index));
        extra.chain([default]).collect()
    }

    /// Returns pages and directories that are not an index.
    pub fn find_links(&self) -> &[String] {
        &self.find_links
    }

    /// Whether later indexes are ignored once one has a project.
    pub fn first_only(&self) -> bool {
        let strategy = self.strategy.as_deref();
        !strategy.is_some_and(|s| s.starts_with("unsafe-"))
    }

    /// Returns the URL with the login in UV_INDEX_NAME_USERNAME and _PASSWORD.
    fn with_login(&self, index: &str) -> String {
        let (name, address) = named(index);
        let Some((name, mut url)) = name.zip(reqwest::Url::parse(address).ok()) else {
            return address.to_owned();
        };
        let name: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect();
        let get = |what: &str| self.credentials.get(&format!("UV_INDEX_{name}_{what}"));
        // Setting a login fails only for a URL without a host, which is useless anyway.
        if let Some(user) = get("USERNAME") {
            let _ = url.set_username(user);
        }
        if let Some(password) = get("PASSWORD") {
            let _ = url.set_password(Some(password));
        }
        url.to_string()
    }

    fn from(stack: Vec<String>, of_libraries: Vec<String>, settings: &Settings) -> Self {
        let mut out = if let Some((last, before)) = stack.split_last() {
            Self {
                origin: Origin::Stack,
                default: Some(last.clone()),
                extra: before.to_vec(),
                ..Self::default()
            }
        } else {
            let uv = Self::of_uv(settings);
            if uv.origin == Origin::Uv {
                uv
            } else {
                Self::of_pip(settings)
            }
        };
        out.of_libraries = of_libraries;
        out.config = settings.config.clone();
        let get = |name: &str| settings.variables.get(name);
        out.strategy = get("UV_INDEX_STRATEGY").cloned();
        if let Some(hosts) = get("UV_INSECURE_HOST") {
            out.insecure_hosts.extend(words(hosts));
        }
        let secret = |n: &&String| n.ends_with("_USERNAME") || n.ends_with("_PASSWORD");
        for name in settings.variables.keys().filter(secret) {
            let value = settings.variables[name].clone();
            out.credentials.insert(name.clone(), value);
        }
        out
    }

    fn of_uv(settings: &Settings) -> Self {
        let mut out = Self::default();
        let get = |name: &str| settings.variables.get(name);
        out.default = get("UV_DEFAULT_INDEX")
            .or_else(|| get("UV_INDEX_URL"))
            .cloned();
        for name in ["UV_INDEX", "UV_EXTRA_INDEX_URL"] {
            out.extra
                .extend(get(name).into_iter().flat_map(|v| words(v)));
        }
        if let Some(links) = get("UV_FIND_LINKS") {
            out.find_links
                .extend(links.split(',').map(|l| l.trim().to_owned()));
        }
        for table in settings.config.iter().chain(&settings.uv) {
            out.add_uv_table(table);
            if let Some(toml::Value::Table(pip)) = table.get("pip") {
                out.add_uv_table(pip);
            }
        }
        let set = out.default.is_some() || out.no_index || !out.extra.is_empty();
        if set || !out.find_links.is_empty() {
            out.origin = Origin::Uv;
        }
        out
    }

    fn add_uv_table(&mut self, table: &toml::Table) {
        let text = |v: &toml::Value| v.as_str().map(str::to_owned);
        let list = |key: &str| {
            let values = table.get(key).and_then(|v| v.as_array());
            values
                .into_iter()
                .flatten()
                .filter_map(text)
                .collect::<Vec<_>>()
        };
        for index in table
            .get("index")
            .and_then(|v| v.as_array())
            .into_iter()
            .flatten()
        {
            let flag = |key: &str| index.get(key).and_then(toml::Value::as_bool) == Some(true);
            let Some(url) = index.get("url").and_then(text) else {
                continue;
            };
            if flag("explicit") {
                continue;
            }
            // uv finds the credentials of an index by its name.
            let named = match index.get("name").and_then(text) {
                Some(name) => format!("{name}={url}"),
                None => url,
            };
            if flag("default") {
                self.default.get_or_insert(named);
            } else {
                self.extra.push(named);
            }
        }
        if let Some(url) = table.get("index-url").and_then(text) {
            self.default.get_or_insert(url);
        }
        self.extra.extend(list("extra-index-url"));
        self.find_links.extend(list("find-links"));
        self.insecure_hosts.extend(list("allow-insecure-host"));
        self.no_index |= table.get("no-index").and_then(toml::Value::as_bool) == Some(true);
    }

    fn of_pip(settings: &Settings) -> Self {
        let mut values: BTreeMap<String, String> = BTreeMap::new();
        for section in ["global", "install"] {
            for file in &settings.pip {
                values.extend(pip_section(file, section));
            }
        }
        for (name, value) in &settings.variables {
            if let Some(key) = name.strip_prefix("PIP_") {
                values.insert(key.to_lowercase().replace('_', "-"), value.clone());
            }
        }
        let list = |key: &str| values.get(key).map(|v| words(v)).unwrap_or_default();
        let yes = ["1", "true", "yes", "on"];
        let mut out = Self {
            origin: Origin::Pip,
            default: values.get("index-url").cloned(),
            extra: list("extra-index-url"),
            find_links: list("find-links"),
            no_index: values
                .get("no-index")
                .is_some_and(|v| yes.contains(&v.to_lowercase().as_str())),
            insecure_hosts: list("trusted-host"),
            ..Self::default()
        };
        // uv fails for a directory that does not exist, pip only warns.
        out.find_links
            .retain(|l| l.contains("://") || Path::new(l).is_dir());
        if out.default.is_none()
            && out.extra.is_empty()
            && out.find_links.is_empty()
            && !out.no_index
        {
            out.origin = Origin::Nobody;
        }
        out
    }

    /// Returns the options for uv on this machine.
    pub fn options(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut option = |name: &str, value: &str| out.extend([name.to_owned(), value.to_owned()]);
        if matches!(self.origin, Origin::Stack | Origin::Pip) {
            self.default
                .iter()
                .for_each(|u| option("--default-index", u));
            self.extra.iter().for_each(|u| option("--index", u));
            self.find_links
                .iter()
                .for_each(|u| option("--find-links", u));
        }
        self.insecure_hosts
            .iter()
            .for_each(|h| option("--allow-insecure-host", h));
        if self.no_index && self.origin == Origin::Pip {
            out.push("--no-index".to_owned());
        }
        out
    }

    /// Returns the settings for uv in a builder stage, which has no configuration of its own. Every file is
    /// verified by digest there, so any index that has it will do.
    fn environment(&self) -> BTreeMap<String, String> {
        let mut out = self.credentials.clone();
        let mut set = |name: &str, value: String| {
            if !value.is_empty() {
                out.insert(name.to_owned(), value);
            }
        };
        set("UV_DEFAULT_INDEX", self.default.clone().unwrap_or_default());
        let extra: Vec<&str> = self
            .extra
            .iter()
            .chain(&self.of_libraries)
            .map(String::as_str)
            .collect();
        if !extra.is_empty() {
            set("UV_INDEX_STRATEGY", "unsafe-best-match".to_owned());
        } else if let Some(strategy) = &self.strategy {
            set("UV_INDEX_STRATEGY", strategy.clone());
        }
        set("UV_INDEX", extra.join(" "));
        let remote = self
            .find_links
            .iter()
            .filter(|l| l.contains("://") && !l.starts_with("file:"));
        set(
            "UV_FIND_LINKS",
            remote.cloned().collect::<Vec<_>>().join(","),
        );
        set("UV_INSECURE_HOST", self.insecure_hosts.join(" "));
        out
    }
}

/// Splits uv's form `NAME=URL`.
fn named(index: &str) -> (Option<&str>, &str) {
    match index.split_once('=') {
        Some((name, url)) if !name.contains("://") => (Some(name), url),
        _ => (None, index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)], pip: &str, uv: &str) -> Settings {
        Settings {
            variables: variables
                .iter()
                .map(|(a, b)| ((*a).into(), (*b).into()))
                .collect(),
            pip: vec![pip.into()],
            uv: vec![uv.parse().unwrap()],
            config: None,
        }
    }

    const PIP: &str = "[global]\nindex-url = https://a.test/simple\nextra_index_url =\n    https://b.test/simple\n    https://c.test/simple\n[download]\nno-index = true\n";

    #[test]
    fn pip_is_translated_and_its_variables_win() {
        let indexes = Indexes::from(
            vec![],
            vec![],
            &settings(&[("PIP_INDEX_URL", "https://d.test/simple")], PIP, ""),
        );
        assert_eq!(
            indexes.options().join(" "),
            "--default-index https://d.test/simple --index https://b.test/simple --index https://c.test/simple"
        );
        let env = indexes.environment();
        assert_eq!(
            env["UV_INDEX"],
            "https://b.test/simple https://c.test/simple"
        );
        assert_eq!(env["UV_INDEX_STRATEGY"], "unsafe-best-match");
    }

    #[test]
    fn uv_wins_over_pip_and_the_stack_over_both() {
        let uv = "[[index]]\nname = \"corp\"\nurl = \"https://u.test/simple\"\n";
        let host = settings(&[("UV_INDEX_CORP_PASSWORD", "p")], PIP, uv);
        let indexes = Indexes::from(vec![], vec![], &host);
        assert_eq!(indexes.origin, Origin::Uv);
        assert!(indexes.options().is_empty(), "uv reads its own");
        let env = indexes.environment();
        assert_eq!(env["UV_INDEX"], "corp=https://u.test/simple");
        assert!(
            matches!(indexes.address(), IndexAddress::Url(u) if u == "https://u.test/simple"),
            "without its name"
        );
        assert_eq!(env["UV_INDEX_CORP_PASSWORD"], "p");
        assert_eq!(
            indexes.addresses(),
            [Some("https://:p@u.test/simple".to_owned()), None]
        );
        let indexes = Indexes::from(
            vec!["https://s.test/1".into(), "https://s.test/2".into()],
            vec![],
            &host,
        );
        assert_eq!(
            indexes.options().join(" "),
            "--default-index https://s.test/2 --index https://s.test/1"
        );
    }

    #[test]
    fn nothing_set_means_the_default_of_uv() {
        let indexes = Indexes::from(
            vec![],
            vec![],
            &settings(&[("PIP_FIND_LINKS", "/nonexistent")], "", ""),
        );
        assert_eq!(indexes.origin, Origin::Nobody);
        assert!(matches!(indexes.address(), IndexAddress::DefaultOfUv));
        assert!(indexes.options().is_empty() && indexes.environment().is_empty());
    }
}
