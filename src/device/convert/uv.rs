//! uv's tables of a pyproject.toml: where single distributions come from, indexes, constraints, overrides.

use super::asked::{Asked, FOLDER, NO_INDEX, SECRET, Wants, marker_of, no_login, without_login};
use super::document::{Document, texts};
use super::found::Found;
use super::item::{Item, Note};
use super::known::Known;
use super::pip::{self, Place};
use super::requirements;
use pep508_rs::MarkerTree;
use stackforge_stack::spec::is_index;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Reads `tool.uv`.
pub(super) fn read(document: &Document<'_>, known: &Known, found: &mut Found) {
    let Some(uv) = document.table(&["tool", "uv"]) else {
        return;
    };
    let mut by_name = BTreeMap::new();
    for entry in uv
        .get("index")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let Some(url) = entry.get("url").and_then(Value::as_str) else {
            continue;
        };
        let flag = |key: &str| entry.get(key).and_then(Value::as_bool) == Some(true);
        if let Some(name) = entry.get("name").and_then(Value::as_str) {
            by_name.insert(name, url);
        }
        if !flag("explicit") {
            index(document, url, flag("default"), known, found);
        }
    }
    let pip = uv.get("pip").and_then(Value::as_table);
    for table in [Some(uv), pip].into_iter().flatten() {
        if let Some(url) = table.get("index-url").and_then(Value::as_str) {
            index(document, url, true, known, found);
        }
        for url in texts(table.get("extra-index-url")) {
            index(document, url, false, known, found);
        }
        for url in texts(table.get("find-links")) {
            let why = "a stack takes no pages of links: name the files that you need of it in `libraries`";
            found
                .indexes
                .push(Item::Note(Note::new(&document.at(url), url, why)));
        }
    }
    for text in texts(uv.get("constraint-dependencies")) {
        found
            .constraints
            .push(Asked::parse(&document.at(text), text, document.folder()));
    }
    for text in texts(uv.get("override-dependencies")) {
        found
            .overrides
            .push(Asked::parse(&document.at(text), text, document.folder()));
    }
    for text in texts(uv.get("dev-dependencies")) {
        let why = "for developers: write it as a library if the image needs it";
        found
            .libraries
            .push(Item::Note(Note::new(&document.at(text), text, why)));
    }
    for (name, source) in uv
        .get("sources")
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
    {
        sources(name, source, &by_name, document, known, found);
    }
}

/// Says where one distribution comes from; of several sources, each has its marker.
fn sources(
    name: &str,
    source: &Value,
    indexes: &BTreeMap<&str, &str>,
    document: &Document<'_>,
    known: &Known,
    found: &mut Found,
) {
    let name = stackforge_types::wheel::normalized(name);
    let list = match source {
        Value::Array(list) => list.iter().filter_map(Value::as_table).collect(),
        Value::Table(one) => vec![one],
        _ => Vec::new(),
    };
    let at = document.at(&format!("{name} = "));
    let mut placed = Vec::new();
    for source in list {
        let text = |key: &str| source.get(key).and_then(Value::as_str);
        if let Some(choice) = text("extra").or(text("group")) {
            let shown = format!("{name} from {}", shown(source));
            let why = format!(
                "that is of `{choice}` only, which `init` does not choose: set the library's `index` or version if the image needs it"
            );
            found.libraries.push(Item::Note(Note::new(&at, shown, why)));
            continue;
        }
        let marker = text("marker").map_or(Ok(MarkerTree::TRUE), marker_of);
        let Ok(marker) = marker else {
            let why = "its marker is not one (PEP 508): write the library out";
            found
                .libraries
                .push(Item::Note(Note::new(&at, shown(source), why)));
            continue;
        };
        let written = text("index").and_then(|index| indexes.get(index)).copied();
        let written = written.filter(|url| is_index(url));
        let index = written.map(without_login);
        let index = index.as_deref();
        if let Some((url, shown)) = written.zip(index).filter(|(url, shown)| url != shown) {
            let why = format!("the login of `{name}`'s index is left out, since {SECRET}");
            let note = Note::new(&document.at(url), shown, why);
            found.indexes.push(Item::Note(note));
        }
        match of_source(source, index, marker) {
            Ok(place) => {
                if let Some(url) = index.filter(|url| known.torch_index(url).is_some()) {
                    cuda(url, &at, known, found);
                }
                placed.push(place);
            }
            Err(why) => {
                let shown = without_login(&shown(source));
                found.libraries.push(Item::Note(Note::new(&at, shown, why)));
                // Without its source the requirement would mean another distribution.
                found
                    .libraries
                    .retain(|item| !matches!(item, Item::Take(a) if a.name == name));
            }
        }
    }
    apply(&name, &placed, found);
}

struct Placed {
    index: Option<String>,
    wants: Option<Wants>,
    marker: MarkerTree,
}

fn of_source(source: &Table, index: Option<&str>, marker: MarkerTree) -> Result<Placed, String> {
    let text = |key: &str| source.get(key).and_then(Value::as_str);
    let wants = if let Some(url) = text("git") {
        no_login(url)?;
        let reference = text("rev").or(text("tag")).or(text("branch"));
        Some(Wants::Git {
            url: url.to_owned(),
            reference: reference.map(str::to_owned),
        })
    } else if let Some(url) = text("url") {
        no_login(url)?;
        Some(Wants::File(url.to_owned()))
    } else if let Some(path) = text("path") {
        if stackforge_stack::spec::DirectFile::parse(path, None).is_err() {
            return Err(FOLDER.to_owned());
        }
        Some(Wants::File(path.to_owned()))
    } else if source.contains_key("workspace") {
        return Err(format!("it is a member of the workspace: {FOLDER}"));
    } else if source.contains_key("index") && index.is_none() {
        return Err(NO_INDEX.to_owned());
    } else {
        None
    };
    Ok(Placed {
        index: index.map(str::to_owned),
        wants,
        marker,
    })
}

/// Splits the library among its sources, each with what its marker leaves to the others.
fn apply(name: &str, placed: &[Placed], found: &mut Found) {
    if placed.is_empty() {
        return;
    }
    let mut out = Vec::with_capacity(found.libraries.len());
    for item in std::mem::take(&mut found.libraries) {
        let asked = match item {
            Item::Take(asked) if asked.name == name => asked,
            other => {
                out.push(other);
                continue;
            }
        };
        let mut rest = asked.marker.clone();
        for place in placed {
            let mut own = asked.clone();
            own.marker.and(place.marker.clone());
            rest.and(place.marker.negate());
            own.index = place.index.clone();
            if let Some(wants) = &place.wants {
                own.wants = wants.clone();
            }
            out.push(Item::Take(own));
        }
        if !rest.is_false() {
            out.push(Item::Take(Asked {
                marker: rest,
                ..asked
            }));
        }
    }
    found.libraries = out;
}

fn shown(source: &Table) -> String {
    let pairs = source.iter().map(|(key, value)| format!("{key} = {value}"));
    format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}

fn cuda(url: &str, at: &str, known: &Known, found: &mut Found) {
    let torch = known.torch_index(url);
    if let Some(value) = torch.and_then(|t| t.cuda) {
        let at = format!("{url} ({at})");
        found.cuda.get_or_insert(super::Why { value, at });
    }
}

/// Takes an index of the file.
pub(super) fn index(
    document: &Document<'_>,
    url: &str,
    default: bool,
    known: &Known,
    found: &mut Found,
) {
    let at = document.at(url);
    let place = Place {
        at: &at,
        folder: document.folder(),
        find: &|_, _| None,
        read: requirements::lines,
        constrains: false,
    };
    pip::index(url, &place, default, known, found);
}
