//! Shows libraries by SM in a matrix with one letter for each, as wide as a page.
//!
//! A library's letter is that of its worst core object; without known core objects it is that of all its
//! objects, or `~` if they differ. Objects that differ from their library have their own lines below it. SMs
//! that nothing runs on have no column.

use super::Row;
use crate::gpu::RunMode;
use crate::tree::split;
use stackforge_stack::spec::Sm;
use stackforge_types::printable;
use std::collections::{BTreeMap, BTreeSet};

/// Width of the page, in characters.
const PAGE: usize = 100;
const SHORTEST_NAME: usize = 24;
/// Most names of objects in a line.
const NAMED: usize = 2;

type Cells = Vec<char>;

/// Returns the matrix. `target` is as the user typed it.
pub fn matrix(target: &str, rows: &[&Row]) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let sms: Vec<Sm> = first.gpus.iter().map(|v| v.sm).collect();
    let used: BTreeSet<usize> = (0..sms.len())
        .filter(|n| rows.iter().any(|r| r.gpus[*n].how != RunMode::None))
        .collect();
    let headings: Vec<String> = used.iter().map(|n| sms[*n].digits()).collect();
    let width: usize = headings.iter().map(|h| h.chars().count() + 1).sum();
    let room = PAGE.saturating_sub(width).max(SHORTEST_NAME);
    let line = |name: String, cells: &Cells| {
        let cells = cells.iter().zip(&headings);
        let cells = cells.map(|(cell, heading)| format!(" {cell:>0$}", heading.chars().count()));
        (name, cells.collect::<String>())
    };
    let mut lines = vec![("library".to_owned(), format!(" {}", headings.join(" ")))];
    for (name, rows) in packages(rows) {
        let objects: Vec<(&Row, Cells)> = rows.iter().map(|r| (*r, cells(r, &used))).collect();
        let whole = combined(&objects);
        lines.push(line(shortened(&printable::line(&name), room), &whole));
        let mut differing: BTreeMap<&Cells, Vec<String>> = BTreeMap::new();
        for (row, cells) in objects.iter().filter(|(_, cells)| *cells != whole) {
            let shown = row.shown();
            let file = shown.rsplit('/').next().unwrap_or(&shown);
            let twins = rows.iter().filter(|r| split(&r.path).1 == file).count();
            let folder = split(split(&shown).0).1;
            let name = if twins > 1 && !folder.is_empty() {
                format!("{folder}/{file}")
            } else {
                file.to_owned()
            };
            let names = differing.entry(cells).or_default();
            let name = printable::line(&name).into_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for (cells, names) in differing {
            for name in shown(&names) {
                lines.push(line(format!("  {}", shortened(&name, room - 2)), cells));
            }
        }
    }
    let longest = lines.iter().map(|(name, _)| name.chars().count()).max();
    let longest = longest.unwrap_or(0);
    let mut out = String::new();
    for (name, cells) in &lines {
        out.push_str(&format!("{name:longest$}{cells}\n"));
    }
    out.push_str("S: SASS, runs as it is; P: PTX, the driver compiles it; ~: some of its objects run; -: none does\n");
    let left_out: Vec<String> = (0..sms.len())
        .filter(|n| !used.contains(n))
        .map(|n| sms[n].digits())
        .collect();
    if !left_out.is_empty() {
        out.push_str(&format!(
            "nothing in {} runs on {}\n",
            printable::line(target),
            left_out.join(", ")
        ));
    }
    out
}

/// Groups rows by library; an object without one stands for itself, by its file name.
fn packages<'r>(rows: &[&'r Row]) -> BTreeMap<String, Vec<&'r Row>> {
    let mut packages: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let name = if row.package == row.path {
            row.path.rsplit('/').next().unwrap_or(&row.path)
        } else {
            &row.package
        };
        packages.entry(name.to_owned()).or_default().push(row);
    }
    packages
}

fn cells(row: &Row, used: &BTreeSet<usize>) -> Cells {
    let cell = |n: &usize| match row.gpus[*n].how {
        RunMode::Native => 'S',
        RunMode::Jit => 'P',
        RunMode::None => '-',
    };
    used.iter().map(cell).collect()
}

fn combined(objects: &[(&Row, Cells)]) -> Cells {
    let core: Vec<&Cells> = (objects.iter())
        .filter(|(row, _)| row.core)
        .map(|(_, cells)| cells)
        .collect();
    let columns = objects.first().map_or(0, |(_, cells)| cells.len());
    let column = |n: usize| {
        if !core.is_empty() {
            let weakest = |c: &char| ['-', 'P', 'S'].iter().position(|o| o == c);
            return core.iter().map(|c| c[n]).min_by_key(weakest).unwrap_or('-');
        }
        let kinds: BTreeSet<char> = objects.iter().map(|(_, c)| c[n]).collect();
        match kinds.into_iter().collect::<Vec<char>>().as_slice() {
            [one] => *one,
            ['P', 'S'] => 'P',
            _ => '~',
        }
    };
    (0..columns).map(column).collect()
}

/// Lists up to two names on lines of their own; of more, the first and their number.
fn shown(names: &[String]) -> Vec<String> {
    match names {
        [first, rest @ ..] if rest.len() >= NAMED => {
            vec![format!("{first} +{}", rest.len())]
        }
        names => names.to_vec(),
    }
}

/// Shortens a name in its middle if it is longer than `room`.
fn shortened(name: &str, room: usize) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= room {
        return name.to_owned();
    }
    let end = (room - 1) / 2;
    let start: String = chars[..room - 1 - end].iter().collect();
    let rest: String = chars[chars.len() - end..].iter().collect();
    format!("{start}…{rest}")
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(shortened("libcublas.so.13", 20), "libcublas.so.13");
        let short = shortened("libcudnn_engines_precompiled.so.9", 20);
        assert_eq!(short, "libcudnn_e…iled.so.9");
        assert_eq!(shortened("äöüäöüäöü", 5).chars().count(), 5);
    }
}
