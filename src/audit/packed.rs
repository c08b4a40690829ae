//! Wheels that lie in an image or a directory as files: a cache, what a builder made.
//!
//! In: a wheel's bytes, forward only ([`stackforge_binary::zip::Passing`]). Out: the objects in it, by their
//! path in the wheel. They are not installed, so nobody provides what they need and nothing is held
//! against the target; what they are is told. Never descends further: a wheel in a wheel is a file.

use super::inventory::Item;
use super::stream::{Passed, Wishes, pass};
use stackforge_binary::zip::Passing;
use std::collections::BTreeMap;
use std::io::{BufReader, Read};

const PIECE: usize = 128 << 10;

pub fn is_wheel(path: &str) -> bool {
    path.ends_with(".whl")
}

#[derive(Debug, Default)]
pub struct Packed {
    pub items: Vec<Item>,
    /// Path and reason; an empty path is the wheel itself.
    pub damaged: Vec<(String, String)>,
}

/// Members that have to pass again, by their number, and what to keep of them.
pub type Again = BTreeMap<usize, Wishes>;

impl Packed {
    /// Reads a wheel that passes: all of it the first time, `only` those members later.
    pub fn pass(&mut self, name: &str, content: impl Read, only: Option<Again>) -> Again {
        let mut again = Again::new();
        let mut only = only;
        let mut wheel = Passing::new(name, BufReader::with_capacity(PIECE, content));
        for number in 0.. {
            if only.as_ref().is_some_and(Again::is_empty) {
                break;
            }
            let mut part = match wheel.part() {
                Ok(Some(part)) => part,
                Ok(None) => break,
                Err(e) => {
                    self.damaged.push((String::new(), e.to_string()));
                    break;
                }
            };
            let wishes = match &mut only {
                None => Wishes::default(),
                Some(only) => match only.remove(&number) {
                    Some(wishes) => wishes,
                    None => continue,
                },
            };
            let (path, size) = (part.name.clone(), part.size);
            match pass(&path, size, &mut part, wishes) {
                Ok(Passed::Other) => {}
                Ok(Passed::Object(item)) => self.items.push(*item),
                Ok(Passed::Again(wishes)) => {
                    again.insert(number, wishes);
                }
                Ok(Passed::Damaged(why)) => self.damaged.push((path, why)),
                Err(e) => self.damaged.push((path, e.to_string())),
            }
        }
        again
    }

    /// Reads a wheel that can be opened as often as it takes.
    pub fn read<R: Read>(
        name: &str,
        mut open: impl FnMut() -> std::io::Result<R>,
    ) -> std::io::Result<Self> {
        let mut packed = Self::default();
        let mut again = packed.pass(name, open()?, None);
        while !again.is_empty() {
            again = packed.pass(name, open()?, Some(again));
        }
        Ok(packed)
    }

    /// With paths of the tree, in which the wheel lies at `path`.
    pub fn at(self, path: &str) -> Self {
        let inside = |inner: &str| match inner {
            "" => path.to_owned(),
            inner => format!("{path}/{inner}"),
        };
        let items = self.items.into_iter().map(|item| Item {
            path: inside(&item.path),
            ..item
        });
        let damaged = self.damaged.iter();
        Self {
            items: items.collect(),
            damaged: damaged.map(|(p, why)| (inside(p), why.clone())).collect(),
        }
    }
}
