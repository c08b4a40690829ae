//! Maps the engine's steps to steps of the plan: stages of the rendered Dockerfile have the plan's
//! names.

use super::StepResult;
use stackforge_engine::StepSummary;
use stackforge_plan::{Plan, Step, StepId};

/// Returns the stage in an engine's step name: `builder-x` of `[builder-x 2/3] RUN …`.
pub fn stage(name: &str) -> Option<&str> {
    let inside = name.strip_prefix('[')?.split(']').next()?;
    let stage = inside.rsplit_once(' ').map_or(inside, |(stage, _)| stage);
    Some(stage.trim())
}

/// Returns the plan's step that a stage belongs to.
pub fn plan_step(stage: &str) -> Option<StepId> {
    Some(match stage {
        "base" | "base-os" => StepId::Base,
        "runtime" => StepId::Runtime,
        "validate" | "validated" => StepId::Validate,
        "final" | "stage-0" => StepId::Image,
        _ => match stage.strip_prefix("wheels-") {
            Some(group) => StepId::Wheels(group.parse().ok()?),
            None => StepId::compile(stage.strip_prefix("builder-")?),
        },
    })
}

/// What an engine did for a step of the plan.
pub(super) struct Done<'a> {
    pub step: &'a Step,
    pub cached: bool,
    pub seconds: f64,
}

impl Done<'_> {
    pub fn result(&self) -> StepResult {
        StepResult {
            id: self.step.id.to_string(),
            cached: self.cached,
            seconds: self.seconds,
        }
    }
}

/// Sums seconds and cache hits by the plan's steps, in the plan's order. A step that the engine skipped,
/// because a later one was cached, counts as cached.
pub(super) fn fold<'a>(plan: &'a Plan, engine: &[StepSummary]) -> Vec<Done<'a>> {
    plan.steps
        .iter()
        .map(|step| {
            let mine = engine
                .iter()
                .filter(|s| stage(&s.name).and_then(plan_step).as_ref() == Some(&step.id));
            let (mut seconds, mut cached) = (0.0, true);
            for s in mine {
                seconds += s.seconds;
                cached &= s.cached || s.kind == stackforge_engine::StepKind::From;
            }
            Done {
                step,
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
                stage(name)
                    .and_then(plan_step)
                    .map(|step| step.to_string())
                    .as_deref(),
                Some(step),
                "{name}"
            );
        }
        assert_eq!(stage("[tools 1/1] RUN x").and_then(plan_step), None);
        assert_eq!(stage("exporting to image"), None);
    }
}
