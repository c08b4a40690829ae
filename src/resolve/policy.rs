//! Refuses two silent choices of a resolver that spoil a CUDA stack: a torch without CUDA, and a much older
//! release of a library that the catalog describes. Of other libraries that is said.
//!
//! In: the joint resolution. Out: what is to be said, or findings that name the requirement that causes it, in uv's own
//! words. Further resolutions are run only if something looks wrong.

use super::ResolveError;
use super::answer::Pins;
use super::project::Question;
use super::python::Resolver;
use super::requirements::Need;
use futures_util::future::{join_all, try_join};
use pep440_rs::Version;
use stackforge_stack::diag::{Diagnostic, Span, codes};
use stackforge_stack::spec::{Platform, Wanted};
use stackforge_types::wheel::is_of_name;
use std::collections::BTreeSet;

/// The resolution of a whole stack.
pub(super) struct StackResolution<'a> {
    pub needs: &'a [Need<'a>],
    /// The question to uv: one line for each need, then other lines.
    pub question: &'a Question,
    pub pins: &'a Pins,
    /// Bounds that the catalog knows and metadata do not say, which are told by themselves.
    pub bounds: &'a [String],
    /// Distributions that keep the version of an earlier lock.
    pub kept: BTreeSet<String>,
    pub platform: Platform,
    /// Whether torch is a vendor's wheel for a base with CUDA: then its metadata does not show CUDA.
    pub torch_of_base: bool,
}

pub(super) async fn check(
    resolver: &Resolver<'_>,
    resolution: &StackResolution<'_>,
) -> Result<Vec<String>, ResolveError> {
    let (cpu_only, downgrades) = try_join(
        cpu_only_torch(resolver, resolution),
        downgrades(resolver, resolution),
    )
    .await?;
    let mut findings: Vec<Diagnostic> = cpu_only.into_iter().collect();
    let mut notes = Vec::new();
    for (need, finding) in downgrades {
        // Others follow what the rest of a stack asks for, as with any resolver; it is said. So does a range that says
        // itself which minor releases are meant.
        if need.recipe.is_some() && !need.names_minor_releases() {
            findings.push(finding);
        } else {
            notes.push(finding.message);
        }
    }
    if findings.is_empty() {
        Ok(notes)
    } else {
        Err(ResolveError::Policy(findings))
    }
}

/// Whether torch's release has CUDA: its local version says so, or it requires NVIDIA's libraries.
pub(super) fn has_cuda(pins: &Pins) -> bool {
    let local = pins
        .get("torch")
        .map(|t| t.version.to_string())
        .unwrap_or_default();
    let local = local.split_once('+').map_or("", |(_, local)| local);
    if local.starts_with("cpu") {
        return false;
    }
    let of_torch = |name: &str, via: &[String]| {
        (name.starts_with("nvidia-") || name.starts_with("cuda-"))
            && via.iter().any(|v| v == "torch")
    };
    local.starts_with("cu") || pins.iter().any(|(name, pin)| of_torch(name, &pin.via))
}

async fn cpu_only_torch(
    resolver: &Resolver<'_>,
    resolution: &StackResolution<'_>,
) -> Result<Option<Diagnostic>, ResolveError> {
    let Some(torch) = resolution.pins.get("torch") else {
        return Ok(None);
    };
    let need = resolution.needs.iter().find(|n| n.distribution == "torch");
    if resolution.torch_of_base || need.is_some_and(Need::compiled) || has_cuda(resolution.pins) {
        return Ok(None);
    }
    let span = blamed(resolution, need, &torch.via);
    let finding = |span: Span, why: String, help: String| {
        let message = format!(
            "torch {} for {} has no CUDA: {why}",
            torch.version, resolution.platform
        );
        Ok(Some(
            Diagnostic::error(codes::CPU_ONLY_TORCH, message)
                .at(span)
                .help(help),
        ))
    };
    let alone = Question {
        requirements: vec!["torch".to_owned()],
        ..Question::default()
    };
    let newest = match resolver.versions(&alone).await? {
        Ok(pins) if has_cuda(&pins) => pins["torch"].version.clone(),
        _ => {
            return finding(
                span,
                "the index has no CUDA build of torch for this platform".to_owned(),
                "give `torch` an `index` that has CUDA builds".to_owned(),
            );
        }
    };
    if let Some(specifiers) = need.and_then(Need::specifiers)
        && !specifiers.contains(&newest)
    {
        return finding(
            span,
            format!("the stack's own `torch: \"{specifiers}\"` excludes {newest}, which has it"),
            format!(
                "ask for a torch with CUDA, such as \"{newest}\", or give `torch` an `index` that has CUDA builds"
            ),
        );
    }
    let mut with = resolution.question.clone();
    with.preferences.clear();
    with.constraints.push(format!("torch=={newest}"));
    let Err(explanation) = resolver.versions(&with).await? else {
        return finding(
            span,
            format!("an older torch was preferred to {newest}, which has it"),
            format!("pin torch: `torch: \"{newest}\"`"),
        );
    };
    // We added this constraint, so do not show it as the stack's.
    let explanation = explanation.replace(
        &format!("the stack asks for torch=={newest}"),
        &format!("torch=={newest} is the newest with CUDA"),
    );
    let cause = resolution
        .needs
        .iter()
        .filter(|n| n.distribution != "torch")
        .filter_map(|n| Some((place(&explanation, &n.distribution)?, n)))
        .min_by_key(|(place, _)| *place)
        .map(|(_, n)| n);
    match cause {
        Some(cause) => finding(
            self::span(cause),
            format!(
                "`{}` excludes torch {newest}, which has it\n{explanation}",
                cause.line()
            ),
            format!(
                "ask for a `{}` that takes a torch with CUDA, or override its requirement",
                cause.name()
            ),
        ),
        None => finding(
            span,
            format!("a requirement excludes torch {newest}, which has it\n{explanation}"),
            "loosen that requirement, or override it".to_owned(),
        ),
    }
}

/// Returns the position of a distribution's name in a text, as a whole word.
fn place(text: &str, distribution: &str) -> Option<usize> {
    text.match_indices(distribution)
        .find(|(at, found)| {
            let before = text[..*at].chars().next_back();
            let after = text[at + found.len()..].chars().next();
            !before.is_some_and(is_of_name) && !after.is_some_and(is_of_name)
        })
        .map(|(at, _)| at)
}

/// Returns torch's own line, else that of the first library that requires it.
fn blamed(resolution: &StackResolution<'_>, need: Option<&Need<'_>>, via: &[String]) -> Span {
    let brings = |n: &&Need<'_>| via.contains(&n.distribution);
    need.or_else(|| resolution.needs.iter().find(brings))
        .map(span)
        .unwrap_or_default()
}

fn span(need: &Need<'_>) -> Span {
    match need.library.version {
        Wanted::Specifier(_) => need.library.version_span,
        Wanted::Auto => need.library.name.span,
    }
}

/// Whether a version is older by a minor release or more.
pub(super) fn far_below(version: &Version, other: &Version) -> bool {
    let minor = |v: &Version| {
        let part = |i: usize| v.release().get(i).copied().unwrap_or(0);
        (v.epoch(), part(0), part(1))
    };
    minor(version) < minor(other)
}

async fn downgrades<'a>(
    resolver: &Resolver<'_>,
    resolution: &StackResolution<'a>,
) -> Result<Vec<(&'a Need<'a>, Diagnostic)>, ResolveError> {
    let suspects: Vec<&'a Need<'a>> = resolution
        .needs
        .iter()
        .filter(|n| n.is_open() && n.pinned.is_none() && !resolution.kept.contains(&n.distribution))
        .filter(|n| !follows(n, resolution))
        .collect();
    if suspects.is_empty() {
        return Ok(Vec::new());
    }
    // One cheap resolution: the newest release of each library, without its dependencies.
    let newest = Question {
        requirements: suspects.iter().map(|n| n.line()).collect(),
        constraints: resolution.bounds.to_vec(),
        no_deps: true,
        ..Question::default()
    };
    let Ok(newest) = resolver.versions(&newest).await? else {
        return Ok(Vec::new());
    };
    let checks = suspects
        .into_iter()
        .filter(|n| {
            match (
                resolution.pins.get(&n.distribution),
                newest.get(&n.distribution),
            ) {
                (Some(pin), Some(newest)) => far_below(&pin.version, &newest.version),
                _ => false,
            }
        })
        .map(async |n| {
            let finding = downgrade(resolver, resolution, n).await?;
            Ok::<_, ResolveError>(finding.map(|finding| (n, finding)))
        });
    let findings: Result<Vec<_>, _> = join_all(checks).await.into_iter().collect();
    Ok(findings?.into_iter().flatten().collect())
}

/// Whether a library has its version by what requires it: `auto` by anything, a range by a library that the stack itself
/// holds to versions (triton by torch).
fn follows(need: &Need<'_>, resolution: &StackResolution<'_>) -> bool {
    let Some(pin) = resolution.pins.get(&need.distribution) else {
        return false;
    };
    let is_range = need.specifiers().is_some();
    pin.via.iter().any(|by| {
        let mut others = resolution.needs.iter();
        !is_range || others.any(|o| o.distribution == *by && o.specifiers().is_some())
    })
}

/// Returns the requirements of the comparison. A library with `auto` follows the stack's versions of its
/// dependencies (torchvision that of torch), so those are included.
fn by_itself(resolution: &StackResolution<'_>, need: &Need<'_>) -> Vec<String> {
    let asked_for = |other: &&Need<'_>| {
        let pin = resolution.pins.get(&other.distribution);
        other.specifiers().is_some() && pin.is_some_and(|p| p.via.contains(&need.distribution))
    };
    let followed = resolution
        .needs
        .iter()
        .filter(|_| need.specifiers().is_none())
        .filter(asked_for);
    let lines = followed.map(Need::line);
    std::iter::once(need.line()).chain(lines).collect()
}

/// Compares with the resolution of the library alone, including its dependencies.
async fn downgrade(
    resolver: &Resolver<'_>,
    resolution: &StackResolution<'_>,
    need: &Need<'_>,
) -> Result<Option<Diagnostic>, ResolveError> {
    let alone = Question {
        requirements: by_itself(resolution, need),
        constraints: resolution.bounds.to_vec(),
        ..Question::default()
    };
    let Ok(alone) = resolver.versions(&alone).await? else {
        return Ok(None);
    };
    let name = &need.distribution;
    let (Some(got), Some(could)) = (resolution.pins.get(name), alone.get(name)) else {
        return Ok(None);
    };
    if !far_below(&got.version, &could.version) {
        return Ok(None);
    }
    let mut pinned = resolution.question.clone();
    pinned.preferences.clear();
    let own = resolution.needs.iter().position(|n| std::ptr::eq(n, need));
    if let Some(line) = own.and_then(|i| pinned.requirements.get_mut(i)) {
        *line = format!("{}=={}", need.line_without_version(), could.version);
    }
    let why = match resolver.versions(&pinned).await? {
        Err(explanation) => format!("\n{explanation}"),
        Ok(_) => String::new(),
    };
    let message = format!(
        "`{}` was resolved to {}, though {} fits by itself{why}",
        need.name(),
        got.version,
        could.version
    );
    let help = format!(
        "loosen the requirement that excludes {0}, override it, or accept the old release: `{1}: \"{2}\"`",
        could.version,
        need.name(),
        got.version
    );
    Ok(Some(
        Diagnostic::error(codes::SILENT_DOWNGRADE, message)
            .at(span(need))
            .help(help),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::answer::pins;
    use super::*;

    #[test]
    fn cuda_is_seen_by_what_torch_asks_for() {
        assert!(has_cuda(&pins(
            "torch==2.13.0\nnvidia-cudnn-cu13==9\n    # via torch\n"
        )));
        assert!(has_cuda(&pins(
            "torch==2.13.0\ncuda-toolkit==13.0.3.0\n    # via torch\n"
        )));
        assert!(has_cuda(&pins("torch==2.9.0+cu128\n")));
        let others = "torch==2.9.1\ncuda-bindings==13\n    # via nvidia-cutlass-dsl\n";
        assert!(
            !has_cuda(&pins(others)),
            "another library's CUDA is not torch's"
        );
        assert!(!has_cuda(&pins("torch==2.9.0+cpu\n")));
    }

    #[test]
    fn names_are_found_as_whole_words() {
        assert_eq!(place("torchvision needs torch==2", "torch"), Some(18));
        assert_eq!(place("flash-attn-3 only", "flash-attn"), None);
    }

    #[test]
    fn a_patch_release_is_no_downgrade() {
        let v = |s: &str| s.parse::<Version>().unwrap();
        assert!(far_below(&v("0.19.1"), &v("0.32.0")));
        assert!(far_below(&v("1.9"), &v("2.0")));
        assert!(!far_below(&v("0.32.0"), &v("0.32.5")));
        assert!(!far_below(&v("0.33"), &v("0.32.5")));
    }
}
