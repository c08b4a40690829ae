//! Reads the files of an image, whose layers can only be read forward.
//!
//! In: an [`Image`]. Out: its files as one tree, as a container sees them; the image as a system; and every
//! object, read from the stream. Layers are read in parallel, each once, and again if it holds an object with
//! an unusual layout ([`super::stream`]). Nothing is unpacked.

use super::inventory::{Inventory, MOST_WORKERS};
use super::object::Item;
use super::packages::below;
use super::packed::{Again, Packed, is_wheel};
use super::stream::{KeepRanges, Passed, pass};
use super::system::System;
use super::tree::{LONGEST_TEXT, MOST_TEXT, Tree, TreeError, TreeKind, is_text};
use stackforge_binary::tar;
use stackforge_binary::tar::{Header, Reader};
use stackforge_image::oci::merge::{Member, MergeError};
use stackforge_image::oci::{Merge, Node};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Most bytes of an image's tar headers in memory. Those of a large image take some 50 MB.
const MOST_HEADERS: usize = 512 << 20;

pub trait Image: Sync {
    /// Name of the image, as the user typed it.
    fn name(&self) -> &str;
    /// The `NAME=VALUE` variables of its configuration.
    fn env(&self) -> &[String];
    fn layers(&self) -> usize;
    /// Opens a layer as a tar stream. Layer 0 is the lowest.
    fn open(&self, layer: usize) -> Result<Box<dyn Read + Send + '_>, Fault>;

    /// Hands over what was read of a layer before the audit; then it is not opened but for parts that were not kept.
    fn take_reading(&self, _layer: usize) -> Option<LayerReading> {
        None
    }
}

pub type Fault = Box<dyn Error + Send + Sync>;

/// The content of one layer, by the number of the tar's member.
#[derive(Default)]
struct LayerContent {
    headers: Vec<Header>,
    items: BTreeMap<usize, Item>,
    damaged: BTreeMap<usize, String>,
    texts: BTreeMap<usize, String>,
    packed: BTreeMap<usize, Packed>,
}

/// What the audit needs of a layer, read from its tar once.
pub struct LayerReading {
    layer: LayerContent,
    /// Members of which parts are missing that were not kept.
    again: BTreeMap<usize, Wanted>,
    /// Bytes of its headers in memory.
    headers: usize,
}

/// The parts of a member to keep when the layer is read again.
enum Wanted {
    Object(KeepRanges),
    Wheel(Again),
}

pub fn read(image: &dyn Image) -> Result<(Tree, System, Inventory), TreeError> {
    let mut layers = Vec::new();
    let mut merge = Merge::new();
    for (index, layer) in read_layers(image).into_iter().enumerate() {
        let failed = |source: Fault| TreeError::Layer {
            image: image.name().to_owned(),
            layer: index,
            source,
        };
        let mut layer = layer.map_err(failed)?;
        for header in std::mem::take(&mut layer.headers) {
            merge.add(header).map_err(|e| failed(e.into()))?;
        }
        merge.end_layer();
        layers.push(layer);
    }
    let files = merge.finish();
    let mut seen = MergedLayers {
        names: names(&files),
        ..MergedLayers::default()
    };
    for (path, node) in files {
        seen.take(path, &node, &mut layers);
    }
    seen.inventory.sort();
    let system = System::of_image(&seen.texts, image.env());
    let tree = Tree {
        name: image.name().to_owned(),
        kind: TreeKind::Image,
        paths: seen.paths,
        mount: String::new(),
        python: None,
        links: seen.links,
        texts: seen.texts,
    };
    Ok((tree, system, seen.inventory))
}

/// The layers as a container sees them.
#[derive(Default)]
struct MergedLayers {
    inventory: Inventory,
    paths: Vec<String>,
    links: BTreeMap<String, String>,
    texts: BTreeMap<String, String>,
    names: BTreeMap<Member, String>,
}

/// Chooses the path of a file with several names (hard links): the one that Python imports, not the one in
/// an installer's cache, else the first.
fn names(files: &BTreeMap<String, Node>) -> BTreeMap<Member, String> {
    let mut names: BTreeMap<Member, String> = BTreeMap::new();
    let of_python = |path: &str| below(path) != path;
    for (path, node) in files {
        if node.header.kind != tar::MemberKind::File {
            continue;
        }
        let name = names.entry(node.content).or_insert_with(|| path.clone());
        if of_python(path) && !of_python(name) {
            name.clone_from(path);
        }
    }
    names
}

impl MergedLayers {
    /// Takes the next file, in the order of paths.
    fn take(&mut self, path: String, node: &Node, layers: &mut [LayerContent]) {
        match node.header.kind {
            tar::MemberKind::SymLink => {
                let to = node.header.link.clone().unwrap_or_default();
                self.links.insert(path, to);
                return;
            }
            tar::MemberKind::File => {}
            _ => return,
        }
        if let Some(name) = self.names.get(&node.content).filter(|name| **name != path) {
            // A further hard link to the file is treated as a symbolic link.
            self.links.insert(path, format!("/{name}"));
            return;
        }
        let (layer, member) = (&mut layers[node.content.layer], node.content.member);
        if let Some(item) = layer.items.remove(&member) {
            let item = Item {
                path: path.clone(),
                ..item
            };
            self.inventory.items.push(item);
        }
        let damaged = layer.damaged.remove(&member);
        self.inventory
            .damaged
            .extend(damaged.map(|why| (path.clone(), why)));
        if let Some(packed) = layer.packed.remove(&member) {
            self.inventory.add_packed(packed.at(&path));
        }
        let text = layer.texts.remove(&member);
        self.texts.extend(text.map(|text| (path.clone(), text)));
        self.paths.push(path);
    }
}

fn read_layers(image: &dyn Image) -> Vec<Result<LayerContent, Fault>> {
    let count = image.layers();
    let (next, headers) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let done = Mutex::new(BTreeMap::new());
    let work = || {
        while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < count) {
            let layer = read_layer(image, index, &headers);
            // A panicking worker would have ended the scope, so the data is complete.
            done.lock()
                .unwrap_or_else(|e| e.into_inner())
                .insert(index, layer);
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

/// Reads a layer. `headers` counts the bytes of headers in memory for all layers.
fn read_layer(
    image: &dyn Image,
    index: usize,
    headers: &AtomicUsize,
) -> Result<LayerContent, Fault> {
    let LayerReading {
        mut layer,
        mut again,
        ..
    } = match image.take_reading(index) {
        Some(reading) => {
            let before = headers.fetch_add(reading.headers, Ordering::Relaxed);
            if before + reading.headers > MOST_HEADERS {
                return Err(MergeError::Many.into());
            }
            reading
        }
        None => LayerReading::counted(image.open(index)?, headers)?,
    };
    while !again.is_empty() {
        let mut wanted = std::mem::take(&mut again);
        let mut reader = Reader::new(image.open(index)?);
        let mut member = 0;
        // Stop after the last wanted member: the whole stream was checked in the first pass.
        while !wanted.is_empty()
            && let Some(mut entry) = reader.next()?
        {
            let header = entry.header.clone();
            match wanted.remove(&member) {
                Some(Wanted::Object(ranges)) => {
                    let passed = pass(&header.path, header.size, &mut entry, ranges)?;
                    layer.take(member, passed, &mut again);
                }
                Some(Wanted::Wheel(only)) => {
                    layer.unpack(member, &header.path, &mut entry, Some(only), &mut again);
                }
                None => {}
            }
            member += 1;
        }
    }
    Ok(layer)
}

impl LayerReading {
    /// Reads a layer's tar to its end.
    ///
    /// # Errors
    /// If the tar is damaged, cannot be read, or has too many files.
    pub fn of(tar: impl Read) -> Result<Self, Fault> {
        Self::counted(tar, &AtomicUsize::new(0))
    }

    /// `all` counts the bytes of headers in memory for all layers.
    fn counted(tar: impl Read, all: &AtomicUsize) -> Result<Self, Fault> {
        let (mut layer, mut headers) = (LayerContent::default(), 0);
        // Index of the directory that the previous members repeated.
        let mut last: Option<usize> = None;
        let mut text_left = MOST_TEXT;
        let mut again: BTreeMap<usize, Wanted> = BTreeMap::new();
        let mut reader = Reader::new(tar);
        while let Some(mut entry) = reader.next()? {
            let mut header = entry.header.clone();
            // Extended attributes may be many and large, and an audit does not need them.
            header.xattrs = Vec::new();
            let member = layer.headers.len();
            let text = header.path.len() + header.link.as_ref().map_or(0, String::len);
            let size = size_of::<Header>() + text;
            headers += size;
            if all.fetch_add(size, Ordering::Relaxed) > MOST_HEADERS {
                return Err(MergeError::Many.into());
            }
            // Keep a repeated directory once, so that repetitions take no memory.
            if header.kind == tar::MemberKind::Directory {
                let same = |at: &usize| layer.headers[*at].path == header.path;
                match last.filter(same) {
                    Some(_) => {
                        headers -= text;
                        all.fetch_sub(text, Ordering::Relaxed);
                        header.path = String::new();
                    }
                    None => last = Some(member),
                }
            } else {
                last = None;
            }
            if header.kind == tar::MemberKind::File && is_text(&header.path) {
                let mut text = Vec::new();
                let most = LONGEST_TEXT.min(text_left);
                (&mut entry).take(most).read_to_end(&mut text)?;
                text_left -= text.len() as u64;
                let text = String::from_utf8_lossy(&text).into_owned();
                layer.texts.insert(member, text);
            } else if header.kind == tar::MemberKind::File && is_wheel(&header.path) {
                layer.unpack(member, &header.path, &mut entry, None, &mut again);
            } else if header.kind == tar::MemberKind::File {
                let passed = pass(&header.path, header.size, &mut entry, KeepRanges::default())?;
                layer.take(member, passed, &mut again);
            }
            layer.headers.push(header);
        }
        Ok(Self {
            layer,
            again,
            headers,
        })
    }
}

impl LayerContent {
    fn take(&mut self, member: usize, passed: Passed, again: &mut BTreeMap<usize, Wanted>) {
        match passed {
            Passed::Other => {}
            Passed::Object(item) => {
                self.items.insert(member, *item);
            }
            Passed::Damaged(why) => {
                self.damaged.insert(member, why);
            }
            Passed::Again(ranges) => {
                again.insert(member, Wanted::Object(ranges));
            }
        }
    }

    fn unpack(
        &mut self,
        member: usize,
        path: &str,
        content: &mut impl Read,
        only: Option<Again>,
        again: &mut BTreeMap<usize, Wanted>,
    ) {
        let packed = self.packed.entry(member).or_default();
        let more = packed.pass(path, content, only);
        if !more.is_empty() {
            again.insert(member, Wanted::Wheel(more));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackforge_binary::samples::compiled::Built;
    use stackforge_binary::tar::{Attributes, Format, Writer};

    /// An image in memory. What it was read to before is handed over once.
    struct InMemory {
        layers: Vec<Vec<u8>>,
        readings: Mutex<BTreeMap<usize, LayerReading>>,
        opened: AtomicUsize,
    }

    impl Image for InMemory {
        fn name(&self) -> &str {
            "x"
        }

        fn env(&self) -> &[String] {
            &[]
        }

        fn layers(&self) -> usize {
            self.layers.len()
        }

        fn open(&self, layer: usize) -> Result<Box<dyn Read + Send + '_>, Fault> {
            self.opened.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(&self.layers[layer][..]))
        }

        fn take_reading(&self, layer: usize) -> Option<LayerReading> {
            self.readings.lock().unwrap().remove(&layer)
        }
    }

    fn layer(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = Writer::new(Format::Ustar, Vec::new());
        for (path, content) in files {
            let size = content.len() as u64;
            tar.file(path, Attributes::new(0o755), size, *content)
                .unwrap();
        }
        tar.finish().unwrap()
    }

    fn object(between: u64) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.so");
        let built = Built {
            needs: &["libcudart.so.13"],
            code: &[(&[90], &[90])],
            between,
            ..Built::default()
        };
        built.write(&path);
        std::fs::read(path).unwrap()
    }

    /// Reads an image and says what was found, and how often a layer was opened.
    fn found(
        layers: &[Vec<u8>],
        read_before: impl Fn(usize) -> Option<LayerReading>,
    ) -> (String, usize) {
        let before = (0..layers.len()).filter_map(|n| Some((n, read_before(n)?)));
        let image = InMemory {
            layers: layers.to_vec(),
            readings: Mutex::new(before.collect()),
            opened: AtomicUsize::new(0),
        };
        let (tree, _, inventory) = read(&image).unwrap();
        let text = format!("{tree:#?}{inventory:#?}");
        (text, image.opened.into_inner())
    }

    /// One object lies in an unusual way: a part that was not kept is read from its layer again.
    #[test]
    fn layers_that_were_read_before_are_found_the_same_and_opened_only_for_what_is_missing() {
        let (usual, unusual) = (object(0), object(60 << 20));
        let layers = [
            layer(&[("usr/lib/os-release", b"ID=x"), ("opt/a.so", &usual)]),
            layer(&[("opt/b.so", &usual), ("opt/.wh.a.so", b"")]),
            layer(&[("opt/c.so", &unusual)]),
        ];
        let (plain, opened) = found(&layers, |_| None);
        assert!(plain.contains("opt/b.so") && !plain.contains("opt/a.so"));
        assert_eq!(opened, 4);
        let read_now = |n: usize| LayerReading::of(&layers[n][..]).ok();
        assert_eq!(found(&layers, read_now), (plain.clone(), 1));
        let some = |n: usize| read_now(n).filter(|_| n == 1);
        assert_eq!(found(&layers, some), (plain, 3));
    }

    #[test]
    fn a_tar_that_ends_early_is_no_reading() {
        let tar = layer(&[("opt/a.so", &object(0))]);
        assert!(LayerReading::of(&tar[..tar.len() / 2]).is_err());
    }
}
