//! Computes the environment of a library's build, with its SMs, instruction set and settings.
//!
//! In: a recipe's build, facts about the target, the stack's own settings. Out: the variables, and the most
//! jobs that the stack allows. Plans and lists of variants both use this, so that a list never promises what
//! a build would not do.

use super::Isa;
use super::conditions::Facts;
use super::library::Build;
use super::options::OptionParts;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    pub variables: BTreeMap<String, String>,
    /// The stack's own limit on parallel jobs.
    pub max_jobs: Option<u32>,
}

impl Build {
    /// Returns the environment of a build that keeps `parts`. `own` and `jobs` are the stack's settings for this
    /// library, and win.
    pub fn environment(
        &self,
        facts: &Facts<'_>,
        isa: Option<&Isa>,
        parts: &[OptionParts],
        own: &BTreeMap<String, String>,
        jobs: Option<u32>,
    ) -> Environment {
        let mut variables = self.env.clone();
        for extra in self.env_when.iter().filter(|e| e.when.hold(facts)) {
            variables.extend(extra.env.clone());
        }
        for fetch in self.fetch.iter().filter(|f| f.when.hold(facts)) {
            variables.insert(fetch.variable.clone(), fetch.path());
        }
        for arch in &self.arch {
            variables.insert(arch.variable.clone(), arch.value(facts.sms));
        }
        variables.extend(self.option_env(parts));
        variables.extend(own.clone());
        if let Some(isa) = isa {
            for name in ["CFLAGS", "CXXFLAGS"] {
                let mut flags = isa.flags.clone();
                flags.extend(variables.remove(name));
                variables.insert(name.to_owned(), flags.join(" "));
            }
        }
        // A job limit in the environment counts as the stack's limit: the builder stays below it.
        let requested = variables
            .remove(&self.jobs.variable)
            .and_then(|v| v.parse::<u32>().ok());
        Environment {
            variables,
            max_jobs: [jobs, requested].into_iter().flatten().min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: &str = r#"
source: sdist
env: { A: recipe, CFLAGS: -g }
env_when:
  - { when: { sm: ["7.0"] }, env: { USE_CUDNN: "0" }, why: w, source: s }
arch:
  - { variable: TORCH_CUDA_ARCH_LIST, format: dotted }
jobs: { variable: MAX_JOBS, memory_gb: 4, source: s }
"#;

    #[test]
    fn each_layer_wins_over_the_one_before_and_flags_add_up() {
        let build: Build = serde_saphyr::from_str(BUILD).unwrap();
        let isa: Isa = serde_saphyr::from_str(
            "{ name: avx2, platform: linux/amd64, flags: [-mavx2, -mfma], source: s }",
        )
        .unwrap();
        let own = BTreeMap::from([
            ("A".to_owned(), "stack".to_owned()),
            ("CXXFLAGS".to_owned(), "-O1".to_owned()),
            ("MAX_JOBS".to_owned(), "3".to_owned()),
        ]);
        let volta = ["7.0".parse().unwrap()];
        let facts = Facts {
            sms: &volta,
            ..Facts::default()
        };
        let made = build.environment(&facts, Some(&isa), &[], &own, Some(8));
        let expected = [
            ("A", "stack"),
            ("CFLAGS", "-mavx2 -mfma -g"),
            ("CXXFLAGS", "-mavx2 -mfma -O1"),
            ("TORCH_CUDA_ARCH_LIST", "7.0"),
            ("USE_CUDNN", "0"),
        ];
        let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(made.variables, BTreeMap::from(expected));
        assert_eq!(made.max_jobs, Some(3));

        let hopper = ["9.0".parse().unwrap()];
        let facts = Facts {
            sms: &hopper,
            ..Facts::default()
        };
        let made = build.environment(&facts, None, &[], &BTreeMap::new(), None);
        assert!(!made.variables.contains_key("USE_CUDNN"));
        assert_eq!(made.variables["CFLAGS"], "-g");
        assert_eq!(made.max_jobs, None);
    }
}
