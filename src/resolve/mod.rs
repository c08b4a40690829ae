use crate::{build::IndexSettings, catalog::Catalog, lock::Lock, spec::Stack, target::Target};
use std::collections::BTreeMap;
pub fn inputs(_: &Stack, _: &Catalog, _: &Target<'_>) -> BTreeMap<String, String> {
    BTreeMap::new()
}
pub fn index_settings(_: &Stack) -> IndexSettings {
    IndexSettings::default()
}
pub enum Upgrade {
    None,
    All,
    Libraries(Vec<String>),
}
pub struct LockOptions {
    pub upgrade: Upgrade,
    pub upgrade_os: bool,
    pub cache: std::path::PathBuf,
    pub offline: bool,
}
pub struct E;
impl E {
    pub fn exit(&self) -> u8 {
        1
    }
    pub fn report(&self, _: &Stack) -> crate::diag::Report {
        todo!()
    }
}
pub async fn lock(
    _: &Stack,
    _: &Catalog,
    _: &Target<'_>,
    _: Option<&Lock>,
    _: &LockOptions,
    _: impl AsyncFn(&str) -> Option<crate::spec::nouns::Digest>,
    _: &mut dyn FnMut(&str),
) -> Result<Lock, E> {
    todo!()
}
