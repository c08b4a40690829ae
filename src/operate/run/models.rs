//! Decides which directories of models the program shares with its user.
//!
//! A model is fetched once for all programs of a user: Hugging Face's and torch's libraries say by variables
//! where. A directory is mounted at a path of its own, and the variable names it inside; the program's home
//! directory does not matter then.

use crate::choice::Choice;
use crate::request::{Cache, Request};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const WHAT: &str = "models";
/// The variable of Hugging Face's directory.
const HF_HOME: &str = "HF_HOME";
/// Variables that name a directory of models, and where it is mounted.
const PLACES: [(&str, &str); 4] = [
    (HF_HOME, "/var/cache/models/huggingface"),
    ("HF_HUB_CACHE", "/var/cache/models/hub"),
    ("TRANSFORMERS_CACHE", "/var/cache/models/transformers"),
    ("TORCH_HOME", "/var/cache/models/torch"),
];

/// The user's own settings: variables and home directory.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    pub variables: BTreeMap<String, String>,
    pub home: Option<PathBuf>,
    /// The directory that relative paths start from.
    pub directory: PathBuf,
}

impl Surroundings {
    /// Reads those of this process.
    pub fn here() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            home: home.map(Into::into),
            directory: std::env::current_dir().unwrap_or_default(),
        }
    }

    fn directory_of(&self, name: &str) -> Option<PathBuf> {
        let value = self.variables.get(name).filter(|value| !value.is_empty())?;
        Some(self.directory.join(value))
    }
}

/// A directory of models that the program shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub host: PathBuf,
    pub variable: &'static str,
    pub inside: &'static str,
    pub why: String,
}

/// Decides which directories are shared. Also returns why others are not.
pub(crate) fn shares(
    request: &Request,
    surroundings: &Surroundings,
    image: Option<&[String]>,
) -> (Vec<Share>, Vec<Choice>) {
    let mut shares = Vec::new();
    let mut left_out = Vec::new();
    let set_by_image = |name: &str| {
        let all = image.into_iter().flatten();
        all.filter_map(|v| v.split_once('='))
            .find(|(own, value)| *own == name && !value.is_empty())
            .map(|(_, value)| value.to_owned())
    };
    for (variable, inside) in PLACES {
        let Some((host, why)) = found(variable, request, surroundings) else {
            continue;
        };
        if request.variables.iter().any(|v| v.name == variable) {
            let why = format!("{variable} was given with `-e`");
            left_out.push(Choice::nothing(WHAT, why));
        } else if let Some(value) = set_by_image(variable)
            && request.cache == Cache::Own
        {
            let why = format!("the image itself has its models at {variable}={value}");
            left_out.push(Choice::nothing(WHAT, why));
        } else {
            shares.push(Share {
                host,
                variable,
                inside,
                why,
            });
        }
    }
    (shares, left_out)
}

/// Returns the directory of a variable on the host, and what names it.
fn found(
    variable: &str,
    request: &Request,
    surroundings: &Surroundings,
) -> Option<(PathBuf, String)> {
    match &request.cache {
        Cache::None => None,
        Cache::Directory(directory) => (variable == HF_HOME).then(|| {
            let why = "`--model-cache` names it".to_owned();
            (surroundings.directory.join(directory), why)
        }),
        Cache::Own => match surroundings.directory_of(variable) {
            Some(directory) => Some((directory, format!("{variable} names it"))),
            None if variable == HF_HOME => usual(surroundings),
            None => None,
        },
    }
}

/// Returns Hugging Face's usual directory, if it is there. The cache directory around it is not shared: it
/// holds what other programs keep.
fn usual(surroundings: &Surroundings) -> Option<(PathBuf, String)> {
    let own = surroundings.home.as_ref().map(|home| home.join(".cache"));
    let cache = surroundings.directory_of("XDG_CACHE_HOME").or(own)?;
    let directory = cache.join("huggingface");
    let is_there = |path: &Path| path.is_dir();
    let why = "the user's Hugging Face cache, with the login in it".to_owned();
    is_there(&directory).then_some((directory, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(home: &Path, variables: &[(&str, &str)]) -> Surroundings {
        let variables = variables.iter().map(|(n, v)| ((*n).into(), (*v).into()));
        Surroundings {
            variables: variables.collect(),
            home: Some(home.to_owned()),
            directory: "/here".into(),
        }
    }

    fn found_in(
        request: &Request,
        of: &Surroundings,
        image: &[&str],
    ) -> Vec<(PathBuf, &'static str)> {
        let image: Vec<String> = image.iter().map(|v| (*v).to_owned()).collect();
        let (shares, _) = shares(request, of, Some(&image));
        shares.into_iter().map(|s| (s.host, s.variable)).collect()
    }

    #[test]
    fn variables_name_directories_and_the_usual_one_has_to_be_there() {
        let home = tempfile::tempdir().unwrap();
        let request = Request::default();
        let bare = surroundings(home.path(), &[]);
        assert_eq!(found_in(&request, &bare, &[]), []);
        let usual = home.path().join(".cache/huggingface");
        std::fs::create_dir_all(&usual).unwrap();
        assert_eq!(found_in(&request, &bare, &[]), [(usual, "HF_HOME")]);
        let set = surroundings(home.path(), &[("HF_HOME", "/hf"), ("TORCH_HOME", "torch")]);
        assert_eq!(
            found_in(&request, &set, &[]),
            [
                ("/hf".into(), "HF_HOME"),
                ("/here/torch".into(), "TORCH_HOME")
            ]
        );
        let xdg = surroundings(home.path(), &[("XDG_CACHE_HOME", "/nowhere")]);
        assert_eq!(found_in(&request, &xdg, &[]), [], "nor is all of it shared");
    }

    #[test]
    fn what_the_image_or_the_user_set_stays() {
        let home = tempfile::tempdir().unwrap();
        let set = surroundings(home.path(), &[("HF_HOME", "/hf")]);
        let image = ["HF_HOME=/models"];
        let mut request = Request::default();
        assert_eq!(found_in(&request, &set, &image), []);
        request.cache = Cache::Directory("models".into());
        let own = [("/here/models".into(), "HF_HOME")];
        assert_eq!(found_in(&request, &set, &image), own);
        request.variables = vec!["HF_HOME=/x".parse().unwrap()];
        assert_eq!(found_in(&request, &set, &[]), []);
        request = Request {
            cache: Cache::None,
            ..Request::default()
        };
        assert_eq!(found_in(&request, &set, &[]), []);
    }
}
