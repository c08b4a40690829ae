//! What of an app's folder goes into the image.
//!
//! In: the folder that `app.source` names. Out: [`AppFile`]s, each with its digest, sorted by path. `.dockerignore`
//! and `.gitignore` leave files out, as Docker and git read them; so does this module, for what is never an app's.

use crate::op::{Added, AppFile, AppSource};
use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};
use stackforge_stack::diag::{Code, Diagnostic, codes};
use stackforge_stack::spec::{App, Stack};
use stackforge_types::Digest;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Most files of an app.
const MOST: usize = 100_000;
/// Longest `.dockerignore`, in bytes.
const MAX_IGNORE: u64 = 1 << 20;
/// Folders that are never part of an app: histories, and what Python makes anew.
const NEVER: [&str; 5] = [".git", ".hg", ".svn", "__pycache__", ".stackforge"];

/// Reads the files of a stack's app. `None` if it has none.
///
/// # Errors
/// A finding at the stack's line, if the folder or a file of it cannot be read.
pub(super) fn read(stack: &Stack) -> Result<Option<AppSource>, Diagnostic> {
    let Some(app) = &stack.app else {
        return Ok(None);
    };
    let beside = Path::new(stack.file()).parent().unwrap_or(Path::new(""));
    let folder = beside.join(&app.source.value);
    let folder = if folder.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        folder
    };
    let found = files(&folder, stack).map_err(|fault| fault.diagnostic(app))?;
    Ok(Some(AppSource {
        files: found,
        folder,
    }))
}

/// Reads the files that `image.files` adds, by their paths in the image.
///
/// # Errors
/// A finding at the stack's line, if one cannot be read.
pub(super) fn added(stack: &Stack) -> Result<Vec<Added>, Diagnostic> {
    let beside = Path::new(stack.file()).parent().unwrap_or(Path::new(""));
    let files = stack.image.iter().flat_map(|image| &image.files);
    let read = |(to, from): (&String, &stackforge_stack::spec::At<String>)| {
        let path = beside.join(&from.value);
        let failed = |e: io::Error| {
            let message = format!("`{}` cannot be read: {e}", from.value);
            let help = "its path starts at the stack file's folder";
            Diagnostic::error(codes::UNREADABLE, message)
                .at(from.span)
                .help(help)
        };
        let resolved = path
            .canonicalize()
            .and_then(|path| regular(&path).map(|()| path));
        let file = resolved.and_then(|path| Ok((file(&path, to)?, path)));
        let (file, from) = file.map_err(failed)?;
        Ok(Added {
            to: to.clone(),
            file,
            from,
        })
    };
    files.map(read).collect()
}

/// Why a folder cannot be an app.
enum Fault {
    Unreadable { path: PathBuf, why: String },
    NotUtf8 { path: PathBuf },
    Special { path: PathBuf },
    TooMany,
    BadIgnore { line: String, why: String },
}

impl Fault {
    fn diagnostic(self, app: &App) -> Diagnostic {
        let (code, message, help): (Code, String, &str) = match self {
            Self::Unreadable { path, why } => (
                codes::UNREADABLE,
                format!("{} cannot be read: {why}", path.display()),
                "`app.source` is a folder; a relative path starts at the stack file's folder",
            ),
            Self::NotUtf8 { path } => (
                codes::BAD_NAME,
                format!("the name of {} is not UTF-8", path.display()),
                "rename the file, or leave it out by `.dockerignore`",
            ),
            Self::Special { path } => (
                codes::BAD_VALUE,
                format!("{} is a socket, a pipe or a device", path.display()),
                "leave it out by `.dockerignore`",
            ),
            Self::TooMany => (
                codes::TOO_LARGE,
                format!("{} has more than {MOST} files", app.source.value),
                "leave data and environments out by `.dockerignore`",
            ),
            Self::BadIgnore { line, why } => (
                codes::BAD_VALUE,
                format!("`{line}` in `.dockerignore` is not a pattern: {why}"),
                "write it as Docker's documentation of `.dockerignore` says",
            ),
        };
        Diagnostic::error(code, message)
            .at(app.source.span)
            .help(help)
    }
}

fn unreadable(path: &Path, why: impl ToString) -> Fault {
    Fault::Unreadable {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn files(folder: &Path, stack: &Stack) -> Result<Vec<AppFile>, Fault> {
    let metadata = std::fs::metadata(folder).map_err(|e| unreadable(folder, e))?;
    if !metadata.is_dir() {
        return Err(unreadable(folder, "it is not a folder"));
    }
    let ignored = DockerIgnore::read(folder)?;
    // The stack and its lock describe the image and are not part of it.
    let own: Vec<PathBuf> = [Path::new(stack.file()).to_owned()]
        .into_iter()
        .flat_map(|path| [path.with_extension("lock"), path])
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let walk = WalkBuilder::new(folder)
        .standard_filters(false)
        .git_ignore(true)
        .require_git(false)
        .follow_links(false)
        .filter_entry(|entry| entry.depth() == 0 || !is_made(entry))
        .build();
    let mut found = Vec::new();
    for entry in walk {
        let entry = entry.map_err(|e| unreadable(folder, e))?;
        let kind = match entry.file_type() {
            Some(kind) if kind.is_dir() => continue,
            Some(kind) => kind,
            None => continue,
        };
        let path = entry.path();
        let inside = path.strip_prefix(folder).unwrap_or(path);
        let Some(name) = inside.to_str() else {
            return Err(Fault::NotUtf8 {
                path: path.to_owned(),
            });
        };
        let is_own = || path.canonicalize().is_ok_and(|path| own.contains(&path));
        if ignored.leaves_out(name) || name.ends_with(".pyc") || is_own() {
            continue;
        }
        if found.len() == MOST {
            return Err(Fault::TooMany);
        }
        if !kind.is_file() && !kind.is_symlink() {
            return Err(Fault::Special {
                path: path.to_owned(),
            });
        }
        found.push(file(path, name).map_err(|e| unreadable(path, e))?);
    }
    found.sort_by(|a, b| a.path().cmp(b.path()));
    Ok(found)
}

/// Whether a folder is made by tools and no part of an app: a cache that says so by the Cache Directory Tagging
/// Specification (virtual environments of uv, caches of linters), or an image or a store of images.
fn is_made(entry: &DirEntry) -> bool {
    let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
    let has = |name: &str| entry.path().join(name).symlink_metadata().is_ok();
    NEVER.iter().any(|name| entry.file_name() == *name)
        || (is_folder && (has("CACHEDIR.TAG") || has("oci-layout")))
}

/// Refuses what is not a file: a pipe has no end.
fn regular(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_file() {
        return Ok(());
    }
    Err(io::Error::other("it is not a file"))
}

/// Describes a file or a symbolic link.
fn file(path: &Path, name: &str) -> io::Result<AppFile> {
    let metadata = path.symlink_metadata()?;
    if metadata.is_symlink() {
        let to = std::fs::read_link(path)?;
        let to = to
            .to_str()
            .ok_or_else(|| io::Error::other("it is a link whose target is not UTF-8"))?;
        return Ok(AppFile::Link {
            path: name.to_owned(),
            to: to.to_owned(),
        });
    }
    let mut content = File::open(path)?;
    let sha256 = Digest::of_reader(&mut content)?;
    let size = metadata.len();
    Ok(AppFile::File {
        path: name.to_owned(),
        sha256,
        size,
        executable: metadata.permissions().mode() & 0o111 != 0,
    })
}

/// The patterns of a `.dockerignore`: the last one that fits decides.
struct DockerIgnore(Vec<(bool, GlobMatcher)>);

impl DockerIgnore {
    fn read(folder: &Path) -> Result<Self, Fault> {
        let path = folder.join(".dockerignore");
        let mut text = String::new();
        match File::open(&path) {
            Ok(file) => {
                let read = file.take(MAX_IGNORE).read_to_string(&mut text);
                read.map_err(|e| unreadable(&path, e))?;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(unreadable(&path, e)),
        }
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let mut patterns = Vec::new();
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (out, pattern) = match line.strip_prefix('!') {
                Some(kept) => (false, kept.trim()),
                None => (true, line),
            };
            let parts = pattern.split('/').filter(|part| !["", "."].contains(part));
            let clean = parts.collect::<Vec<_>>().join("/");
            if clean.is_empty() {
                continue;
            }
            let glob = GlobBuilder::new(&clean).literal_separator(true).build();
            let glob = glob.map_err(|e| Fault::BadIgnore {
                line: line.to_owned(),
                why: e.kind().to_string(),
            })?;
            patterns.push((out, glob.compile_matcher()));
        }
        Ok(Self(patterns))
    }

    /// Whether a path stays out of the image: it, or a folder above it, fits.
    fn leaves_out(&self, path: &str) -> bool {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        let all: Vec<&str> = above.chain([path]).collect();
        let fits = |glob: &GlobMatcher| all.iter().any(|part| glob.is_match(part));
        let last = self.0.iter().rev().find(|(_, glob)| fits(glob));
        last.is_some_and(|(out, _)| *out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let stack = dir.path().join("stack.yaml");
        let text = "stack: s\nbase: b\ntarget: { platform: linux/amd64, gpu: [h100] }\npython: \"3.12\"\nlibraries: { six: auto }\napp: { source: . }\n";
        std::fs::write(&stack, text).unwrap();
        std::fs::write(stack.with_extension("lock"), "").unwrap();
        let stack = stackforge_stack::spec::read(stack.to_str().unwrap(), text).unwrap();
        let read = read(&stack.pattern).unwrap().unwrap();
        read.files.iter().map(|f| f.path().to_owned()).collect()
    }

    #[test]
    fn the_stack_and_what_python_and_git_keep_stay_out() {
        let found = names(&[
            ("main.py", ""),
            ("pkg/__init__.py", ""),
            ("pkg/__pycache__/x.cpython-312.pyc", ""),
            ("pkg/old.pyc", ""),
            (".git/HEAD", ""),
            (".env.example", ""),
            (".venv/CACHEDIR.TAG", ""),
            (".venv/lib/x.py", ""),
            ("out/oci-layout", ""),
            ("out/blobs/x", ""),
        ]);
        assert_eq!(found, [".env.example", "main.py", "pkg/__init__.py"]);
    }

    #[test]
    fn both_ignore_files_count() {
        let found = names(&[
            (".gitignore", "*.log\n/data\n!keep.log\n"),
            (".dockerignore", "# tests\ntests\n**/*.md\n!README.md\n"),
            ("a.log", ""),
            ("keep.log", ""),
            ("data/x", ""),
            ("sub/data/x", ""),
            ("sub/.gitignore", "secret\n"),
            ("sub/secret", ""),
            ("tests/t.py", ""),
            ("sub/tests/t.py", ""),
            ("README.md", ""),
            ("docs/x.md", ""),
        ]);
        let kept = [
            ".dockerignore",
            ".gitignore",
            "README.md",
            "keep.log",
            "sub/.gitignore",
            "sub/data/x",
            "sub/tests/t.py",
        ];
        assert_eq!(found, kept);
    }

    #[test]
    fn dockerignore_as_docker_reads_it() {
        let ignore = |text: &str| DockerIgnore::parse(text).ok().unwrap();
        for (text, path, out) in [
            ("*", "a/b", true),
            ("*\n!src", "src/x.py", false),
            ("*\n!src\nsrc/*.tmp", "src/x.tmp", true),
            ("/build", "build/x", true),
            ("./build/", "build/x", true),
            ("build", "sub/build", false),
            ("**/build", "sub/build/x", true),
            ("*/temp*", "a/temporary.txt", true),
            ("temp?", "tempa", true),
            ("temp?", "temp/a", false),
        ] {
            assert_eq!(ignore(text).leaves_out(path), out, "{text:?} {path}");
        }
        assert!(DockerIgnore::parse("a[").is_err());
    }
}
