//! Fetches targets: an image of a registry, a wheel of the index.

use crate::cli::args::{AuditArgs, Common};
use crate::cli::output::Failure;
use crate::cli::progress::Amount;
use crate::cli::session::{runtime, until_stopped};
use stackforge_distribute::pull::pull;
use stackforge_image::oci;
use stackforge_image::store::Store;
use stackforge_resolve::{self as resolve, Package, PackageError, Pin};
use stackforge_stack::catalog::Catalog;
use stackforge_stack::config::Config;
use stackforge_stack::spec::{Platform, PythonVersion};
use stackforge_transfer::fetch;
use stackforge_transfer::registry::{self, Reference};
use std::str::FromStr as _;
use std::sync::Arc;

/// The Python of a package if none is given.
const USUAL_PYTHON: &str = "3.12";

/// Fetches an image into the store.
pub fn image(common: &Common, args: &AuditArgs, name: &str) -> Result<oci::Image, Failure> {
    let reference = Reference::from_str(name)?;
    let store = Store::open(common.store.as_deref())?;
    let config = Config::load()?;
    let amount = Arc::new(Amount::new(common, name));
    let counter = Arc::clone(&amount);
    let observer: registry::Observer = Arc::new(move |event| match event {
        registry::Event::Received { bytes, .. } => counter.add(bytes),
        registry::Event::Lost { bytes, .. } => counter.take(bytes),
        _ => {}
    });
    let image = runtime()?.block_on(until_stopped(async {
        let platform = platform(args);
        pull(
            &reference,
            platform,
            args.platform.is_some(),
            &store,
            &config,
            Some(observer),
        )
        .await
    }));
    amount.end();
    image
}

/// Fetches a wheel into the store.
pub fn package(
    common: &Common,
    args: &AuditArgs,
    catalog: &Catalog,
    pinned: &str,
) -> Result<Package, Failure> {
    let python = match args.python {
        Some(python) => python,
        None => PythonVersion::from_str(USUAL_PYTHON).map_err(|_| PackageError::NoDefault)?,
    };
    let pin = Pin::parse(pinned, python, platform(args))?;
    let store = Store::open(common.store.as_deref())?;
    let amount = Amount::new(common, pinned);
    let on_event = |event: fetch::Event<'_>| amount.set(event.all.have, event.all.size);
    let package = runtime()?.block_on(until_stopped(resolve::package(
        &pin,
        catalog,
        &store,
        common.offline,
        &on_event,
    )));
    amount.end();
    package
}

/// Returns the requested platform, else this machine's.
fn platform(args: &AuditArgs) -> Platform {
    args.platform.unwrap_or(match std::env::consts::ARCH {
        "aarch64" => Platform::LinuxArm64,
        _ => Platform::LinuxAmd64,
    })
}
