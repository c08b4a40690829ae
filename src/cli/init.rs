//! `stackforge init`.

use super::Outcome;
use super::args::{Common, InitArgs};
use super::output::{Failure, json, print, shown};
use stackforge_device::Device;
use stackforge_device::convert::{self, Disk, Known};
use stackforge_device::starter::{self, Question, Starter};
use stackforge_image::store::{save, save_new};
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::spec::Sm;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

pub fn run(common: &Common, args: &InitArgs) -> Outcome {
    let catalog = stackforge_stack::catalog::load(common.catalog.as_deref())?;
    let device = || match &args.root {
        Some(root) => Device::read(root),
        None => Device::here(),
    };
    let starter = match (&args.from, &args.gpu) {
        (Some(from), _) => of_file(common, args, &catalog, from, &device)?,
        (None, Some(gpu)) => starter::for_gpu(&catalog, gpu).map_err(Failure::of)?,
        (None, None) => starter::for_device(&catalog, &device()).map_err(Failure::of)?,
    };
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
                    "diagnostics": starter.errors,
                    "next": next(&starter),
                }));
            } else {
                print(&summary(&starter, &path));
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

/// Starts from a file that there is.
fn of_file(
    common: &Common,
    args: &InitArgs,
    catalog: &Catalog,
    from: &Path,
    device: &dyn Fn() -> Device,
) -> Result<Starter, Failure> {
    let known = Known::load(common.catalog.as_deref())?;
    let mut found = convert::read(from, &known, &OnDisk)?;
    found.rename(&catalog.misnomers);
    found.rename_packages(&catalog.former_packages);
    let output = args.output.as_deref().and_then(Path::parent);
    let question = Question {
        catalog,
        known: &known,
        found: &found,
        gpu: args.gpu.as_deref(),
        device,
        name: &folder_name(from),
        folder: output.unwrap_or(Path::new("")),
    };
    starter::of_file(&question).map_err(Failure::of)
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
    let notes = match starter.notes {
        0 => String::new(),
        1 => " (a comment says what it lacks)".to_owned(),
        n => format!(" ({n} comments say what it lacks)"),
    };
    let next = next(starter);
    format!("{path}: written{notes}; next: stackforge {next} {path}\n")
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
