//! What the catalog knows of released distributions and their metadata do not say.
//!
//! In: an answer's pins. Out: [`Amendments`] of the question: requirements that importers do not declare,
//! bounds that their metadata do not have, and which of two distributions with the same modules is left out.

use super::super::answer::Pins;
use super::super::project::Question;
use super::super::requirements::Need;
use pep440_rs::{Operator, VersionSpecifiers};
use stackforge_stack::catalog::{Catalog, Undeclared};
use stackforge_types::PythonVersion;
use stackforge_types::wheel::{distribution_of, is_of_name};
use std::collections::{BTreeMap, BTreeSet};

/// What an answer shows that its question lacked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Amendments {
    /// Requirements that pinned distributions have and do not declare.
    pub requirements: Vec<String>,
    /// Bounds that pinned distributions would have if their metadata said what they import.
    pub bounds: Vec<String>,
    /// Distributions that are left out, by those that have their modules.
    pub left_out: BTreeMap<String, String>,
}

/// A bound that an answer breaks. Unlike what else a question lacks, it may contradict the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    pub constraint: String,
    /// An older release of what has the bound, where the bound cannot be met and older ones do not have it.
    pub instead: Option<String>,
    /// A bound that makes older what the stack names, for when nothing else can be met.
    pub last_resort: Option<String>,
}

impl Amendments {
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && self.left_out.is_empty() && self.bounds.is_empty()
    }

    pub fn extend(&mut self, more: Self) {
        self.requirements.extend(more.requirements);
        self.bounds.extend(more.bounds);
        self.left_out.extend(more.left_out);
    }

    /// Returns the question with what it lacked.
    pub fn question(&self, question: &Question) -> Question {
        let mut out = question.clone();
        out.requirements.extend(self.requirements.iter().cloned());
        out.constraints.extend(self.bounds.iter().cloned());
        out
    }

    /// Returns overrides for uv: one that never applies leaves a requirement out.
    pub fn overrides(&self) -> impl Iterator<Item = String> {
        let never = |name: &String| format!("{name} ; python_version < '3'");
        self.left_out.keys().map(never)
    }
}

/// What the catalog knows of the distributions that a stack names and needs.
pub(super) struct Knowledge<'a> {
    pub catalog: &'a Catalog,
    pub needs: &'a [Need<'a>],
    pub python: PythonVersion,
    /// Whether the base has CUDA.
    pub cuda: bool,
}

impl Knowledge<'_> {
    /// Returns what an answer shows that its question lacked, but for bounds.
    pub fn amendments(&self, pins: &Pins) -> Amendments {
        Amendments {
            requirements: self.undeclared(pins),
            left_out: self.doubled(pins),
            bounds: Vec::new(),
        }
    }

    /// Returns a bound that pinned distributions would have if their metadata said what they import, where what is
    /// pinned breaks it. Of those that were `given_up`, none.
    pub fn broken(&self, pins: &Pins, given_up: &BTreeSet<String>) -> Option<Bound> {
        let all = self.known(pins);
        let mut bounds = all.flat_map(|(name, known)| {
            let bounds = known.bounds(&pins[name].version);
            bounds.map(move |bound| (name, known, bound))
        });
        let breaks = |bound: &str| {
            let name = distribution_of(bound);
            let versions = bound.trim_start_matches(is_of_name);
            let versions: Option<VersionSpecifiers> = versions.parse().ok();
            let pinned = pins.get(&name).zip(versions);
            pinned.is_some_and(|(pin, versions)| !versions.contains(&pin.version))
        };
        let (name, known, bound) = bounds.find(|(_, _, b)| breaks(b) && !given_up.contains(b))?;
        let named = self.needs.iter().any(|need| need.distribution == *name);
        let older = below(name, known);
        let gives_way = is_from_on(known) && !named;
        let way = older
            .clone()
            .filter(|older| gives_way && !given_up.contains(older));
        Some(match way {
            Some(constraint) => Bound {
                constraint,
                instead: None,
                last_resort: None,
            },
            None => Bound {
                constraint: bound,
                instead: older,
                last_resort: None,
            },
        })
    }

    /// Returns what the catalog knows of pinned distributions.
    fn known<'p>(&'p self, pins: &'p Pins) -> impl Iterator<Item = (&'p String, &'p Undeclared)> {
        pins.iter().flat_map(|(name, pin)| {
            let entries = self.catalog.undeclared.get(name).into_iter().flatten();
            let entries = entries
                .filter(|entry| entry.applies(&pin.version, self.python))
                .filter(|entry| entry.is_of_base(self.cuda))
                .filter(|entry| entry.is_beside(|other| pins.contains_key(other)));
            entries.map(move |entry| (name, entry))
        })
    }

    /// Returns requirements that pinned distributions have and do not declare: where no alternative of one is
    /// pinned, the first.
    fn undeclared(&self, pins: &Pins) -> Vec<String> {
        let requirements = self.known(pins);
        let requirements = requirements.flat_map(|(name, known)| {
            let requires = known.requires.iter();
            requires.map(move |alternatives| (name, alternatives))
        });
        let lacking = requirements.filter_map(|(name, alternatives)| {
            let there = |a: &str| {
                let distribution = distribution_of(a);
                distribution != *name && pins.contains_key(&distribution)
            };
            let mut all = alternatives.split(" | ");
            let first = all.clone().next()?;
            (!all.any(there)).then(|| first.to_owned())
        });
        lacking.collect()
    }

    /// Returns pinned distributions whose modules another has, with the other: the one that the stack names, else
    /// the best. Of two that the stack names, none is left out.
    fn doubled(&self, pins: &Pins) -> BTreeMap<String, String> {
        let named = |name: &str| self.needs.iter().any(|need| need.distribution == name);
        let mut out = BTreeMap::new();
        for same in &self.catalog.same_modules {
            let Some((kept, others)) = same.choose(|name| pins.contains_key(name), named) else {
                continue;
            };
            let others = others.into_iter().filter(|name| !named(name));
            out.extend(others.map(|name| (name.to_owned(), kept.to_owned())));
        }
        out
    }

    /// Returns a sentence for each thing in which the answer differs from what its reader would expect.
    pub fn notes(&self, amendments: &Amendments, pins: &Pins) -> Vec<String> {
        let left_out = amendments.left_out.iter().map(|(name, other)| {
            format!(
                "{name} is left out: {other} has its modules, and an environment holds one of them"
            )
        });
        let bounds = amendments.bounds.iter();
        left_out
            .chain(bounds.map(|bound| self.note(bound, pins)))
            .chain(self.not_running(pins))
            .collect()
    }

    /// Says which pinned releases the stack's Python does not import, which the stack asks for all the same.
    fn not_running(&self, pins: &Pins) -> Vec<String> {
        let excluded = self.known(pins).filter(|(name, known)| {
            let version = &pins[*name].version;
            known.excludes(name, version, self.python)
        });
        let said = excluded.map(|(name, known)| {
            let place = if known.without_cuda {
                "on a base without CUDA".to_owned()
            } else {
                format!("on Python {}", self.python)
            };
            let version = &pins[name].version;
            format!("{name} {version} does not run {place}: {}", known.source)
        });
        said.collect()
    }

    /// Returns a sentence on a bound that was added.
    fn note(&self, bound: &String, pins: &Pins) -> String {
        let known = self.known(pins);
        let of: Vec<String> = known
            .filter(|(name, known)| known.bounds(&pins[*name].version).any(|b| b == *bound))
            .map(|(name, _)| format!("{name} {}", pins[name].version))
            .collect();
        let own = self.catalog.undeclared.get(&distribution_of(bound));
        let of_itself = own.into_iter().flatten().any(|k| k.holds.contains(bound));
        if of.is_empty() && of_itself {
            format!(
                "{bound} is taken: older releases do not run on Python {}",
                self.python
            )
        } else if of.is_empty() {
            format!("{bound} is taken: newer releases do not go with the rest")
        } else {
            let of = of.join(", ");
            format!("{bound} is taken for {of}, whose metadata do not say that it is needed")
        }
    }

    /// Says of what was added for its importers by whom it is required.
    pub fn attribute(&self, pins: &mut Pins) {
        let mut importers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, entries) in &self.catalog.undeclared {
            let requires = entries.iter().flat_map(|entry| &entry.requires);
            let all = requires.flat_map(|alternatives| alternatives.split(" | "));
            for required in all.filter(|_| pins.contains_key(name)) {
                let distribution = distribution_of(required);
                if distribution != *name {
                    importers
                        .entry(distribution)
                        .or_default()
                        .insert(name.clone());
                }
            }
        }
        let named = |name: &str| self.needs.iter().any(|need| need.distribution == name);
        for (name, by) in importers {
            if let Some(pin) = pins.get_mut(&name).filter(|_| !named(&name)) {
                pin.named = false;
                pin.via.extend(by);
                pin.via.sort();
                pin.via.dedup();
            }
        }
    }
}

/// Whether an entry is of all releases from one on.
fn is_from_on(known: &Undeclared) -> bool {
    matches!(&known.versions[..], [only] if *only.operator() == Operator::GreaterThanEqual)
}

/// Returns a constraint for the releases before those of an entry, `x<3` for those from 3 on. `None` if there are none.
fn below(name: &str, known: &Undeclared) -> Option<String> {
    let mut bounds = known.versions.iter();
    let from = bounds.find(|bound| *bound.operator() == Operator::GreaterThanEqual)?;
    Some(format!("{name}<{}", from.version()))
}

#[cfg(test)]
mod tests {
    use super::super::super::answer::pins;
    use super::*;

    fn known<T>(text: &str, ask: impl Fn(&Knowledge<'_>, &Pins) -> T) -> T {
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let knowledge = Knowledge {
            catalog: &catalog,
            needs: &[],
            python: "3.11".parse().unwrap(),
            cuda: text.contains("# on CUDA"),
        };
        ask(&knowledge, &pins(text))
    }

    fn broken(text: &str) -> Option<(String, Option<String>)> {
        let bound = known(text, |k, pins| k.broken(pins, &BTreeSet::new()));
        bound.map(|bound| (bound.constraint, bound.instead))
    }

    #[test]
    fn a_dependency_gives_way_to_what_it_does_not_go_with() {
        let older = ("pyarrow<26".to_owned(), None);
        assert_eq!(broken("numpy==1.26.4\npyarrow==26.0.1\n"), Some(older));
        assert_eq!(broken("numpy==1.26.4\npyarrow==25.0.1\n"), None);
        assert_eq!(broken("numpy==2.4.6\npyarrow==26.0.1\n"), None);
    }

    #[test]
    fn what_newer_releases_removed_is_held_back_else_the_asker_is_if_that_helps() {
        let text = "diffusers==0.25.0\nhuggingface-hub==1.0.0\n";
        let (constraint, instead) = broken(text).unwrap();
        assert_eq!(constraint, "huggingface-hub<0.26");
        // Older ones import the same.
        assert_eq!(instead, None);
        let given_up = BTreeSet::from([constraint]);
        assert_eq!(known(text, |k, pins| k.broken(pins, &given_up)), None);
        let (constraint, instead) = broken("gradio==4.20.0\nhuggingface-hub==1.0.0\n").unwrap();
        assert_eq!(constraint, "huggingface-hub<1.0");
        assert_eq!(instead.as_deref(), Some("gradio<4.1"));
    }

    #[test]
    fn releases_that_a_python_does_not_import_give_way_to_newer_ones() {
        let (constraint, _) = broken("hydra-core==1.2.0\n").unwrap();
        assert_eq!(constraint, "hydra-core>=1.3");
        assert_eq!(broken("hydra-core==1.3.0\n"), None);
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let knowledge = Knowledge {
            catalog: &catalog,
            needs: &[],
            python: "3.10".parse().unwrap(),
            cuda: false,
        };
        let pins = pins("hydra-core==1.2.0\n");
        assert_eq!(knowledge.broken(&pins, &BTreeSet::new()), None);
    }

    #[test]
    fn extras_that_bring_cudas_libraries_are_lacking_on_a_base_without_them() {
        let lacking = |text: &str| known(text, |k, pins| k.amendments(pins).requirements);
        let extras = ["onnxruntime-gpu[cuda,cudnn]"];
        assert_eq!(lacking("onnxruntime-gpu==1.31.1\n"), extras);
        assert!(lacking("onnxruntime-gpu==1.31.1\nnvidia-curand==10.4\n").is_empty());
        assert!(lacking("# on CUDA\nonnxruntime-gpu==1.31.1\n").is_empty());
        assert!(lacking("onnxruntime-gpu==1.20.2\n").is_empty());
    }

    #[test]
    fn torch_is_of_the_cuda_of_onnxruntime_on_a_base_without_cuda() {
        let torch = |text: &str| broken(text).map(|(constraint, _)| constraint);
        let of_12 = Some("torch<2.11".to_owned());
        assert_eq!(torch("onnxruntime-gpu==1.22.0\ntorch==2.13.0\n"), of_12);
        assert_eq!(torch("onnxruntime-gpu==1.22.0\ntorch==2.10.0\n"), None);
        // The stack names neither, and the one with the bound gives way.
        let of_13 = "onnxruntime-gpu==1.31.1\ntorch==2.8.0\n";
        assert_eq!(torch(of_13), Some("onnxruntime-gpu<1.27".to_owned()));
        let on_cuda = "# on CUDA\nonnxruntime-gpu==1.22.0\ntorch==2.13.0\n";
        assert_eq!(torch(on_cuda), None);
    }

    #[test]
    fn torchaudio_gives_way_to_an_older_torch() {
        let older = ("torchaudio<2.11".to_owned(), None);
        assert_eq!(broken("torch==2.10.0\ntorchaudio==2.11.0\n"), Some(older));
        assert_eq!(broken("torch==2.13.0\ntorchaudio==2.11.0\n"), None);
    }

    #[test]
    fn what_is_imported_and_not_required_is_lacking() {
        let lacking = |text: &str| known(text, |k, pins| k.amendments(pins).requirements);
        assert_eq!(lacking("insightface==0.7.3\n"), ["onnxruntime"]);
        assert!(lacking("insightface==0.7.3\nonnxruntime-gpu==1.20.2\n").is_empty());
        // Its part for JAX needs neither TensorFlow nor Keras.
        let probability = "tensorflow-probability==0.25.0\n";
        assert!(lacking(probability).is_empty());
        let beside = format!("{probability}tensorflow-cpu==2.21.0\n");
        assert_eq!(lacking(&beside), ["tf-keras"]);
    }
}
