//! Images of a registry, onto this device.
//!
//! In: a reference, and what the device is. Out: the image's blobs in the store, and an [`Image`] at
//! rest; from there into Docker, a layout or a root file system ([`Place`]). [`resolve`] says which
//! variant it is and why, before anything large is fetched; whoever checks signatures does it
//! between that and [`fetch`]. What is there already is not fetched; what broke off is taken up where
//! it ended, also after the process died. Never: a byte whose digest is wrong is used, an old image is
//! gone before the new one is whole.

pub mod choose;
pub mod delta;
mod docker;
mod error;
mod fetch;
mod keep;
mod machine;
mod newer;
mod place;
mod resolve;
mod room;
mod rootfs;
mod tree;

use crate::config::Config;
use crate::spec::Platform;
use stackforge_image::oci::Image;
use stackforge_image::store::Store;
use stackforge_transfer::registry::{Observer, Options, Patience, PlainHttp, Reference, Registry};

pub use choose::{Choice, Machine, Reason, choose};
pub use docker::{load, replace};
pub use error::PullError;
pub use fetch::{Fetched, fetch};
pub use keep::{name, rotate as keep};
pub use newer::Age;
pub use place::{Place, assembled};
pub use resolve::{Resolved, Wanted, resolve};
pub use rootfs::{Rootfs, exchange, image_in, replaceable};
pub use tree::tree;

/// Where images come from and go, and how.
#[derive(Clone)]
pub struct Settings<'a> {
    pub store: &'a Store,
    pub config: &'a Config,
    pub plain_http: PlainHttp,
    pub patience: Patience,
    /// Bytes in a second, at most.
    pub rate: Option<u64>,
    pub observer: Option<Observer>,
}

impl Settings<'_> {
    fn connect(&self, reference: &Reference) -> Result<Registry, PullError> {
        let mirror = self.config.registries.get(reference.host());
        let options = Options {
            mirrors: mirror.cloned().into_iter().collect(),
            plain_http: self.plain_http,
            patience: self.patience.clone(),
            rate: self.rate,
            observer: self.observer.clone(),
            ..Options::default()
        };
        let keychain = std::sync::Arc::new(stackforge_transfer::registry::Keychain::of_user());
        Ok(Registry::connect(reference.host(), keychain, &options)?)
    }
}

/// Fetches the image that `reference` is for `platform`. What names a single manifest names an image
/// for one platform, which is refused where it is another one and `only` this one will do.
pub async fn pull(
    reference: &Reference,
    platform: Platform,
    only: bool,
    store: &Store,
    config: &Config,
    observer: Option<Observer>,
) -> Result<Image, PullError> {
    let settings = Settings {
        store,
        config,
        plain_http: PlainHttp::default(),
        patience: Patience::default(),
        rate: None,
        observer,
    };
    let wanted = Wanted::Platform { platform, only };
    let resolved = resolve(reference, &wanted, &settings).await?;
    Ok(fetch(&resolved, &settings, None).await?.image)
}
