//! Validates an assembled image on its unpacked layers, in namespaces, if this machine can run it.

use super::super::at_rest::validate_at_rest;
use super::super::{BuildError, BuildEvent, ValidationRequest};
use super::layers::NativeBuilder;
use crate::validate::{Check, Report, Status};
use serde_json::Value;
use stackforge_image::assemble::Assembled;
use stackforge_stack::spec::Platform;

impl NativeBuilder<'_, '_> {
    /// Runs the validation programs in the image and returns their report. If they cannot run, the report says
    /// why; a failed check is an error.
    pub async fn validate(&mut self, image: &Assembled) -> Result<Report, BuildError> {
        let (plan, cancel) = (self.plan, self.cancel);
        let (store, gpu) = (self.options.store, self.options.gpu);
        (self.on)(BuildEvent::Phase { name: "validate" });
        // A requested GPU validation has to fail here, not to be skipped.
        if Platform::host() != Some(plan.platform) && !gpu {
            let why = format!("{} does not run on this machine", plan.platform);
            return Ok(not_run(plan.validation(), &plan.variant, &why));
        }
        let at_rest = self.at_rest(image)?;
        let request = ValidationRequest {
            promised: Some(plan.validation().clone()),
            gpu,
            start: false,
        };
        let mut on_line = |line: &str| tracing::info!("{line}");
        match validate_at_rest(store, &at_rest, request, cancel, &mut on_line).await {
            Ok(report) if report.ok => Ok(report),
            Ok(report) => Err(BuildError::Invalid {
                report: Box::new(report),
            }),
            // The image is built correctly; it can be validated where it runs.
            Err(BuildError::Sandbox(e)) if e.is_of_machine() && !gpu => {
                let why = format!("{e}; {}", e.help());
                Ok(not_run(plan.validation(), &plan.variant, &why))
            }
            Err(e) => Err(e),
        }
    }
}

/// Returns a report that says for each check why it did not run.
fn not_run(spec: &Value, stack: &str, why: &str) -> Report {
    let names = spec["checks"].as_array().into_iter().flatten();
    let checks = names.filter_map(Value::as_str).map(|name| Check {
        name: name.to_owned(),
        status: Status::NotRun,
        reason: Some(why.to_owned()),
        results: Vec::new(),
        more: serde_json::Map::new(),
    });
    Report {
        schema: 1,
        stack: Some(stack.to_owned()),
        spec: None,
        ok: true,
        device: Value::Null,
        checks: checks.collect(),
        start: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_run_says_why() {
        let spec = serde_json::json!({ "checks": ["imports", "cuda"] });
        let report = not_run(&spec, "x", "no namespaces");
        assert!(report.ok && !report.has_run());
        assert_eq!(report.summary(), "not run: imports, cuda");
        let table = report.table();
        assert!(table.starts_with("not validated here\n"), "{table}");
        assert!(table.contains("no namespaces"));
    }

    #[test]
    fn programs_that_found_no_gpu_have_run() {
        let report = serde_json::json!({
            "schema": 1, "ok": true, "device": { "cpu": "a processor" },
            "checks": [{ "name": "cuda", "status": "not-run", "reason": "no GPU" }],
        });
        assert!(
            Report::from_slice(report.to_string().as_bytes())
                .unwrap()
                .has_run()
        );
    }
}
