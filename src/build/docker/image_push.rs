//! Lets an engine push its image to registries, so that the layers need not come to this process.

use super::super::output::{Output, facts, settings};
use super::super::{BuildError, Options};
use stackforge_distribute::publish::{
    Facts, Listed, PublishError, PushTarget, PushedImage, Settings,
};
use stackforge_engine::ImageInfo;
use stackforge_engine::docker::Docker;
use stackforge_image::store::Store;
use stackforge_plan::Plan;
use stackforge_stack::labels;
use stackforge_stack::spec::Platform;
use stackforge_transfer::registry::{Keychain, Login, Reference, Target};
use stackforge_types::Cancel;
use stackforge_types::Digest;
use std::collections::BTreeMap;

/// Pushes the image to every output that is a registry.
pub(super) async fn push(
    docker: &Docker,
    id: &str,
    plan: &Plan,
    options: &Options<'_>,
    cancel: &Cancel,
) -> Result<(), BuildError> {
    for output in &options.outputs {
        match output {
            // The engine already has the image.
            Output::Docker => {}
            Output::Registry(reference) => {
                let digest = one(docker, id, reference, cancel).await?;
                let image = docker.image(id).await?;
                remember(Some(options.store), image, reference, digest, None);
            }
            Output::Index(index) => {
                let image = docker.image(id).await?;
                let labels = image.as_ref().map(|image| &image.labels);
                let facts = facts(labels.unwrap_or(&BTreeMap::new()), options)?;
                let settings = settings(options);
                let target = PushTarget::open(index, &plan.variant, &settings).await?;
                one(docker, id, &target.reference(), cancel).await?;
                let (digest, _) = target.enter(id, plan.platform, facts.clone()).await?;
                let variant = Some((plan.variant.as_str(), &facts));
                remember(Some(options.store), image, index, Some(digest), variant);
            }
            Output::Oci(_) | Output::Archive(_) => return Err(BuildError::EngineWritesNoFiles),
        }
    }
    Ok(())
}

/// Pushes an image of the engine. With `variant`, also enters it into the index `reference` under that
/// name with those facts, and returns the new index.
pub async fn push_image(
    docker: &Docker,
    id: &str,
    reference: &Reference,
    variant: Option<(&str, Platform, Facts)>,
    settings: &Settings<'_>,
    cancel: &Cancel,
) -> Result<Option<Listed>, BuildError> {
    let Some((name, platform, facts)) = variant else {
        let digest = one(docker, id, reference, cancel).await?;
        let image = docker.image(id).await?;
        remember(settings.store, image, reference, digest, None);
        return Ok(None);
    };
    let target = PushTarget::open(reference, name, settings).await?;
    one(docker, id, &target.reference(), cancel).await?;
    let (digest, listed) = target.enter(id, platform, facts.clone()).await?;
    let (image, variant) = (docker.image(id).await?, Some((name, &facts)));
    remember(settings.store, image, reference, Some(digest), variant);
    Ok(Some(listed))
}

/// Remembers what was pushed, if the engine said under which digest.
fn remember(
    store: Option<&Store>,
    image: Option<ImageInfo>,
    reference: &Reference,
    digest: Option<Digest>,
    variant: Option<(&str, &Facts)>,
) {
    let (Some(store), Some(image), Some(digest)) = (store, image, digest) else {
        return;
    };
    let platform = format!("{}/{}", image.os, image.architecture);
    let Ok(platform) = platform.parse() else {
        return;
    };
    let mut labels = image.labels;
    if let Some((name, facts)) = variant {
        labels.extend(facts.annotations());
        labels.insert(labels::VARIANT.to_owned(), name.to_owned());
    }
    let pushed = PushedImage {
        repository: PushedImage::repository_of(reference),
        digest,
        platform,
        labels,
        user: Some(image.user).filter(|user| !user.is_empty()),
    };
    pushed.record(store);
}

/// Pushes the image `id` as `reference` and then restores what that name meant in the engine. Returns the
/// digest that the engine reports.
pub(super) async fn one(
    docker: &Docker,
    id: &str,
    reference: &Reference,
    cancel: &Cancel,
) -> Result<Option<Digest>, BuildError> {
    // Without a tag an engine pushes every tag of the repository.
    let Target::Tag(tag) = reference.target() else {
        return Err(PublishError::NoTag.into());
    };
    let (host, repository) = (reference.host(), reference.repository());
    let name = Reference::new(host, repository, Target::Tag(tag)).to_string();
    let own = docker.image(id).await?.map(|image| image.id);
    let before = docker.image(&name).await?;
    docker.tag(id, &name).await?;
    let login = login(reference).await;
    let pushed = docker.push(&name, login.as_ref(), cancel).await;
    let restored = match before {
        Some(before) if Some(&before.id) == own.as_ref() => Ok(()),
        Some(before) => docker.tag(&before.id, &name).await,
        None => docker.remove_image(&name).await.map(drop),
    };
    let digest = pushed?;
    restored?;
    Ok(digest)
}

/// Returns the user's credentials for the registries of these images, for an engine that pulls from them.
pub(super) async fn logins(references: &[String]) -> BTreeMap<String, Login> {
    let mut logins = BTreeMap::new();
    for reference in references
        .iter()
        .filter_map(|r| r.parse::<Reference>().ok())
    {
        if let Some(login) = login(&reference).await {
            logins.insert(reference.host().to_owned(), login);
        }
    }
    logins
}

async fn login(reference: &Reference) -> Option<Login> {
    let repository = reference.repository().to_string();
    let keychain = Keychain::of_user();
    match keychain.find(reference.host(), &repository).await.login {
        Login::Anonymous => None,
        login => Some(login),
    }
}
