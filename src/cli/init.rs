//! `stackforge init`.

use super::Outcome;
use super::args::{Common, InitArgs};
use super::output::{Failure, json, print, print_message, shown};
use super::screen;
use super::session::runtime;
use stackforge_device::Device;
use stackforge_device::convert::{self, Disk, Found, Item, Known};
use stackforge_device::starter::{self, Question, Starter};
use stackforge_image::store::{Store, save, save_new};
use stackforge_resolve::{Loosened, Published, Unread};
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::spec::{self, Sm};
use stackforge_stack::target::Target;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

pub fn run(common: &Common, args: &InitArgs) -> Outcome {
    let catalog = stackforge_stack::catalog::load(common.catalog.as_deref())?;
    let device = || match &args.root {
        Some(root) => Device::read(root),
        None => Device::here(),
    };
    let written = match (&args.from, &args.gpu) {
        (Some(from), _) => of_file(common, args, &catalog, from, &device)?,
        (None, Some(gpu)) => starter::for_gpu(&catalog, gpu).map_err(Failure::of)?.into(),
        (None, None) => starter::for_device(&catalog, &device())
            .map_err(Failure::of)?
            .into(),
    };
    let starter = &written.starter;
    let path = match &args.output {
        Some(path) if path.as_os_str() == "-" => {
            print(&starter.text);
            return Ok(());
        }
        Some(path) => path.clone(),
        None => format!("{}.yaml", starter.name).into(),
    };
    match write(&path, starter.text.as_bytes(), args.force) {
        Ok(()) => {
            if common.json {
                json(&serde_json::json!({
                    "file": path,
                    "notes": starter.notes,
                    "instead": starter.instead,
                    "unread": written.unread,
                    "diagnostics": starter.errors,
                    "next": next(starter),
                }));
            } else {
                print(&summary(starter, &path));
            }
            Ok(())
        }
        Err(e) => Err(Failure::of(
            Diagnostic::error(
                codes::UNREADABLE,
                format!("cannot write {}: {e}", path.display()),
            )
            .help(
                "name another file with `-o`; an existing one is overwritten with `--force` only",
            ),
        )),
    }
}

/// A first stack, and the distributions whose pages could not be read from any index.
struct Written {
    starter: Starter,
    unread: Vec<String>,
}

impl From<Starter> for Written {
    fn from(starter: Starter) -> Self {
        Self {
            starter,
            unread: Vec::new(),
        }
    }
}

/// Starts from a file that there is.
fn of_file(
    common: &Common,
    args: &InitArgs,
    catalog: &Catalog,
    from: &Path,
    device: &dyn Fn() -> Device,
) -> Result<Written, Failure> {
    let known = Known::load(common.catalog.as_deref())?;
    let mut found = convert::read(from, &known, &OnDisk)?;
    found.rename(&catalog.misnomers);
    found.rename_packages(&catalog.former_packages);
    let (store, mut published) = published(common, catalog, &found)?;
    let output = args.output.as_deref().and_then(Path::parent);
    let write = |published: &Published, loosened: &Loosened| {
        starter::of_file(&Question {
            catalog,
            known: &known,
            found: &found,
            published,
            loosened,
            gpu: args.gpu.as_deref(),
            base: args.base.as_deref(),
            device,
            name: &folder_name(from),
            folder: output.unwrap_or(Path::new("")),
        })
        .map_err(Failure::of)
    };
    let mut starter = write(&published, &Loosened::new())?;
    if let Some(store) = store.filter(|_| !published.is_empty()) {
        let loosened = loosened(catalog, &starter, &mut published, &store)?;
        if !loosened.is_empty() {
            starter = write(&published, &loosened)?;
        }
    }
    let unread = published.unread();
    if let Some(unread) = unread.filter(|_| !common.quiet && !common.json) {
        print_message(&not_asked(unread, published.is_empty()));
    }
    let unread = unread.into_iter().flat_map(|unread| &unread.names);
    Ok(Written {
        starter,
        unread: unread.cloned().collect(),
    })
}

/// Says for which distributions no index page could be read. `all`: for every one.
fn not_asked(unread: &Unread, all: bool) -> String {
    let error = &unread.error;
    let of = match unread.names.iter().map(String::as_str).collect::<Vec<_>>() {
        _ if all => String::new(),
        names => format!(" of {}", names.join(", ")),
    };
    format!(
        "the index does not say which releases{of} have wheels ({error}); `stackforge lock` will ask again\n"
    )
}

/// Returns the releases with which pins go together that do not.
fn loosened(
    catalog: &Catalog,
    starter: &Starter,
    published: &mut Published,
    store: &Store,
) -> Result<Loosened, Failure> {
    let Ok(file) = spec::read("the stack", &starter.text) else {
        return Ok(Loosened::new());
    };
    let Ok(target) = Target::of(&file.pattern, catalog) else {
        return Ok(Loosened::new());
    };
    let progress = &mut |text: &str| screen::doing(text);
    let asked =
        stackforge_resolve::loosened(&file.pattern, catalog, &target, published, store, progress);
    Ok(runtime()?.block_on(asked).unwrap_or_else(|error| {
        // What is wrong, `lock` will say.
        tracing::debug!("pins stay as they are: {error}");
        Loosened::new()
    }))
}

/// Asks the indexes what they have of what a file asks for. Without the network nothing is known, and the stack has every
/// requirement as it is.
fn published(
    common: &Common,
    catalog: &Catalog,
    found: &Found,
) -> Result<(Option<Store>, Published), Failure> {
    let all = [&found.libraries, &found.constraints, &found.overrides];
    let bounded = all.into_iter().flatten().filter_map(|item| match item {
        Item::Take(asked) => asked.is_bounded().then(|| asked.name.clone()),
        Item::Note(_) => None,
    });
    let names: BTreeSet<String> = bounded.collect();
    if common.offline || names.is_empty() {
        return Ok((None, Published::default()));
    }
    let store = Store::open(common.store.as_deref())?;
    screen::doing("asking the index which releases have wheels");
    let published = runtime()?.block_on(Published::ask(names, catalog, store.root()));
    Ok((Some(store), published))
}

/// Returns the name of the folder that a file is in.
fn folder_name(file: &Path) -> String {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = absolute.parent().and_then(Path::file_name);
    folder
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Says what was written and what is to do.
fn summary(starter: &Starter, path: &Path) -> String {
    let path = shown(path);
    let instead = match starter.instead.len() {
        0 => None,
        1 => Some("one requirement has another version, whose wheel fits".to_owned()),
        n => Some(format!(
            "{n} requirements have other versions, whose wheels fit"
        )),
    };
    let notes = match starter.notes {
        0 => None,
        1 => Some("a comment says what it lacks".to_owned()),
        n => Some(format!("{n} comments say what it lacks")),
    };
    let remarks: Vec<String> = instead.into_iter().chain(notes).collect();
    let remarks = match remarks.as_slice() {
        [] => String::new(),
        all => format!(" ({})", all.join("; ")),
    };
    let next = next(starter);
    format!("{path}: written{remarks}; next: stackforge {next} {path}\n")
}

/// Returns the command to go on with; `build` locks by itself.
fn next(starter: &Starter) -> &'static str {
    if starter.errors.is_empty() {
        "build"
    } else {
        "check"
    }
}

struct OnDisk;

impl Disk for OnDisk {
    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if path.as_os_str() == "-" {
            io::stdin().take(most).read_to_end(&mut bytes)?;
            return Ok(bytes);
        }
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn list(&self, path: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let files = entries.filter(|e| e.path().is_file());
        files
            .filter_map(|e| e.file_name().into_string().ok())
            .collect()
    }
}

/// Writes a new file, or writes to a pipe or device. `force`: a file that is there is replaced.
fn write(path: &Path, text: &[u8], force: bool) -> io::Result<()> {
    if force || std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        save(path, text)
    } else {
        save_new(path, text, 0o666)
    }
}

/// Returns the SM of a GPU's name.
pub(super) fn sm_of(catalog: &Catalog, gpu: &str) -> Result<Sm, Failure> {
    starter::sm_of(catalog, gpu).map_err(Failure::of)
}
