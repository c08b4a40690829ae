//! The members of a layer's tar, without their content.

use serde::{Deserialize, Serialize};
use stackforge_binary::tar::{Header, MemberKind};

/// Most members and most bytes of text of a listing; a larger layer is unpacked anew each time.
const MOST_MEMBERS: usize = 500_000;
const MOST_TEXT: usize = 128 << 20;

/// The headers of a layer, in the order of the tar.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    members: Vec<Listed>,
    #[serde(skip)]
    text: usize,
}

/// A header with short names, as there are many of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    p: String,
    k: char,
    #[serde(default, skip_serializing_if = "is_zero")]
    s: u64,
    m: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    u: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    g: u64,
    t: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    l: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    x: Vec<(String, Vec<u8>)>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

const KINDS: [(MemberKind, char); 7] = [
    (MemberKind::File, 'f'),
    (MemberKind::HardLink, 'h'),
    (MemberKind::SymLink, 'l'),
    (MemberKind::Directory, 'd'),
    (MemberKind::Character, 'c'),
    (MemberKind::Block, 'b'),
    (MemberKind::Fifo, 'p'),
];

impl Listing {
    /// Adds the next member.
    pub fn add(&mut self, header: &Header) {
        if !self.is_complete() {
            return;
        }
        let kind = KINDS.iter().find(|(kind, _)| *kind == header.kind);
        let xattrs = header.xattrs.iter();
        let xattrs: usize = xattrs.map(|(name, value)| name.len() + value.len()).sum();
        let link = header.link.as_ref().map_or(0, String::len);
        self.text += header.path.len() + link + xattrs;
        self.members.push(Listed {
            p: header.path.clone(),
            k: kind.map_or('?', |(_, letter)| *letter),
            s: header.size,
            m: header.mode,
            u: header.uid,
            g: header.gid,
            t: header.mtime,
            l: header.link.clone(),
            x: header.xattrs.clone(),
        });
    }

    /// Whether every member was kept. If not, there were too many.
    pub fn is_complete(&self) -> bool {
        self.members.len() <= MOST_MEMBERS && self.text <= MOST_TEXT
    }

    /// The headers. `None` if a letter stands for no kind: another version wrote the listing.
    pub(super) fn headers(self) -> Option<Vec<Header>> {
        let header = |listed: Listed| {
            let kind = KINDS.iter().find(|(_, letter)| *letter == listed.k)?.0;
            Some(Header {
                path: listed.p,
                kind,
                size: listed.s,
                mode: listed.m,
                uid: listed.u,
                gid: listed.g,
                mtime: listed.t,
                link: listed.l,
                xattrs: listed.x,
                device: None,
            })
        };
        self.members.into_iter().map(header).collect()
    }
}
