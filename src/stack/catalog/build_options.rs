//! What a stack's options keep and leave out of a build.

use super::conditions::Facts;
use super::library::Build;
use super::options::{BuildOption, Edit, OptionFault, OptionParts, OptionValue, local_version};
use std::collections::BTreeMap;

impl Build {
    /// Returns the recipe's option of a name.
    pub fn option(&self, name: &str) -> Option<&BuildOption> {
        self.options.iter().find(|option| option.id == name)
    }

    /// Returns what a stack's value keeps of an option.
    ///
    /// # Errors
    /// Says why it is not a value of one of the recipe's options.
    pub fn option_parts(
        &self,
        name: &str,
        value: &OptionValue,
    ) -> Result<OptionParts, OptionFault> {
        let option = self.option(name).ok_or(OptionFault::Unknown)?;
        option.split(Some(value))
    }

    /// Returns all options with what `values` keep of them. Empty if they leave nothing out. Ignores values of options
    /// that the recipe does not have.
    pub fn chosen_parts(
        &self,
        facts: &Facts<'_>,
        values: &BTreeMap<&str, &OptionValue>,
    ) -> Vec<OptionParts> {
        let here = self.options.iter().filter(|o| o.when.hold(facts));
        let parts: Vec<OptionParts> = here
            .filter_map(|o| o.split(values.get(o.id.as_str()).copied()).ok())
            .collect();
        if parts.iter().all(OptionParts::is_whole) {
            return Vec::new();
        }
        parts
    }

    /// Returns the edits of the source that leave out what `parts` do not keep, each with the option's name.
    pub fn option_edits(&self, parts: &[OptionParts]) -> Vec<(String, Edit)> {
        let mut all = Vec::new();
        for parts in parts {
            if let Some(option) = self.option(&parts.option) {
                let edits = option.edits(&parts.left_out).into_iter();
                all.extend(edits.map(|edit| (parts.option.clone(), edit)));
            }
        }
        all
    }

    /// Returns the variables that `parts` add to the build's environment.
    pub fn option_env(&self, parts: &[OptionParts]) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for cut in parts.iter().filter(|p| !p.is_whole()) {
            if let Some(option) = self.option(&cut.option) {
                env.extend(option.env.clone());
            }
        }
        if let (Some(variable), Some(label)) = (&self.local_version, local_version(parts)) {
            env.insert(variable.clone(), label);
        }
        env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: &str = r##"
source: sdist
jobs: { variable: MAX_JOBS, memory_gb: 4, source: s }
local_version: LOCAL
options:
  - id: head_dims
    about: a
    parts: ["32", "64", "128"]
    loses: l
    edits:
      - { file: setup.py, remove_lines: "_hdim{part}_" }
      - { part: "32", file: a.h, replace: "= 32;  x", with: "no {part}" }
    source: s
  - id: backward
    about: a
    when: { version: ">=2" }
    loses: training
    env: { NO_BACKWARD: "1" }
    edits: [{ file: a.h, replace: "#pragma once", with: "#pragma once\n#define X" }]
    source: s
"##;

    fn chosen(values: &[(&str, OptionValue)], version: &str) -> (Build, Vec<OptionParts>) {
        let build: Build = serde_saphyr::from_str(BUILD).unwrap();
        let version = version.parse().unwrap();
        let facts = Facts {
            version: Some(&version),
            ..Facts::default()
        };
        let values = values.iter().map(|(name, value)| (*name, value)).collect();
        let parts = build.chosen_parts(&facts, &values);
        (build, parts)
    }

    fn list(parts: &[&str]) -> OptionValue {
        OptionValue::Parts(parts.iter().map(|p| (*p).to_owned()).collect())
    }

    #[test]
    fn parts_are_left_out_by_edits_and_told_by_the_version() {
        let values = [
            ("head_dims", list(&["128", "64"])),
            ("backward", OptionValue::Switch(false)),
        ];
        let (build, parts) = chosen(&values, "2.8");
        assert_eq!(
            local_version(&parts).unwrap(),
            "headdims64.128.nobackward",
            "in the catalog's order"
        );
        let shown: Vec<String> = parts.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["head_dims 64, 128", "no backward"]);
        let edits = build.option_edits(&parts);
        let texts: Vec<&str> = edits
            .iter()
            .map(|(_, e)| e.remove_lines.as_deref().unwrap_or(&e.with))
            .collect();
        assert_eq!(texts, ["_hdim32_", "no 32", "#pragma once\n#define X"]);
        let env = build.option_env(&parts);
        assert_eq!(env["LOCAL"], "headdims64.128.nobackward");
        assert_eq!(env["NO_BACKWARD"], "1");
    }

    #[test]
    fn what_leaves_nothing_out_is_a_whole_build() {
        for values in [
            &[][..],
            &[("backward", OptionValue::Switch(true))],
            &[("head_dims", list(&["32", "64", "128"]))],
        ] {
            let (build, parts) = chosen(values, "2.8");
            assert!(parts.is_empty(), "{values:?}");
            assert!(build.option_env(&parts).is_empty());
        }
        let (_, parts) = chosen(&[("backward", OptionValue::Switch(false))], "1.0");
        assert!(parts.is_empty(), "the release does not have the option");
    }

    #[test]
    fn each_fault_is_told_apart() {
        let (build, _) = chosen(&[], "2.8");
        let fault = |name: &str, value| build.option_parts(name, &value).unwrap_err();
        let dims = ["32", "64", "128"].map(str::to_owned).to_vec();
        assert_eq!(
            fault("heads", OptionValue::Switch(true)),
            OptionFault::Unknown
        );
        assert_eq!(fault("backward", list(&["1"])), OptionFault::NotASwitch);
        assert_eq!(
            fault("head_dims", OptionValue::Switch(false)),
            OptionFault::NotAList(dims.clone())
        );
        let unknown = OptionFault::UnknownPart {
            part: "65".to_owned(),
            parts: dims.clone(),
        };
        assert_eq!(fault("head_dims", list(&["64", "65"])), unknown);
        assert_eq!(
            fault("head_dims", list(&[])),
            OptionFault::NothingKept(dims)
        );
    }
}
