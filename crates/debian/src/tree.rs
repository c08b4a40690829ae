//! The names of a root file system while packages are laid into it.
//!
//! Knows directories, symbolic links and the owner of each file. For each further member of a package
//! it decides where the member really goes and whether it is written, as dpkg would on a disk. Parents
//! are followed through existing links, so a file that a package ships in `/lib` goes to `/usr/lib`. A
//! directory that exists is kept. A file of another package is replaced only with `Replaces`.

use std::collections::HashMap;

/// Top-level names that a system with merged /usr links into /usr: the first three always, the others
/// when a package mentions them (`lib64` on amd64, none on arm64).
const MERGED: [&str; 3] = ["bin", "lib", "sbin"];
const MERGED_ON_DEMAND: [&str; 4] = ["lib32", "lib64", "libo32", "libx32"];

/// A node of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// A symbolic link, with its target as written.
    Symlink(String),
    /// A file or a hard link to one.
    File,
}

/// The owner of a name: a package by its index in the list, or `None` if it belongs to no package.
pub(crate) type Owner = Option<usize>;

/// Returns the node that the system below has at a path, and whether one of its packages owns it.
pub(crate) type Below<'a> = Box<dyn Fn(&str) -> Option<(Node, bool)> + 'a>;

#[derive(Default)]
pub(crate) struct Tree<'a> {
    nodes: HashMap<String, (Node, Owner)>,
    below: Option<Below<'a>>,
}

/// A directory or link that must be written before the placed member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Implied {
    Directory(String),
    Symlink { path: String, target: String },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The member must be written at this path.
    New(String),
    /// Nothing is written: the path already has the same, or a directory that dpkg keeps.
    Kept,
    /// Nothing is written: the package that has the path replaces this package's file.
    Replaced,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PlaceError {
    /// The path belongs to another owner.
    Conflict(Owner),
    /// A parent is a file, or links form a cycle.
    Parent(String),
}

impl<'a> Tree<'a> {
    /// Creates a tree of names on top of an existing system.
    pub(crate) fn over(below: Below<'a>) -> Self {
        Tree {
            nodes: HashMap::new(),
            below: Some(below),
        }
    }

    fn get(&self, path: &str) -> Option<(Node, Owner)> {
        let below = || self.below.as_ref()?(path).map(|(node, _)| (node, None));
        self.nodes.get(path).cloned().or_else(below)
    }

    /// Returns the node at a real path.
    pub(crate) fn node(&self, path: &str) -> Option<Node> {
        if path.is_empty() {
            return Some(Node::Directory);
        }
        self.get(path).map(|(node, _)| node)
    }

    /// Follows every link of a path. `None` if nothing is there.
    pub(crate) fn follow(&self, path: &str) -> Option<String> {
        let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let (mut real, mut links) = (String::new(), 0);
        while let Some(part) = todo.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    real.truncate(real.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let parent = real.len();
            if !real.is_empty() {
                real.push('/');
            }
            real.push_str(&part);
            if let Node::Symlink(target) = self.node(&real)? {
                links += 1;
                if links > 40 {
                    return None;
                }
                todo.extend(target.split('/').rev().map(str::to_owned));
                real.truncate(if target.starts_with('/') { 0 } else { parent });
            }
        }
        self.node(&real).map(|_| real)
    }

    /// Returns the sorted names that were added directly in a directory, without those of the system
    /// below.
    pub(crate) fn names(&self, directory: &str) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .nodes
            .keys()
            .filter_map(|path| path.strip_prefix(directory)?.strip_prefix('/'))
            .filter(|name| !name.contains('/'))
            .collect();
        names.sort_unstable();
        names
    }

    /// Puts a node at a real path whose parents exist, and replaces whatever was there.
    pub(crate) fn put(&mut self, path: &str, node: Node) {
        self.nodes.insert(path.to_owned(), (node, None));
    }

    pub(crate) fn new() -> (Self, Vec<Implied>) {
        let mut tree = Tree::default();
        let mut implied = Vec::new();
        for name in MERGED {
            tree.merge(name, &mut implied);
        }
        (tree, implied)
    }

    fn merge(&mut self, name: &str, implied: &mut Vec<Implied>) {
        for directory in ["usr".to_owned(), format!("usr/{name}")] {
            if self.get(&directory).is_none() {
                self.nodes
                    .insert(directory.clone(), (Node::Directory, None));
                implied.push(Implied::Directory(directory));
            }
        }
        let target = format!("usr/{name}");
        self.nodes
            .insert(name.to_owned(), (Node::Symlink(target.clone()), None));
        implied.push(Implied::Symlink {
            path: name.to_owned(),
            target,
        });
    }

    /// Whether a regular file of this owner is at a real path.
    pub(crate) fn is_file_of(&self, path: &str, owner: usize) -> bool {
        self.nodes.get(path) == Some(&(Node::File, Some(owner)))
    }

    /// Decides where a member goes. `replaces(a, b)` tells whether package `a` may take over files of
    /// `b`.
    pub(crate) fn place(
        &mut self,
        path: &str,
        node: Node,
        owner: Owner,
        replaces: impl Fn(usize, usize) -> bool,
        implied: &mut Vec<Implied>,
    ) -> Result<Placement, PlaceError> {
        if path.is_empty() {
            return Ok(Placement::Kept);
        }
        let first = path.split('/').next().unwrap_or_default();
        if MERGED_ON_DEMAND.contains(&first) && self.get(first).is_none() {
            self.merge(first, implied);
        }
        let real = self.real_path(path, implied)?;
        let Some((existing, other)) = self.get(&real) else {
            self.nodes.insert(real.clone(), (node, owner));
            return Ok(Placement::New(real));
        };
        // Like dpkg, this takes over files that no package of the system below owns.
        if !self.nodes.contains_key(&real)
            && existing != Node::Directory
            && node != Node::Directory
            && let Some((_, false)) = self.below.as_ref().and_then(|below| below(&real))
        {
            self.nodes.insert(real.clone(), (node, owner));
            return Ok(Placement::New(real));
        }
        match (&existing, &node) {
            (Node::Directory, Node::Directory) => Ok(Placement::Kept),
            // dpkg keeps a directory if a package ships a link at its path.
            (Node::Directory, Node::Symlink(_)) => Ok(Placement::Kept),
            (Node::Symlink(_), Node::Directory) => {
                match self.follow(&real).and_then(|target| self.node(&target)) {
                    None | Some(Node::Directory) => Ok(Placement::Kept),
                    Some(_) => Err(PlaceError::Conflict(other)),
                }
            }
            (Node::Symlink(a), Node::Symlink(b))
                if a == b && (other.is_none() || owner.is_none()) =>
            {
                self.nodes.insert(real, (node, owner.or(other)));
                Ok(Placement::Kept)
            }
            _ => match (other, owner) {
                (Some(other), Some(owner)) if other != owner && replaces(other, owner) => {
                    Ok(Placement::Replaced)
                }
                _ => Err(PlaceError::Conflict(other)),
            },
        }
    }

    /// Returns the path with every parent's links followed, and creates missing parents. If the last
    /// part is `.`, the whole path is followed.
    pub(crate) fn real_path(
        &mut self,
        path: &str,
        implied: &mut Vec<Implied>,
    ) -> Result<String, PlaceError> {
        let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut real = String::new();
        let mut links = 0;
        while let Some(part) = todo.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    real.truncate(real.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let parent = real.len();
            if !real.is_empty() {
                real.push('/');
            }
            real.push_str(&part);
            if todo.is_empty() {
                break;
            }
            match self.node(&real) {
                Some(Node::Directory) => {}
                Some(Node::File) => return Err(PlaceError::Parent(real)),
                Some(Node::Symlink(target)) => {
                    links += 1;
                    if links > 40 {
                        return Err(PlaceError::Parent(real));
                    }
                    todo.extend(target.split('/').rev().map(str::to_owned));
                    real.truncate(if target.starts_with('/') { 0 } else { parent });
                }
                None => {
                    self.nodes.insert(real.clone(), (Node::Directory, None));
                    implied.push(Implied::Directory(real.clone()));
                }
            }
        }
        Ok(real)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(
        tree: &mut Tree<'_>,
        path: &str,
        node: Node,
        owner: usize,
    ) -> Result<Placement, PlaceError> {
        tree.place(
            path,
            node,
            Some(owner),
            |a, b| (a, b) == (9, 1),
            &mut Vec::new(),
        )
    }

    fn link(target: &str) -> Node {
        Node::Symlink(target.to_owned())
    }

    fn new(path: &str) -> Result<Placement, PlaceError> {
        Ok(Placement::New(path.to_owned()))
    }

    #[test]
    fn merges_usr() {
        let (mut tree, implied) = Tree::new();
        assert!(implied.contains(&Implied::Symlink {
            path: "lib".into(),
            target: "usr/lib".into()
        }));
        assert!(
            !implied
                .iter()
                .any(|item| matches!(item, Implied::Symlink { path, .. } if path == "lib64"))
        );
        assert_eq!(
            place(&mut tree, "lib/x86_64-linux-gnu", Node::Directory, 0),
            new("usr/lib/x86_64-linux-gnu")
        );
        assert_eq!(
            place(&mut tree, "lib", Node::Directory, 0),
            Ok(Placement::Kept)
        );
        assert_eq!(
            place(&mut tree, "bin", link("usr/bin"), 0),
            Ok(Placement::Kept)
        );
        let mut implied = Vec::new();
        let placed = tree.place(
            "lib64/ld.so",
            Node::File,
            Some(0),
            |_, _| false,
            &mut implied,
        );
        assert_eq!(placed, new("usr/lib64/ld.so"));
        assert_eq!(
            implied[1],
            Implied::Symlink {
                path: "lib64".into(),
                target: "usr/lib64".into()
            }
        );
    }

    #[test]
    fn follows_links_and_stops_circles() {
        let (mut tree, _) = Tree::new();
        place(&mut tree, "usr/share/a", Node::Directory, 0).unwrap();
        place(&mut tree, "usr/share/b", link("../../usr/share/./a"), 0).unwrap();
        assert_eq!(
            place(&mut tree, "usr/share/b/f", Node::File, 0),
            new("usr/share/a/f")
        );
        place(&mut tree, "escape", link("../../.."), 0).unwrap();
        assert_eq!(place(&mut tree, "escape/f", Node::File, 0), new("f"));
        place(&mut tree, "loop", link("loop"), 0).unwrap();
        assert!(matches!(
            place(&mut tree, "loop/f", Node::File, 0),
            Err(PlaceError::Parent(_))
        ));
        assert!(matches!(
            place(&mut tree, "f/g", Node::File, 0),
            Err(PlaceError::Parent(_))
        ));
    }

    #[test]
    fn keeps_apart_who_owns_a_file() {
        let (mut tree, _) = Tree::new();
        assert_eq!(
            place(&mut tree, "usr/bin/x", Node::File, 9),
            new("usr/bin/x")
        );
        assert_eq!(
            place(&mut tree, "bin/x", Node::File, 1),
            Ok(Placement::Replaced)
        );
        assert_eq!(
            place(&mut tree, "bin/x", Node::File, 2),
            Err(PlaceError::Conflict(Some(9)))
        );
        assert_eq!(
            place(&mut tree, "bin/x", Node::File, 9),
            Err(PlaceError::Conflict(Some(9)))
        );
        assert_eq!(
            place(&mut tree, "usr/bin", Node::File, 1),
            Err(PlaceError::Conflict(None))
        );
        assert!(tree.is_file_of("usr/bin/x", 9) && !tree.is_file_of("usr/bin/x", 1));
    }

    proptest! {
        #[test]
        fn never_leaves_the_root(steps in proptest::collection::vec(("[ab./]{1,6}", "[ab./]{1,8}", 0u8..3), 0..30)) {
            let (mut tree, _) = Tree::new();
            for (path, target, kind) in steps {
                let path = path.split('/').filter(|p| !p.is_empty() && *p != "." && *p != "..").collect::<Vec<_>>().join("/");
                let node = match kind { 0 => Node::Directory, 1 => Node::File, _ => Node::Symlink(target) };
                if let Ok(Placement::New(real)) = place(&mut tree, &path, node, 1) {
                    prop_assert!(real.split('/').all(|part| !part.is_empty() && part != "." && part != ".."));
                }
            }
        }
    }
}
