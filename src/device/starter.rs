//! Writes a first stack for a GPU: a fitting base, torch and Triton, everything else as comments.
//!
//! In: the catalog, and a GPU's name or a device. Out: [`Starter`], whose text passes `check`, or the diagnostic
//! that says why there is none. Reads and writes no file.

use crate::Device;
use crate::doctor;
use stackforge_stack::catalog::{Catalog, Image, numbers};
use stackforge_stack::diag::{Diagnostic, codes, nearest};
use stackforge_stack::spec::{Platform, Sm};

#[derive(Debug)]
pub struct Starter {
    /// Name of the stack.
    pub name: String,
    pub text: String,
}

/// Returns the SM of a GPU's name.
pub fn sm_of(catalog: &Catalog, gpu: &str) -> Result<Sm, Diagnostic> {
    catalog.sm(gpu).ok_or_else(|| {
        let names = catalog.gpus.iter().map(|g| g.name.as_str());
        let d = Diagnostic::error(codes::UNKNOWN_GPU, format!("unknown GPU `{gpu}`"));
        match nearest(gpu, names) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None => d,
        }
    })
}

/// Returns a stack for a GPU of the catalog or for an SM such as `sm_90`.
pub fn for_gpu(catalog: &Catalog, gpu: &str) -> Result<Starter, Diagnostic> {
    let sm = sm_of(catalog, gpu)?;
    let platforms = match catalog.gpu(gpu) {
        Some(gpu) => &gpu.platforms,
        None => catalog
            .sms
            .iter()
            .find(|f| f.sm == sm.base())
            .map(|f| &f.platforms)
            .ok_or_else(|| no_base(sm, None))?,
    };
    let platform = platforms.first().copied();
    let platform = platform.unwrap_or(Platform::LinuxAmd64);
    let image = catalog
        .images
        .values()
        .filter(|i| i.l4t.is_none() && i.platforms.contains(&platform))
        .filter(|i| i.cuda.is_some() && knows(catalog, i, &[sm]))
        .max_by_key(|i| (i.cuda.as_deref().map(numbers), numbers(&i.os.version)))
        .ok_or_else(|| no_base(sm, Some(platform)))?;
    Ok(write(&[gpu.to_owned()], platform, image))
}

/// Returns a stack for the GPUs of a device, on a base that its driver runs.
pub fn for_device(catalog: &Catalog, device: &Device) -> Result<Starter, Diagnostic> {
    let gpus = device.identified(catalog);
    let sms: Vec<Sm> = gpus.iter().filter_map(|g| g.sm).collect();
    let mut names: Vec<String> = gpus.iter().filter_map(|g| g.target()).collect();
    names.dedup();
    let (Some(sm), Some(platform)) = (sms.first(), device.platform) else {
        return Err(no_gpu(catalog, device));
    };
    let image = doctor::bases(catalog, device, &sms)
        .into_iter()
        .find(|i| i.cuda.is_some() && knows(catalog, i, &sms));
    match image {
        Some(image) => Ok(write(&names, platform, image)),
        None => Err(match (&device.l4t, &device.driver) {
            (Some(l4t), _) => Diagnostic::error(
                codes::JETSON_RELEASE,
                format!("no base of the catalog runs on L4T {l4t}"),
            )
            .help("`stackforge doctor` says more"),
            (None, Some(driver)) => Diagnostic::error(
                codes::OLD_DRIVER,
                format!(
                    "driver {} runs no base of the catalog that knows sm_{}",
                    driver.version().unwrap_or("of this machine"),
                    sm.digits()
                ),
            )
            .help(format!(
                "update the driver, or write a stack for elsewhere: `stackforge init --gpu {}`",
                names.first().map_or("h100", String::as_str)
            )),
            (None, None) => no_base(*sm, Some(platform)),
        }),
    }
}

/// Whether the base's toolkit compiles for all of the SMs.
fn knows(catalog: &Catalog, image: &Image, sms: &[Sm]) -> bool {
    let toolkit = image.cuda.as_deref().and_then(|c| catalog.toolkit(c));
    toolkit.is_some_and(|t| sms.iter().all(|sm| t.sms.contains(&sm.base())))
}

fn no_gpu(catalog: &Catalog, device: &Device) -> Diagnostic {
    let what = if device.pci.is_empty() {
        "this machine has no NVIDIA GPU"
    } else {
        "this machine's NVIDIA GPU has no driver that could name it"
    };
    // One product for each SM that CUDA still supports, the newest first.
    let current = catalog.sms.iter().rev().filter(|f| f.cuda.last.is_none());
    let names: Vec<&str> = current
        .filter_map(|f| catalog.gpus.iter().find(|g| g.sm == f.sm))
        .map(|g| g.name.as_str())
        .collect();
    Diagnostic::error(codes::NO_GPU, what).help(format!(
        "give `--gpu NAME`: {}, or another of catalog/gpus.yaml",
        names.join(", ")
    ))
}

fn no_base(sm: Sm, platform: Option<Platform>) -> Diagnostic {
    let place = platform.map(|p| format!(" on {p}")).unwrap_or_default();
    Diagnostic::error(
        codes::UNKNOWN_BASE,
        format!("no base of the catalog is for sm_{}{place}", sm.digits()),
    )
    .help("write the stack by hand with your own base image")
}

fn write(gpus: &[String], platform: Platform, image: &Image) -> Starter {
    let python = image
        .python
        .last()
        .map(ToString::to_string)
        .unwrap_or_default();
    let name = gpus.join("-").replace('_', "-");
    let libraries = match image.starter.as_slice() {
        [] => "  torch: \">=2.13\"\n  triton: auto          # the version that torch pins\n\
               # vllm: \">=0.32\"\n\
               # flash-attn: { version: \"2.8.3.post2\", from: source }\n"
            .to_owned(),
        own => own.iter().map(|line| format!("  {line}\n")).collect(),
    };
    let gpus = gpus.join(", ");
    Starter {
        text: format!(
            "stack: {name}\n\
             about: torch and Triton for {gpus}\n\
             base: {}\n\
             target:\n  platform: {platform}\n  gpu: [{gpus}]\n\
             python: \"{python}\"\n\
             libraries:\n{libraries}",
            image.image
        ),
        name,
    }
}
