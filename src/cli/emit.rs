//! `stackforge matrix --emit`.

use super::Outcome;
use super::args::{Common, Emit, MatrixArgs};
use super::output::{Failure, print, print_status, shown};
use stackforge_build::emit::{Format, Request, emit, is_emitted};
use stackforge_image::store::save;
use stackforge_plan::project::Project;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::matrix::Variant;
use stackforge_types::printable;
use std::io;
use std::path::Path;

impl From<Emit> for Format {
    fn from(emit: Emit) -> Self {
        match emit {
            Emit::Github => Self::Github,
            Emit::Gitlab => Self::Gitlab,
            Emit::Slurm => Self::Slurm,
            Emit::Kubernetes => Self::Kubernetes,
        }
    }
}

pub fn run(
    common: &Common,
    args: &MatrixArgs,
    format: Format,
    project: &Project,
    variants: &[Variant],
) -> Outcome {
    // The lock was parsed first, so that no pipeline contains an invalid one.
    let lock = match project.lock()? {
        Some(_) => std::fs::read_to_string(&project.lock_path).ok(),
        None => None,
    };
    let catalog = common.catalog.as_deref().map(utf8).transpose()?;
    let text = emit(
        format,
        &Request {
            stack: &project.file.pattern,
            variants,
            path: utf8(&args.stack)?,
            catalog,
            overlay: project.overlay.as_deref(),
            lock: lock.as_deref(),
        },
    )?;
    if lock.is_none() {
        let file = project.name();
        let next = format!(
            "{} has no lock yet: run `stackforge lock {}` before this runs",
            printable::line(file),
            printable::word(file)
        );
        print_status(common, &next);
    }
    match &args.output {
        None => print(&text),
        Some(path) => {
            write(path, &text)?;
            print(&format!("{}: written\n", shown(path)));
        }
    }
    Ok(())
}

fn utf8(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        let what = format!("`{}` is not UTF-8", path.display());
        Failure::of(Diagnostic::error(codes::BAD_VALUE, what).help("rename it: pipelines are text"))
    })
}

/// Writes a new file, or replaces one that this command wrote.
fn write(path: &Path, text: &str) -> Outcome {
    let ours = || std::fs::read_to_string(path).is_ok_and(|old| is_emitted(&old));
    let written = if std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) && !ours() {
        Err(io::ErrorKind::AlreadyExists.into())
    } else {
        save(path, text.as_bytes())
    };
    written.map_err(|e| {
        let what = format!("cannot write {}: {e}", path.display());
        Failure::of(Diagnostic::error(codes::BAD_VALUE, what).help(
            "name another file with `-o`; an existing one is overwritten only if \
                 `stackforge matrix` wrote it",
        ))
    })
}
