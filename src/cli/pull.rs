//! `stackforge pull`.

use super::Outcome;
use super::args::{Common, PullArgs};
use super::init::sm_of;
use super::output::{Failure, json, print};
use super::progress::{Amount, mib};
use super::push::plain_http;
use super::session::{runtime, until_stopped};
use super::sign::statement;
use stackforge_device::Device;
use stackforge_distribute::evidence::{EvidenceError, PublicKey, Signed, Trust};
use stackforge_distribute::pull::{
    self, Age, Fetched, Machine, Place, PullError, Resolved, Rootfs, Settings, Wanted,
};
use stackforge_image::store::Store;
use stackforge_stack::config::Config;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_transfer::RetryPolicy;
use stackforge_types::Cancel;
use stackforge_types::Digest;
use stackforge_types::printable::line;
use std::sync::Arc;

pub fn run(common: &Common, args: &PullArgs) -> Outcome {
    if common.offline {
        return Err(Failure::of(
            Diagnostic::error(codes::OFFLINE, "an image is pulled over the network")
                .help("leave `--offline` out"),
        ));
    }
    let store = Store::open(common.store.as_deref())?;
    for path in args.outputs.iter().filter_map(Place::path) {
        store.outside(path)?;
    }
    let config = Config::load()?;
    let wanted = wanted(common, args)?;
    let key = args.verify.as_deref().map(PublicKey::read).transpose();
    let key = key.map_err(EvidenceError::from)?;
    let trust = key.map(|key| Trust::new(key, args.verify_name.clone()));
    let amount = Arc::new(Amount::new(common, &args.reference.to_string()));
    let settings = Settings {
        store: &store,
        config: &config,
        plain_http: plain_http(args.plain_http),
        patience: RetryPolicy::default(),
        rate: args.limit_rate.map(|rate| rate.0),
        observer: Some(amount.observer()),
    };
    let pulling = async {
        let done = pull_it(args, trust.as_ref(), &wanted, &settings, &amount).await;
        done.map_err(failed)
    };
    let done = runtime()?.block_on(until_stopped(pulling));
    amount.end();
    show(common, args, &done?);
    Ok(())
}

/// The failure of a pull. Its document lists the variants that do not run here, each with its reason.
fn failed(error: PullError) -> Failure {
    let others = match &error {
        PullError::NoVariant { others, .. } => Some(serde_json::json!(others)),
        _ => None,
    };
    let failure = Failure::from(error);
    match others {
        Some(others) => failure.with("refused", others),
        None => failure,
    }
}

/// What a pull has found and done.
struct Pulled {
    resolved: Resolved,
    signed: Vec<Signed>,
    /// `None` if nothing was to be fetched.
    fetched: Option<Fetched>,
}

async fn pull_it(
    args: &PullArgs,
    trust: Option<&Trust>,
    wanted: &Wanted,
    settings: &Settings<'_>,
    amount: &Amount,
) -> Result<Pulled, PullError> {
    let store = settings.store;
    let resolved = pull::resolve(&args.reference, wanted, settings).await?;
    let name = pull::name(&args.reference);
    // Verify before anything large is fetched.
    let signed = match trust {
        Some(trust) => resolved.verify(&args.reference, trust).await?,
        None => Vec::new(),
    };
    let age = Age::of(&name, &resolved, &signed);
    if args.no_downgrade {
        age.check(store)?;
    }
    if args.dry_run {
        return Ok(Pulled {
            resolved,
            signed,
            fetched: None,
        });
    }
    amount.expect(resolved.bytes_left(store));
    let places = args.outputs.iter().filter_map(|output| output.rootfs());
    let roots = Rootfs::begin(places, &resolved, store, args.keep).await?;
    let on_blob = |digest: &Digest| roots.iter().for_each(|root| root.blob_stored(digest));
    let fetched = pull::fetch(&resolved, settings, Some(&on_blob)).await?;
    let digest = &resolved.manifest.digest;
    pull::keep(store, &name, digest, args.keep)?;
    if trust.is_some() {
        age.remember(store)?;
    }
    let image = pull::assembled(&fetched.image);
    for root in roots {
        root.finish(args.keep).await?;
    }
    if let Some(image) = image {
        let cancel = Cancel::new();
        for place in &args.outputs {
            place
                .write(&image, &name, args.keep, store, &cancel)
                .await?;
        }
    }
    Ok(Pulled {
        resolved,
        signed,
        fetched: Some(fetched),
    })
}

/// Returns the facts about the device, as doctor reads them, changed by the arguments.
fn wanted(common: &Common, args: &PullArgs) -> Result<Wanted, Failure> {
    if let Some(name) = &args.variant {
        return Ok(Wanted::Variant(name.clone()));
    }
    let catalog = stackforge_stack::catalog::load(common.catalog.as_deref())?;
    let device = match &args.root {
        Some(root) => Device::read(root),
        None => Device::here(),
    };
    let mut machine = Machine::of(&device, &catalog);
    if let Some(platform) = args.platform.filter(|p| Some(*p) != machine.platform) {
        // For another machine, nothing about this one applies.
        machine = Machine {
            platform: Some(platform),
            ..Machine::default()
        };
    }
    if let Some(gpu) = &args.gpu {
        machine = machine.with_gpu(sm_of(&catalog, gpu)?);
    }
    Ok(Wanted::Machine(machine))
}

fn show(common: &Common, args: &PullArgs, pulled: &Pulled) {
    let (resolved, fetched) = (&pulled.resolved, pulled.fetched.as_ref());
    let choice = resolved.choice.as_ref();
    let chosen = choice.and_then(|c| c.taken.as_ref());
    let others = choice.map_or(&[][..], |c| &c.others);
    // Another machine's GPU is not known unless it is named.
    let elsewhere = args.platform.is_some() && args.gpu.is_none();
    let doubt = resolved.doubt.as_ref().filter(|_| !elsewhere);
    if common.json {
        json(&serde_json::json!({
            "reference": args.reference.to_string(),
            "name": pull::name(&args.reference),
            "digest": resolved.manifest.digest,
            "signatures": args.verify.as_ref().map(|_| &pulled.signed),
            "variant": chosen,
            "refused": others,
            "doubt": doubt,
            "size": resolved.size(),
            "bytes": fetched.map(|f| serde_json::json!({ "fetched": f.bytes, "kept": f.kept })),
            "outputs": args.outputs.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }));
        return;
    }
    let mut text = String::new();
    if let Some(chosen) = chosen {
        text += &format!("{}: {}\n", line(&chosen.variant), line(&chosen.why));
    }
    for other in others {
        text += &format!("  not {}: {}\n", line(&other.variant), line(&other.why));
    }
    if let Some(doubt) = doubt {
        let place = if args.gpu.is_some() || args.root.is_some() {
            "there"
        } else {
            "here"
        };
        text += &format!("by its labels it does not run {place}: {}\n", line(doubt));
    }
    let digest = &resolved.manifest.digest;
    text += &match fetched {
        Some(f) => format!(
            "{}: {digest}, {} fetched, {} there already\n",
            args.reference,
            mib(f.bytes),
            mib(f.kept)
        ),
        None => format!(
            "{}: {digest}, {} packed\n",
            args.reference,
            mib(resolved.size())
        ),
    };
    if !pulled.signed.is_empty() {
        text += "signed as\n";
        text.extend(pulled.signed.iter().map(statement));
    }
    print(&text);
}
