//! `stackforge push`.

use super::Outcome;
use super::args::{Common, PushArgs};
use super::audit::Target;
use super::output::{Failure, json, print};
use super::progress::{Amount, mib};
use super::session::{runtime, until_stopped};
use super::signals::stop_on_signal;
use stackforge_build::push_image;
use stackforge_distribute::publish::{
    self, Done, Facts, Listed, PublishError, PushRequest, Settings,
};
use stackforge_distribute::pull;
use stackforge_engine::docker::Docker;
use stackforge_image::oci;
use stackforge_image::store::Store;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::labels;
use stackforge_stack::spec::Platform;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::registry::{self, PlainHttp};
use stackforge_types::Cancel;
use stackforge_types::printable;
use std::collections::BTreeMap;
use std::sync::Arc;

pub fn run(common: &Common, args: &PushArgs) -> Outcome {
    let store = Store::open(common.store.as_deref())?;
    let Some(image) = image(&store, args)? else {
        return of_engine(common, args, &store);
    };
    let request = PushRequest::of_image(&image)?;
    let amount = Arc::new(Amount::new(common, &args.reference.to_string()));
    let counter = Arc::clone(&amount);
    let observer: registry::Observer = Arc::new(move |event| match event {
        registry::Event::Sent { bytes, .. } => counter.add(bytes),
        registry::Event::Lost { bytes, .. } => counter.take(bytes),
        _ => {}
    });
    let settings = Settings {
        store: Some(&store),
        plain_http: plain_http(args.plain_http),
        patience: RetryPolicy::default(),
        observer: Some(observer),
    };
    let result = if !args.index {
        let pushed = publish::push(&request, &args.reference, &settings);
        runtime()?
            .block_on(until_stopped(pushed))
            .map(|done| (done, None))
    } else {
        let catalog = stackforge_stack::catalog::load(common.catalog.as_deref())?;
        let (name, facts) = described(args, &request.labels, &catalog)?;
        let added = publish::add_variant(&request, &args.reference, &name, &facts, &settings);
        let added = runtime()?.block_on(until_stopped(added));
        added.map(|(done, listed)| (done, Some(listed)))
    };
    amount.end();
    let (done, listed) = result?;
    show(common, args, &request, &done, listed.as_ref());
    Ok(())
}

pub fn plain_http(asked: bool) -> PlainHttp {
    if asked {
        PlainHttp::Always
    } else {
        PlainHttp::Loopback
    }
}

/// Returns the image at rest, or the store's. `None` if the store has no image of that name.
fn image(store: &Store, args: &PushArgs) -> Result<Option<oci::Image>, Failure> {
    if let Target::Image { path, reference } = Target::read(&args.source) {
        return Ok(Some(oci::open(&path, reference.as_deref(), args.platform)?));
    }
    Ok(pull::stored(store, &args.source, args.platform)?)
}

/// Lets the engine push its image of that name.
fn of_engine(common: &Common, args: &PushArgs, store: &Store) -> Outcome {
    runtime()?.block_on(async {
        let cancel = Cancel::new();
        stop_on_signal(&cancel);
        // Without an engine, report only that the store lacks the image.
        let Ok(docker) = Docker::connect(None).await else {
            return Err(absent(store, args)?);
        };
        let image = docker.image(&args.source).await.ok().flatten();
        let platform = image.as_ref().and_then(|image| {
            let of = |p: &Platform| image.os == "linux" && image.architecture == p.arch();
            Platform::ALL.into_iter().find(of)
        });
        let fits = platform.is_some() && (args.platform.is_none() || args.platform == platform);
        let (Some(image), Some(platform), true) = (image, platform, fits) else {
            return Err(absent(store, args)?);
        };
        let settings = Settings {
            store: Some(store),
            plain_http: plain_http(args.plain_http),
            patience: RetryPolicy::default(),
            observer: None,
        };
        let described = if !args.index {
            None
        } else {
            let catalog = stackforge_stack::catalog::load(common.catalog.as_deref())?;
            Some(described(args, &image.labels, &catalog)?)
        };
        let variant = described.as_ref();
        let variant = variant.map(|(name, facts)| (name.as_str(), platform, facts.clone()));
        let (id, to) = (&image.id, &args.reference);
        let listed = push_image(&docker, id, to, variant, &settings, &cancel).await?;
        if common.json {
            json(&serde_json::json!({
                "reference": to.to_string(),
                "image": id,
                "platform": platform,
                "engine": docker.server(),
                "index": listed,
            }));
            return Ok(());
        }
        let mut text = format!("{to}: {id} ({platform}), pushed by {}\n", docker.server());
        text += &listed.as_ref().map(shown).unwrap_or_default();
        print(&text);
        Ok(())
    })
}

/// Returns the failure that neither the store nor an engine has the image.
fn absent(store: &Store, args: &PushArgs) -> Result<Failure, Failure> {
    let refs = store.refs()?;
    let names: Vec<&str> = refs.iter().filter_map(|r| r.name.as_deref()).collect();
    let available = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    let source: String = args.source.chars().take(200).collect();
    Ok(Failure::of(
        Diagnostic::error(
            codes::NO_SUCH_IMAGE,
            format!("the store has no image `{source}`; there is {available}"),
        )
        .help("name one of these, an image of the engine, `oci:DIR` or `oci-archive:FILE`"),
    ))
}

/// Returns the variant's name and facts: those of the labels, replaced by the given ones.
fn described(
    args: &PushArgs,
    labels: &BTreeMap<String, String>,
    catalog: &Catalog,
) -> Result<(String, Facts), Failure> {
    let mut facts = Facts::read(labels).map_err(PublishError::Fact)?;
    for fact in &args.facts {
        facts.set(fact)?;
    }
    facts.complete(catalog);
    let label = |name: &str| labels.get(name).cloned();
    let named = args.variant.clone();
    let named = named.or_else(|| label(labels::VARIANT));
    let named = named.or_else(|| facts.stack.clone());
    let name = named.ok_or_else(|| {
        Failure::of(
            Diagnostic::error(
                codes::BAD_REFERENCE,
                "the image does not say which variant it is",
            )
            .help("name it with `--variant NAME`"),
        )
    })?;
    Ok((name, facts))
}

fn show(
    common: &Common,
    args: &PushArgs,
    request: &PushRequest,
    done: &Done,
    listed: Option<&Listed>,
) {
    if common.json {
        json(&serde_json::json!({
            "reference": args.reference.to_string(),
            "digest": done.digest,
            "platform": request.platform,
            "size": request.size(),
            "blobs": done.blobs,
            "index": listed,
        }));
        return;
    }
    let blobs = &done.blobs;
    let mut text = format!(
        "{}: {} ({})\n",
        args.reference, done.digest, request.platform
    );
    text += &format!(
        "{} sent of {}; blobs: {} sent, {} mounted, {} there already\n",
        mib(blobs.bytes),
        mib(request.size()),
        blobs.sent,
        blobs.mounted,
        blobs.existing
    );
    if let Some(listed) = listed {
        text += &shown(listed);
    }
    print(&text);
}

fn shown(listed: &Listed) -> String {
    let names: Vec<String> = listed.variants.iter().map(|v| v.shown()).collect();
    let names = names.join(", ");
    format!("index {}: {}\n", listed.digest, printable::line(&names))
}
