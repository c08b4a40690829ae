//! Finds the image of an earlier build of the same plan.

use super::{Built, Options, StepResult};
use crate::validate::Report;
use stackforge_audit::Count;
use stackforge_engine::ImageSize;
use stackforge_image::Layer;
use stackforge_image::assemble::Assembled;
use stackforge_image::oci::parse;
use stackforge_image::store::{Action, Store};
use stackforge_plan::Plan;
use stackforge_types::Digest;

/// An image that was built before, and what was found of it.
pub(super) struct Existing {
    pub id: String,
    pub report: Report,
    pub audit: Count,
    action: Action,
}

/// Returns what the store records of the plan's image, whether or not the image is still there.
pub(super) fn lookup(plan: &Plan, options: &Options<'_>) -> Option<Existing> {
    let existing = read(options.store, plan)?;
    (!options.gpu || existing.report.has_gpu()).then_some(existing)
}

fn read(store: &Store, plan: &Plan) -> Option<Existing> {
    let action = store.action(plan.image_key())?;
    Some(Existing {
        id: action.image.clone()?,
        report: serde_json::from_value(action.report.clone()?).ok()?,
        audit: serde_json::from_value(action.audit.clone()?).ok()?,
        action,
    })
}

/// Returns the native engine's image of an earlier run, if the store has all of its blobs.
pub(super) fn recorded(store: &Store, plan: &Plan) -> Option<(Assembled, Existing)> {
    let existing = read(store, plan)?;
    let layers: Vec<Layer> = serde_json::from_value(existing.action.made.clone()?).ok()?;
    let digest: Digest = existing.id.parse().ok()?;
    // One lease for all is one write to the store.
    if let Err(e) = store.lease(layers.iter().map(|l| &l.digest)) {
        tracing::debug!("{e}");
    }
    let is_stored = |layer: &Layer| store.blob(&layer.digest).is_some();
    if !layers.iter().all(is_stored) {
        return None;
    }
    let read = |digest: &Digest| {
        let bytes = std::fs::read(store.blob_path(digest)).ok()?;
        (Digest::of(&bytes) == *digest).then_some(bytes)
    };
    let manifest = read(&digest)?;
    let parsed = parse::manifest("the manifest", &manifest).ok()?;
    let config_digest = parse::digest(parsed.config()).ok()?;
    let config = read(&config_digest)?;
    let image = Assembled {
        platform: plan.platform,
        manifest,
        config,
        digest,
        config_digest,
        layers,
    };
    Some((image, existing))
}

impl Existing {
    /// Returns the answer of a build that had nothing to do.
    pub fn built(
        self,
        plan: &Plan,
        options: &Options<'_>,
        size: ImageSize,
        layers: Vec<Layer>,
    ) -> Built {
        let step = |step: &stackforge_plan::Step| StepResult {
            id: step.id.clone(),
            cached: true,
            seconds: 0.0,
        };
        Built {
            id: self.id,
            tags: options.tags.clone(),
            size,
            layers,
            steps: plan.steps.iter().map(step).collect(),
            report: self.report,
            audit: self.audit,
            noop: true,
            log: None,
        }
    }
}
