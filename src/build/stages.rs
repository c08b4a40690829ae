//! The engine's steps as steps of the plan: stages of the rendered Dockerfile carry the
//! plan's names.

use super::StepResult;
use crate::plan::Plan;
use stackforge_engine::StepSummary;

/// Stage of an engine's step name: `builder-x` in `[builder-x 2/3] RUN …`.
pub fn stage(name: &str) -> Option<&str> {
    let inside = name.strip_prefix('[')?.split(']').next()?;
    let stage = inside.rsplit_once(' ').map_or(inside, |(stage, _)| stage);
    Some(stage.trim())
}

/// Id of the plan's step that a stage belongs to.
pub fn plan_step(stage: &str) -> Option<String> {
    Some(match stage {
        "base" | "base-os" => "base".into(),
        "runtime" => stage.into(),
        "validate" | "validated" => "validate".into(),
        "final" | "stage-0" => "image".into(),
        _ => match (
            stage.strip_prefix("wheels-"),
            stage.strip_prefix("builder-"),
        ) {
            (Some(layer), _) => format!("wheels:{layer}"),
            (_, Some(library)) => format!("compile:{library}"),
            _ => return None,
        },
    })
}

/// Seconds and cache hits by the plan's steps, in the plan's order. A step that the engine
/// did not need to look at (everything above it was cached) counts as cached.
pub(super) fn fold(plan: &Plan, engine: &[StepSummary]) -> Vec<StepResult> {
    plan.steps
        .iter()
        .map(|step| {
            let mine = engine
                .iter()
                .filter(|s| stage(&s.name).and_then(plan_step).as_deref() == Some(&step.id));
            let (mut seconds, mut cached) = (0.0, true);
            for s in mine {
                seconds += s.seconds;
                cached &= s.cached || s.kind == stackforge_engine::StepKind::From;
            }
            StepResult {
                id: step.id.clone(),
                cached,
                seconds,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_read_from_the_engines_names() {
        for (name, step) in [
            (
                "[builder-causal-conv1d 1/1] RUN --mount=type=bind sh x",
                "compile:causal-conv1d",
            ),
            ("[wheels-cuda 1/1] RUN x", "wheels:cuda"),
            ("[base 1/2] FROM stackforge/base:x", "base"),
            ("[validate 1/1] RUN x", "validate"),
            ("[validated 1/1] RUN x", "validate"),
        ] {
            assert_eq!(
                stage(name).and_then(plan_step).as_deref(),
                Some(step),
                "{name}"
            );
        }
        assert_eq!(stage("[tools 1/1] RUN x").and_then(plan_step), None);
        assert_eq!(stage("exporting to image"), None);
    }
}
