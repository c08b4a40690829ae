//! `stackforge inspect`.

use super::Outcome;
use super::args::{Common, InspectArgs};
use super::attach::{connect, waited};
use super::audit::target::Target;
use super::output::{Failure, json, print, print_document};
use super::session::runtime;
use stackforge_distribute::evidence;
use stackforge_distribute::evidence::{
    EvidenceError, EvidenceKind, Found, Inspection, PublicKey, Trust,
};
use stackforge_engine::ImageSize;
use stackforge_engine::docker::Docker;
use stackforge_image::oci;
use stackforge_stack::config::Config;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_transfer::registry::Reference;
use stackforge_types::Digest;
use std::path::Path;
use std::str::FromStr as _;

pub fn run(common: &Common, args: &InspectArgs) -> Outcome {
    let name = args.image.as_str();
    let inspection = match (Target::read(name), args.print) {
        (Target::Registry(name), None) => in_registry(common, args, &name)?,
        (Target::Registry(name), Some(kind)) => return document(common, args, &name, kind),
        (Target::Path(path) | Target::Image { path, .. }, _) if !at_rest(name, &path) => {
            match args.print {
                None => in_registry(common, args, name)?,
                Some(kind) => return document(common, args, name, kind),
            }
        }
        (_, Some(_)) => {
            let what = format!("nothing is attached to `{name}`: only registries keep evidence");
            let none = Diagnostic::error(codes::EVIDENCE_MISSING, what);
            return Err(Failure::of(none.help("push the image, then `attach`")));
        }
        (Target::Image { path, reference }, None) => {
            let image = oci::open(&path, reference.as_deref(), args.platform)?;
            Inspection::local(name, of_layout(&image))
        }
        (Target::Path(path), None) => {
            let image = oci::open(&path, None, args.platform)?;
            Inspection::local(name, of_layout(&image))
        }
        (Target::Engine(image), None) => in_engine(name, &image)?,
        (Target::Package(_), None) => in_registry(common, args, name)?,
    };
    if common.json {
        json(&serde_json::json!({ "inspection": inspection }))
    } else {
        print(&inspection.table())
    }
    Ok(())
}

/// Whether a name stands for a file: the file exists, or the name has the form of a path.
fn at_rest(name: &str, path: &Path) -> bool {
    let kinds = ["oci:", "oci-archive:", "docker-archive:"];
    path.exists() || kinds.iter().any(|kind| name.starts_with(kind))
}

fn in_registry(common: &Common, args: &InspectArgs, name: &str) -> Result<Inspection, Failure> {
    let reference = Reference::from_str(name)?;
    let config = Config::load()?;
    let mirror = config.registries.get(reference.host()).cloned();
    let registry = connect(common, &reference, mirror.as_slice())?;
    let mut inspection = waited(evidence::inspect(&registry, &reference))?;
    if let Some(platform) = args.platform {
        let platform = platform.to_string();
        inspection.images.retain(|i| i.image.platform == platform);
    }
    Ok(inspection)
}

/// Prints one attached document unchanged.
fn document(common: &Common, args: &InspectArgs, name: &str, kind: EvidenceKind) -> Outcome {
    let reference = Reference::from_str(name)?;
    let config = Config::load()?;
    let mirror = config.registries.get(reference.host()).cloned();
    let registry = connect(common, &reference, mirror.as_slice())?;
    let key = args.key.as_deref().map(PublicKey::read).transpose();
    let key = key.map_err(EvidenceError::from)?;
    let trust = key.map(|key| Trust::new(key, args.verify_name.clone()));
    let bytes = waited(async {
        let named = evidence::named(&registry, &reference).await?;
        let platform = args.platform.map(|p| p.to_string());
        let fits = |i: &&Found| platform.as_ref().is_none_or(|p| i.platform == *p);
        let mut images = named.images.iter().filter(fits);
        match (images.next(), images.next()) {
            (Some(image), None) => {
                let (digest, trust) = (&image.digest, trust.as_ref());
                evidence::document(&registry, &reference, digest, kind, trust).await
            }
            _ => Err(EvidenceError::NotAttached {
                reference: format!("{reference} (several images: name one by its digest)"),
                kind: kind.to_string(),
            }),
        }
    })?;
    print_document(&String::from_utf8_lossy(&bytes));
    Ok(())
}

fn of_layout(image: &oci::Image) -> Found {
    let config = &image.config;
    let labels = config.config().as_ref().and_then(|c| c.labels().clone());
    Found::local(
        format!("{}/{}", config.os(), config.architecture()),
        image.digest.clone(),
        ImageSize::packed(image.layers.iter().map(|layer| layer.size).sum()),
        labels.unwrap_or_default().into_iter().collect(),
    )
}

fn in_engine(name: &str, image: &str) -> Result<Inspection, Failure> {
    let found = runtime()?.block_on(async {
        let docker = Docker::connect(None).await?;
        docker.image(image).await
    })?;
    let missing = || {
        let what = format!("the engine has no image `{image}`");
        Failure::of(Diagnostic::error(codes::NO_SUCH_IMAGE, what))
    };
    let found = found.ok_or_else(missing)?;
    let digest = Digest::from_str(&found.id).map_err(|_| missing())?;
    let platform = format!("{}/{}", found.os, found.architecture);
    let found = Found::local(platform, digest, found.size, found.labels);
    Ok(Inspection::local(name, found))
}
