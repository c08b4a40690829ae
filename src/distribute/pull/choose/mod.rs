//! Chooses the variant of an index for a device.
//!
//! In: a [`Machine`] (the relevant facts about a device) and the variants of an index. Out: a [`Choice`]:
//! the best variant with a reason, and a reason against each other one. A pure function that reads and
//! requests nothing. An unknown fact about the device counts against no variant, except for its GPU.

use crate::publish::{Facts, Variant};
use serde::Serialize;
use stackforge_gpu::{Coverage, DriverVersion, aligned, coverage};
use stackforge_stack::catalog::numbers;
use stackforge_stack::spec::Platform;
use stackforge_types::Sm;
use std::cmp::Reverse;

/// A device, in the catalog's terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    pub platform: Option<Platform>,
    /// SMs of its GPUs.
    pub gpus: Vec<Sm>,
    /// Number of GPUs whose SM is not known.
    pub unknown_gpus: usize,
    /// `None` if it is not known, as for a GPU that was only named.
    pub driver: Option<DriverVersion>,
    /// Whether a driver was looked for and is missing.
    pub no_driver: bool,
    /// L4T release of a Jetson: `36.4.3`.
    pub l4t: Option<String>,
    /// CUDA releases that this L4T comes with, the newest last.
    pub l4t_cuda: Vec<String>,
    /// Whether this L4T runs images for arm64 servers.
    pub l4t_runs_server: bool,
    /// Instruction sets of its processors, from the most basic one; `None` if they are not known.
    pub isas: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The variant that was chosen; `None` if no variant runs on the device.
    pub taken: Option<Reason>,
    /// Every other variant, in the order of the index.
    pub others: Vec<Reason>,
}

/// A variant and why it was taken or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    #[serde(skip)]
    pub place: usize,
    pub variant: String,
    /// Whether `variant` is a name in the index, and not a digest.
    #[serde(skip)]
    pub named: bool,
    pub why: String,
}

/// How well a variant fits. The greatest one is chosen; the order of fields matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fit<'a> {
    code: Code,
    /// Whether the variant was made for the device's L4T release.
    l4t: bool,
    /// Position of the variant's instruction set among the device's, from 1.
    isa: usize,
    cuda: &'a [u32],
    /// Number of SMs, reversed: fewer are better, since code for other GPUs is a needless download.
    narrow: Reverse<usize>,
}

/// How the device code runs, on the GPU that it serves worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Code {
    /// The image has no device code.
    None,
    Jit,
    Family,
    Exact,
}

/// Chooses among variants. Of equally good ones the first wins.
pub fn choose(machine: &Machine, variants: &[Variant]) -> Choice {
    let cuda: Vec<Vec<u32>> = variants
        .iter()
        .map(|v| v.facts.as_ref().map_or(Vec::new(), cuda_numbers))
        .collect();
    let judged: Vec<Result<(Fit<'_>, String), String>> = variants
        .iter()
        .zip(&cuda)
        .map(|(variant, cuda)| judge(machine, variant.platform, &variant.facts, cuda))
        .collect();
    let mut best: Option<(usize, Fit<'_>)> = None;
    for (place, judgement) in judged.iter().enumerate() {
        if let Ok((fit, _)) = judgement
            && best.is_none_or(|(_, other)| *fit > other)
        {
            best = Some((place, *fit));
        }
    }
    let reason = |place: usize, why: String| Reason {
        place,
        variant: variants[place].shown(),
        named: variants[place].name.is_some(),
        why,
    };
    let mut choice = Choice {
        taken: None,
        others: Vec::new(),
    };
    for (place, judgement) in judged.into_iter().enumerate() {
        match (judgement, best) {
            (Ok((_, why)), Some((chosen, _))) if chosen == place => {
                choice.taken = Some(reason(place, why));
            }
            (Ok((fit, why)), Some((_, best))) => {
                let why = format!("{why}; {}", worse(fit, best));
                choice.others.push(reason(place, why));
            }
            (Ok((_, why)) | Err(why), _) => choice.others.push(reason(place, why)),
        }
    }
    choice
}

/// Returns why a single image does not run on the device, by its platform and its labels. `None` if nothing
/// speaks against it.
pub fn doubt(
    machine: &Machine,
    platform: Option<Platform>,
    facts: &Result<Facts, String>,
) -> Option<String> {
    let cuda = facts.as_ref().map_or(Vec::new(), cuda_numbers);
    judge(machine, platform, facts, &cuda).err()
}

fn cuda_numbers(facts: &Facts) -> Vec<u32> {
    facts.cuda.as_deref().map_or(Vec::new(), numbers)
}

/// Returns how well a variant runs on the device, with a reason. An error says why it does not run.
fn judge<'a>(
    machine: &Machine,
    platform: Option<Platform>,
    facts: &Result<Facts, String>,
    cuda: &'a [u32],
) -> Result<(Fit<'a>, String), String> {
    match (machine.platform, platform) {
        (_, None) => return Err("it is for a platform that stacks are not for".to_owned()),
        (Some(own), Some(other)) if own != other => {
            return Err(format!("it is for {other}, and this is {own}"));
        }
        _ => {}
    }
    let facts = facts.as_ref().map_err(Clone::clone)?;
    let l4t = l4t(machine, facts)?;
    let isa = isa(machine, facts)?;
    let (code, how) = code(machine, facts, cuda)?;
    driver(machine, facts, code)?;
    let mut why = vec![how];
    if l4t {
        why.push(format!("made for L4T {}", facts.l4t.join(" or ")));
    }
    if let Some(isa) = &facts.isa {
        why.push(format!("compiled for {isa}"));
    }
    let fit = Fit {
        code,
        l4t,
        isa,
        cuda,
        narrow: Reverse(facts.sms.len() + facts.ptx.len()),
    };
    Ok((fit, why.join(", ")))
}

/// Whether the variant was made for the device's L4T release. An error if it is for another one.
fn l4t(machine: &Machine, facts: &Facts) -> Result<bool, String> {
    if facts.l4t.is_empty() {
        return Ok(false);
    }
    let wanted = facts.l4t.join(" or ");
    let Some(own) = &machine.l4t else {
        return Err(format!("it needs L4T {wanted}, and this is not a Jetson"));
    };
    let begins = |release: &String| {
        let rest = own.strip_prefix(release.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if facts.l4t.iter().any(begins) {
        Ok(true)
    } else {
        Err(format!("it needs L4T {wanted}, and this is L4T {own}"))
    }
}

fn isa(machine: &Machine, facts: &Facts) -> Result<usize, String> {
    let (Some(wanted), Some(own)) = (&facts.isa, &machine.isas) else {
        return Ok(0);
    };
    let wanted = wanted.to_string();
    match own.iter().position(|isa| *isa == wanted) {
        Some(place) => Ok(place + 1),
        None => Err(format!("the processors lack {wanted}")),
    }
}

/// Returns how the code runs on the GPU that it serves worst.
fn code(machine: &Machine, facts: &Facts, cuda: &[u32]) -> Result<(Code, String), String> {
    if facts.sms.is_empty() && facts.ptx.is_empty() {
        return Ok((Code::None, "it needs no GPU".to_owned()));
    }
    let has = || listed(&facts.sms, &facts.ptx);
    if machine.gpus.is_empty() {
        return Err(match machine.unknown_gpus {
            0 => format!("it is for {}, and there is no GPU", has()),
            _ => "nobody knows the SM of this GPU".to_owned(),
        });
    }
    let aligned = match cuda {
        [major, minor, ..] => aligned((*major, *minor)),
        _ => false,
    };
    let mut worst: Option<(Code, String)> = None;
    for device in &machine.gpus {
        let found = match coverage(&facts.sms, &facts.ptx, *device, aligned) {
            Coverage::Native(sm) if sm.base() == *device => {
                (Code::Exact, format!("machine code for {}", shown(sm)))
            }
            Coverage::Native(sm) => (
                Code::Family,
                format!(
                    "machine code for {}, which {} runs",
                    shown(sm),
                    shown(*device)
                ),
            ),
            Coverage::Jit(sm) => (
                Code::Jit,
                format!("PTX of {}, compiled by the driver", shown(sm)),
            ),
            Coverage::None => {
                return Err(format!("it has {}, nothing for {}", has(), shown(*device)));
            }
        };
        if worst.as_ref().is_none_or(|(code, _)| found.0 < *code) {
            worst = Some(found);
        }
    }
    worst.ok_or_else(|| "there is no GPU".to_owned())
}

/// Fails if the driver is too old for the way the code runs.
fn driver(machine: &Machine, facts: &Facts, code: Code) -> Result<(), String> {
    if code == Code::None {
        return Ok(());
    }
    if let Some(release) = &machine.l4t {
        return jetson(machine, release, facts);
    }
    let (floor, what) = match code {
        Code::Jit => (
            facts.jit_driver.as_ref().or(facts.driver.as_ref()),
            "to compile its PTX",
        ),
        _ => (facts.driver.as_ref(), "for its CUDA"),
    };
    let Some(floor) = floor else {
        return Ok(());
    };
    match &machine.driver {
        Some(own) if own < floor => Err(format!(
            "it needs driver {floor} or newer {what}, and this is {own}"
        )),
        None if machine.no_driver => Err(format!(
            "it needs driver {floor} or newer {what}, and there is none"
        )),
        _ => Ok(()),
    }
}

/// Fails if the CUDA of a Jetson's L4T is too old. The Jetson's driver is part of L4T, so its version
/// number says nothing.
fn jetson(machine: &Machine, release: &str, facts: &Facts) -> Result<(), String> {
    let Some(newest) = machine.l4t_cuda.last() else {
        return if !facts.l4t.is_empty() {
            Ok(())
        } else {
            Err(format!("nobody knows what L4T {release} runs"))
        };
    };
    if facts.l4t.is_empty() && !machine.l4t_runs_server {
        return Err(format!(
            "it is made for servers, and L4T {release} runs only images that are made for it"
        ));
    }
    let Some(cuda) = &facts.cuda else {
        return Ok(());
    };
    let (own, wanted) = (numbers(newest), numbers(cuda));
    if own.first() == wanted.first() && wanted <= own {
        Ok(())
    } else {
        Err(format!(
            "it has CUDA {cuda}, and L4T {release} brings CUDA {newest}"
        ))
    }
}

/// Names the first respect in which a runnable variant is worse than the chosen one.
fn worse(fit: Fit<'_>, best: Fit<'_>) -> &'static str {
    if fit.code < best.code {
        match best.code {
            Code::Exact => "the other is for exactly this GPU",
            _ => "the other uses the GPU better",
        }
    } else if fit.l4t != best.l4t {
        "the other is for this release of L4T"
    } else if fit.isa < best.isa {
        "the other uses more of the processors"
    } else if fit.cuda < best.cuda {
        "the other has a newer CUDA"
    } else if fit.narrow < best.narrow {
        "the other has code for fewer other GPUs"
    } else {
        "the other stands first"
    }
}

fn shown(sm: Sm) -> String {
    format!("sm_{}", sm.digits())
}

fn listed(sms: &[Sm], ptx: &[Sm]) -> String {
    let names = |sms: &[Sm]| sms.iter().map(|s| shown(*s)).collect::<Vec<_>>().join(", ");
    match (sms.is_empty(), ptx.is_empty()) {
        (false, true) => names(sms),
        (true, _) => format!("PTX of {}", names(ptx)),
        (false, false) => format!("{} and PTX of {}", names(sms), names(ptx)),
    }
}

#[cfg(test)]
mod tests;
