//! Facts that the variants of one stack share, computed once.

use crate::catalog::DistributionKind;
use crate::diag::Span;
use crate::spec::{Platform, PythonVersion, Stack};
use pep440_rs::{Version, VersionSpecifiers};
use stackforge_types::wheel::WheelName;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Predictions that variants of one stack share. For a resolver, the variants differ only in platform,
/// Python and base. Must not be used for another stack or another lock.
#[derive(Debug, Clone, Default)]
pub struct Picks(Rc<RefCell<Known>>);

#[derive(Debug, Default)]
struct Known {
    picked: BTreeMap<Key, Picked>,
    locked: BTreeMap<Key, Rc<Vec<LockedFile>>>,
}

type Key = (Platform, PythonVersion, String);

fn key(stack: &Stack) -> Key {
    let base = stack.base.value.clone();
    (stack.platform.value, stack.python.value, base)
}

impl Picks {
    pub(super) fn locked(
        &self,
        stack: &Stack,
        read: impl FnOnce() -> Vec<LockedFile>,
    ) -> Rc<Vec<LockedFile>> {
        let mut known = self.0.borrow_mut();
        let files = known.locked.entry(key(stack));
        files.or_insert_with(|| Rc::new(read())).clone()
    }

    pub(super) fn picked(&self, stack: &Stack, search: impl FnOnce() -> Picked) -> Picked {
        let mut known = self.0.borrow_mut();
        let picked = known.picked.entry(key(stack));
        picked.or_insert_with(search).clone()
    }
}

#[derive(Debug, Clone, Default)]
pub struct Picked {
    /// Versions by distribution. A distribution is absent if several versions are possible and the catalog
    /// describes no release of it.
    pub versions: BTreeMap<String, Version>,
    /// Two libraries that require incompatible versions.
    pub clash: Option<Clash>,
}

/// Two libraries (or a library and the stack) that require incompatible versions of `about`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    pub about: String,
    pub one: (String, Version, VersionSpecifiers),
    pub other: Option<(String, Version, VersionSpecifiers)>,
    /// The stack's own requirement for `about`, if the stack is the other side.
    pub stack: Option<VersionSpecifiers>,
}

impl Clash {
    /// Whether it is about the version of `about` that `library` requires.
    pub fn is_of(&self, library: &str, about: &str) -> bool {
        let other = self.other.as_ref().is_some_and(|o| o.0 == library);
        self.about == about && (self.one.0 == library || other)
    }
}

/// A wheel or a build of the lock, parsed once for all variants that share it.
#[derive(Debug)]
pub struct LockedFile {
    pub name: String,
    pub version: Version,
    pub kind: DistributionKind,
    pub file: Option<WheelName>,
    pub span: Span,
}
