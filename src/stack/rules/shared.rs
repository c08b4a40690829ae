//! Facts that the variants of one stack share, computed once.

use super::Case;
use super::environment::LockedFile;
use super::pick::{Picked, search};
use crate::spec::{Platform, PythonVersion};
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

fn key(case: &Case<'_>) -> Key {
    let stack = case.stack;
    let base = stack.base.value.clone();
    (stack.platform.value, stack.python.value, base)
}

impl Picks {
    pub(super) fn locked(
        &self,
        case: &Case<'_>,
        read: impl FnOnce(&Case<'_>) -> Vec<LockedFile>,
    ) -> Rc<Vec<LockedFile>> {
        let mut known = self.0.borrow_mut();
        let files = known.locked.entry(key(case));
        files.or_insert_with(|| Rc::new(read(case))).clone()
    }
}

pub fn pick(case: &Case<'_>) -> Picked {
    let mut known = case.picks.0.borrow_mut();
    let picked = known.picked.entry(key(case));
    picked.or_insert_with(|| search(case)).clone()
}
