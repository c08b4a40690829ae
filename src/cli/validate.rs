//! `stackforge validate`.

use super::Outcome;
use super::args::{Common, ValidateArgs};
use super::build::stop_on_signal;
use super::output::{Failure, json, print, say};
use super::session::{Session, runtime};
use crate::build::validate_image;
use crate::diag::{Diagnostic, codes};
use crate::engine::Cancel;
use crate::engine::docker::Docker;
use crate::store::write_atomically;

pub fn run(common: &Common, args: &ValidateArgs) -> Outcome {
    let promised = match &args.stack {
        Some(path) => {
            let session = Session::open(common, path)?.choose(args.variant.as_deref())?;
            Some(session.plan(common)?.parts.validation)
        }
        None => None,
    };
    let mut line = |text: &str| say(common, text);
    let report = runtime()?.block_on(async {
        let docker = Docker::connect(None).await?;
        let cancel = Cancel::new();
        stop_on_signal(&cancel);
        validate_image(&docker, &args.image, promised, args.gpu, &cancel, &mut line).await
    })?;
    let text = serde_json::to_string_pretty(&report).unwrap_or_default() + "\n";
    if let Some(path) = &args.output {
        write_atomically(path, text.as_bytes()).map_err(|e| {
            Failure::plain(
                3,
                Diagnostic::error(codes::STORE_IO, format!("write {}: {e}", path.display())),
            )
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
    let mut failure = Failure::plain(
        1,
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
    Err(failure)
}
