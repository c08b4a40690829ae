//! Builds a locked stack as an image layout, with the library alone:
//! `cargo run --example native_build -- examples/tiny.yaml layout`.

use stackforge_build::native::{EPOCH, assemble, native};
use stackforge_build::{IndexSettings, Options, Output};
use stackforge_image::pack::Compression;
use stackforge_image::store::Store;
use stackforge_plan::project::{Planned, Project};
use stackforge_resolve::index_settings;
use stackforge_stack::config::Config;
use stackforge_transfer::registry::PlainHttp;
use stackforge_types::Cancel;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A sandbox starts this program again as its first process.
    if let Some(code) = stackforge_sandbox::child_main() {
        return code;
    }
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(stack), Some(layout)) = (arguments.next(), arguments.next()) else {
        return Err("usage: native_build STACK DIRECTORY".into());
    };
    let project = Project::open(Path::new(&stack), None)?;
    let chosen = project.choose(None)?;
    let Planned { plan, warnings } = project.plan(&chosen)?;
    for warning in warnings {
        eprintln!("{}: {}", warning.code, warning.message);
    }
    let store = Store::open(None)?;
    let config = Config::load()?;
    let options = Options {
        store: &store,
        catalog: &project.catalog,
        overlay: project.overlay.as_deref(),
        tags: vec![format!("{}:latest", plan.variant)],
        outputs: vec![Output::Oci(layout.into())],
        plain_http: PlainHttp::default(),
        jobs: None,
        no_cache: false,
        compile_cache: true,
        index: IndexSettings(index_settings(&chosen.stack)),
        config: &config,
        stack: Some(&chosen.stack),
        offline: false,
        gpu: false,
    };
    let native = native(Compression::GZIP, EPOCH);
    let runtime = tokio::runtime::Runtime::new()?;
    let built = runtime.block_on(assemble(
        &plan,
        &native,
        &options,
        &Cancel::new(),
        &mut |_| {},
    ))?;
    println!("{} {}", built.tags.join(" "), built.id);
    Ok(())
}
