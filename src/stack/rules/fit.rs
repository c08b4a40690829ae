//! Decides whether a published wheel fits a target, for `from: auto`.

use super::case::{Case, glibc, name, names};
use super::environment::{Environment, Package};
use super::local_label::Cuda;
use crate::catalog::{DeviceCode, Glibc, ReleaseWheel, WheelCuda};
use crate::spec::{Platform, PythonVersion, Sm};
use stackforge_gpu::{Coverage, aligned, coverage};

/// The answer with a reason for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    Fits(String),
    /// Nothing is known against the wheel.
    Unknown,
    Unfit(String),
}

/// The facts that a wheel has to fit.
pub struct WheelContext {
    pub platform: Platform,
    pub python: PythonVersion,
    pub glibc: Option<Glibc>,
    pub sms: Vec<Sm>,
    pub cuda: Option<Cuda>,
    /// C++11 ABI of the installed torch.
    pub cxx11_abi: Option<bool>,
}

impl WheelContext {
    pub fn of(case: &Case<'_>, env: &Environment<'_>) -> Self {
        Self {
            platform: case.stack.platform.value,
            python: case.stack.python.value,
            glibc: glibc(case),
            sms: case.devices(),
            cuda: env.cuda(case),
            cxx11_abi: env.get("torch").and_then(|t| t.wheel?.cxx11_abi),
        }
    }

    fn aligned(&self) -> bool {
        aligned(self.cuda.map_or((0, 0), |(a, b)| (a, b.unwrap_or(0))))
    }
}

/// Judges a package's wheel by all known facts.
pub fn wheel_fit(package: &Package<'_>, context: &WheelContext) -> Fit {
    // The catalog's facts do not apply to a wheel of another index.
    let Some(release) = package.release.filter(|_| !package.foreign) else {
        return Fit::Unknown;
    };
    if release.wheels.is_empty() {
        return Fit::Unfit("no published wheel".to_owned());
    }
    let mut here = release
        .wheels_for(context.platform, &package.local)
        .peekable();
    if here.peek().is_none() {
        return Fit::Unfit(format!("no published wheel for {}", context.platform));
    }
    let mut loads = here.filter(|w| w.loads_in(context.python)).peekable();
    if loads.peek().is_none() {
        return Fit::Unfit(format!("no published wheel for Python {}", context.python));
    }
    let mut last = Fit::Unknown;
    for wheel in loads {
        last = one_wheel(package, wheel, context);
        if !matches!(last, Fit::Unfit(_)) {
            return last;
        }
    }
    last
}

fn one_wheel(package: &Package<'_>, wheel: &ReleaseWheel, context: &WheelContext) -> Fit {
    if let (Some(wheel), Some(base)) = (wheel.glibc, context.glibc)
        && wheel > base
    {
        return Fit::Unfit(format!(
            "its wheel needs glibc {wheel}, the base has {base}"
        ));
    }
    match (&wheel.cuda, context.cuda) {
        (WheelCuda::Cpu, _) => {
            return Fit::Unfit(format!("its wheel for {} has no CUDA", context.platform));
        }
        (WheelCuda::Version { major, .. }, Some((wanted, _)))
            if *major != wanted && package.name != "torch" =>
        {
            return Fit::Unfit(format!(
                "its wheel is for CUDA {major}, the stack has CUDA {wanted}"
            ));
        }
        _ => {}
    }
    if let (Some(wheel), Some(torch)) = (wheel.cxx11_abi, context.cxx11_abi)
        && wheel != torch
    {
        return Fit::Unfit("its wheel has the other C++11 ABI than torch".to_owned());
    }
    let core: Vec<&DeviceCode> = core_code(wheel, context.cuda);
    if core.is_empty() {
        return Fit::Unknown;
    }
    let missing: Vec<Sm> = context
        .sms
        .iter()
        .copied()
        .filter(|sm| best(&core, *sm, context.aligned()) == Coverage::None)
        .collect();
    if !missing.is_empty() {
        return Fit::Unfit(format!("its wheel has no code for {}", names(&missing)));
    }
    let how = |sm: &Sm| match best(&core, *sm, context.aligned()) {
        Coverage::Native(code) if code.base() == *sm => name(*sm),
        Coverage::Native(code) => format!("{} by {} code", name(*sm), name(code)),
        Coverage::Jit(code) => format!("{} by PTX of {}", name(*sm), name(code)),
        Coverage::None => String::new(),
    };
    let all: Vec<String> = context.sms.iter().map(how).collect();
    Fit::Fits(format!("its wheel has {}", all.join(", ")))
}

/// Returns the objects that a library needs in any case, for a torch of that CUDA version.
pub fn core_code(wheel: &ReleaseWheel, cuda: Option<Cuda>) -> Vec<&DeviceCode> {
    let mut code = wheel.code_beside(cuda);
    code.retain(|c| c.core);
    code
}

/// Returns how the device runs the core objects: the worst of them decides.
pub fn best(core: &[&DeviceCode], sm: Sm, aligned: bool) -> Coverage {
    let of = |c: &&DeviceCode| coverage(&c.sm, &c.ptx, sm, aligned);
    let weight = |c: &Coverage| match c {
        Coverage::None => 0,
        Coverage::Jit(_) => 1,
        Coverage::Native(_) => 2,
    };
    core.iter()
        .map(of)
        .min_by_key(weight)
        .unwrap_or(Coverage::None)
}
