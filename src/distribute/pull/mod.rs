//! Pulls images of a registry onto this device.
//!
//! In: a reference, and facts about the device. Out: the image's blobs in the store and an [`Image`] at rest;
//! from there it goes into Docker, a layout or a root file system ([`Place`]). [`resolve`] names the chosen
//! variant and the reason before anything large is fetched; signatures are checked between that and
//! [`fetch`]. Local blobs are not fetched, and an interrupted download is resumed, even after the process
//! was killed. Never: uses a byte whose digest is wrong, removes an old image before the new one is
//! complete.

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

use stackforge_image::oci::Image;
use stackforge_image::store::Store;
use stackforge_stack::config::Config;
use stackforge_stack::spec::Platform;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::registry::{Observer, Options, PlainHttp, Reference, Registry};

pub use choose::{Choice, Machine, Reason, choose, doubt};
pub use docker::{load, replace};
pub use error::PullError;
pub use fetch::{Fetched, fetch};
pub use keep::{name, rotate as keep, stored};
pub use newer::Age;
pub use place::{Place, assembled};
pub use resolve::{Resolved, Wanted, resolve};
pub use rootfs::{Rootfs, exchange, image_in, replaceable};
pub use tree::tree;

/// Options of a pull.
#[derive(Clone)]
pub struct Settings<'a> {
    pub store: &'a Store,
    pub config: &'a Config,
    pub plain_http: PlainHttp,
    pub patience: RetryPolicy,
    /// Most bytes per second.
    pub rate: Option<u64>,
    pub observer: Option<Observer>,
}

impl Settings<'_> {
    fn connect(&self, reference: &Reference) -> Result<Registry, PullError> {
        let mirror = self.config.registries.get(reference.host());
        let options = Options {
            mirrors: mirror.cloned().into_iter().collect(),
            plain_http: self.plain_http,
            retry: self.patience.clone(),
            rate: self.rate,
            observer: self.observer.clone(),
            ..Options::default()
        };
        let keychain = std::sync::Arc::new(stackforge_transfer::registry::Keychain::of_user());
        Ok(Registry::connect(reference.host(), keychain, &options)?)
    }
}

/// Fetches the image of `reference` for `platform`. If `reference` is a single manifest for another
/// platform, fails when `only` is set and fetches it otherwise.
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
        patience: RetryPolicy::default(),
        rate: None,
        observer,
    };
    let wanted = Wanted::Platform { platform, only };
    let resolved = resolve(reference, &wanted, &settings).await?;
    Ok(fetch(&resolved, &settings, None).await?.image)
}
