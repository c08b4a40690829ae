//! Data for GitHub and GitLab only: paths inside a repository.

use super::{EmitError, Group, Request, not_a_flag};
use serde_json::Value;
use std::path::{Component, Path};

/// Jobs that one matrix of a workflow may make:
/// <https://docs.github.com/en/actions/reference/limits>.
const GITHUB_JOBS: usize = 256;
/// Jobs that one `parallel: matrix` may make: <https://docs.gitlab.com/ci/yaml/#parallelmatrix>.
const GITLAB_JOBS: usize = 200;

pub(super) fn github(
    request: &Request<'_>,
    groups: &[Group<'_>],
    data: &mut Value,
) -> Result<(), EmitError> {
    let found = groups.iter().map(|g| g.variants.len()).sum();
    limit("GitHub", GITHUB_JOBS, found, "are left of this one".into())?;
    paths(request, data)?;
    for key in ["path", "catalog"] {
        data[key] = data[key].as_str().map(without_expressions).into();
    }
    let registry = data["registry"].as_str();
    data["own_registry"] = (registry == Some("ghcr.io")).into();
    Ok(())
}

pub(super) fn gitlab(
    request: &Request<'_>,
    groups: &[Group<'_>],
    data: &mut Value,
) -> Result<(), EmitError> {
    for group in groups {
        let of = format!("are for {}", group.platform);
        limit("GitLab", GITLAB_JOBS, group.variants.len(), of)?;
    }
    paths(request, data)
}

fn limit(service: &'static str, limit: usize, found: usize, of: String) -> Result<(), EmitError> {
    if found > limit {
        Err(EmitError::TooMany {
            service,
            limit,
            found,
            of,
        })
    } else {
        Ok(())
    }
}

/// Sets `path` and `catalog` relative to the repository, and `watched` to the files whose changes start the
/// pipeline. Nothing is watched if a name would be read as a pattern.
fn paths(request: &Request<'_>, data: &mut Value) -> Result<(), EmitError> {
    let path = inside(request.path)?;
    let lock = Path::new(&path).with_extension("lock");
    let catalog = request.catalog.map(inside).transpose()?;
    let mut watched = vec![path.clone(), lock.to_string_lossy().into_owned()];
    if request.overlay.is_some() {
        let beside = Path::new(&path).with_file_name(".stackforge");
        let folder = catalog.clone();
        let folder = folder.unwrap_or_else(|| beside.to_string_lossy().into_owned());
        watched.push(format!("{folder}/**"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let is_plain = |s: &String| s.trim_end_matches("/**").chars().all(plain);
    if !watched.iter().all(is_plain) {
        watched.clear();
    }
    data["watched"] = watched.into();
    data["path"] = not_a_flag(&path).into();
    data["catalog"] = catalog.map(|c| not_a_flag(&c)).into();
    Ok(())
}

/// Returns a path below the repository's top directory, without `.`.
fn inside(path: &str) -> Result<String, EmitError> {
    let mut parts = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => parts.push(part.to_string_lossy()),
            _ => return Err(EmitError::OutsideRepository { path: path.into() }),
        }
    }
    if parts.is_empty() {
        Ok(".".into())
    } else {
        Ok(parts.join("/"))
    }
}

/// Escapes text for GitHub, which evaluates `${{ … }}` in any value, so that it stays unchanged.
fn without_expressions(text: &str) -> String {
    text.replace("${{", "${{ '${{' }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        for (path, expected) in [
            ("stacks/a.yaml", "stacks/a.yaml"),
            ("./stacks//./a.yaml", "stacks/a.yaml"),
            ("-a.yaml", "-a.yaml"),
            (".", "."),
        ] {
            assert_eq!(inside(path).unwrap(), expected);
        }
        for bad in ["/a.yaml", "../a.yaml", "a/../../b.yaml"] {
            assert!(inside(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn expressions_are_text() {
        assert_eq!(without_expressions("a{{b}}$"), "a{{b}}$");
        assert_eq!(
            without_expressions("${{ secrets.X }}"),
            "${{ '${{' }} secrets.X }}"
        );
    }
}
