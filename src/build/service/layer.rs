//! Writes the tar of an app's layer, which both engines put over the same image.

use super::super::BuildError;
use super::super::base::io as failed_at;
use super::accounts::Account;
use super::below::Below;
use super::project::Files as Installed;
use stackforge_binary::tar::{Attributes, Format, Owner, Writer};
use stackforge_plan::{App, AppFile, AppSource, HOME};
use stackforge_stack::spec::service::User;
use stackforge_types::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const ROOT: (u32, u32) = (0, 0);

/// A member of the layer, by its path without a leading slash.
enum Member {
    Folder { owner: (u32, u32) },
    File { content: Content, mode: u32 },
    Link { to: String },
}

enum Content {
    Bytes(Vec<u8>),
    /// A file, whose content the plan has read.
    File {
        path: PathBuf,
        size: u64,
        sha256: Digest,
    },
}

/// Returns the folders that the layer needs, without a leading slash: only the image below says which it has.
pub(super) fn needed(app: &App, installed: &Installed) -> BTreeSet<String> {
    let mut needed: BTreeSet<String> = own_folders(app).into_iter().collect();
    if let Some(User::Named { name, .. }) = &app.user {
        needed.insert(format!("home/{name}"));
    }
    needed.extend(
        app.added
            .iter()
            .flat_map(|added| above(relative(&added.to))),
    );
    needed.extend(installed.keys().flat_map(|path| above(path)));
    let parents: Vec<String> = needed.iter().flat_map(|path| above(path)).collect();
    needed.extend(parents);
    needed
}

/// The app's own directory with its subfolders, and the directories that the configuration names.
fn own_folders(app: &App) -> Vec<String> {
    let mut folders: Vec<String> = Vec::new();
    if let Some(to) = &app.to {
        let to = relative(to);
        folders.push(to.to_owned());
        for file in &app.source.files {
            folders.extend(above(file.path()).map(|folder| format!("{to}/{folder}")));
        }
    }
    let more = app.volumes.iter().chain(&app.workdir);
    folders.extend(more.map(|path| relative(path).to_owned()));
    folders
}

/// Returns the folders above a relative path.
fn above(path: &str) -> impl Iterator<Item = String> {
    path.match_indices('/').map(|(at, _)| path[..at].to_owned())
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// Writes the layer. `installed` is what the project's wheel installs. Returns `out` at the end of the tar.
///
/// # Errors
/// If a file of the app changed since the plan was made, or a path leads through a link of the image below.
pub(in super::super) fn write<W: Write>(
    app: &App,
    installed: Installed,
    account: Option<&Account>,
    below: &Below,
    epoch: u32,
    out: W,
) -> Result<W, BuildError> {
    let members = members(app, installed, account, below);
    for path in members.keys() {
        let through =
            above(path).find_map(|folder| Some((below.links.get(&folder)?.clone(), folder)));
        if let Some((to, folder)) = through {
            return Err(BuildError::ThroughLink {
                path: format!("/{path}"),
                link: format!("/{folder}"),
                to,
            });
        }
    }
    archive(&members, epoch, out)
}

/// Writes a tar of an app's files alone, with paths as in its folder.
///
/// # Errors
/// If a file changed since the plan was made.
pub(super) fn source<W: Write>(source: &AppSource, epoch: u32, out: W) -> Result<W, BuildError> {
    let files = source.files.iter();
    let mut members: BTreeMap<String, Member> = files
        .map(|file| {
            let from = source.folder.join(file.path());
            (file.path().to_owned(), Member::of(file, from))
        })
        .collect();
    let parents: BTreeSet<String> = members.keys().flat_map(|path| above(path)).collect();
    let folder = |path| (path, Member::Folder { owner: ROOT });
    members.extend(parents.into_iter().map(folder));
    archive(&members, epoch, out)
}

fn archive<W: Write>(
    members: &BTreeMap<String, Member>,
    epoch: u32,
    out: W,
) -> Result<W, BuildError> {
    let failed = |e| failed_at("make the layer of", Path::new("the app"), e);
    let mut tar = Writer::new(Format::Ustar, out);
    let attributes = |mode, (uid, gid): (u32, u32)| Attributes {
        mtime: u64::from(epoch),
        owner: Some(Owner {
            uid: uid.into(),
            gid: gid.into(),
        }),
        ..Attributes::new(mode)
    };
    for (path, member) in members {
        match member {
            Member::Folder { owner } => {
                tar.directory(path, attributes(0o755, *owner))
                    .map_err(failed)?;
            }
            Member::Link { to } => tar
                .symlink(path, to, attributes(0o777, ROOT))
                .map_err(failed)?,
            Member::File {
                content: Content::Bytes(bytes),
                mode,
            } => {
                let size = bytes.len() as u64;
                tar.file(path, attributes(*mode, ROOT), size, bytes.as_slice())
                    .map_err(failed)?;
            }
            Member::File {
                content:
                    Content::File {
                        path: from,
                        size,
                        sha256,
                    },
                mode,
            } => {
                let read = |e| failed_at("read", from, e);
                let file = File::open(from).map_err(read)?;
                let mut hashed = Hashed {
                    inner: file.take(*size),
                    hasher: Sha256::new(),
                };
                let written = tar.file(path, attributes(*mode, ROOT), *size, &mut hashed);
                // A file that became shorter ends before its size.
                written.map_err(|_| changed(from))?;
                if Digest::from_hash(&hashed.hasher.finalize()) != *sha256 {
                    return Err(changed(from));
                }
            }
        }
    }
    tar.finish().map_err(failed)
}

fn changed(path: &Path) -> BuildError {
    BuildError::AppChanged {
        path: path.to_owned(),
    }
}

impl Member {
    /// Describes a file or link that lies at `from` on this machine.
    fn of(file: &AppFile, from: PathBuf) -> Self {
        match file {
            AppFile::Link { to, .. } => Self::Link { to: to.clone() },
            AppFile::File {
                sha256,
                size,
                executable,
                ..
            } => Self::File {
                content: Content::File {
                    path: from,
                    size: *size,
                    sha256: sha256.clone(),
                },
                mode: if *executable { 0o755 } else { 0o644 },
            },
        }
    }
}

fn members(
    app: &App,
    installed: Installed,
    account: Option<&Account>,
    below: &Below,
) -> BTreeMap<String, Member> {
    let mut members = BTreeMap::new();
    let owner = account.map_or(ROOT, |a| (a.uid, a.gid));
    for (path, file) in installed {
        let content = Content::Bytes(file.content);
        let mode = if file.executable { 0o755 } else { 0o644 };
        members.insert(path, Member::File { content, mode });
    }
    for path in app.volumes.iter().chain(&app.workdir) {
        let path = relative(path);
        if !below.folders.contains(path) {
            members.insert(path.to_owned(), Member::Folder { owner });
        }
    }
    if let Some(to) = &app.to {
        let to = relative(to);
        let root = Member::Folder { owner: ROOT };
        members.entry(to.to_owned()).or_insert(root);
        for one in &app.source.files {
            let from = app.source.folder.join(one.path());
            members.insert(format!("{to}/{}", one.path()), Member::of(one, from));
        }
    }
    for added in &app.added {
        let path = relative(&added.to).to_owned();
        members.insert(path, Member::of(&added.file, added.from.clone()));
    }
    if let Some(created) = account.and_then(|a| a.created.as_ref()) {
        let text = |text: &String| Member::File {
            content: Content::Bytes(text.clone().into_bytes()),
            mode: 0o644,
        };
        members.insert("etc/passwd".to_owned(), text(&created.passwd));
        members.insert("etc/group".to_owned(), text(&created.group));
        let home = relative(&created.home);
        if !below.folders.contains(home) {
            members.insert(home.to_owned(), Member::Folder { owner });
        }
    }
    let parents: BTreeSet<String> = members.keys().flat_map(|path| above(path)).collect();
    for parent in parents {
        // Of the environment only one engine knows the packages' folders, so both name them.
        if !below.folders.contains(&parent) || is_of_package(&parent) {
            let root = Member::Folder { owner: ROOT };
            members.entry(parent).or_insert(root);
        }
    }
    members
}

/// Whether a folder is one of an installed package, which has no other owner or mode in any layer.
fn is_of_package(folder: &str) -> bool {
    let below = folder.strip_prefix(HOME.trim_start_matches('/'));
    below.is_some_and(|below| below.contains("/site-packages/"))
}

/// Hashes what is read.
struct Hashed<R> {
    inner: R,
    hasher: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.hasher.update(&buf[..n]);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::super::accounts::account;
    use super::*;
    use stackforge_binary::tar::{MemberKind, Reader};

    /// Returns `kind mode owner path` of each member.
    fn listed(app: &App, below: &Below) -> Result<Vec<String>, BuildError> {
        let user = app.user.as_ref();
        let account = user.map(|user| account(user, &below.passwd, &below.group).unwrap());
        let installed = Installed::new();
        let tar = write(app, installed, account.as_ref(), below, 7, Vec::new())?;
        let mut reader = Reader::new(tar.as_slice());
        let mut lines = Vec::new();
        while let Some(entry) = reader.next().unwrap() {
            let h = &entry.header;
            assert_eq!(h.mtime, 7);
            let kind = match h.kind {
                MemberKind::Directory => "d",
                MemberKind::SymLink => "l",
                _ => "f",
            };
            lines.push(format!(
                "{kind} {:o} {}:{} {}",
                h.mode, h.uid, h.gid, h.path
            ));
        }
        Ok(lines)
    }

    fn app(folder: &Path) -> App {
        std::fs::write(folder.join("main.py"), "print(1)").unwrap();
        App {
            to: Some("/srv/app".into()),
            source: AppSource {
                folder: folder.to_owned(),
                files: vec![
                    AppFile::Link {
                        path: "bin/run".into(),
                        to: "../main.py".into(),
                    },
                    AppFile::File {
                        path: "main.py".into(),
                        sha256: Digest::of(b"print(1)"),
                        size: 8,
                        executable: false,
                    },
                ],
            },
            user: Some(User::Named {
                name: "app".into(),
                uid: None,
                gid: None,
            }),
            volumes: vec!["/data".into()],
            ..App::default()
        }
    }

    fn below() -> Below {
        Below {
            passwd: "root:x:0:0::/root:/bin/sh\n".into(),
            group: "root:x:0:\n".into(),
            folders: ["etc", "home", "srv"].map(String::from).into(),
            links: [("bin".to_owned(), "usr/bin".to_owned())].into(),
        }
    }

    #[test]
    fn folders_of_the_base_keep_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            listed(&app(dir.path()), &below()).unwrap(),
            [
                "d 755 1000:1000 data",
                "f 644 0:0 etc/group",
                "f 644 0:0 etc/passwd",
                "d 755 1000:1000 home/app",
                "d 755 0:0 srv/app",
                "d 755 0:0 srv/app/bin",
                "l 777 0:0 srv/app/bin/run",
                "f 644 0:0 srv/app/main.py",
            ]
        );
    }

    #[test]
    fn a_file_that_changed_meanwhile_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["print(2)", "p", "print(1) and more"] {
            let app = app(dir.path());
            std::fs::write(dir.path().join("main.py"), text).unwrap();
            let listed = listed(&app, &below());
            // What was added behind the known bytes is not read.
            assert_eq!(listed.is_ok(), text.starts_with("print(1)"), "{text}");
        }
    }

    #[test]
    fn nothing_is_written_through_a_link_of_the_base() {
        let dir = tempfile::tempdir().unwrap();
        let app = App {
            to: Some("/bin/app".into()),
            ..app(dir.path())
        };
        let e = listed(&app, &below()).unwrap_err();
        assert!(e.to_string().contains("/bin"), "{e}");
    }
}
