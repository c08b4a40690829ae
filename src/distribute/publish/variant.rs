//! Reads and writes a variant's entry in an index, above all its descriptor's annotations.
//!
//! In: a descriptor of an index, or the labels of an image. Out: a [`Variant`] with its [`Facts`], and the
//! annotations of one. Annotations are untrusted: one that cannot be parsed is reported and never guessed,
//! because a variant without SMs would pass for one that needs no GPU.

use super::PublishError;
use serde::Serialize;
use serde_json::{Value, json};
use stackforge_gpu::DriverVersion;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::labels::{
    CUDA, DRIVER, ISA, JIT_DRIVER, L4T, PREFIX, PTX, RULES, SM, STACK, VARIANT,
};
use stackforge_stack::spec::Platform;
use stackforge_types::{Digest, IsaName, Sm};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// Bound on the SMs of a variant; no real index comes near it.
const MOST_SMS: usize = 64;

/// An image of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// `None` for an image that another program entered.
    pub name: Option<String>,
    /// `None` for a platform that stacks do not support.
    pub platform: Option<Platform>,
    pub digest: Digest,
    /// Size of the manifest, in bytes.
    pub size: u64,
    pub media_type: String,
    /// The facts in the annotations, or the annotation that cannot be parsed.
    pub facts: Result<Facts, String>,
}

/// Facts that decide on which devices an image runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub stack: Option<String>,
    /// SMs that the image has machine code for; empty without device code.
    pub sms: Vec<Sm>,
    /// SMs that the image has PTX for, which a driver compiles for newer GPUs.
    pub ptx: Vec<Sm>,
    /// Version of the image's CUDA: `13.0`.
    pub cuda: Option<String>,
    /// Oldest driver that runs the machine code; `jit_driver` is the oldest that compiles the PTX.
    pub driver: Option<DriverVersion>,
    pub jit_driver: Option<DriverVersion>,
    /// Instruction set that the image is compiled for.
    pub isa: Option<IsaName>,
    /// L4T releases of which the image needs one. A prefix stands for all releases that begin with it: `36` or
    /// `36.4`.
    pub l4t: Vec<String>,
    /// Version of stackforge whose rules checked the image.
    pub rules: Option<String>,
}

impl Facts {
    /// Reads facts from an image's labels or a descriptor's annotations: both have the same names.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Self, String> {
        let text = |name: &str| annotations.get(name).filter(|text| !text.is_empty());
        Ok(Self {
            stack: text(STACK).cloned(),
            sms: sms(SM, text(SM))?,
            ptx: sms(PTX, text(PTX))?,
            cuda: version(CUDA, text(CUDA))?,
            driver: parsed(DRIVER, text(DRIVER))?,
            jit_driver: parsed(JIT_DRIVER, text(JIT_DRIVER))?,
            isa: parsed(ISA, text(ISA))?,
            l4t: versions(L4T, text(L4T))?,
            rules: text(RULES).cloned(),
        })
    }

    /// Sets a fact that was given as `NAME=VALUE`.
    pub fn set(&mut self, fact: &str) -> Result<(), PublishError> {
        let wrong = |why: String| PublishError::Fact(format!("`{fact}`: {why}"));
        let (name, value) = fact
            .split_once('=')
            .ok_or_else(|| wrong("a fact is NAME=VALUE".to_owned()))?;
        if !["sm", "ptx", "cuda", "driver", "isa", "l4t", "stack"].contains(&name) {
            return Err(wrong("there is no such fact".to_owned()));
        }
        let mut all = self.annotations();
        all.insert(format!("{PREFIX}{name}"), value.to_owned());
        *self = Self::read(&all).map_err(wrong)?;
        Ok(())
    }

    /// Fills in the facts that follow from others: minimum drivers from the CUDA version, and the version of
    /// the rules that checked the image.
    pub fn complete(&mut self, catalog: &Catalog) {
        let toolkit = self.cuda.as_deref().and_then(|c| catalog.toolkit(c));
        // A Jetson's driver is part of L4T, so the minimum drivers of other machines do not apply.
        if let Some(toolkit) = toolkit.filter(|_| self.l4t.is_empty() && !self.sms.is_empty()) {
            let floor = |text: &Option<String>| text.as_deref().and_then(|t| t.parse().ok());
            let full = floor(&toolkit.driver.toolkit);
            let least = floor(&toolkit.driver.minor).or_else(|| full.clone());
            self.driver = self.driver.take().or(least);
            self.jit_driver = self.jit_driver.take().or(full);
        }
        (self.rules).get_or_insert_with(|| env!("CARGO_PKG_VERSION").to_owned());
    }

    pub fn annotations(&self) -> BTreeMap<String, String> {
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        let list = |sms: &[Sm]| {
            let names: Vec<String> = sms.iter().map(|s| format!("sm_{}", s.digits())).collect();
            some(names.join(","))
        };
        let text = |value: &Option<DriverVersion>| value.as_ref().map(ToString::to_string);
        let all = [
            (STACK, self.stack.clone()),
            (SM, list(&self.sms)),
            (PTX, list(&self.ptx)),
            (CUDA, self.cuda.clone()),
            (DRIVER, text(&self.driver)),
            (JIT_DRIVER, text(&self.jit_driver)),
            (ISA, self.isa.as_ref().map(ToString::to_string)),
            (L4T, some(self.l4t.join(","))),
            (RULES, self.rules.clone()),
        ];
        let known = all.into_iter();
        known
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }
}

impl Variant {
    /// Reads an entry of an index. `None` if it is not an image.
    pub fn read(entry: &Value) -> Option<Self> {
        let annotations: BTreeMap<String, String> =
            serde_json::from_value(entry["annotations"].clone()).unwrap_or_default();
        let platform = &entry["platform"];
        let text = |name: &str| platform[name].as_str().unwrap_or_default();
        let named = format!("{}/{}", text("os"), text("architecture"));
        // Attestations are entries beside images, with platform `unknown/unknown`.
        if named == "unknown/unknown" || annotations.contains_key("vnd.docker.reference.type") {
            return None;
        }
        Some(Self {
            name: annotations.get(VARIANT).cloned(),
            platform: named.parse().ok(),
            digest: entry["digest"].as_str()?.parse().ok()?,
            size: entry["size"].as_u64()?,
            media_type: entry["mediaType"].as_str()?.to_owned(),
            facts: Facts::read(&annotations),
        })
    }

    /// Returns the variant as an entry of an index.
    pub fn entry(&self) -> Value {
        let mut annotations = self
            .facts
            .as_ref()
            .map(Facts::annotations)
            .unwrap_or_default();
        if let Some(name) = &self.name {
            annotations.insert(VARIANT.to_owned(), name.clone());
        }
        let mut entry = json!({
            "mediaType": self.media_type,
            "digest": self.digest,
            "size": self.size,
            "annotations": annotations,
        });
        if let Some(platform) = self.platform {
            entry["platform"] = json!({ "architecture": platform.arch(), "os": "linux" });
        }
        entry
    }

    /// Describes the variant for people.
    pub fn shown(&self) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| self.digest.to_string().chars().take(19).collect())
    }
}

impl Serialize for Variant {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.entry().serialize(serializer)
    }
}

fn unreadable(name: &str, text: &str, why: impl Display) -> String {
    let text: String = text.chars().take(80).collect();
    format!("its annotation {name} is `{text}`: {why}")
}

fn parsed<T: FromStr<Err: Display>>(
    name: &str,
    text: Option<&String>,
) -> Result<Option<T>, String> {
    let parse = |text: &String| text.parse().map_err(|e| unreadable(name, text, e));
    text.map(parse).transpose()
}

fn sms(name: &str, text: Option<&String>) -> Result<Vec<Sm>, String> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    if text.split(',').count() > MOST_SMS {
        return Err(unreadable(name, text, "they are too many"));
    }
    let sm = |part: &str| part.trim().parse::<Sm>();
    let sms: Result<Vec<Sm>, _> = text.split(',').map(sm).collect();
    let mut sms = sms.map_err(|e| unreadable(name, text, e))?;
    sms.sort();
    sms.dedup();
    Ok(sms)
}

/// Reads a version: numbers separated by dots.
fn version(name: &str, text: Option<&String>) -> Result<Option<String>, String> {
    let is_number = |n: &str| (1..=5).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit());
    match text {
        Some(text) if text.split('.').count() > 4 || !text.split('.').all(is_number) => {
            Err(unreadable(name, text, "that is not a version"))
        }
        text => Ok(text.cloned()),
    }
}

fn versions(name: &str, text: Option<&String>) -> Result<Vec<String>, String> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let each = text.split(',').map(|part| {
        let part = part.trim().to_owned();
        Ok(version(name, Some(&part))?.unwrap_or_default())
    });
    each.take(MOST_SMS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts(text: &[&str]) -> Facts {
        let mut facts = Facts::default();
        for fact in text {
            facts.set(fact).unwrap();
        }
        facts
    }

    #[test]
    fn driver_floors_follow_from_cuda() {
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let mut own = facts(&["sm=90,10.0a", "cuda=12.8"]);
        own.complete(&catalog);
        let annotations = own.annotations();
        assert_eq!(annotations[SM], "sm_90,sm_100a");
        assert_eq!(annotations[DRIVER], "525");
        assert_eq!(annotations[JIT_DRIVER], "570.26");
        assert_eq!(Facts::read(&annotations).unwrap(), own);
        let mut jetson = facts(&["sm=87", "cuda=12.6", "l4t=36"]);
        jetson.complete(&catalog);
        assert_eq!(jetson.driver, None);
        let mut none = facts(&["cuda=12.8"]);
        none.complete(&catalog);
        assert_eq!(none.driver, None, "no device code, no driver");
    }

    #[test]
    fn what_cannot_be_read_is_no_fact() {
        for wrong in [
            "sm",
            "sm=x",
            "cuda=thirteen",
            "driver=new",
            "l4t=36.",
            "color=red",
        ] {
            assert!(Facts::default().set(wrong).is_err(), "{wrong}");
        }
        let annotations = BTreeMap::from([(SM.to_owned(), "sm_90,warp".to_owned())]);
        let why = Facts::read(&annotations).unwrap_err();
        assert!(why.contains("io.stackforge.sm"), "{why}");
    }

    proptest! {
        #[test]
        fn an_entry_of_anything_is_a_variant_or_none(
            name in "\\PC{0,12}", value in "\\PC{0,40}", os in "[a-z]{0,8}", arch in "[a-z0-9]{0,8}",
        ) {
            let entry = json!({
                "mediaType": "m", "size": 1, "digest": Digest::of(b"x"),
                "platform": { "os": os, "architecture": arch },
                "annotations": { format!("{PREFIX}{name}"): value, SM: value, CUDA: value },
            });
            if let Some(variant) = Variant::read(&entry) {
                // Annotations are either reported as unreadable, or written back unchanged.
                if variant.facts.is_ok() {
                    prop_assert_eq!(Variant::read(&variant.entry()), Some(variant));
                }
            }
        }
    }
}
