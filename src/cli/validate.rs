//! `stackforge validate`.

use super::Outcome;
use super::args::{Common, ValidateArgs};
use super::audit::Target;
use super::diagnose::{of_report, text};
use super::output::{Failure, colored, json, print, print_status};
use super::push::stored;
use super::session::{Session, runtime};
use super::signals::stop_on_signal;
use serde_json::Value;
use stackforge_build::validate::Report;
use stackforge_build::{BuildError, noted, validate_at_rest, validate_image, validate_rootfs};
use stackforge_engine::docker::Docker;
use stackforge_image::oci;
use stackforge_image::store::{Store, save};
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::spec::Platform;
use stackforge_types::Cancel;
use std::io::IsTerminal as _;
use std::path::Path;

/// Prefix of a root file system's directory.
const ROOTFS: &str = "rootfs:";

pub fn run(common: &Common, args: &ValidateArgs) -> Outcome {
    let promised = match &args.stack {
        Some(path) => {
            let session = Session::open(common, path)?;
            let (_, plan) = session.plan(common, args.variant.as_deref())?;
            Some(plan.validation().clone())
        }
        None => None,
    };
    let report = runtime()?.block_on(report(common, args, promised))?;
    let document = serde_json::to_string_pretty(&report).unwrap_or_default() + "\n";
    if let Some(path) = &args.output {
        save(path, document.as_bytes()).map_err(|e| {
            Failure::of(Diagnostic::error(
                codes::STORE_IO,
                format!("write {}: {e}", path.display()),
            ))
        })?;
    }
    if report.ok {
        if common.json {
            json(&serde_json::json!({ "ok": true, "validation": report }));
        } else {
            print(&report.table());
        }
        return Ok(());
    }
    let mut failure = Failure::of(
        Diagnostic::error(
            codes::VALIDATION_FAILED,
            format!("{} does not validate: {}", args.image, report.summary()),
        )
        .help("the table shows the check and the reason"),
    );
    failure.before = Some(report.table());
    failure.json.insert(
        "validation".into(),
        serde_json::to_value(&report).unwrap_or_default(),
    );
    let matches = of_report(&report, common.catalog.as_deref());
    failure.log = text(
        "validation",
        &matches,
        colored(common, std::io::stderr().is_terminal()),
    );
    failure
        .json
        .insert("matches".into(), serde_json::json!(matches));
    Err(failure)
}

async fn report(
    common: &Common,
    args: &ValidateArgs,
    promised: Option<Value>,
) -> Result<Report, Failure> {
    let mut line = |text: &str| print_status(common, text);
    let cancel = Cancel::new();
    stop_on_signal(&cancel);
    if let Some(dir) = args.image.strip_prefix(ROOTFS) {
        let dir = Path::new(dir);
        return Ok(validate_rootfs(dir, promised, args.gpu, &cancel, &mut line).await?);
    }
    let store = || Store::open(common.store.as_deref());
    let (name, image) = match Target::read(&args.image) {
        Target::Image { path, reference } => {
            let image = oci::open(&path, reference.as_deref(), Platform::host())?;
            (args.image.clone(), Some(image))
        }
        Target::Engine(name) => (name, None),
        _ => (args.image.clone(), None),
    };
    let at_rest = match image {
        Some(image) => image,
        None => {
            let docker = Docker::connect(None).await.map_err(BuildError::from);
            let in_engine = match &docker {
                Ok(docker) => docker.image(&name).await.map_err(BuildError::from)?,
                Err(_) => None,
            };
            // Validate what `push` would push by that name: the store's image, which the engine may have too.
            let own = if args.image == name {
                stored(&store()?, &name, Platform::host())?
            } else {
                None
            };
            let same = |image: &oci::Image| {
                let config = image
                    .documents
                    .as_ref()
                    .map(|d| d.config_digest.to_string());
                let in_engine = in_engine.as_ref().map(|in_engine| &in_engine.id);
                in_engine.is_some_and(|id| {
                    *id == image.digest.to_string() || Some(id) == config.as_ref()
                })
            };
            match own.filter(|own| !same(own)) {
                Some(image) => image,
                None => {
                    let (gpu, docker) = (args.gpu, noted(docker?, &store()?).await);
                    let report =
                        validate_image(&docker, &name, promised, gpu, &cancel, &mut line).await;
                    return Ok(report?);
                }
            }
        }
    };
    let (gpu, store) = (args.gpu, store()?);
    Ok(validate_at_rest(&store, &at_rest, promised, gpu, &cancel, &mut line).await?)
}
