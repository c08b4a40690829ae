//! Poetry's tables of a pyproject.toml, whose versions have a notation of their own.

use super::asked::{Asked, FOLDER, NO_INDEX, SECRET, Wants, marker_of, no_login, without_login};
use super::document::Document;
use super::found::Found;
use super::item::{Item, Note, Why};
use super::known::Known;
use super::uv;
use pep440_rs::{Version, VersionSpecifiers};
use stackforge_stack::spec::is_index;
use std::collections::BTreeMap;
use std::str::FromStr as _;
use toml::{Table, Value};

/// Reads `tool.poetry`.
pub(super) fn read(poetry: &Table, document: &Document<'_>, known: &Known, found: &mut Found) {
    let mut sources = BTreeMap::new();
    for source in poetry
        .get("source")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let text = |key: &str| source.get(key).and_then(Value::as_str);
        let (Some(name), Some(url)) = (text("name"), text("url")) else {
            continue;
        };
        sources.insert(name, url);
        let explicit = text("priority") == Some("explicit");
        if !explicit {
            let default = ["primary", "default"].contains(&text("priority").unwrap_or("primary"));
            uv::index(document, url, default, known, found);
        } else if known.torch_index(url).is_some() {
            // Its libraries name it; it says which CUDA is wanted.
            let before = found.indexes.len();
            uv::index(document, url, false, known, found);
            found.indexes.truncate(before);
        }
    }
    let main = poetry.get("dependencies").and_then(Value::as_table);
    for (name, wanted) in main.into_iter().flatten() {
        if name == "python" {
            python(wanted, document, found);
            continue;
        }
        for wanted in one_or_more(wanted) {
            let item = dependency(name, wanted, &sources, document);
            found.libraries.push(item);
        }
    }
    let groups = poetry
        .get("group")
        .and_then(Value::as_table)
        .into_iter()
        .flatten();
    let of_group = |(name, group): (&String, &Value)| {
        let table = group.get("dependencies")?.as_table()?.clone();
        Some((name.clone(), table))
    };
    let old = poetry.get("dev-dependencies").and_then(Value::as_table);
    let old = old.map(|table| ("dev".to_owned(), table.clone()));
    for (group, table) in groups.filter_map(of_group).chain(old) {
        for (name, wanted) in &table {
            let at = document.at(&format!("{name} = "));
            let why =
                format!("of the group `{group}`: write it as a library if the image needs it");
            found.libraries.push(Item::Note(Note::new(
                &at,
                format!("{name} = {wanted}"),
                why,
            )));
        }
    }
}

fn one_or_more(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    }
}

fn python(wanted: &Value, document: &Document<'_>, found: &mut Found) {
    let text = wanted.as_str().unwrap_or_default();
    match versions(text) {
        Some(value) => {
            let at = format!("python {text}");
            found.python.get_or_insert(Why { value, at });
        }
        None => found.rest.push(Note::new(
            &document.at("python = "),
            format!("python = {wanted}"),
            "more than one range of versions: set `python` yourself",
        )),
    }
}

fn dependency(
    name: &str,
    wanted: &Value,
    sources: &BTreeMap<&str, &str>,
    document: &Document<'_>,
) -> Item<Asked> {
    let at = document.at(&format!("{name} = "));
    let note = |why: String| {
        Item::Note(Note::new(
            &at,
            without_login(&format!("{name} = {wanted}")),
            why,
        ))
    };
    let plain = |text: &str| match versions(text) {
        Some(versions) => Ok(Asked::versions(&at, name, versions)),
        None => Err("more than one range of versions: write one as `\">=1.0,<2\"`".to_owned()),
    };
    let asked = match wanted {
        Value::String(text) => plain(text),
        Value::Table(table) => of_table(name, table, sources, &at, &plain),
        _ => Err("not a version".to_owned()),
    };
    match asked {
        Ok(asked)
            if asked
                .name
                .parse::<stackforge_stack::spec::LibraryName>()
                .is_ok() =>
        {
            Item::Take(asked)
        }
        Ok(_) => note("not the name of a distribution".to_owned()),
        Err(why) => note(why),
    }
}

fn of_table(
    name: &str,
    table: &Table,
    sources: &BTreeMap<&str, &str>,
    at: &str,
    plain: &dyn Fn(&str) -> Result<Asked, String>,
) -> Result<Asked, String> {
    let text = |key: &str| table.get(key).and_then(Value::as_str);
    if table.get("optional").and_then(Value::as_bool) == Some(true) {
        return Err("optional: write it as a library if the image needs it".to_owned());
    }
    let mut asked = if let Some(url) = text("git") {
        no_login(url)?;
        let reference = text("rev").or(text("tag")).or(text("branch"));
        Asked {
            wants: Wants::Git {
                url: url.to_owned(),
                reference: reference.map(str::to_owned),
            },
            ..Asked::versions(at, name, VersionSpecifiers::empty())
        }
    } else if let Some(place) = text("url").or(text("path")) {
        no_login(place)?;
        if stackforge_stack::spec::DirectFile::parse(place, None).is_err() {
            return Err(FOLDER.to_owned());
        }
        Asked {
            wants: Wants::File(place.to_owned()),
            ..Asked::versions(at, name, VersionSpecifiers::empty())
        }
    } else {
        plain(text("version").unwrap_or("*"))?
    };
    let extras = table
        .get("extras")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    asked.extras = extras
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    asked.index = match text("source") {
        Some(name) if !name.eq_ignore_ascii_case("pypi") => {
            let url = sources.get(name).filter(|url| is_index(url));
            let url = *url.ok_or(NO_INDEX)?;
            let shown = without_login(url);
            if shown != url {
                asked.remark = Some(format!(
                    "the login of its index is left out, since {SECRET}"
                ));
            }
            Some(shown)
        }
        _ => None,
    };
    let python =
        text("python").map(|p| versions(p).ok_or("`python` has more than one range of versions"));
    if let Some(python) = python {
        for specifier in python?.iter() {
            let version = specifier.version();
            let marker = format!("python_version {} '{version}'", specifier.operator());
            asked.marker.and(marker_of(&marker)?);
        }
    }
    if let Some(platform) = text("platform") {
        asked.marker.and(marker_of(&format!(
            "sys_platform == '{}'",
            platform.replace('\'', "")
        ))?);
    }
    if let Some(marker) = text("markers") {
        asked.marker.and(marker_of(marker)?);
    }
    Ok(asked)
}

/// Returns the versions that Poetry's notation stands for. `None` if they are more than one range, or none.
pub(super) fn versions(text: &str) -> Option<VersionSpecifiers> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        all.push(part_of(part)?);
    }
    let all: Vec<String> = all.into_iter().filter(|part| !part.is_empty()).collect();
    VersionSpecifiers::from_str(&all.join(",")).ok()
}

fn part_of(part: &str) -> Option<String> {
    let bound = |version: &str, keep: usize| {
        let version = Version::from_str(version.trim()).ok()?;
        let mut next: Vec<u64> = version.release().to_vec();
        next.truncate(keep.clamp(1, next.len().max(1)));
        let last = next.last_mut()?;
        *last = last.checked_add(1)?;
        let next: Vec<String> = next.iter().map(u64::to_string).collect();
        Some(format!(">={version},<{}", next.join(".")))
    };
    if part == "*" || part.is_empty() {
        return Some(String::new());
    }
    if part.contains("||") {
        return None;
    }
    if let Some(version) = part.strip_prefix('^') {
        let parsed = Version::from_str(version.trim()).ok()?;
        let first = parsed.release().iter().position(|n| *n > 0);
        return bound(version, first.map_or(parsed.release().len(), |at| at + 1));
    }
    if let Some(version) = part.strip_prefix('~').filter(|v| !v.starts_with('=')) {
        return bound(version, 2);
    }
    if part.starts_with(|c: char| c.is_ascii_digit()) {
        return Some(format!("=={part}"));
    }
    // Poetry lets bounds stand side by side without a comma.
    Some(part.split_whitespace().fold(String::new(), |out, word| {
        let joins = out.is_empty() || out.ends_with(['=', '<', '>', '~', '!']);
        format!("{out}{}{word}", if joins { "" } else { "," })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_poetry_means_them() {
        for (text, same) in [
            ("^2.13", ">=2.13, <3"),
            ("^0.3.1", ">=0.3.1, <0.4"),
            ("^0.0.3", ">=0.0.3, <0.0.4"),
            ("~1.4.2", ">=1.4.2, <1.5"),
            ("~1", ">=1, <2"),
            ("1.2.*", "==1.2.*"),
            ("2.0.1", "==2.0.1"),
            (">=3.10,<3.13", ">=3.10, <3.13"),
            (">=1.0 <2.0", ">=1.0, <2.0"),
            ("*", ""),
        ] {
            assert_eq!(versions(text).unwrap().to_string(), same, "{text}");
        }
        for text in ["^1 || ^2", "^x", "latest"] {
            assert_eq!(versions(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ 0-9.^~*<>=!|,x]{0,20}") {
            let _ = versions(&text);
        }
    }
}
