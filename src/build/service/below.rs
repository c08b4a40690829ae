//! What the image below an app's layer has: the accounts, and which folders are there.
//!
//! A layer names the folders that it makes and no others, since a name would change their owner and mode.

use super::super::base::io as failed_at;
use super::super::{BuildError, Options, recorded};
use super::layer::needed;
use super::project::Files as Installed;
use serde::{Deserialize, Serialize};
use stackforge_binary::tar::{MemberKind, Reader};
use stackforge_engine::docker::{Docker, FileKind};
use stackforge_image::Layer;
use stackforge_image::oci::{Image, Node};
use stackforge_image::store::Action;
use stackforge_plan::{App, Op, Plan};
use stackforge_types::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::Path;

const PASSWD: &str = "etc/passwd";
const GROUP: &str = "etc/group";
/// Longest `/etc/passwd` or `/etc/group`, in bytes.
const MAX_ACCOUNTS: u64 = 4 << 20;

/// Increased when the same layers are described otherwise.
const FORMAT: u32 = 1;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct Below {
    pub passwd: String,
    pub group: String,
    /// Paths of folders, without a leading slash. Of an image in an engine, only those that were asked for.
    pub folders: BTreeSet<String>,
    /// Paths of links to other places, which a layer must not write through.
    pub links: BTreeMap<String, String>,
}

impl Below {
    /// Describes the layers of `plan`'s image that are not made of wheels; all others lie in the Python environment.
    /// The store keeps the answer.
    pub fn of_layers(
        plan: &Plan,
        options: &Options<'_>,
        open: impl FnOnce(&[Layer]) -> Result<Image, BuildError>,
    ) -> Result<Self, BuildError> {
        let steps = plan.steps.iter();
        let steps =
            steps.filter(|s| matches!(s.op, Op::Base(_) | Op::Packages(_) | Op::Environment(_)));
        let layers: Vec<Layer> = steps
            .filter_map(|step| recorded::layers(options.store, plan, step))
            .flatten()
            .collect();
        let key = serde_json::json!({
            "format": FORMAT,
            "files of": layers.iter().map(|l| &l.diff_id).collect::<Vec<_>>(),
        });
        let key = Digest::of(key.to_string().as_bytes());
        let known = options.store.action(&key).and_then(|action| action.made);
        if let Some(known) = known.and_then(|made| serde_json::from_value(made).ok()) {
            return Ok(known);
        }
        let image = open(&layers)?;
        let files = image.files()?;
        let below = Self {
            passwd: text(&image, files.get(PASSWD))?,
            group: text(&image, files.get(GROUP))?,
            folders: of_kind(&files, MemberKind::Directory)
                .map(|(path, _)| path.clone())
                .collect(),
            links: of_kind(&files, MemberKind::SymLink)
                .filter_map(|(path, node)| Some((path.clone(), node.header.link.clone()?)))
                .collect(),
        };
        let action = Action {
            step: "files".to_owned(),
            made: serde_json::to_value(&below).ok(),
            ..Action::default()
        };
        options.store.record(&key, &action)?;
        Ok(below)
    }

    /// Describes an image of an engine, as far as the app's layer needs.
    pub async fn in_engine(
        docker: &Docker,
        image: &str,
        app: &App,
        installed: &Installed,
    ) -> Result<Self, BuildError> {
        let read = async |path: &str| {
            let bytes = docker.read_file(image, path, MAX_ACCOUNTS as usize).await?;
            Ok::<_, BuildError>(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
        };
        let mut below = Self {
            passwd: read("/etc/passwd").await?,
            group: read("/etc/group").await?,
            ..Self::default()
        };
        let asked: Vec<String> = needed(app, installed).into_iter().collect();
        let kinds = docker.kinds(image, &asked).await?;
        for (path, kind) in asked.into_iter().zip(kinds) {
            match kind {
                Some(FileKind::Folder) => {
                    below.folders.insert(path);
                }
                Some(FileKind::Link(to)) => {
                    below.links.insert(path, to);
                }
                _ => {}
            }
        }
        Ok(below)
    }
}

fn of_kind(
    files: &BTreeMap<String, Node>,
    kind: MemberKind,
) -> impl Iterator<Item = (&String, &Node)> {
    files
        .iter()
        .filter(move |(_, node)| node.header.kind == kind)
}

/// Reads a small file of an image. Empty if there is none.
fn text(image: &Image, node: Option<&Node>) -> Result<String, BuildError> {
    let Some(node) = node.filter(|n| n.header.kind == MemberKind::File) else {
        return Ok(String::new());
    };
    let odd = |e: io::Error| failed_at("read the accounts of", Path::new("the base"), e);
    let layer = &image.layers[node.content.layer];
    let mut reader = Reader::new(layer.tar()?);
    let mut index = 0;
    while let Some(entry) = reader.next().map_err(|e| odd(io::Error::other(e)))? {
        if index == node.content.member {
            let mut bytes = Vec::new();
            entry
                .take(MAX_ACCOUNTS)
                .read_to_end(&mut bytes)
                .map_err(odd)?;
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        index += 1;
    }
    Ok(String::new())
}
