//! Formats the answers of `stackforge cache` for people.

use super::super::output::shown;
use stackforge_image::store::{
    Collected, Entry, EntryKind, Exported, Imported, Limits, Listing, Verified,
};
use stackforge_types::printable;
use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

const KINDS: [(EntryKind, &str); 13] = [
    (EntryKind::Image, "images"),
    (EntryKind::Wheel, "wheels"),
    (EntryKind::Source, "sources"),
    (EntryKind::OsPackage, "OS packages"),
    (EntryKind::Output, "outputs of steps"),
    (EntryKind::Unnamed, "other blobs"),
    (EntryKind::Unpacked, "unpacked"),
    (EntryKind::Objects, "objects"),
    (EntryKind::Part, "unfinished downloads"),
    (EntryKind::Log, "logs"),
    (EntryKind::Index, "package indices"),
    (EntryKind::Tool, "tools"),
    (EntryKind::Record, "records of root file systems"),
];

fn label(kind: EntryKind) -> &'static str {
    let found = KINDS.iter().find(|(k, _)| *k == kind);
    found.map_or("", |(_, label)| label)
}

/// Formats a size in the units in which limits are given.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

fn ago(used: SystemTime) -> String {
    let age = SystemTime::now().duration_since(used).unwrap_or_default();
    match age.as_secs() / 3600 {
        0 => "now".to_owned(),
        hours @ 1..48 => format!("{hours} h ago"),
        hours => format!("{} days ago", hours / 24),
    }
}

/// Returns one line for each kind of entry.
pub fn summary(listing: &Listing, root: &Path) -> String {
    let mut out = format!("{}\n\n", shown(root));
    let line = |out: &mut String, what: &str, count: &str, bytes: &str, used: &str| {
        let _ = writeln!(out, "{what:20}  {count:>6}  {bytes:>10}  {used}");
    };
    line(&mut out, "what", "count", "size", "last used");
    for (kind, label) in KINDS {
        let of_kind: Vec<&Entry> = listing.entries.iter().filter(|e| e.kind == kind).collect();
        let Some(last) = of_kind.iter().map(|e| e.used).max() else {
            continue;
        };
        let bytes = of_kind.iter().map(|e| e.size).sum();
        let count = of_kind.len().to_string();
        line(&mut out, label, &count, &size(bytes), &ago(last));
    }
    let count = listing.entries.len().to_string();
    line(&mut out, "together", &count, &size(listing.size()), "");
    let _ = writeln!(out, "\n{} remembered", plural(listing.actions, "step"));
    for image in &listing.images {
        if let Some(name) = &image.name {
            let (name, digest) = (printable::line(name), image.digest.short());
            let _ = writeln!(out, "image {name} ({digest})");
        }
    }
    trimmed(&out)
}

/// Returns one line for each entry.
pub fn every(listing: &Listing) -> String {
    let mut out = String::new();
    for entry in &listing.entries {
        line(&mut out, entry);
    }
    let _ = writeln!(out, "{:>10}  together", size(listing.size()));
    out
}

fn line(out: &mut String, entry: &Entry) {
    let digest = entry.digest.as_ref().map_or("", |d| d.short());
    let _ = writeln!(
        out,
        "{:>10}  {:12}  {digest:12}  {:20}  {}",
        size(entry.size),
        ago(entry.used),
        label(entry.kind),
        printable::line(&entry.name)
    );
}

pub fn collected(done: &Collected, limits: &Limits) -> String {
    let mut out = String::new();
    for entry in &done.removed {
        line(&mut out, entry);
    }
    let verb = if limits.dry_run {
        "would remove"
    } else {
        "removed"
    };
    let _ = writeln!(
        out,
        "{verb} {}, {}; {} left",
        plural(done.removed.len(), "file"),
        size(done.freed),
        size(done.left)
    );
    out
}

/// Explains why a limit was not reached.
pub fn why_kept(done: &Collected) -> String {
    let mut reasons = Vec::new();
    if done.in_use > 0 {
        reasons.push(format!("running builds use {}", size(done.in_use)));
    }
    if done.named > 0 {
        let named = size(done.named);
        reasons.push(format!(
            "{named} are images with a name, which `--all` lets go"
        ));
    }
    if reasons.is_empty() {
        reasons.push("tools, and files of the last day, are kept".to_owned());
    }
    reasons.join("; ")
}

pub fn verified(found: &Verified) -> String {
    let mut out = String::new();
    for blob in &found.damaged {
        let names = blob.names.join(", ");
        let names = printable::line(&names);
        let _ = writeln!(out, "removed {} {names}", blob.digest);
    }
    for object in &found.damaged_objects {
        let library = printable::line(&object.library);
        let _ = writeln!(out, "removed object {} of {library}", object.name);
    }
    for key in &found.dangling {
        let _ = writeln!(out, "forgot step {key}");
    }
    for image in &found.incomplete {
        let _ = writeln!(out, "forgot image {}", printable::line(image));
    }
    if found.index.is_some() {
        out.push_str(&index(found));
    }
    let end = if found.repaired {
        "repaired"
    } else {
        "all right"
    };
    let bytes = size(found.bytes);
    let objects = match found.objects {
        0 => String::new(),
        count => format!(", {}", plural(count, "object")),
    };
    let _ = writeln!(
        out,
        "{}, {bytes}{objects}: {end}",
        plural(found.blobs, "blob")
    );
    trimmed(&out)
}

/// Describes what was done with a damaged index.
fn index(found: &Verified) -> String {
    let mut out = match found.restored.as_slice() {
        [] => "wrote an empty index.json\n".to_owned(),
        names => {
            let count = plural(names.len(), "image");
            format!("wrote index.json anew with {count}: {}\n", names.join(", "))
        }
    };
    if let Some(aside) = &found.aside {
        let aside = shown(aside);
        let _ = writeln!(out, "{aside} is the damaged one; other names may be in it");
    }
    out
}

pub fn exported(done: &Exported, to: &Path) -> String {
    let mut text = format!(
        "{}: {}, {}, {}, {}{}\n",
        shown(to),
        plural(done.blobs, "blob"),
        size(done.bytes),
        plural(done.actions, "step"),
        plural(done.images, "image"),
        of_compiles(done.objects)
    );
    for library in &done.in_use {
        let library = printable::line(library);
        let _ = writeln!(
            text,
            "the objects of {library} are in use and were left out"
        );
    }
    text
}

fn of_compiles(objects: usize) -> String {
    match objects {
        0 => String::new(),
        count => format!(", {} of compiles", plural(count, "object")),
    }
}

pub fn imported(done: &Imported, from: &Path) -> String {
    let mut text = format!(
        "{}: {} new, {}, {}, {}{}\n",
        shown(from),
        plural(done.blobs, "blob"),
        size(done.bytes),
        plural(done.actions, "step"),
        plural(done.images, "image"),
        of_compiles(done.objects)
    );
    if done.untrusted > 0 {
        text += &format!(
            "{} not taken and made again: no key that you named has signed them (`--verify KEY`)\n",
            plural(done.untrusted, "step")
        );
    }
    for name in &done.kept_names {
        let name = printable::line(name);
        text += &format!("{name} stays the image that it was here\n");
    }
    text
}

fn plural(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

fn trimmed(text: &str) -> String {
    text.lines()
        .map(|l| format!("{}\n", l.trim_end()))
        .collect()
}
