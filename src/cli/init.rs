//! `stackforge init`.

use super::Outcome;
use super::args::{Common, InitArgs};
use super::output::{Failure, print};
use crate::catalog::{Catalog, Image};
use crate::diag::{Diagnostic, codes, nearest};
use crate::spec::{Platform, Sm};

pub fn run(common: &Common, args: &InitArgs) -> Outcome {
    let catalog = Catalog::load(common.catalog.as_deref())?;
    let sm = sm_of(&catalog, &args.gpu)?;
    let platforms = match catalog.gpu(&args.gpu) {
        Some(gpu) => gpu.platforms.clone(),
        None => catalog
            .sms
            .iter()
            .find(|f| f.sm == sm.base())
            .map(|f| f.platforms.clone())
            .unwrap_or_default(),
    };
    let platform = platforms.first().copied().unwrap_or(Platform::LinuxAmd64);
    let image = base(&catalog, sm, platform).ok_or_else(|| {
        Failure::plain(
            1,
            Diagnostic::error(
                codes::UNKNOWN_BASE,
                format!(
                    "no base of the catalog is for sm_{} on {platform}",
                    sm.digits()
                ),
            )
            .help("write the stack by hand with your own base image"),
        )
    })?;
    let text = starter(&args.gpu, platform, image);
    let path = match &args.output {
        Some(path) if path.as_os_str() == "-" => {
            print(&text);
            return Ok(());
        }
        Some(path) => path.clone(),
        None => format!("{}.yaml", args.gpu.replace('_', "-")).into(),
    };
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .and_then(|mut f| std::io::Write::write_all(&mut f, text.as_bytes()));
    match written {
        Ok(()) => {
            print(&format!(
                "{}: written; next: stackforge lock {0}\n",
                path.display()
            ));
            Ok(())
        }
        Err(e) => Err(Failure::plain(
            2,
            Diagnostic::error(
                codes::UNREADABLE,
                format!("cannot write {}: {e}", path.display()),
            )
            .help("name another file with `-o`; an existing one is not overwritten"),
        )),
    }
}

/// The SM behind a GPU's name.
pub(super) fn sm_of(catalog: &Catalog, gpu: &str) -> Result<Sm, Failure> {
    catalog.sm(gpu).ok_or_else(|| {
        let names = catalog.gpus.iter().map(|g| g.name.as_str());
        let d = Diagnostic::error(codes::UNKNOWN_GPU, format!("unknown GPU `{gpu}`"));
        let d = match nearest(gpu, names) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None => d,
        };
        Failure::plain(2, d)
    })
}

/// The newest CUDA base whose toolkit knows the SM.
fn base(catalog: &Catalog, sm: Sm, platform: Platform) -> Option<&Image> {
    let version = |i: &Image| -> Vec<u32> {
        i.cuda
            .iter()
            .flat_map(|c| c.split('.'))
            .filter_map(|n| n.parse().ok())
            .collect()
    };
    catalog
        .images
        .values()
        .filter(|i| i.l4t.is_none() && i.platforms.contains(&platform))
        .filter(|i| {
            i.cuda
                .as_deref()
                .and_then(|c| catalog.toolkit(c))
                .is_some_and(|t| t.sms.contains(&sm.base()))
        })
        .max_by_key(|i| (version(i), i.os.version.clone()))
}

fn starter(gpu: &str, platform: Platform, image: &Image) -> String {
    let python = image
        .python
        .last()
        .map(ToString::to_string)
        .unwrap_or_default();
    let stack = gpu.replace('_', "-");
    format!(
        "stack: {stack}\n\
         about: torch and Triton for {gpu}\n\
         base: {}\n\
         target:\n  platform: {platform}\n  gpu: [{gpu}]\n\
         python: \"{python}\"\n\
         libraries:\n  torch: \">=2.13\"\n  triton: auto          # the version that torch pins\n\
         # vllm: \">=0.32\"\n\
         # flash-attn: {{ version: \"2.8.3.post2\", from: source }}\n",
        image.image
    )
}
