//! The end of every build: validation, audit, labels, records, names, outputs.
//!
//! In: a [`Candidate`], what an engine made and nobody can see yet. Out: [`Built`]. Nothing gets a user's name
//! before it was validated and audited.

use super::audit::AuditSpec;
use super::{BuildError, Built, Options, StepResult, installed, last, reach};
use crate::validate::Report;
use stackforge_audit::Audit;
use stackforge_engine::ImageSize;
use stackforge_image::Layer;
use stackforge_image::store::Action;
use stackforge_plan::{Op, Plan, StepId};
use stackforge_stack::labels;
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// An image without a name, in an engine or in the store.
pub(super) trait Candidate {
    /// Validates and audits it. A failed check of the validation is an error, also where the audit fails too.
    async fn check(&mut self, audit_spec: &AuditSpec<'_>) -> Result<Checked, BuildError>;

    /// Returns the wheels, by library, whose files the image has to hold unchanged.
    fn wheels(&self) -> Result<BTreeMap<String, PathBuf>, BuildError>;

    /// Makes the final image of it, with these labels and the audit inside.
    async fn seal(
        &mut self,
        audit: &Audit,
        labels: BTreeMap<String, String>,
    ) -> Result<Sealed, BuildError>;

    /// Removes what was temporary. `sealed` is the image, if there is one.
    async fn close(&mut self, sealed: Option<&Sealed>) -> Result<(), BuildError>;

    /// Returns what was done so far, by the plan's steps.
    fn done(&mut self) -> Vec<StepResult>;

    /// Gives the image its names, and writes it to the outputs.
    async fn publish(&mut self, sealed: &Sealed, report: &Report) -> Result<(), BuildError>;

    /// Returns the path of the engine's log.
    fn log(&self) -> Option<PathBuf>;
}

/// What was found of an image.
pub(super) struct Checked {
    pub report: Report,
    pub audit: Audit,
    /// How long the audit took.
    pub audit_time: Duration,
}

/// The final image.
pub(super) struct Sealed {
    pub id: String,
    pub size: ImageSize,
    /// The layers, lowest first; empty if the engine keeps them.
    pub layers: Vec<Layer>,
    /// Blobs of the store.
    pub outputs: BTreeMap<String, Digest>,
}

pub(super) async fn finish<C: Candidate>(
    plan: &Plan,
    options: &Options<'_>,
    mut candidate: C,
) -> Result<Built, BuildError> {
    let judged = judge(plan, options, &mut candidate).await;
    let closed = candidate
        .close(judged.as_ref().ok().map(|j| &j.image))
        .await;
    let Judged {
        report,
        audit,
        image,
        seconds,
    } = judged?;
    closed?;
    let mut steps = candidate.done();
    if !steps.iter().any(|s| s.id == StepId::Image) {
        steps.push(StepResult {
            id: StepId::Image,
            cached: false,
            seconds,
        });
    }
    record(plan, options, &steps)?;
    options.store.record(
        plan.image_key(),
        &Action {
            step: StepId::Image.to_string(),
            outputs: image.outputs.clone(),
            image: Some(image.id.clone()),
            seconds,
            report: serde_json::to_value(&report).ok(),
            audit: serde_json::to_value(audit.count()).ok(),
            made: serde_json::to_value(&image.layers).ok(),
        },
    )?;
    last::record(options.store, plan)?;
    candidate.publish(&image, &report).await?;
    Ok(Built {
        id: image.id,
        tags: options.tags.clone(),
        size: image.size,
        layers: image.layers,
        steps,
        report,
        audit: audit.count(),
        noop: false,
        log: candidate.log(),
    })
}

struct Judged {
    report: Report,
    audit: Audit,
    image: Sealed,
    /// How long the audit and the final image took.
    seconds: f64,
}

async fn judge<C: Candidate>(
    plan: &Plan,
    options: &Options<'_>,
    candidate: &mut C,
) -> Result<Judged, BuildError> {
    let audit_spec = AuditSpec::of(plan, options.catalog);
    let Checked {
        report,
        mut audit,
        audit_time,
    } = candidate.check(&audit_spec).await?;
    let start = Instant::now();
    audit.target.clone_from(&plan.variant);
    installed::check(plan, &report, &audit, &candidate.wheels()?)?;
    if !audit.ok {
        return Err(BuildError::Audit {
            what: "the image".to_owned(),
            audit: Box::new(audit),
        });
    }
    let mut labels = reach::labels(plan, &audit, options.catalog);
    labels.insert(labels::AUDIT.into(), audit.count().to_string());
    let image = candidate.seal(&audit, labels).await?;
    Ok(Judged {
        report,
        audit,
        image,
        seconds: (audit_time + start.elapsed()).as_secs_f64(),
    })
}

/// Records the steps that have no record yet: a step that knows its outputs recorded them when it was done.
fn record(plan: &Plan, options: &Options<'_>, steps: &[StepResult]) -> Result<(), BuildError> {
    for done in steps {
        let Some(step) = plan.step(&done.id) else {
            continue;
        };
        // Without its wheel a compile is not done.
        let compiled = matches!(step.op, Op::Compile(_) | Op::Image(_));
        if compiled || (done.cached && options.store.has(&step.key)) {
            continue;
        }
        let before = options.store.action(&step.key).unwrap_or_default();
        let action = Action {
            step: step.id.to_string(),
            seconds: done.seconds,
            ..before
        };
        options.store.record(&step.key, &action)?;
    }
    Ok(())
}

/// Returns the text of the audit's file in the image.
pub(super) fn document(audit: &Audit) -> String {
    // Cannot fail: maps with string keys always serialize.
    serde_json::to_string(audit).unwrap_or_default() + "\n"
}
