//! Reads uv's explanation of why requirements cannot be met.
//!
//! In: the explanation. Out: the distributions that would have to be built from source. uv has no other form of it,
//! so the words of the uv that the program comes with are in the tests.

use pep440_rs::Version;
use stackforge_types::wheel::{is_of_name, normalized};
use std::collections::{BTreeMap, BTreeSet};

/// Whether uv found no source of something either, by its words for it.
pub(super) fn lacks_source(explanation: &str) -> bool {
    explanation.contains("no source distribution")
}

/// What begins uv's hint on a distribution that something else requires and that has no wheel. The explanation
/// itself may name only what requires it.
const HINT: &str = "Wheels are required for `";

/// Returns the distributions that uv has no wheel of, by its words for it: `x==1 has no usable wheels`, `all
/// versions of x have no wheels with a matching Python ABI tag`, and its hints. A release between others that have wheels
/// and do not go with the rest is left out: its source would say what theirs do.
pub fn without_wheels(explanation: &str) -> BTreeSet<String> {
    let hints = explanation.split(HINT).skip(1);
    let hinted = hints.filter_map(|rest| rest.split_once('`'));
    let mut out: BTreeSet<String> = hinted.map(|(name, _)| normalized(name)).collect();
    let words: Vec<&str> = explanation.split_whitespace().collect();
    let mut lacking: BTreeMap<String, Vec<Version>> = BTreeMap::new();
    let mut read: BTreeMap<String, Vec<Version>> = BTreeMap::new();
    for (at, pair) in words.windows(2).enumerate() {
        let Some((name, versions)) = at.checked_sub(1).and_then(|last| subject(&words[..=last]))
        else {
            continue;
        };
        let of_wheels = || {
            let mut rest = words.iter().skip(at + 2).take(2);
            rest.any(|word| word.starts_with("wheels"))
        };
        match pair[0] {
            "has" | "have" if pair[1] == "no" && of_wheels() => {
                out.insert(name.clone());
                lacking.entry(name).or_default().extend(versions);
            }
            "depends" | "depend" => read.entry(name).or_default().extend(versions),
            _ => {}
        }
    }
    out.retain(|name| {
        let (Some(lacking), Some(read)) = (lacking.get(name), read.get(name)) else {
            return true;
        };
        let is_between = |version: &Version| {
            read.iter().any(|older| older < version) && read.iter().any(|newer| newer > version)
        };
        lacking.is_empty() || !lacking.iter().all(is_between)
    });
    out
}

/// Returns the distributions of which a requirement names one release, and that release has no usable wheel:
/// `msgpack==1.0.3 has no usable wheels and x depends on msgpack==1.0.3`.
pub fn pinned_without_wheels(explanation: &str) -> BTreeSet<String> {
    let words: Vec<&str> = explanation.split_whitespace().collect();
    let pinned = |word: &str| word.trim_end_matches([',', '.']).split_once("==").is_some();
    let required = |release: &str| {
        let mut rest = words
            .windows(3)
            .filter(|w| w[2].trim_end_matches([',', '.']) == release);
        rest.any(|w| w[1] == "on" || w[1] == "and" || w[1] == "for")
    };
    let lacking = words
        .windows(4)
        .filter(|w| pinned(w[0]) && w[1] == "has" && w[2] == "no");
    let lacking = lacking.filter(|w| w[3] == "usable" || w[3].starts_with("wheel"));
    let lacking = lacking.filter(|w| required(w[0]));
    lacking.filter_map(|w| Some(mention(w[0])?.0)).collect()
}

/// Returns the distribution that a statement is about, with the releases that are named: `x==1`, or each of `all of: x==1
/// x>=2,<=3`. The statement's verb follows the words.
fn subject(words: &[&str]) -> Option<(String, Vec<Version>)> {
    let (name, mut versions) = mention(words.last()?)?;
    let earlier = words.iter().rev().skip(1).map(|word| mention(word));
    let of_same = earlier.take_while(|found| {
        found
            .as_ref()
            .is_some_and(|(other, versions)| *other == name && !versions.is_empty())
    });
    versions.extend(of_same.flatten().flat_map(|(_, versions)| versions));
    Some((name, versions))
}

/// Reads a word such as `x[extra]>=1,<=2`: the normalized name, and the releases that it names.
fn mention(word: &str) -> Option<(String, Vec<Version>)> {
    let end = word.find(|c| !is_of_name(c));
    let (name, rest) = word.split_at(end.unwrap_or(word.len()));
    let rest = rest.rsplit(']').next().unwrap_or(rest);
    let versions = rest.split(['<', '>', '=', '!', '~', ',']);
    let versions = versions.filter_map(|version| version.parse().ok());
    (!name.is_empty()).then(|| (normalized(name), versions.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_wheel_is_read_from_uvs_words() {
        let text = "Because all versions of wikipedia have no usable wheels and the stack asks for wikipedia, we can conclude that your requirements are unsatisfiable.\n\
            hint: Wheels are required for `Lang_Detect` because building from source is disabled for all packages\n\
            And because box2d-py==2.3.6 has no wheels with a matching Python ABI tag (e.g., `cp311`)\n\
            Because gym[accept-rom-license]==0.25.1 has no usable wheels\n\
            Because Antlr4_python3-runtime>=4.9,<=4.9.3 has no usable wheels and x has no dependencies";
        let found: Vec<String> = without_wheels(text).into_iter().collect();
        assert_eq!(
            found,
            [
                "antlr4-python3-runtime",
                "box2d-py",
                "gym",
                "lang-detect",
                "wikipedia"
            ]
        );
    }

    #[test]
    fn what_is_pinned_to_a_release_without_wheels_is_told_from_what_is_only_hinted_at() {
        // As uv 0.13 says it of alpaca-trade-api beside ccxt 1.67.1.
        let text = "And because ccxt==1.67.1 depends on aiohttp>=3.8 and yarl==1.7.2, we can conclude that alpaca-trade-api>=2.1.0,<=3.1.1 and ccxt==1.67.1 are incompatible. (2)\n\
            Because msgpack==1.0.3 has no usable wheels and alpaca-trade-api>=3.2.0 depends on msgpack==1.0.3, we can conclude that alpaca-trade-api>=3.2.0 cannot be used.\n\
            hint: Wheels are required for `aiohttp` because building from source is disabled for all packages (i.e., with `--no-build`)\n\
            hint: Wheels are required for `msgpack` because building from source is disabled for all packages (i.e., with `--no-build`)";
        assert_eq!(without_wheels(text).len(), 2);
        let pinned = pinned_without_wheels(text);
        assert_eq!(pinned, BTreeSet::from(["msgpack".to_owned()]));
        let between = "Because x==2.0 has no usable wheels and z depends on x>1,<3";
        assert!(pinned_without_wheels(between).is_empty());
        let asked = "Because x==2.0 has no usable wheels and the stack asks for x==2.0, we";
        assert_eq!(
            pinned_without_wheels(asked),
            BTreeSet::from(["x".to_owned()])
        );
    }

    #[test]
    fn a_release_between_others_that_have_wheels_is_no_way_out() {
        // Of pydantic 2.12.1 the index has no wheel.
        let text = "Because pydantic>=2.10.0b1,<=2.11.10 depends on typing-extensions>=4.12.2 and all of:\n\
            pydantic>=2.12.0a1,<=2.12.0\n    pydantic>=2.12.2,<=2.13.5\ndepend on typing-extensions>=4.14.1, we can conclude that all of:\n\
            pydantic>=2.10.0b1,<=2.12.0\n    pydantic>=2.12.2,<=2.13.5\ndepend on typing-extensions>=4.12.2.\n\
            And because pydantic==2.9.2 depends on typing-extensions>=4.6.1 and pydantic==2.12.1 has no usable wheels, we can conclude that pydantic>=2.9.2 depends on typing-extensions>=4.6.1.\n\
            hint: Wheels are required for `pydantic` because building from source is disabled for all packages";
        assert!(without_wheels(text).is_empty());
        // Nothing is known of what is newer, or it is the only one that is wanted.
        for (text, name) in [
            (
                "Because x==2.0 has no usable wheels and x==1.9 depends on y>=2, we can conclude that x>=1.9 depends on y>=2.",
                "x",
            ),
            (
                "Because z depends on x>1,<3 and x==2.0 has no usable wheels and all versions of z depend on x>1,<3",
                "x",
            ),
            (
                "Because sacremoses==0.0.53 has no usable wheels and the stack asks for sacremoses==0.0.53",
                "sacremoses",
            ),
            (
                "Because all of: x==1 x==3 depend on y and all of: x==0.5 x==2 have no usable wheels",
                "x",
            ),
        ] {
            assert_eq!(
                without_wheels(text),
                BTreeSet::from([name.to_owned()]),
                "{text}"
            );
        }
    }
}
