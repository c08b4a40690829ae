//! Maps the engine's steps to steps of the plan: stages of the rendered Dockerfile have the plan's
//! names.

use super::super::StepResult;
use stackforge_engine::{StepKind, StepSummary};
use stackforge_plan::{Plan, StepId};

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
        "tools" => StepId::Tools,
        "runtime" => StepId::Runtime,
        "bytecode" => StepId::Bytecode,
        "validate" | "validated" => StepId::Validate,
        "final" | "stage-0" => StepId::Image,
        "project" => StepId::Project,
        _ => match stage.strip_prefix("wheels-") {
            Some(group) => StepId::Wheels(group.parse().ok()?),
            None => StepId::compile(stage.strip_prefix("builder-")?),
        },
    })
}

/// Sums seconds and cache hits by the plan's steps, in the plan's order. A step that the engine skipped,
/// because a later one was cached, counts as cached.
pub(super) fn fold(plan: &Plan, engine: &[StepSummary]) -> Vec<StepResult> {
    let steps = plan.steps.iter().map(|step| {
        let mine = engine
            .iter()
            .filter(|s| stage(&s.name).and_then(plan_step).as_ref() == Some(&step.id));
        let (mut seconds, mut cached) = (0.0, true);
        for s in mine {
            seconds += s.seconds;
            cached &= s.cached || s.kind == StepKind::From;
        }
        StepResult {
            id: step.id.clone(),
            cached,
            seconds,
        }
    });
    steps.collect()
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
            ("[tools 1/1] RUN x", "tools"),
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
        assert_eq!(stage("exporting to image"), None);
    }
}
