//! Reads the user's settings for uv and pip from this machine's files and environment.
//!
//! Out: [`Settings`]; which of them apply is decided elsewhere. As for uv and pip, a file that is missing or
//! does not parse counts as empty.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The user's settings on this machine.
#[derive(Default)]
pub(super) struct Settings {
    pub variables: BTreeMap<String, String>,
    /// uv.toml files, the one with the highest priority first.
    pub uv: Vec<toml::Table>,
    pub config: Option<toml::Table>,
    /// pip.conf files, the one with the lowest priority first.
    pub pip: Vec<String>,
}

impl Settings {
    pub fn read() -> Self {
        let variables: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)))
            .filter(|(n, v)| (n.starts_with("UV_") || n.starts_with("PIP_")) && !v.is_empty())
            .collect();
        let directory = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        let home = directory("HOME");
        let config =
            directory("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|h| h.join(".config")));
        let table = |path: &Path| {
            std::fs::read_to_string(path)
                .ok()?
                .parse::<toml::Table>()
                .ok()
        };
        let mut uv = Vec::new();
        uv.extend(config.iter().filter_map(|c| table(&c.join("uv/uv.toml"))));
        uv.extend(table(Path::new("/etc/uv/uv.toml")));
        let mut pip = vec![
            PathBuf::from("/etc/xdg/pip/pip.conf"),
            PathBuf::from("/etc/pip.conf"),
        ];
        pip.extend(home.iter().map(|h| h.join(".pip/pip.conf")));
        pip.extend(config.iter().map(|c| c.join("pip/pip.conf")));
        pip.extend(directory("VIRTUAL_ENV").map(|v| v.join("pip.conf")));
        pip.extend(variables.get("PIP_CONFIG_FILE").map(PathBuf::from));
        Self {
            config: variables
                .get("UV_CONFIG_FILE")
                .and_then(|p| table(Path::new(p))),
            uv,
            pip: pip
                .iter()
                .filter_map(|p| std::fs::read_to_string(p).ok())
                .collect(),
            variables,
        }
    }
}

pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the values of one section of a pip.conf. Continuation lines are indented.
pub(super) fn pip_section(text: &str, section: &str) -> BTreeMap<String, String> {
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    let (mut inside, mut last) = (false, None::<String>);
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            (inside, last) = (name.trim() == section, None);
        } else if line.starts_with([' ', '\t'])
            && let Some(value) = last.as_ref().and_then(|key| values.get_mut(key))
        {
            value.push(' ');
            value.push_str(trimmed);
        } else if inside && let Some((key, value)) = trimmed.split_once(['=', ':']) {
            let key = key.trim().to_lowercase().replace('_', "-");
            values.insert(key.clone(), value.trim().to_owned());
            last = Some(key);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_of_pip_conf_takes_continued_lines_and_either_separator() {
        let text = "; x\n[global]\nindex-url: https://a.test\nfind_links =\n  one\n  # no\n  two\n[install]\nno-index = 1\n";
        let global = pip_section(text, "global");
        assert_eq!(global["index-url"], "https://a.test");
        assert_eq!(words(&global["find-links"]), ["one", "two"]);
        assert_eq!(pip_section(text, "install")["no-index"], "1");
    }
}
