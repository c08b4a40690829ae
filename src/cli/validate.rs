//! `stackforge validate`.

use super::Outcome;
use super::args::{Common, ValidateArgs};
use super::audit::Target;
use super::diagnose::{of_report, text};
use super::output::{Failure, colored, json, print, print_status, warn};
use super::session::{Session, runtime};
use super::signals::stop_on_signal;
use stackforge_build::validate::{Report, judge};
use stackforge_build::{
    BuildError, ValidationRequest, noted, validate_at_rest, validate_image, validate_rootfs,
};
use stackforge_distribute::pull;
use stackforge_engine::docker::Docker;
use stackforge_image::oci;
use stackforge_image::store::{Store, save};
use stackforge_stack::diag::{self, Diagnostic, codes};
use stackforge_stack::limits::Limits;
use stackforge_stack::spec::Platform;
use stackforge_types::Cancel;
use std::fs::File;
use std::io::{IsTerminal as _, Read as _};
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
    let limits = args.limits.as_deref().map(limits).transpose()?;
    let request = ValidationRequest {
        promised,
        gpu: args.gpu,
        start: !args.no_start,
    };
    let report = runtime()?.block_on(report(common, args, request))?;
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
        return passed(common, limits.as_ref(), &report);
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

/// Longest file of limits that is read.
const MOST_LIMITS: u64 = 1 << 20;

fn limits(path: &Path) -> Result<Limits, Failure> {
    let text = File::open(path).and_then(|file| {
        let mut text = String::new();
        file.take(MOST_LIMITS).read_to_string(&mut text)?;
        Ok(text)
    });
    let text = text.map_err(|e| {
        let what = format!("cannot read the limits {}: {e}", path.display());
        Failure::of(
            Diagnostic::error(codes::UNREADABLE, what).help("name a YAML file with `--limits`"),
        )
    })?;
    let name = path.display().to_string();
    stackforge_stack::limits::read(&name, &text)
        .map_err(|report| Failure::new(codes::LIMITS_INVALID.exit(), report))
}

/// Shows a good report, and fails if a limit is not kept.
fn passed(common: &Common, limits: Option<&Limits>, report: &Report) -> Outcome {
    let Some(limits) = limits else {
        if common.json {
            json(&serde_json::json!({ "validation": report }));
        } else {
            print(&report.table());
        }
        return Ok(());
    };
    let judged = judge(limits, report.start.as_ref());
    let findings: Vec<Diagnostic> = judged.iter().filter_map(|j| j.finding.clone()).collect();
    let findings = diag::Report::new(limits.source.clone(), findings);
    if !findings.has_errors() {
        warn(common, &findings);
        if common.json {
            json(&serde_json::json!({ "validation": report, "limits": judged }));
        } else {
            print(&report.table());
        }
        return Ok(());
    }
    let mut failure = Failure::new(codes::LIMIT_EXCEEDED.exit(), findings);
    failure.before = Some(report.table());
    let document = serde_json::to_value(report).unwrap_or_default();
    let failure = failure.with("validation", document);
    Err(failure.with("limits", serde_json::to_value(&judged).unwrap_or_default()))
}

async fn report(
    common: &Common,
    args: &ValidateArgs,
    request: ValidationRequest,
) -> Result<Report, Failure> {
    let mut line = |text: &str| print_status(common, text);
    let cancel = Cancel::new();
    stop_on_signal(&cancel);
    if let Some(dir) = args.image.strip_prefix(ROOTFS) {
        let dir = Path::new(dir);
        return Ok(validate_rootfs(dir, request, &cancel, &mut line).await?);
    }
    let store = || Store::open(common.store.as_deref());
    let (name, image) = match Target::read(&args.image) {
        Target::Image { path, reference } => {
            let image = oci::open(&path, reference.as_deref(), Platform::of_processor())?;
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
                pull::stored(&store()?, &name, Platform::of_processor())?
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
                    let docker = noted(docker?, &store()?).await;
                    let report = validate_image(&docker, &name, request, &cancel, &mut line);
                    return Ok(report.await?);
                }
            }
        }
    };
    let store = store()?;
    Ok(validate_at_rest(&store, &at_rest, request, &cancel, &mut line).await?)
}
