//! Images of the engine: inspect, tag, remove, import a root file system, ask a registry.

use super::answer::{list, map, number, raw, text, texts};
use super::client::{Docker, release};
use super::reference::{check_reference, escaped, repository_and_tag};
use super::{context, lines};
use crate::{EngineError, ImageInfo, ImageSize, ImportRequest};
use bollard::errors::Error as Client;
use bollard::query_parameters::{
    CreateImageOptions, ListImagesOptions, RemoveImageOptions, TagImageOptions,
};
use futures_util::StreamExt;
use serde_json::Value;
use stackforge_types::{Cancel, Digest};
use std::collections::BTreeMap;
use std::io::Read;

impl Docker {
    /// Returns the image that `reference` names by a tag, an ID or a digest. `None` if there is no such
    /// image.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] if `reference` is invalid, and errors of the engine.
    pub async fn image(&self, reference: &str) -> Result<Option<ImageInfo>, EngineError> {
        check_reference(reference)?;
        let image = match raw(self.with_manifests().inspect_image(reference).await) {
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(self.failed(error, &format!("looking at {reference}"))),
            Ok(image) => image,
        };
        let config = &image["Config"];
        Ok(Some(ImageInfo {
            id: text(&image["Id"]),
            tags: texts(&image["RepoTags"]),
            labels: map(&config["Labels"]),
            architecture: text(&image["Architecture"]),
            os: text(&image["Os"]),
            size: size(&image, self.is_podman()),
            env: texts(&config["Env"]),
            user: text(&config["User"]),
            created: image["Created"].as_str().map(str::to_owned),
        }))
    }

    /// Requests the manifests along with each image, because they state both sizes. Engines before
    /// Docker 28 do not support it.
    fn with_manifests(&self) -> bollard::Docker {
        if self.is_podman() || release(&self.server.api_version) < Some((1, 48)) {
            return self.api.clone();
        }
        self.api.clone().with_request_modifier(|mut request| {
            if let Ok(uri) = format!("{}?manifests=1", request.uri()).parse() {
                *request.uri_mut() = uri;
            }
            request
        })
    }

    /// Checks that each of `names` exists and names an image with one of `ids`. There are several
    /// because engines know an image by the digest of its configuration or of its manifest.
    ///
    /// # Errors
    /// [`EngineError::Misnamed`] for the first name that does not exist or names another image.
    pub async fn expect(&self, names: &[String], ids: &[&str]) -> Result<(), EngineError> {
        for name in names {
            let found = self.image(name).await?.map(|image| image.id);
            if !found.as_deref().is_some_and(|id| ids.contains(&id)) {
                return Err(EngineError::Misnamed {
                    reference: name.clone(),
                    wanted: ids.first().copied().unwrap_or_default().to_owned(),
                    found,
                });
            }
        }
        Ok(())
    }

    /// Gives the image `id` the name `reference`, and takes it from the image that has it.
    ///
    /// # Errors
    /// If the image does not exist, or `reference` is not a valid name.
    pub async fn tag(&self, id: &str, reference: &str) -> Result<(), EngineError> {
        check_reference(id)?;
        check_reference(reference)?;
        let (repo, tag) = repository_and_tag(reference);
        let options = TagImageOptions {
            repo: Some(repo.to_owned()),
            tag: tag.map(str::to_owned),
        };
        let tagged = self.api.tag_image(id, Some(options)).await;
        tagged.map_err(|error| self.failed(error, &format!("tagging {id} as {reference}")))
    }

    /// Returns every name that an image has in this engine, in the engine's spelling.
    ///
    /// # Errors
    /// If the engine cannot be asked.
    pub async fn names(&self) -> Result<Vec<String>, EngineError> {
        let images = raw(self.api.list_images(None::<ListImagesOptions>).await);
        let images = images.map_err(|error| self.failed(error, "listing images"))?;
        let names = list(&images).flat_map(|image| texts(&image["RepoTags"]));
        Ok(names.collect())
    }

    /// Removes a name, and the image if it has no other. Returns whether the name existed. Pass a name
    /// and not an ID: with an ID the engine also removes an image's only name, even if somebody else
    /// gave it.
    ///
    /// # Errors
    /// If a container uses the image, or the engine cannot be asked.
    pub async fn remove_image(&self, reference: &str) -> Result<bool, EngineError> {
        check_reference(reference)?;
        let options = RemoveImageOptions::default();
        match self.api.remove_image(reference, Some(options), None).await {
            Ok(_) => Ok(true),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(self.failed(error, &format!("removing {reference}"))),
        }
    }

    /// Makes an image with one layer from a tar of a root file system, and returns its ID. The tar may
    /// be compressed in a way that the engine supports.
    ///
    /// # Errors
    /// If the engine rejects the tar, a label or a variable cannot be encoded for it, or `cancel` was
    /// set.
    pub async fn import(
        &self,
        tar: impl Read + Send + 'static,
        request: &ImportRequest,
        cancel: &Cancel,
    ) -> Result<String, EngineError> {
        let reference = &request.reference;
        check_reference(reference)?;
        let doing = format!("importing {reference}");
        let changes = changes(request, self.is_podman())?;
        let options = CreateImageOptions {
            from_src: Some("-".to_owned()),
            platform: request.platform.clone().unwrap_or_default(),
            ..CreateImageOptions::default()
        };
        // Each change is a parameter of its own, as Podman needs it; dockerd accepts both forms.
        let query = changes.iter().fold(String::new(), |query, change| {
            query + "&changes=" + &escaped(change)
        });
        let api = self.api.clone().with_request_modifier(move |mut request| {
            if let Ok(uri) = format!("{}{query}", request.uri()).parse() {
                *request.uri_mut() = uri;
            }
            request
        });
        let (body, upload) = context::reader_stream(tar);
        let body = bollard::body_try_stream(body);
        let answers = lines::whole(api.create_image(Some(options), Some(body), None));
        let mut answers = std::pin::pin!(answers);
        let mut id = None;
        loop {
            let answer = tokio::select! {
                answer = answers.next() => answer,
                () = cancel.cancelled() => return Err(EngineError::Cancelled { doing }),
            };
            match answer {
                None => break,
                Some(Ok(info)) => {
                    id = info
                        .status
                        .filter(|status| status.starts_with("sha256:"))
                        .or(id);
                }
                Some(Err(error)) => {
                    let failure = upload.take_failure();
                    return Err(failure.unwrap_or_else(|| self.failed(error, &doing)));
                }
            }
        }
        let id = id.ok_or(EngineError::Gone {
            doing,
            source: None,
        })?;
        // The import does not set the tag, because Podman's forgets it.
        self.tag(&id, reference).await?;
        self.expect(std::slice::from_ref(reference), &[&id]).await?;
        Ok(id)
    }

    /// Returns the digest that `reference` has in its registry, as seen from the engine.
    ///
    /// # Errors
    /// If the registry cannot be reached from the engine, or does not have the image.
    pub async fn registry_digest(&self, reference: &str) -> Result<Digest, EngineError> {
        check_reference(reference)?;
        let doing = format!("asking the registry for {reference}");
        let answer = raw(self.api.inspect_registry_image(reference, None).await);
        let answer = answer.map_err(|error| self.failed(error, &doing))?;
        let digest = answer["Descriptor"]["digest"].as_str();
        let digest = digest.and_then(|digest| digest.parse().ok());
        digest.ok_or(EngineError::Build {
            message: format!("{doing}: the answer has no sha256 digest"),
        })
    }
}

/// Returns the sizes of an image from the engine's description. A containerd image store identifies an
/// image by the digest of its manifest or index, which is then also among its registry digests. Newer
/// ones describe the manifest.
fn size(image: &Value, podman: bool) -> ImageSize {
    let bytes = number(&image["Size"]);
    let id = text(&image["Id"]);
    let digests = texts(&image["RepoDigests"]);
    let by_manifest = |name: &String| {
        name.rsplit_once('@')
            .is_some_and(|(_, digest)| digest == id)
    };
    let in_containerd = image["Descriptor"].is_object() || digests.iter().any(by_manifest);
    if podman || !in_containerd {
        return ImageSize {
            packed: None,
            unpacked: bytes,
        };
    }
    // Usually only one of several platforms is present. Attestations are not images.
    let is_available = |m: &&Value| m["Available"] == true && m["Kind"] == "image";
    let mut images = list(&image["Manifests"]).filter(is_available);
    match (images.next(), images.next()) {
        (Some(only), None) => ImageSize {
            packed: number(&only["Size"]["Content"]).or(bytes),
            unpacked: number(&only["ImageData"]["Size"]["Unpacked"]).filter(|n| *n > 0),
        },
        _ => ImageSize {
            packed: bytes,
            unpacked: None,
        },
    }
}

pub(super) fn is_missing(error: &Client) -> bool {
    matches!(
        error,
        Client::DockerResponseServerError {
            status_code: 404,
            ..
        }
    )
}

/// Writes the request's configuration as Dockerfile instructions.
fn changes(request: &ImportRequest, podman: bool) -> Result<Vec<String>, EngineError> {
    let word = |word: &str| quoted(word, podman);
    let pairs = |instruction: &'static str, map: &BTreeMap<String, String>| {
        map.iter()
            .map(|(key, value)| Ok(format!("{instruction} {}={}", word(key)?, word(value)?)))
            .collect::<Result<Vec<String>, EngineError>>()
    };
    let mut all = pairs("LABEL", &request.labels)?;
    all.extend(pairs("ENV", &request.env)?);
    Ok(all)
}

/// Quotes `word`. Podman takes quoted text literally, so there the word must not need escapes.
fn quoted(word: &str, podman: bool) -> Result<String, EngineError> {
    let special = |c| matches!(c, '"' | '\\' | '$');
    if word.contains(char::is_control) || (podman && word.contains(special)) {
        return Err(EngineError::Invalid {
            what: "a label or variable of an imported image",
            value: word.to_owned(),
            help: "leave out line breaks and control characters, and on Podman also `\"`, `\\` \
                   and `$`",
        });
    }
    let mut out = String::from('"');
    for c in word.chars() {
        if special(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_become_instructions() {
        let of = |value: &str, podman| {
            let request = ImportRequest {
                labels: BTreeMap::from([("k".to_owned(), value.to_owned())]),
                ..ImportRequest::default()
            };
            changes(&request, podman)
        };
        let odd = r#"a "$x" \"#;
        assert_eq!(of(odd, false).unwrap(), [r#"LABEL "k"="a \"\$x\" \\""#]);
        assert!(of(odd, true).is_err());
        assert_eq!(of("a b", true).unwrap(), [r#"LABEL "k"="a b""#]);
        assert!(of("a\nUSER nobody", false).is_err());
    }
}
