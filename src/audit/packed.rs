//! Reads wheels that are files of an image or a directory: a cache, or a builder's output.
//!
//! In: a wheel's bytes, forward only ([`stackforge_binary::zip::Passing`]). Out: its objects, by their path in
//! the wheel. They are not installed, so they need no providers and cause no error in the target; they are
//! only listed. A wheel inside a wheel is not read.

use super::object::Item;
use super::stream::{KeepRanges, Passed, pass};
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
    /// Path and reason; an empty path stands for the wheel itself.
    pub damaged: Vec<(String, String)>,
}

/// Members to read again, by their number, and the parts of them to keep.
pub type Again = BTreeMap<usize, KeepRanges>;

impl Packed {
    /// Reads a wheel as a stream: all members the first time, those of `only` later. Returns those to read again.
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
            let ranges = match &mut only {
                None => KeepRanges::default(),
                Some(only) => match only.remove(&number) {
                    Some(ranges) => ranges,
                    None => continue,
                },
            };
            let (path, size) = (part.name.clone(), part.size);
            match pass(&path, size, &mut part, ranges) {
                Ok(Passed::Other) => {}
                Ok(Passed::Object(item)) => self.items.push(*item),
                Ok(Passed::Again(ranges)) => {
                    again.insert(number, ranges);
                }
                Ok(Passed::Damaged(why)) => self.damaged.push((path, why)),
                Err(e) => self.damaged.push((path, e.to_string())),
            }
        }
        again
    }

    /// Reads a wheel that can be opened repeatedly.
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

    /// Prefixes paths with the wheel's path in the tree.
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
