//! Lets an engine push its image to registries, so that the layers need not come to this process.

use super::super::output::{Output, facts, settings};
use super::super::{BuildError, Options};
use stackforge_distribute::publish::{Facts, Listed, PublishError, PushTarget, Settings};
use stackforge_engine::docker::Docker;
use stackforge_plan::Plan;
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
            Output::Registry(reference) => drop(one(docker, id, reference, cancel).await?),
            Output::Index(index) => {
                let image = docker.image(id).await?;
                let labels = image.map(|image| image.labels).unwrap_or_default();
                let facts = facts(&labels, options)?;
                let settings = settings(options);
                let target = PushTarget::open(index, &plan.variant, &settings).await?;
                one(docker, id, &target.reference(), cancel).await?;
                target.enter(id, plan.platform, facts).await?;
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
        one(docker, id, reference, cancel).await?;
        return Ok(None);
    };
    let target = PushTarget::open(reference, name, settings).await?;
    one(docker, id, &target.reference(), cancel).await?;
    let (_, listed) = target.enter(id, platform, facts).await?;
    Ok(Some(listed))
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
