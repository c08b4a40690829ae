//! Finds images by digest: as this machine pushed them, in a registry, or in this machine's engine.

use crate::{DeployError, EngineImage};
use stackforge_distribute::publish::PushedImage;
use stackforge_distribute::pull::{self, Settings, Wanted};
use stackforge_engine::docker::Docker;
use stackforge_image::store::Store;
use stackforge_stack::labels;
use stackforge_stack::spec::{Platform, Stack};
use stackforge_transfer::registry::Reference;

/// Returns the image of each stack that was pushed last. `wanted` is stacks with the keys of their plans.
///
/// # Errors
/// If one was not pushed, or was pushed in another form. `help` says how it is pushed.
pub fn pushed(
    store: &Store,
    wanted: &[(&Stack, String)],
    help: impl FnOnce(&[String]) -> String,
) -> Result<Vec<PushedImage>, DeployError> {
    let mut found = Vec::new();
    let (mut never, mut other) = (Vec::new(), Vec::new());
    for (stack, key) in wanted {
        match PushedImage::last(store, stack.name()) {
            Some(image) if image.key() == Some(key) => found.push(image),
            Some(_) => other.push(stack.name().to_owned()),
            None => never.push(stack.name().to_owned()),
        }
    }
    let (names, why) = match (never.is_empty(), other.is_empty()) {
        (true, true) => return Ok(found),
        (false, _) => (never, "not pushed to a registry from this machine"),
        (true, false) => (other, "the stack has changed since the last push"),
    };
    Err(DeployError::NotPushed {
        help: help(&names),
        names,
        why,
    })
}

/// Returns the image of the stack in a registry, and whether the stack's plan made it. A reference may lead to an
/// index; then the image is the stack's variant or the one for its platform.
///
/// # Errors
/// If it is not there, or is another stack's.
pub async fn in_registry(
    reference: &Reference,
    (stack, key): (&Stack, &str),
    settings: &Settings<'_>,
) -> Result<(PushedImage, bool), DeployError> {
    let platform = stack.platform.value;
    let wanted = match &stack.variant {
        Some(name) => Wanted::Variant(name.clone()),
        None => Wanted::Platform {
            platform,
            only: true,
        },
    };
    let resolved = pull::resolve(reference, &wanted, settings).await?;
    let foreign = |why: String| DeployError::Foreign {
        reference: reference.to_string(),
        why,
    };
    let image = resolved.image(reference);
    let image = image.ok_or_else(|| foreign("it is for another platform".to_owned()))?;
    if image.platform != platform {
        let why = format!("it is for {}, and the stack for {platform}", image.platform);
        return Err(foreign(why));
    }
    let label = |name| image.labels.get(name).map(String::as_str);
    let own = [label(labels::VARIANT), label(labels::STACK)];
    if !own.contains(&Some(stack.name())) {
        let whose = own[0].or(own[1]);
        return Err(foreign(match whose {
            Some(name) => format!("by its labels it is `{name}`"),
            None => "its labels name no stack".to_owned(),
        }));
    }
    let is_current = image.key() == Some(key);
    Ok((image, is_current))
}

/// Returns the engine's image of that name, if the plan with this key made it.
pub async fn in_engine(
    docker: &Docker,
    name: &str,
    key: &str,
    platform: Platform,
) -> Result<Option<EngineImage>, DeployError> {
    let image = docker.image(name).await?;
    let made = |image: &stackforge_engine::ImageInfo| {
        image.labels.get(labels::KEY).map(String::as_str) == Some(key)
    };
    Ok(image.filter(made).map(|image| EngineImage {
        id: image.id,
        platform,
        labels: image.labels,
        user: Some(image.user).filter(|user| !user.is_empty()),
    }))
}
