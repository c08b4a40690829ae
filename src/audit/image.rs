//! The files of an image, whose layers can only be read forward.
//!
//! In: an [`Image`]. Out: its files as one tree, as a container sees them, the system that they are,
//! and every object, read as it passes. A layer is read once, all of them at the same time, and
//! once more where it holds an object that was laid out oddly ([`super::stream`]). Nothing is
//! unpacked.

use super::inventory::Inventory;
use super::stream::{Passed, Wishes, pass};
use super::system::System;
use super::tree::{Kind, Tree, TreeError};
use crate::oci::merge::{self, Merged};
use crate::tar::{self, Header, Reader};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Objects that are held at a time may have 64 MiB each.
const MOST_WORKERS: usize = 8;
const LONGEST_TEXT: u64 = 1 << 20;

pub trait Image: Sync {
    /// As it was given.
    fn name(&self) -> &str;
    /// `NAME=value` of its configuration.
    fn env(&self) -> &[String];
    fn layers(&self) -> usize;
    /// A layer as a tar stream; the first lies lowest.
    fn open(&self, layer: usize) -> Result<Box<dyn Read + Send + '_>, Fault>;
}

type Fault = Box<dyn Error + Send + Sync>;

/// What one layer holds.
#[derive(Default)]
struct Layer {
    headers: Vec<Header>,
    inventory: Inventory,
    /// Files of the loader's configuration.
    texts: BTreeMap<String, String>,
}

pub fn read(image: &dyn Image) -> Result<(Tree, System, Inventory), TreeError> {
    let mut layers = Vec::new();
    for (index, layer) in read_layers(image).into_iter().enumerate() {
        layers.push(layer.map_err(|source| TreeError::Layer {
            image: image.name().to_owned(),
            layer: index,
            source,
        })?);
    }
    let merged = merge::layers(layers.iter().map(|l| &l.headers[..]));
    let mut inventory = Inventory::default();
    let mut texts = BTreeMap::new();
    for (index, layer) in layers.into_iter().enumerate() {
        let seen = |path: &str| merged.provider(path) == Some(index);
        let Layer { inventory: own, texts: conf, .. } = layer;
        inventory.items.extend(own.items.into_iter().filter(|i| seen(&i.path)));
        inventory.damaged.extend(own.damaged.into_iter().filter(|(p, _)| seen(p)));
        texts.extend(conf.into_iter().filter(|(p, _)| seen(p)));
    }
    inventory.sort();
    let system = System::of_image(&texts, image.env());
    Ok((tree(image.name(), &merged), system, inventory))
}

fn tree(name: &str, merged: &Merged) -> Tree {
    Tree {
        name: name.to_owned(),
        kind: Kind::Image,
        paths: merged.files().map(str::to_owned).collect(),
        mount: String::new(),
        python: None,
        links: merged.links().map(|(p, to)| (p.to_owned(), to.to_owned())).collect(),
    }
}

fn read_layers(image: &dyn Image) -> Vec<Result<Layer, Fault>> {
    let count = image.layers();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    let work = || {
        while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < count) {
            let layer = read_layer(image, index);
            // A worker that panicked would have stopped the scope; what it held is whole.
            done.lock().unwrap_or_else(|e| e.into_inner()).insert(index, layer);
        }
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..workers.min(MOST_WORKERS).min(count) {
            scope.spawn(work);
        }
    });
    let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.into_values().collect()
}

fn read_layer(image: &dyn Image, index: usize) -> Result<Layer, Fault> {
    let mut layer = Layer::default();
    let mut again: BTreeMap<String, Wishes> = BTreeMap::new();
    let mut reader = Reader::new(image.open(index)?);
    while let Some(mut entry) = reader.next()? {
        let header = entry.header.clone();
        if header.kind == tar::Kind::File {
            if is_configuration(&header.path) {
                let mut text = Vec::new();
                (&mut entry).take(LONGEST_TEXT).read_to_end(&mut text)?;
                let text = String::from_utf8_lossy(&text).into_owned();
                layer.texts.insert(header.path.clone(), text);
            } else {
                let passed = pass(&header.path, header.size, &mut entry, Wishes::default())?;
                layer.take(&header.path, passed, &mut again);
            }
        }
        layer.headers.push(header);
    }
    while !again.is_empty() {
        let mut wanted = std::mem::take(&mut again);
        let mut reader = Reader::new(image.open(index)?);
        // Up to the last of them; the stream was read to its end before.
        while !wanted.is_empty() && let Some(mut entry) = reader.next()? {
            let (path, size) = (entry.header.path.clone(), entry.header.size);
            if entry.header.kind == tar::Kind::File && let Some(wishes) = wanted.remove(&path) {
                let passed = pass(&path, size, &mut entry, wishes)?;
                layer.take(&path, passed, &mut again);
            }
        }
    }
    Ok(layer)
}

fn is_configuration(path: &str) -> bool {
    path == "etc/ld.so.conf" || path.starts_with("etc/ld.so.conf.d/")
}

impl Layer {
    fn take(&mut self, path: &str, passed: Passed, again: &mut BTreeMap<String, Wishes>) {
        match passed {
            Passed::Other => {}
            Passed::Object(item) => self.inventory.items.push(*item),
            Passed::Damaged(why) => self.inventory.damaged.push((path.to_owned(), why)),
            Passed::Again(wishes) => {
                again.insert(path.to_owned(), wishes);
            }
        }
    }
}
