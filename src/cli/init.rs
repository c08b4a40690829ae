//! `stackforge init`.

use super::Outcome;
use super::args::{Common, InitArgs};
use super::output::{Failure, print, shown};
use stackforge_device::Device;
use stackforge_device::starter;
use stackforge_image::store::{save, save_new};
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::spec::Sm;
use std::io;
use std::path::Path;

pub fn run(common: &Common, args: &InitArgs) -> Outcome {
    let catalog = stackforge_stack::catalog::load(common.catalog.as_deref())?;
    let starter = match (&args.gpu, &args.root) {
        (Some(gpu), _) => starter::for_gpu(&catalog, gpu),
        (None, Some(root)) => starter::for_device(&catalog, &Device::read(root)),
        (None, None) => starter::for_device(&catalog, &Device::here()),
    }
    .map_err(Failure::of)?;
    let path = match &args.output {
        Some(path) if path.as_os_str() == "-" => {
            print(&starter.text);
            return Ok(());
        }
        Some(path) => path.clone(),
        None => format!("{}.yaml", starter.name).into(),
    };
    match write(&path, starter.text.as_bytes()) {
        Ok(()) => {
            print(&format!(
                "{}: written; next: stackforge lock {0}\n",
                shown(&path)
            ));
            Ok(())
        }
        Err(e) => Err(Failure::of(
            Diagnostic::error(
                codes::UNREADABLE,
                format!("cannot write {}: {e}", path.display()),
            )
            .help("name another file with `-o`; an existing one is not overwritten"),
        )),
    }
}

/// Writes a new file, or writes to a pipe or device.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        save(path, text)
    } else {
        save_new(path, text, 0o666)
    }
}

/// Returns the SM of a GPU's name.
pub(super) fn sm_of(catalog: &Catalog, gpu: &str) -> Result<Sm, Failure> {
    starter::sm_of(catalog, gpu).map_err(Failure::of)
}
