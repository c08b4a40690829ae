//! Checks a catalog for consistency.
//!
//! In: a whole [`Catalog`] of embedded files and an overlay. Out: nothing, or the first fault with its file.
//! Compares facts only with each other: their sources vouch for their truth.

use super::options::label_name;
use super::release::{Pin, Release, ReleaseWheel, WheelCuda};
use super::{Build, BuildOption, Catalog, CatalogError, Conditions, Fetch, Patch, Recipe};
use pep440_rs::Version;
use stackforge_types::{PythonVersion, Sm};
use std::collections::{BTreeMap, BTreeSet};

type Checked = Result<(), CatalogError>;

pub(super) fn check(catalog: &Catalog, keyring: &dyn Fn(&str) -> bool) -> Checked {
    gpus(catalog)?;
    toolkits(catalog)?;
    images(catalog, keyring)?;
    super::jetson::check(catalog)?;
    for recipe in catalog.recipes.values() {
        let file = format!("libraries/{}.yaml", recipe.library);
        recipe_names(catalog, recipe).map_err(|what| inconsistent(&file, what))?;
        releases(catalog, &file, &recipe.distribution, &recipe.releases)?;
    }
    for component in catalog.components.values() {
        let name = &component.distribution;
        releases(catalog, "components.yaml", name, &component.releases)?;
    }
    former_packages(catalog)?;
    conflicts(catalog)
}

/// Checks that a package that archives no longer have is told what to do, and sent to no other such.
fn former_packages(catalog: &Catalog) -> Checked {
    for (name, former) in &catalog.former_packages {
        if former.write.is_empty() == former.help.is_none() {
            return Err(inconsistent(
                "packages.yaml",
                format!("`{name}` has `write` or `help`"),
            ));
        }
        let is_former = |name: &&String| catalog.former_packages.contains_key(*name);
        if let Some(other) = former.write.iter().find(is_former) {
            let what = format!("`{name}` is sent to `{other}`, which no archive has either");
            return Err(inconsistent("packages.yaml", what));
        }
    }
    Ok(())
}

fn inconsistent(file: &str, message: String) -> CatalogError {
    CatalogError::Inconsistent {
        file: file.to_owned(),
        message,
    }
}

fn gpus(catalog: &Catalog) -> Checked {
    let wrong = |what| Err(inconsistent("gpus.yaml", what));
    for sm in &catalog.sms {
        let known = stackforge_gpu::is_tegra(sm.sm);
        if sm.tegra != known {
            let kind = if known {
                "a Tegra module"
            } else {
                "a discrete GPU"
            };
            return wrong(format!(
                "{}: `tegra: {}`, but this release judges its device code as that of {kind} (`TEGRA` in crates/gpu)",
                sm.sm, sm.tegra
            ));
        }
        for isa in &sm.isas {
            let Some(known) = catalog.isas.iter().find(|i| i.name == *isa) else {
                return wrong(format!("{}: ISA `{isa}` is not in cpus.yaml", sm.sm));
            };
            if !sm.platforms.contains(&known.platform) {
                let platform = known.platform;
                return wrong(format!("{}: `{isa}` is one of {platform}", sm.sm));
            }
        }
    }
    for gpu in &catalog.gpus {
        let Some(facts) = catalog.sm_facts(gpu.sm) else {
            return wrong(format!("`{}` has unknown SM {}", gpu.name, gpu.sm));
        };
        if let Some(p) = gpu.platforms.iter().find(|p| !facts.platforms.contains(p)) {
            return wrong(format!("`{}`: {} is not known on {p}", gpu.name, gpu.sm));
        }
    }
    Ok(())
}

fn toolkits(catalog: &Catalog) -> Checked {
    for toolkit in &catalog.toolkits {
        for sm in toolkit.every_sm() {
            if catalog.sm_facts(*sm).is_none() {
                let what = format!("CUDA {} lists unknown SM {sm}", toolkit.version);
                return Err(inconsistent("cuda.yaml", what));
            }
        }
    }
    Ok(())
}

fn images(catalog: &Catalog, keyring: &dyn Fn(&str) -> bool) -> Checked {
    for (name, image) in &catalog.images {
        let wrong = |what| Err(inconsistent(&format!("images/{name}.yaml"), what));
        if image.reference.is_some() == image.bootstrap.is_some() {
            return wrong("needs either `reference` or `bootstrap`".into());
        }
        for python in &image.python {
            if !image.packages.python.contains_key(python) {
                return wrong(format!("has no packages for Python {python}"));
            }
        }
        if let Some(cuda) = &image.cuda
            && catalog.toolkit(cuda).is_none()
        {
            return wrong(format!("CUDA {cuda} is not in cuda.yaml"));
        }
        if let Some(b) = &image.bootstrap
            && !keyring(&b.keyring)
        {
            return wrong(format!("keyring `{}` does not exist", b.keyring));
        }
        if let Some(b) = &image.bootstrap
            && !b.exclude.is_empty()
            && (b.essential || b.exclude.iter().any(|e| b.include.contains(e)))
        {
            return wrong(
                "`exclude` goes with `essential: false`, and names nothing of `include`".into(),
            );
        }
    }
    Ok(())
}

/// Checks the libraries, SMs and IDs that a recipe names.
fn recipe_names(catalog: &Catalog, recipe: &Recipe) -> Result<(), String> {
    let mut sms: Vec<Sm> = Vec::new();
    let mut conditions: Vec<&Conditions> = Vec::new();
    conditions.extend(recipe.refusals.iter().map(|r| &r.when));
    conditions.extend(recipe.known.iter().map(|k| &k.when));
    unique("known", recipe.known.iter().map(|k| k.id.as_str()))?;
    if let Some(build) = &recipe.build {
        if let Some(need) = build
            .needs
            .iter()
            .find(|n| !catalog.recipes.contains_key(*n))
        {
            return Err(format!("needs `{need}`, which has no recipe"));
        }
        let variables = build.partial_arch.iter().map(|p| p.variable.as_str());
        unique("partial_arch", variables)?;
        unique("patches", build.patches.iter().map(|p| p.id.as_str()))?;
        build.patches.iter().try_for_each(patch)?;
        unique("fetch", build.fetch.iter().map(|f| f.name.as_str()))?;
        build.fetch.iter().try_for_each(|f| fetched(build, f))?;
        let names: Vec<String> = build.options.iter().map(|o| label_name(&o.id)).collect();
        unique("options", names.iter().map(String::as_str))?;
        build.options.iter().try_for_each(|o| option(build, o))?;
        conditions.extend(build.fetch.iter().map(|f| &f.when));
        conditions.extend(build.options.iter().map(|o| &o.when));
        sms.extend(build.proven.iter().flat_map(|p| &p.sm));
        conditions.extend(build.partial_arch.iter().map(|p| &p.when));
        conditions.extend(build.sm_limit.iter().map(|o| &o.when));
        conditions.extend(build.patches.iter().map(|p| &p.when));
        sms.extend(build.arch.iter().flat_map(|a| &a.only));
        sms.extend(build.partial_arch.iter().flat_map(|p| &p.knows));
    }
    sms.extend(conditions.iter().flat_map(|c| &c.sm));
    match sms.iter().find(|sm| catalog.sm_facts(**sm).is_none()) {
        Some(sm) => Err(format!("names unknown SM {sm}")),
        None => Ok(()),
    }
}

/// Checks a change of the source: a text and its replacement, or parts.
fn patch(patch: &Patch) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("patch `{}`: {why}", patch.id));
    match (&patch.replace, &patch.split) {
        (Some(text), None) if !text.is_empty() => Ok(()),
        (None, Some(split)) if patch.with.is_empty() => {
            let name = patch.file.rsplit('/').next().unwrap_or_default();
            if split.parts < 2 {
                wrong("`split` is into two parts or more")
            } else if !name.trim_start_matches('.').contains('.') {
                wrong(
                    "a file that is split has a name with an extension, from which its parts' names are made",
                )
            } else {
                Ok(())
            }
        }
        _ => wrong("it has `replace` and `with`, or `split`"),
    }
}

/// Checks a clone: one commit, in a folder with a plain name, in a build that has git.
fn fetched(build: &Build, fetch: &Fetch) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("`fetch` of `{}`: {why}", fetch.name));
    let plain = |text: &str| {
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        !text.is_empty() && !text.starts_with('.') && text.bytes().all(is_allowed)
    };
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if fetch.revision.len() != 40 || !fetch.revision.bytes().all(hex) {
        return wrong("`revision` is a commit, 40 hexadecimal digits: a tag may move");
    }
    if !plain(&fetch.name) || !fetch.folder.iter().flat_map(|f| f.split('/')).all(plain) {
        return wrong(
            "its `name` and the parts of its `folder` are letters, digits, `-`, `_` and `.`",
        );
    }
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let digit = fetch.variable.starts_with(|c: char| c.is_ascii_digit());
    if digit || fetch.variable.is_empty() || !fetch.variable.bytes().all(letter) {
        return wrong("`variable` is the name of one");
    }
    let kinds = ["https://", "http://", "ssh://", "git://"];
    let address = kinds.iter().any(|kind| fetch.git.starts_with(kind));
    if !address || fetch.git.bytes().any(|b| b.is_ascii_whitespace()) {
        return wrong("`git` is an address: https://HOST/PATH");
    }
    if build.packages.iter().any(|package| package == "git") {
        Ok(())
    } else {
        wrong("`packages` has to name git, which clones it")
    }
}

/// Checks an option: its names fit into a local version, and something leaves out each of its parts.
fn option(build: &Build, option: &BuildOption) -> Result<(), String> {
    let wrong = |why: String| Err(format!("option `{}`: {why}", option.id));
    let is_plain = |text: &str| {
        let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        !text.is_empty() && text.bytes().all(is_allowed)
    };
    if !is_plain(&label_name(&option.id)) || !option.parts.iter().all(|part| is_plain(part)) {
        return wrong("names are lowercase letters and digits, `_` too in its own".to_owned());
    }
    if build.local_version.is_none() {
        return wrong("`local_version` is needed, so that its wheels can be told apart".to_owned());
    }
    unique("parts", option.parts.iter().map(String::as_str))?;
    for edit in &option.edits {
        let searched = match (&edit.replace, &edit.remove_lines) {
            (Some(text), None) => text,
            (None, Some(text)) if edit.with.is_empty() => text,
            _ => return wrong("an edit has `replace` and `with`, or `remove_lines`".to_owned()),
        };
        if searched.is_empty() || edit.file.is_empty() {
            return wrong("an edit names a file and a text".to_owned());
        }
        match &edit.part {
            Some(part) if !option.parts.contains(part) => {
                return wrong(format!("an edit is for `{part}`, which is not a part"));
            }
            // The first part's edit would leave nothing for the next one's.
            None if option.parts.len() > 1 && !searched.contains("{part}") => {
                return wrong("an edit for every part searches a text with `{part}`".to_owned());
            }
            _ => {}
        }
    }
    let every = option.edits.iter().any(|edit| edit.part.is_none());
    let own = |part: &String| option.edits.iter().any(|e| e.part.as_ref() == Some(part));
    match option.parts.iter().find(|part| !every && !own(part)) {
        Some(part) => wrong(format!("nothing leaves out `{part}`")),
        None if option.edits.is_empty() && option.env.is_empty() => {
            wrong("it has neither edits nor variables".to_owned())
        }
        None => Ok(()),
    }
}

fn unique<'a>(list: &str, ids: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for id in ids {
        if !seen.insert(id) {
            return Err(format!("`{list}` has `{id}` twice"));
        }
    }
    Ok(())
}

fn releases(
    catalog: &Catalog,
    file: &str,
    distribution: &str,
    releases: &BTreeMap<Version, Release>,
) -> Checked {
    for (version, release) in releases {
        release_agrees(catalog, release)
            .map_err(|what| inconsistent(file, format!("{distribution} {version}: {what}")))?;
    }
    Ok(())
}

fn release_agrees(catalog: &Catalog, release: &Release) -> Result<(), String> {
    pins_are_known(catalog, &release.requires)?;
    for (i, wheel) in release.wheels.iter().enumerate() {
        pins_are_known(catalog, &wheel.requires)?;
        wheel_agrees(catalog, wheel)?;
        for other in &release.wheels[..i] {
            if overlap(wheel, other) && wheel.code != other.code {
                return Err("two wheels with different code fit one Python".into());
            }
        }
    }
    if !release.ptxas.is_sorted_by_key(|p| p.from) {
        return Err("`ptxas` is not in the order of `from`".into());
    }
    match (release.ptxas.iter()).find(|p| catalog.toolkit(&p.version).is_none()) {
        Some(p) => Err(format!("ptxas {} is of no toolkit here", p.version)),
        None => Ok(()),
    }
}

fn pins_are_known(catalog: &Catalog, pins: &[Pin]) -> Result<(), String> {
    match pins.iter().find(|p| catalog.releases(&p.name).is_none()) {
        Some(p) => Err(format!(
            "requires `{}`: neither a recipe nor components.yaml has it",
            p.name
        )),
        None => Ok(()),
    }
}

fn wheel_agrees(catalog: &Catalog, wheel: &ReleaseWheel) -> Result<(), String> {
    if wheel.python.is_empty() {
        return Err("a wheel has no Python tag".into());
    }
    if wheel.glibc.is_some() && wheel.platform.is_none() {
        return Err("a wheel for any platform has a glibc floor".into());
    }
    if let (Some(label), WheelCuda::Version { major, minor }) = (&wheel.local, &wheel.cuda)
        && *label != format!("cu{major}{}", minor.unwrap_or_default())
    {
        return Err(format!("`{label}` is not the label of CUDA {}", wheel.cuda));
    }
    for code in &wheel.code {
        let cuda = match &code.cuda {
            WheelCuda::Unknown => &wheel.cuda,
            own => own,
        };
        for sm in code.sm.iter().chain(&code.ptx) {
            if catalog.sm_facts(*sm).is_none() {
                return Err(format!("names unknown SM {sm}"));
            }
            if !compiles(catalog, cuda, *sm) {
                return Err(format!("CUDA {cuda} does not compile for {sm}"));
            }
        }
    }
    Ok(())
}

/// Whether some toolkit of that version supports the SM. An unknown version supports any.
fn compiles(catalog: &Catalog, cuda: &WheelCuda, sm: Sm) -> bool {
    let WheelCuda::Version { major, minor } = cuda else {
        return *cuda == WheelCuda::Unknown;
    };
    let of_version = |version: &str| match (version.split_once('.'), minor) {
        (Some((m, _)), None) => m.parse() == Ok(*major),
        (_, Some(minor)) => version == format!("{major}.{minor}"),
        (None, None) => false,
    };
    let mut toolkits = (catalog.toolkits.iter())
        .filter(|t| of_version(&t.version))
        .peekable();
    toolkits.peek().is_none() || toolkits.any(|t| t.every_sm().any(|s| *s == sm))
}

/// Whether both wheels fit one Python on one platform.
fn overlap(a: &ReleaseWheel, b: &ReleaseWheel) -> bool {
    let platform = a.platform.is_none() || b.platform.is_none() || a.platform == b.platform;
    let python = |minor| PythonVersion { major: 3, minor };
    platform
        && a.local == b.local
        && (6..30).any(|minor| a.loads_in(python(minor)) && b.loads_in(python(minor)))
}

fn conflicts(catalog: &Catalog) -> Checked {
    for conflict in &catalog.conflicts {
        let mut names = conflict.packages.keys();
        if let Some(name) = names.find(|n| catalog.releases(n).is_none()) {
            let what = format!("`{}`: `{name}` is not known", conflict.id);
            return Err(inconsistent("conflicts.yaml", what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    /// Returns the result of loading an overlay with this file.
    fn with(file: &str, text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        match crate::tests::catalog().extend(dir.path(), &|_| true) {
            Ok(_) => "consistent".into(),
            Err(e) => e.to_string(),
        }
    }

    fn component(release: &str) -> String {
        with(
            "components.yaml",
            &format!(
                "schema: 1\ncomponents:\n- distribution: x\n  about: y\n  releases:\n    '1.0': {release}\n"
            ),
        )
    }

    #[test]
    fn a_release_agrees_with_the_rest_of_the_catalog() {
        assert_eq!(
            component("{ requires: [torch==2.14.0], source: s }"),
            "consistent"
        );
        for (release, fault) in [
            ("{ requires: [nobody==1], source: s }", "`nobody`"),
            (
                "{ ptxas: [{ name: p, version: '9.1.1' }], source: s }",
                "ptxas 9.1.1",
            ),
            ("{ wheels: [{ python: [] }], source: s }", "no Python tag"),
            (
                "{ wheels: [{ python: [py3], glibc: '2.28' }], source: s }",
                "glibc floor",
            ),
            (
                "{ wheels: [{ python: [py3], local: cu126, cuda: '12.8' }], source: s }",
                "label of CUDA 12.8",
            ),
            (
                "{ wheels: [{ python: [py3], cuda: '13', code: [{ objects: [x], sm: ['7.0'] }] }], source: s }",
                "CUDA 13 does not compile for 7.0",
            ),
            (
                "{ wheels: [{ python: [py3], code: [{ objects: [x], sm: ['9.1'] }] }], source: s }",
                "unknown SM 9.1",
            ),
            (
                "{ wheels: [{ python: [cp39], abi3: true }, { python: [cp312], code: [{ objects: [x], sm: ['9.0'] }] }], source: s }",
                "two wheels",
            ),
        ] {
            let message = component(release);
            assert!(message.contains(fault), "{release}: {message}");
        }
    }

    #[test]
    fn names_in_other_files_are_checked() {
        let sm = "schema: 1\nsms:\n- { sm: '9.0', generation: g, products: [], tegra: false, cuda: { first: '11.8' }, platforms: [linux/amd64], isas: [ISA], source: s }\n";
        for (isa, fault) in [("abacus", "`abacus`"), ("armv9", "linux/arm64")] {
            let message = with("gpus.yaml", &sm.replace("ISA", isa));
            assert!(message.contains(fault), "{message}");
        }
        let known = sm.replace("ISA", "avx2");
        let message = with("gpus.yaml", &known.replace("tegra: false", "tegra: true"));
        assert!(message.contains("9.0: `tegra: true`"), "{message}");
        let message = with(
            "conflicts.yaml",
            "schema: 1\nconflicts:\n- { id: c, packages: { nobody: '<1' }, what: w, fix: f, source: s }\n",
        );
        assert!(message.contains("`nobody`"), "{message}");
    }
}
