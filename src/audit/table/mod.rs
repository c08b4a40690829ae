//! Shows objects as rows for programs, and the whole audit as text for people.

mod matrix;

use super::closure::{Closure, Provider, Through};
use super::code::Ptx;
use super::gpu::{self, Gpu, RunMode, Verdict, Verdicts, shown};
use super::object::Item;
use super::packages::package;
use super::tree::{TreeKind, split};
use super::world::World;
use super::{Audit, Finding};
use serde::Serialize;
use stackforge_binary::elf::{Floors, SearchPath};
use stackforge_stack::diag::{Severity, codes};
use stackforge_stack::spec::Sm;
use stackforge_types::printable;
use std::collections::{BTreeMap, BTreeSet};

/// An object as a row.
#[derive(Debug, Serialize)]
pub struct Row {
    pub path: String,
    pub machine: &'static str,
    pub soname: Option<String>,
    pub needed: Vec<String>,
    /// The provider of each needed library.
    pub providers: BTreeMap<String, String>,
    pub rpath: Option<SearchPath>,
    pub runpath: Option<SearchPath>,
    pub floors: Floors,
    /// SMs of its SASS.
    pub sm: BTreeSet<Sm>,
    pub ptx: Vec<PtxRow>,
    pub gpus: Vec<Verdict>,
    /// The library that the object belongs to.
    pub package: String,
    /// Whether the library is useless if this object does not run.
    pub core: bool,
    /// Libraries that the object needs beyond the C runtime.
    #[serde(skip)]
    beyond: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct PtxRow {
    pub sm: Sm,
    pub isa: String,
}

impl From<Ptx> for PtxRow {
    fn from(ptx: Ptx) -> Self {
        Self {
            sm: ptx.sm,
            isa: format!("{}.{}", ptx.isa.0, ptx.isa.1),
        }
    }
}

pub(super) fn rows(world: &World<'_>, closure: &Closure, verdicts: &Verdicts) -> Vec<Row> {
    let objects = world.items.iter().zip(&closure.0).enumerate();
    objects
        .map(|(index, (item, providers))| {
            let providers = providers.iter().map(|p| provider(world, p));
            let providers = item.object.needed.iter().cloned().zip(providers).collect();
            row(world, item, providers, verdicts.get(&index))
        })
        .collect()
}

/// Returns the rows of objects that are not installed, so their libraries have no providers.
pub(super) fn packed(world: &World<'_>, items: &[Item], gpus: &[Gpu]) -> Vec<Row> {
    let verdicts = gpu::verdicts(world, items, gpus);
    let items = items.iter().enumerate();
    items
        .map(|(index, item)| row(world, item, BTreeMap::new(), verdicts.get(&index)))
        .collect()
}

fn row(
    world: &World<'_>,
    item: &Item,
    providers: BTreeMap<String, String>,
    verdicts: Option<&Vec<Verdict>>,
) -> Row {
    let object = &item.object;
    let needed = object.needed.iter();
    let beyond = needed.filter(|n| !world.loader().base.has(n));
    Row {
        path: item.path.clone(),
        machine: object.machine.name(),
        soname: object.soname.clone(),
        needed: object.needed.clone(),
        providers,
        rpath: object.rpath.clone(),
        runpath: object.runpath.clone(),
        floors: object.floors(),
        sm: item.code.sass(),
        ptx: item.code.ptx().into_iter().map(PtxRow::from).collect(),
        gpus: verdicts.cloned().unwrap_or_default(),
        package: package(&item.path).to_owned(),
        core: world
            .catalog
            .is_core(package(&item.path), split(&item.path).1),
        beyond: beyond.cloned().collect(),
    }
}

fn provider(world: &World<'_>, provider: &Provider) -> String {
    let path = |index: &usize| world.items[*index].path.as_str();
    match provider {
        Provider::Object(index, through) => {
            let through = match through {
                Through::Rpath => "by RPATH".to_owned(),
                Through::Runpath => "by RUNPATH".to_owned(),
                Through::LibraryPath => "by LD_LIBRARY_PATH".to_owned(),
                Through::LoadersRpath(loader) => format!("by RPATH of {}", path(loader)),
                Through::Loaded(loader) => format!("loaded before by {}", path(loader)),
                Through::Directory => "in a default directory".to_owned(),
                Through::Unsearched => "where no search leads".to_owned(),
                Through::Preload(by) => format!("through {by}'s preload"),
            };
            format!("{} ({through})", path(index))
        }
        Provider::System(path) => path.clone(),
        Provider::Base => "the base".to_owned(),
        Provider::Host => "the host's driver".to_owned(),
        Provider::Missing => "missing".to_owned(),
    }
}

/// Shows an audit as text, except for errors and warnings, which are printed separately.
pub fn table(audit: &Audit) -> String {
    let mut out = header(audit);
    out.push('\n');
    out.push_str(&columns(&objects(&audit.objects)));
    if audit.objects.iter().any(|r| !r.gpus.is_empty()) {
        out.push('\n');
        out.push_str(&gpus(&audit.objects, &audit.target));
    }
    if !audit.packed.is_empty() {
        out.push_str("\nin wheels that are files here and not installed\n");
        out.push_str(&columns(&objects(&audit.packed)));
        if audit.packed.iter().any(|r| !r.gpus.is_empty()) {
            out.push('\n');
            out.push_str(&gpus(&audit.packed, &audit.target));
        }
    }
    out.push_str(&notes(audit));
    out
}

/// Lists the notes, one line each; libraries that come from elsewhere are only counted, since the column
/// `needs` lists them.
fn notes(audit: &Audit) -> String {
    let notes = (audit.findings.iter()).filter(|f| f.diagnostic.severity == Severity::Note);
    let (elsewhere, notes): (Vec<&Finding>, Vec<&Finding>) =
        notes.partition(|f| f.code() == codes::NEEDED_ELSEWHERE);
    let mut lines: Vec<String> = (notes.iter())
        .map(|f| format!("  {}  {}", f.code(), printable::line(&f.diagnostic.message)))
        .collect();
    if !elsewhere.is_empty() {
        lines.push(format!(
            "  {}  {} of these objects need libraries that are not in the tree: the directory that it is installed in shows what is missing",
            codes::NEEDED_ELSEWHERE,
            elsewhere.len()
        ));
    }
    if lines.is_empty() {
        String::new()
    } else {
        format!("\nnotes\n{}\n", lines.join("\n"))
    }
}

fn header(audit: &Audit) -> String {
    let kind = match audit.kind {
        TreeKind::Object => "object",
        TreeKind::Wheel => "wheel",
        TreeKind::Directory => "directory",
        TreeKind::Image => "image",
    };
    let with_code = audit.objects.iter().filter(|r| r.has_code()).count();
    let count = audit.objects.len();
    let s = if count == 1 { "" } else { "s" };
    let python = audit
        .python
        .map_or_else(String::new, |p| format!(", Python {p}"));
    format!(
        "{}: {kind} with {count} object{s}, {with_code} with device code{python}\n",
        printable::line(&audit.target)
    )
}

impl Row {
    fn has_code(&self) -> bool {
        !self.sm.is_empty() || !self.ptx.is_empty()
    }

    /// Groups cubins that are beside each other into one line for people.
    fn shown(&self) -> String {
        match self.machine {
            "cuda" => match self.path.rsplit_once('/') {
                Some((folder, _)) => format!("{folder}/*"),
                None => "*".to_owned(),
            },
            _ => self.path.clone(),
        }
    }
}

type Line = Vec<String>;

fn objects(rows: &[Row]) -> Vec<Line> {
    let mut lines = vec![
        ["object", "SASS", "PTX", "glibc", "GLIBCXX", "needs"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut cubins: BTreeMap<String, BTreeSet<Sm>> = BTreeMap::new();
    let sms = |sms: &BTreeSet<Sm>| {
        let all: Vec<String> = sms.iter().map(Sm::to_string).collect();
        or_dash(all.join(" "))
    };
    for row in rows {
        if row.machine == "cuda" {
            cubins.entry(row.shown()).or_default().extend(&row.sm);
            continue;
        }
        let ptx: BTreeSet<Sm> = row.ptx.iter().map(|p| p.sm).collect();
        let version = |v: &Option<stackforge_binary::elf::Version>| {
            or_dash(v.as_ref().map(ToString::to_string).unwrap_or_default())
        };
        lines.push(vec![
            row.path.clone(),
            sms(&row.sm),
            sms(&ptx),
            version(&row.floors.glibc),
            version(&row.floors.glibcxx),
            row.beyond.join(" "),
        ]);
    }
    for (path, found) in cubins {
        let dash = || "-".to_owned();
        lines.push(vec![
            path,
            sms(&found),
            dash(),
            dash(),
            dash(),
            String::new(),
        ]);
    }
    lines
}

fn or_dash(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

/// Shows objects by GPU: a sentence for few GPUs, a matrix for many.
fn gpus(rows: &[Row], target: &str) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|r| !r.gpus.is_empty()).collect();
    let Some(first) = rows.first() else {
        return String::new();
    };
    if first.gpus.len() > 3 {
        return matrix::matrix(target, &rows);
    }
    let mut lines = vec![vec!["object".to_owned()]];
    lines[0].extend(first.gpus.iter().map(heading));
    for row in rows {
        let mut line = vec![row.shown()];
        line.extend(row.gpus.iter().map(sentence));
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    columns(&lines)
}

fn heading(verdict: &Verdict) -> String {
    shown(&verdict.gpu, verdict.sm)
}

fn sentence(verdict: &Verdict) -> String {
    let code: Vec<String> = verdict
        .code
        .iter()
        .map(|s| format!("sm_{}", s.digits()))
        .collect();
    match verdict.how {
        RunMode::None => "no".to_owned(),
        RunMode::Native => format!("native: {}", code.join(" ")),
        RunMode::Jit => {
            let driver = verdict.driver.as_deref().unwrap_or("of its toolkit");
            format!("JIT: {}, driver {driver}", code.join(" "))
        }
    }
}

/// Aligns the cells of lines in columns.
fn columns(lines: &[Line]) -> String {
    let plain = |cell: &String| printable::line(cell).into_owned();
    let lines: Vec<Line> = (lines.iter())
        .map(|line| line.iter().map(plain).collect())
        .collect();
    let most = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |n: usize| {
        let cells = lines.iter().filter_map(|l| l.get(n));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..most).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths);
        let text: Vec<String> = cells.map(|(c, w)| format!("{c:w$}", w = *w)).collect();
        out.push_str(text.join("  ").trim_end());
        out.push('\n');
    }
    out
}

impl Audit {
    /// Returns the errors and warnings.
    pub fn errors_and_warnings(&self) -> impl Iterator<Item = &Finding> {
        let worth = |f: &&Finding| f.diagnostic.severity > Severity::Note;
        self.findings.iter().filter(worth)
    }
}
