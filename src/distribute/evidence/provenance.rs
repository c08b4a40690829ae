//! Describes how an image was made: SLSA provenance 1.0 in an in-toto statement 1.0.
//!
//! In: the bill of an existing image, the texts of stack and lock, and the builder. Out: the statement. It
//! contains what was requested and what was used, by digest, and no time except a given one: two builds of
//! one image give one statement.
//!
//! Sources: <https://slsa.dev/spec/v1.0/provenance>, in-toto attestation framework 1.0.

use super::bill::{Bill, Item, Subject};
use serde_json::{Value, json};
use stackforge_types::Digest;

pub const PREDICATE: &str = "https://slsa.dev/provenance/v1";
/// The build type: this program in this version. A purl is a URI that needs no host.
const BUILD_TYPE: &str = concat!("pkg:cargo/stackforge@", env!("CARGO_PKG_VERSION"));

/// The builder, and the ID of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Builder {
    pub id: String,
    pub invocation: Option<String>,
}

impl Builder {
    /// Returns the builder of GitHub's or GitLab's runners from their environment; elsewhere this program.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let github = || {
            let server = variable("GITHUB_SERVER_URL")?;
            let workflow = variable("GITHUB_WORKFLOW_REF")?;
            let run = || {
                Some(format!(
                    "{server}/{}/actions/runs/{}/attempts/{}",
                    variable("GITHUB_REPOSITORY")?,
                    variable("GITHUB_RUN_ID")?,
                    variable("GITHUB_RUN_ATTEMPT")?,
                ))
            };
            Some(Self {
                id: format!("{server}/{workflow}"),
                invocation: run(),
            })
        };
        let gitlab = || {
            let project = variable("CI_PROJECT_URL")?;
            Some(Self {
                id: format!("{project}/-/runners/{}", variable("CI_RUNNER_ID")?),
                invocation: variable("CI_JOB_URL"),
            })
        };
        github().or_else(gitlab).unwrap_or_else(|| Self {
            id: BUILD_TYPE.to_owned(),
            invocation: None,
        })
    }
}

/// The texts of stack and lock that a build began with.
pub struct Inputs<'a> {
    pub stack: &'a [u8],
    pub lock: &'a [u8],
}

pub fn statement(
    bill: &Bill<'_>,
    image: &Subject,
    inputs: &Inputs<'_>,
    builder: &Builder,
) -> Value {
    let plan = bill.plan;
    let sms: Vec<String> = plan
        .sm
        .iter()
        .map(|s| format!("sm_{}", s.digits()))
        .collect();
    let mut metadata = json!({});
    if let Some(invocation) = &builder.invocation {
        metadata["invocationId"] = invocation.as_str().into();
    }
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{ "name": image.name, "digest": { "sha256": image.digest.hex() } }],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "stack": file(&plan.stack, "yaml", inputs.stack),
                    "lock": file(&plan.stack, "lock", inputs.lock),
                    "variant": plan.variant,
                    "platform": plan.platform,
                    "python": plan.python,
                    "cuda": plan.cuda,
                    "sm": sms,
                    "isa": plan.isa,
                },
                "internalParameters": { "key": plan.key().to_string() },
                "resolvedDependencies": bill.items.iter().map(dependency).collect::<Vec<_>>(),
            },
            "runDetails": {
                "builder": {
                    "id": builder.id,
                    "version": { "stackforge": env!("CARGO_PKG_VERSION") },
                },
                "metadata": metadata,
            },
        },
    })
}

fn file(stack: &str, ending: &str, text: &[u8]) -> Value {
    json!({
        "name": format!("{stack}.{ending}"),
        "digest": { "sha256": Digest::of(text).hex() },
    })
}

fn dependency(item: &Item) -> Value {
    let name = item.file.as_ref().unwrap_or(&item.name);
    let mut dependency = json!({ "name": name, "uri": item.purl });
    match (&item.git, &item.sha256) {
        (Some((url, revision)), _) => {
            dependency["uri"] = format!("git+{url}@{revision}").into();
            dependency["digest"] = json!({ "gitCommit": revision });
        }
        (None, Some(sha256)) => dependency["digest"] = json!({ "sha256": sha256.hex() }),
        (None, None) => {}
    }
    dependency
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn runners_say_who_builds() {
        let of = |pairs: &[(&str, &str)]| {
            let map: BTreeMap<String, String> = (pairs.iter())
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect();
            Builder::of_environment(|name| map.get(name).cloned())
        };
        let github = of(&[
            ("GITHUB_SERVER_URL", "https://github.com"),
            (
                "GITHUB_WORKFLOW_REF",
                "a/b/.github/workflows/c.yml@refs/heads/main",
            ),
            ("GITHUB_REPOSITORY", "a/b"),
            ("GITHUB_RUN_ID", "7"),
            ("GITHUB_RUN_ATTEMPT", "2"),
        ]);
        assert_eq!(
            github.id,
            "https://github.com/a/b/.github/workflows/c.yml@refs/heads/main"
        );
        assert_eq!(
            github.invocation.as_deref(),
            Some("https://github.com/a/b/actions/runs/7/attempts/2")
        );
        let gitlab = of(&[
            ("CI_PROJECT_URL", "https://gitlab.com/a/b"),
            ("CI_RUNNER_ID", "12"),
            ("CI_JOB_URL", "https://gitlab.com/a/b/-/jobs/3"),
        ]);
        assert_eq!(gitlab.id, "https://gitlab.com/a/b/-/runners/12");
        let other = of(&[("GITHUB_SERVER_URL", "")]);
        assert!(other.id.starts_with("pkg:cargo/stackforge@"));
        assert_eq!(other.invocation, None);
    }
}
