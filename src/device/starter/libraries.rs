//! Lines of `libraries`, `constraints` and `overrides`: each requirement once, as a stack writes it.

use super::Question;
use super::base::{exact, label};
use super::instead::{Instead, Target, excluded, instead, may_fit};
use super::out::{self, Out, shown};
use super::torch::Torch;
use super::yaml::{list, quoted, remark};
use crate::convert::{Asked, Item, Wants};
use pep440_rs::{Version, VersionSpecifier, VersionSpecifiers};
use pep508_rs::MarkerEnvironment;
use stackforge_stack::catalog::{BuildSource, Recipe, WheelSource};
use stackforge_stack::spec::{From, LibraryName};
use std::collections::BTreeMap;

/// What decides how libraries are written.
pub(super) struct Lines<'a> {
    pub question: &'a Question<'a>,
    /// Lines that a starter stack on the base has, if not the newest torch is for it.
    pub starter: &'a [String],
    pub environment: Option<MarkerEnvironment>,
    pub torch: Torch,
    pub target: Target,
}

enum Line {
    Library(Asked),
    Comment(String),
}

impl Lines<'_> {
    /// Writes `libraries`; returns how many there are.
    pub fn libraries(&self, out: &mut Out) -> usize {
        let mut lines: Vec<Line> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for item in &self.question.found.libraries {
            let asked = match item {
                Item::Take(asked) => asked,
                Item::Note(note) => {
                    lines.push(Line::Comment(shown(note)));
                    continue;
                }
            };
            if let Some(why) = self.elsewhere(asked) {
                if !self.taken(asked) {
                    lines.push(Line::Comment(why));
                }
                continue;
            }
            match places.get(&asked.name).map(|at| &mut lines[*at]) {
                Some(Line::Library(before)) => {
                    if let Some(why) = merge(before, asked) {
                        lines.push(Line::Comment(why));
                    }
                }
                _ => {
                    places.insert(asked.name.clone(), lines.len());
                    lines.push(Line::Library(asked.clone()));
                }
            }
        }
        for (kept, other) in self.doubled(&places) {
            let line = &mut lines[places[other]];
            if let Line::Library(asked) = line {
                let (name, at) = (whole(asked), &asked.at);
                *line = Line::Comment(format!(
                    "`{name}` ({at}): `{kept}` has the same modules, and an environment holds one of them"
                ));
            }
        }
        out.text.push_str("libraries:\n");
        let mut count = 0;
        for line in lines {
            match line {
                Line::Comment(text) => out.note(2, &text),
                Line::Library(asked) if self.starts(&asked) => {
                    count += 1;
                    self.started(&asked, &places, out);
                }
                Line::Library(asked) => match self.library(&asked) {
                    Ok((line, instead)) => {
                        out.text.push_str(&line);
                        out.instead.extend(instead);
                        count += 1;
                    }
                    Err(why) => out.note(2, &why),
                },
            }
        }
        count
    }

    /// Returns pairs of libraries with the same modules that are both asked for: the one to keep, and the other.
    fn doubled(&self, asked: &BTreeMap<String, usize>) -> Vec<(&str, &str)> {
        let mut doubled = Vec::new();
        for same in &self.question.catalog.same_modules {
            let is_asked = |name: &str| asked.contains_key(name);
            if let Some((kept, others)) = same.choose(is_asked, is_asked) {
                doubled.extend(others.into_iter().map(|other| (kept, other)));
            }
        }
        doubled
    }

    /// Returns a comment if the requirement is for other systems.
    fn elsewhere(&self, asked: &Asked) -> Option<String> {
        let environment = self.environment.as_ref()?;
        if asked.holds(environment) {
            return None;
        }
        let marker = asked.marker.try_to_string().unwrap_or_default();
        let name = whole(asked);
        Some(format!("`{name}` ({}): only where {marker}", asked.at))
    }

    /// Whether the base's own line is one of the versions that are asked for: any, or a range.
    fn starts(&self, asked: &Asked) -> bool {
        let Wants::Versions(versions) = &asked.wants else {
            return false;
        };
        let labelled = self.question.known.of_torch(&asked.name) && self.torch.index.is_some();
        let placed = asked.index.is_some() || labelled || !asked.extras.is_empty();
        let Some(line) = starter_line(self.starter, &asked.name).filter(|_| !placed) else {
            return false;
        };
        let version = line.split('"').nth(1).map(|v| v.trim_end_matches(".*"));
        let version = version.and_then(|v| v.parse::<Version>().ok());
        exact(versions).is_none() && version.is_some_and(|v| versions.contains(&v))
    }

    /// Writes the base's own line, with torch's those of what it needs beside it.
    fn started(&self, asked: &Asked, asked_for: &BTreeMap<String, usize>, out: &mut Out) {
        for line in self.starter {
            let name = line.split(':').next().unwrap_or_default();
            let beside = asked.name == "torch" && !asked_for.contains_key(name);
            if name == asked.name || beside {
                out.text.push_str(&format!("  {line}\n"));
            }
        }
    }

    /// Whether the same is asked for under a marker that holds.
    fn taken(&self, other: &Asked) -> bool {
        let Some(environment) = &self.environment else {
            return false;
        };
        self.question.found.libraries.iter().any(|item| match item {
            Item::Take(asked) => {
                asked.name == other.name && asked.wants == other.wants && asked.holds(environment)
            }
            Item::Note(_) => false,
        })
    }

    /// Returns one line of `libraries`, and what it has in place of what is asked for.
    fn library(&self, asked: &Asked) -> Result<(String, Option<Instead>), String> {
        let catalog = self.question.catalog;
        let mut recipes = catalog.recipes.values();
        let recipe = recipes.find(|r| r.distribution == asked.name);
        let name = recipe.map_or(asked.name.as_str(), |r| r.library.as_str());
        let refuse = |why: &str| format!("`{}` ({}): {why}", whole(asked), asked.at);
        if name.parse::<LibraryName>().is_err() {
            return Err(refuse("not the name of a distribution"));
        }
        let mut fields: Vec<(&str, String)> = Vec::new();
        let mut remarks: Vec<String> = asked.remark.iter().cloned().collect();
        let mut from = asked.from;
        let mut moved = None;
        match &asked.wants {
            Wants::Versions(versions) => {
                let (versions, index, why) = self.versions(asked, versions);
                remarks.extend(why);
                let versions = match self.instead(asked, &versions).filter(|_| index.is_none()) {
                    Some((instead, versions, why)) => {
                        moved = Some(instead);
                        remarks.push(why);
                        versions
                    }
                    None => versions,
                };
                fields.push(("version", written(&versions)));
                fields.extend(index.map(|url| ("index", quoted(&url))));
                if recipe.is_some_and(|r| r.wheels == WheelSource::None && r.build.is_some()) {
                    from = From::Source;
                }
            }
            Wants::File(file) if !may_fit(file, &self.target.wheels) => {
                let (python, platform) = (self.target.wheels.python, self.target.wheels.platform);
                return Err(refuse(&format!(
                    "a wheel that does not fit Python {python} on {platform}: name one that does, or write `{name}: auto` if PyPI has it"
                )));
            }
            Wants::File(file) => {
                fields.push(("file", quoted(&out::from(self.question.folder, file))))
            }
            Wants::Git { url, reference } => {
                let at = reference
                    .as_ref()
                    .map(|r| format!("@{r}"))
                    .unwrap_or_default();
                let git = built(recipe).ok_or_else(|| refuse(&format!(
                    "no recipe builds it: build a wheel (`pip wheel --no-deps git+{url}{at}`) and name that file, or write `{name}: auto` if PyPI has it"
                )))?;
                if git {
                    fields.push(("git", quoted(url)));
                    fields.extend(reference.as_ref().map(|r| ("ref", quoted(r))));
                }
                from = From::Source;
            }
        }
        match from {
            From::Source => fields.insert(1.min(fields.len()), ("from", "source".to_owned())),
            From::Wheel | From::Auto => {}
        }
        if !asked.extras.is_empty() {
            fields.push(("extras", list(&asked.extras)));
        }
        let value = match fields.as_slice() {
            [("version" | "file", one)] => one.clone(),
            all => {
                let all: Vec<String> = all
                    .iter()
                    .map(|(key, value)| format!("{key}: {value}"))
                    .collect();
                format!("{{ {} }}", all.join(", "))
            }
        };
        let remarks = remark(&remarks.join("; "));
        let remarks = if remarks.is_empty() {
            remarks
        } else {
            format!("  # {remarks}")
        };
        Ok((format!("  {name}: {value}{remarks}\n"), moved))
    }

    /// Returns the versions in place of those that have no wheel, and why.
    fn instead(
        &self,
        asked: &Asked,
        versions: &VersionSpecifiers,
    ) -> Option<(Instead, VersionSpecifiers, String)> {
        let python = self.target.wheels.python;
        let loosened = self.question.loosened.get(&asked.name).cloned();
        let fault = if self.question.published.has_none_of(&asked.name, versions) {
            "is not in the index".to_owned()
        } else if loosened.is_some() {
            format!("does not go with the rest on Python {python}")
        } else {
            let version = exact(versions);
            let known = version.and_then(|v| excluded(self.question, &self.target, &asked.name, v));
            match known {
                Some(known) if known.without_cuda => {
                    "does not run on a base without CUDA".to_owned()
                }
                Some(_) => format!("does not run on Python {python}"),
                None => format!("has no wheel for Python {python}"),
            }
        };
        let version = loosened.or_else(|| instead(self.question, &self.target, asked, versions))?;
        let instead = Instead {
            library: asked.name.clone(),
            asked: joined(versions),
            version: version.to_string(),
        };
        let why = format!("{} asks for {}, which {fault}", asked.at, instead.asked);
        let versions = VersionSpecifier::equals_version(version).into();
        Some((instead, versions, why))
    }

    /// Returns the versions of a library, the index that it comes from, and why.
    fn versions(
        &self,
        asked: &Asked,
        versions: &VersionSpecifiers,
    ) -> (VersionSpecifiers, Option<String>, Option<String>) {
        let known = self.question.known;
        let own = asked.index.clone();
        if !known.of_torch(&asked.name) {
            return (versions.clone(), own, None);
        }
        let version = exact(versions);
        let of_version = version.and_then(label);
        let of_index = own.as_deref().and_then(|url| known.torch_index(url));
        let of_index =
            of_index.or_else(|| self.torch.index.as_ref().map(|(_, index)| index.clone()));
        let Some(label) = of_version.clone().or(of_index.map(|i| i.label)) else {
            return (versions.clone(), own, None);
        };
        let public = || match version {
            Some(v) if of_version.is_some() => {
                VersionSpecifier::equals_version(v.clone().without_local()).into()
            }
            _ => versions.clone(),
        };
        let Some(cuda) = known.cuda_of_label(&label) else {
            let other = ["cpu", "rocm", "xpu"].iter().any(|o| label.starts_with(o));
            let why =
                other.then(|| format!("{label} in {}: a stack's torch is for CUDA", asked.at));
            return (
                if other { public() } else { versions.clone() },
                own.filter(|_| !other),
                why,
            );
        };
        if self.torch.of_pypi {
            let why = format!("PyPI's build is for CUDA {cuda} too");
            return (public(), None, (asked.name == "torch").then_some(why));
        }
        let url = own.or_else(|| self.torch.index.as_ref().map(|(url, _)| url.clone()));
        let url = url.filter(|url| known.torch_index(url).is_some_and(|i| i.label == label));
        let url = url.or_else(|| known.torch_address(&label));
        (versions.clone(), url, None)
    }

    /// Writes a list of requirements.
    pub fn requirements(&self, key: &str, items: &[Item<Asked>], out: &mut Out) {
        let mut body = Out::default();
        let mut count = 0;
        for item in items {
            let asked = match item {
                Item::Take(asked) => asked,
                Item::Note(note) => {
                    body.note(2, &shown(note));
                    continue;
                }
            };
            if let Some(why) = self.elsewhere(asked) {
                body.note(2, &why);
                continue;
            }
            match &asked.wants {
                Wants::Versions(versions) if !versions.is_empty() => {
                    let (versions, _, _) = self.versions(asked, versions);
                    let mut remarks: Vec<String> = asked.remark.iter().cloned().collect();
                    let versions = match self.instead(asked, &versions) {
                        Some((instead, versions, why)) => {
                            body.instead.push(instead);
                            remarks.push(why);
                            versions
                        }
                        None => versions,
                    };
                    let text = format!("{}{}", asked.name, joined(&versions));
                    let remark = remark(&remarks.join("; "));
                    let remark = if remark.is_empty() {
                        remark
                    } else {
                        format!("  # {remark}")
                    };
                    body.text
                        .push_str(&format!("  - {}{remark}\n", quoted(&text)));
                    count += 1;
                }
                Wants::Versions(_) => {}
                _ => body.note(
                    2,
                    &format!(
                        "`{}` ({}): name the file in `libraries`",
                        whole(asked),
                        asked.at
                    ),
                ),
            }
        }
        out.section(key, &body, count);
    }
}

fn starter_line<'a>(lines: &'a [String], name: &str) -> Option<&'a str> {
    let of = |line: &&String| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(':'))
    };
    lines.iter().find(of).map(String::as_str)
}

/// Whether a recipe builds the library from a repository. `None` if it has no build.
fn built(recipe: Option<&Recipe>) -> Option<bool> {
    let build = recipe?.build.as_ref()?;
    // An sdist's recipe builds the repository too.
    Some(matches!(
        build.source,
        BuildSource::Git { .. } | BuildSource::Sdist
    ))
}

/// Adds a second requirement of the same distribution. Returns a comment if the two cannot be one.
fn merge(before: &mut Asked, other: &Asked) -> Option<String> {
    for extra in &other.extras {
        if !before.extras.contains(extra) {
            before.extras.push(extra.clone());
        }
    }
    before.index = before.index.take().or_else(|| other.index.clone());
    if before.from == From::Auto {
        before.from = other.from;
    }
    if before.wants == other.wants {
        return None;
    }
    match (&mut before.wants, &other.wants) {
        (Wants::Versions(a), Wants::Versions(b)) => {
            let mut all: Vec<VersionSpecifier> = a.iter().cloned().collect();
            all.extend(b.iter().filter(|s| !a.iter().any(|o| o == *s)).cloned());
            *a = all.into_iter().collect();
            None
        }
        (Wants::Versions(versions), of_place) if versions.is_empty() => {
            before.wants = of_place.clone();
            None
        }
        (_, Wants::Versions(versions)) if versions.is_empty() => None,
        _ => Some(format!(
            "`{}` ({}): `{}` is there already",
            whole(other),
            other.at,
            before.name
        )),
    }
}

/// Returns versions as `libraries` has them.
fn written(versions: &VersionSpecifiers) -> String {
    if versions.is_empty() {
        return "auto".to_owned();
    }
    let text = joined(versions);
    match text.strip_prefix("==") {
        Some(version) if versions.len() == 1 && !version.starts_with('=') => quoted(version),
        _ => quoted(&text),
    }
}

fn joined(versions: &VersionSpecifiers) -> String {
    let parts: Vec<String> = versions.iter().map(ToString::to_string).collect();
    parts.join(",")
}

/// Returns a requirement as people write it.
fn whole(asked: &Asked) -> String {
    let extras = if asked.extras.is_empty() {
        String::new()
    } else {
        format!("[{}]", asked.extras.join(","))
    };
    let wants = match &asked.wants {
        Wants::Versions(versions) => joined(versions),
        Wants::File(file) => format!(
            " @ {}",
            stackforge_types::printable::without_credentials(file)
        ),
        Wants::Git { url, reference } => {
            let reference = reference
                .as_ref()
                .map(|r| format!("@{r}"))
                .unwrap_or_default();
            format!(
                " @ git+{}{reference}",
                stackforge_types::printable::without_credentials(url)
            )
        }
    };
    format!("{}{extras}{wants}", asked.name)
}
