//! Reads a directory, or a single file, as a tree.

use super::{Content, Contents, Tree, TreeError, TreeKind};
use std::collections::BTreeMap;
use std::path::Path;

pub fn open(target: &Path) -> Result<(Tree, Contents), TreeError> {
    let mut files = Vec::new();
    let mut links = BTreeMap::new();
    let mut left = vec![(String::new(), target.to_owned())];
    while let Some((inside, path)) = left.pop() {
        let read = |source| TreeError::Read {
            path: path.clone(),
            source,
        };
        for entry in std::fs::read_dir(&path).map_err(read)? {
            let entry = entry.map_err(read)?;
            let kind = entry.file_type().map_err(read)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let inside = match inside.as_str() {
                "" => name,
                folder => format!("{folder}/{name}"),
            };
            if kind.is_dir() {
                left.push((inside, entry.path()));
            } else if kind.is_symlink() {
                let to = std::fs::read_link(entry.path()).map_err(read)?;
                links.insert(inside, to.to_string_lossy().into_owned());
            } else if kind.is_file() {
                files.push((inside, Content::Disk(entry.path())));
            }
        }
    }
    let (paths, contents) = Contents::sorted(files);
    let tree = Tree {
        name: target.display().to_string(),
        kind: TreeKind::Directory,
        texts: contents.texts(&paths),
        paths,
        mount: String::new(),
        python: None,
        links,
    };
    Ok((tree, contents))
}

pub fn single(target: &Path) -> (Tree, Contents) {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let tree = Tree {
        name: target.display().to_string(),
        kind: TreeKind::Object,
        paths: vec![name.into_owned()],
        mount: String::new(),
        python: None,
        links: BTreeMap::new(),
        texts: BTreeMap::new(),
    };
    (tree, Contents(vec![Content::Disk(target.to_owned())]))
}
