//! Arguments of pip and uv, on a command line or in a requirements file.

use super::ConvertError;
use super::asked::{Asked, EDITABLE, SECRET, without_login};
use super::file::File;
use super::files::Files;
use super::found::Found;
use super::item::{Item, Note, Why};
use super::known::Known;
use super::shell::Word;
use stackforge_stack::spec::{From, is_index};
use stackforge_types::wheel::normalized;
use std::path::{Path, PathBuf};

/// Options that take a value and change nothing that a stack has.
const WITH_VALUE: [&str; 24] = [
    "--cache-dir",
    "--config-file",
    "--default-timeout",
    "--exists-action",
    "--keyring-provider",
    "--link-mode",
    "--log",
    "--progress-bar",
    "--python",
    "-p",
    "--retries",
    "--root-user-action",
    "--src",
    "--timeout",
    "--trusted-host",
    "--allow-insecure-host",
    "--upgrade-package",
    "-P",
    "--upgrade-strategy",
    "--use-feature",
    "--use-deprecated",
    "--index-strategy",
    "--prefix",
    "--report",
];

/// What arguments say that no library, constraint or index is.
#[derive(Debug, Default)]
pub struct Arguments {
    /// Distributions that are built, or taken as wheels; `:all:` is all.
    pub from: Vec<(String, From)>,
}

/// Reads a file of requirements. The last argument says whether its lines are constraints.
pub type ReadLines =
    fn(&File, &mut Files<'_>, &Known, &mut Found, bool) -> Result<(), ConvertError>;

/// Where arguments stand.
pub struct Place<'a> {
    /// `FILE:LINE`.
    pub at: &'a str,
    /// Folder that paths start at.
    pub folder: &'a Path,
    /// Finds a file that a path names; `None`: there is none, which is only remarked.
    pub find: &'a dyn Fn(&Files<'_>, &str) -> Option<PathBuf>,
    /// Reads a file that they include.
    pub read: ReadLines,
    /// Whether the arguments install constraints: in a file that `-c` names.
    pub constrains: bool,
}

/// Reads arguments behind `pip install`, or an option line of a requirements file.
///
/// # Errors
/// If a file that they include cannot be read.
pub fn arguments(
    words: &[Word],
    place: &Place<'_>,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
) -> Result<Arguments, ConvertError> {
    let mut out = Arguments::default();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        if word.opaque {
            note(
                found,
                place,
                &word.text,
                "what it stands for is known only when the image is built: write it out in `libraries`",
            );
            continue;
        }
        let text = word.text.as_str();
        if !text.starts_with('-') || text == "-" {
            add(Asked::parse(place.at, text, place.folder), place, found);
            continue;
        }
        let (option, inline) = split(text);
        let mut value = || match &inline {
            Some(value) => Some(value.clone()),
            None => words.next().map(|w| w.text.clone()),
        };
        match option {
            "-r" | "--requirement" | "--requirements" => {
                let Some(name) = value() else { continue };
                include(&name, place, files, known, found, place.constrains)?;
            }
            "-c" | "--constraint" | "--constraints" => {
                let Some(name) = value() else { continue };
                include(&name, place, files, known, found, true)?;
            }
            "-e" | "--editable" => {
                let Some(what) = value() else { continue };
                editable(&what, place, found);
            }
            "-i" | "--index-url" | "--default-index" | "--pypi-url" => {
                if let Some(url) = value() {
                    index(&url, place, true, known, found);
                }
            }
            "--extra-index-url" | "--index" => {
                if let Some(url) = value() {
                    let url = url.split_once('=').map_or(url.as_str(), |(name, rest)| {
                        if name.contains("://") { &url } else { rest }
                    });
                    index(url, place, false, known, found);
                }
            }
            "-f" | "--find-links" => {
                if let Some(url) = value() {
                    links(&url, place, known, found);
                }
            }
            "--torch-backend" => {
                if let Some(backend) = value() {
                    torch_backend(&backend, place, known, found);
                }
            }
            "--no-binary" | "--no-binary-package" => {
                named(value(), From::Source, &mut out);
            }
            "--only-binary" => named(value(), From::Wheel, &mut out),
            "--pre" | "--prerelease" => {
                if option == "--prerelease" {
                    value();
                }
                note(
                    found,
                    place,
                    text,
                    "a stack takes pre-releases only where a version names one: write `\">=2.0.0rc1\"` for instance",
                );
            }
            "--no-index" => {
                note(
                    found,
                    place,
                    text,
                    "a stack's files come from indexes: name yours in `indexes`, or single files in `libraries`",
                );
            }
            "--no-deps" => {
                note(
                    found,
                    place,
                    text,
                    "a stack installs what its libraries require: `overrides` change what they ask for",
                );
            }
            "-t" | "--target" | "--root" => {
                let to = value().unwrap_or_default();
                note(
                    found,
                    place,
                    &format!("{option} {to}"),
                    "a stack installs into the image's one environment",
                );
            }
            "--build-option" | "--global-option" | "--config-settings" | "--config-setting"
            | "-C" => {
                let setting = value().unwrap_or_default();
                note(
                    found,
                    place,
                    &format!("{option} {setting}"),
                    "give a build its settings by `env` of the library, or by a recipe under `.stackforge/libraries/`",
                );
            }
            _ if WITH_VALUE.contains(&option) => {
                value();
            }
            // Switches, among them those of digests: the lock has its own.
            _ => {}
        }
    }
    Ok(out)
}

/// Splits `--option=value` and `-rvalue`.
fn split(text: &str) -> (&str, Option<String>) {
    if let Some(long) = text.strip_prefix("--") {
        return match long.split_once('=') {
            Some((name, value)) => (&text[..name.len() + 2], Some(value.to_owned())),
            None => (text, None),
        };
    }
    match text.char_indices().nth(2) {
        Some((at, _)) if "rceifCtPp".contains(text[1..at].trim()) => (
            &text[..at],
            Some(text[at..].trim_start_matches('=').to_owned()),
        ),
        _ => (text, None),
    }
}

fn named(value: Option<String>, from: From, out: &mut Arguments) {
    for name in value.unwrap_or_default().split(',') {
        let name = name.trim();
        // All wheels is what a stack does anyway where there are some.
        if name == ":all:" && from == From::Source || !name.is_empty() && !name.starts_with(':') {
            let name = if name == ":all:" {
                name.to_owned()
            } else {
                normalized(name)
            };
            out.from.push((name, from));
        }
    }
}

fn note(found: &mut Found, place: &Place<'_>, text: &str, why: &str) {
    found
        .libraries
        .push(Item::Note(Note::new(place.at, text, why)));
}

pub(super) fn add(item: Item<Asked>, place: &Place<'_>, found: &mut Found) {
    if place.constrains {
        found.constraints.push(item)
    } else {
        found.libraries.push(item)
    }
}

fn include(
    name: &str,
    place: &Place<'_>,
    files: &mut Files<'_>,
    known: &Known,
    found: &mut Found,
    constrains: bool,
) -> Result<(), ConvertError> {
    if name.contains("://") {
        note(
            found,
            place,
            name,
            "it lies elsewhere: fetch it and name the file",
        );
        return Ok(());
    }
    let Some(path) = (place.find)(files, name) else {
        let why = "the file is not beside it: give it to `init --from`, or write its lines here";
        note(found, place, name, why);
        return Ok(());
    };
    files.within(&path, place.at, |files, file| {
        (place.read)(file, files, known, found, constrains)
    })
}

/// Reads what is installed as editable: the project itself, or a repository.
fn editable(what: &str, place: &Place<'_>, found: &mut Found) {
    let text = format!("-e {what}");
    match Asked::parse(place.at, what, place.folder) {
        Item::Take(asked) if matches!(asked.wants, super::Wants::Git { .. }) => {
            found.libraries.push(Item::Take(asked));
        }
        _ if what == "." || what.starts_with(".[") => {
            let why = "an image takes no editable installs: `app` copies the project, or build its wheel (`pip wheel --no-deps .`) and name that file in `libraries`";
            note(found, place, &text, why);
        }
        _ => note(found, place, &text, EDITABLE),
    }
}

/// Takes an index; torch's own say which CUDA is wanted.
pub(super) fn index(url: &str, place: &Place<'_>, default: bool, known: &Known, found: &mut Found) {
    let url = url.trim_end_matches('/');
    if let Some(torch) = known.torch_index(url).filter(|_| is_index(url)) {
        if let Some(cuda) = &torch.cuda {
            found.cuda.get_or_insert(Why {
                value: cuda.clone(),
                at: format!("{url} ({})", place.at),
            });
        }
        found.indexes.push(Item::Take(Why {
            value: url.to_owned(),
            at: place.at.to_owned(),
        }));
        return;
    }
    if url.contains("${") {
        let why = "an address with an environment variable: set `UV_INDEX` where `stackforge lock` runs, or write it out";
        found
            .indexes
            .push(Item::Note(Note::new(place.at, url, why)));
        return;
    }
    if !is_index(url) {
        let why = "not the address of an index: those begin with https://";
        found
            .indexes
            .push(Item::Note(Note::new(place.at, url, why)));
        return;
    }
    let shown = without_login(url);
    if shown != url {
        let why = format!("its login is left out, since {SECRET}");
        let note = Note::new(place.at, shown.clone(), why);
        found.indexes.push(Item::Note(note));
        return index(&shown, place, default, known, found);
    }
    let taken = Item::Take(Why {
        value: url.to_owned(),
        at: place.at.to_owned(),
    });
    found.own_default_index |= default;
    // The one in the place of PyPI is asked last.
    if default {
        found.indexes.push(taken)
    } else {
        found.indexes.insert(0, taken)
    }
}

fn links(url: &str, place: &Place<'_>, known: &Known, found: &mut Found) {
    let url = url.trim_end_matches('/');
    if let Some(torch) = known.torch_index(url) {
        if let Some(cuda) = torch.cuda {
            found.cuda.get_or_insert(Why {
                value: cuda,
                at: format!("{url} ({})", place.at),
            });
        }
        let why = "a page of links is not an index: torch comes from the index for its CUDA";
        return note(found, place, &format!("-f {url}"), why);
    }
    let why = "a stack takes no pages of links: name the files that you need of it in `libraries` (`NAME: https://…whl`)";
    note(found, place, &format!("-f {url}"), why);
}

fn torch_backend(backend: &str, place: &Place<'_>, known: &Known, found: &mut Found) {
    match known.cuda_of_label(backend) {
        Some(value) => {
            found.cuda.get_or_insert(Why {
                value,
                at: format!("--torch-backend {backend} ({})", place.at),
            });
        }
        None if backend == "auto" => {}
        None => note(
            found,
            place,
            &format!("--torch-backend {backend}"),
            "a stack's torch is for CUDA",
        ),
    }
}
