//! Names the recorded compile of a recipe that is nearest to the planned one, so that people know how long to wait.

use pep440_rs::Version;
use stackforge_stack::catalog::{Build, OptionParts, Proven, local_version};
use stackforge_types::Sm;
use std::cmp::Reverse;

/// Returns a sentence about the recorded compile that is nearest to this one.
pub(super) fn nearest(
    recipe: &Build,
    version: &str,
    sms: &[Sm],
    (torch, cuda): (Option<&Version>, Option<&str>),
    options: &[OptionParts],
) -> String {
    let local = local_version(options);
    let minor = |version: &Version| version.release().get(..2).map(<[u64]>::to_vec);
    let difference = |proven: &&Proven| {
        (
            proven.version.to_string() != version,
            proven.local_version != local,
            proven.torch.as_ref().and_then(minor) != torch.and_then(minor),
            sms.iter().filter(|sm| !proven.sm.contains(sm)).count(),
            Some(proven.cuda.as_str()) != cuda,
            Reverse(proven.date.clone()),
        )
    };
    match recipe.proven.iter().min_by_key(difference) {
        Some(proven) => format!("nearest compile on record: {}", shown(proven)),
        None => "no compile of this recipe is on record".to_owned(),
    }
}

fn shown(proven: &Proven) -> String {
    let sms: Vec<String> = proven
        .sm
        .iter()
        .map(|sm| format!("sm_{}", sm.digits()))
        .collect();
    let mut text = proven.version.to_string();
    if let Some(local) = &proven.local_version {
        text.push_str(&format!("+{local}"));
    }
    text.push_str(&format!(" for {}", sms.join(", ")));
    if let Some(torch) = &proven.torch {
        text.push_str(&format!(" with torch {torch}"));
    }
    let cores = match proven.cores {
        1 => "1 core".to_owned(),
        n => format!("{n} cores"),
    };
    text.push_str(&format!(
        " and CUDA {}: {} min on {cores}, {}",
        proven.cuda, proven.minutes, proven.date
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Build {
        let proven = |version, sm: &[&str], torch, date, minutes, cores| {
            serde_json::json!({ "version": version, "sm": sm, "torch": torch, "cuda": "13.0", "date": date,
                "minutes": minutes, "cores": cores })
        };
        let mut cut = proven("2.0", &["8.0"], "2.13.0", "2026-03-01", 8.0, 2);
        cut["local_version"] = "nobackward".into();
        let all = [
            proven("1.0", &["9.0"], "2.12.0", "2026-01-01", 5.0, 2),
            proven("2.0", &["9.0"], "2.12.1", "2026-01-01", 6.0, 2),
            proven("2.0", &["9.0", "11.0"], "2.13.0", "2026-02-01", 7.5, 1),
            cut,
        ];
        let jobs = serde_json::json!({ "variable": "MAX_JOBS", "memory_gb": 4, "source": "s" });
        let build = serde_json::json!({ "source": "sdist", "jobs": jobs, "proven": all });
        serde_json::from_value(build).unwrap()
    }

    #[test]
    fn the_nearest_compile_is_named() {
        let recipe = recipe();
        let said = |version: &str, sm: &str, torch: &str| {
            let torch = torch.parse().unwrap();
            let known = (Some(&torch), Some("13.0"));
            nearest(&recipe, version, &[sm.parse().unwrap()], known, &[])
        };
        assert_eq!(
            said("2.0", "11.0", "2.13.2"),
            "nearest compile on record: 2.0 for sm_90, sm_110 with torch 2.13.0 and CUDA 13.0: 7.5 min on 1 core, 2026-02-01"
        );
        assert!(said("2.0", "9.0", "2.12.0").contains("torch 2.12.1"));
        assert!(said("1.0", "11.0", "2.13.0").starts_with("nearest compile on record: 1.0 for"));
        let none = Build {
            proven: Vec::new(),
            ..recipe
        };
        let text = nearest(&none, "1.0", &[], (None, None), &[]);
        assert_eq!(text, "no compile of this recipe is on record");
    }
}
