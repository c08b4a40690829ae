//! A server that implements the distribution API: addresses, login, one request at a time.
//!
//! In: a request and its purpose. Out: a successful response, or the error that the response means.
//! Credentials go to this server and its token service, never along a redirect to another server.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, LOCATION, WWW_AUTHENTICATE};
use reqwest::{RequestBuilder, Response, StatusCode, Url};

use super::auth::{Authorizer, Scope};
use super::connection::{Connection, is_loopback};
use super::credentials::Keychain;
use super::error::ApiErrors;
use super::{Options, PlainHttp, RegistryError, challenge};
use crate::{body, header};
use stackforge_types::reference::{BadReference, DOCKER_HUB, Repository, is_host};

/// Most bytes of an error response that are read.
const LONGEST_ERROR: u64 = 64 << 10;

pub(super) struct Endpoint {
    /// The host as shown in messages.
    pub host: String,
    base: Url,
    /// A mirror's path prefix of every repository.
    prefix: Option<Repository>,
    client: reqwest::Client,
    auth: Authorizer,
}

/// Description of a request, for its errors and its login.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    /// "reading the manifest `a/b:c`"
    pub doing: String,
    /// "manifest `a/b:c`"
    pub what: String,
    pub scope: Scope,
}

impl Endpoint {
    /// Creates an endpoint. `place` is `HOST[:PORT][/PREFIX]`.
    pub(crate) fn new(
        place: &str,
        options: &Options,
        keychain: Arc<Keychain>,
    ) -> Result<Self, RegistryError> {
        let wrong = || BadReference {
            text: place.to_owned(),
            reason: "a registry is `HOST[:PORT]`, a mirror may have a path after it".to_owned(),
        };
        let (host, prefix) = match place.split_once('/') {
            Some((host, prefix)) => (host, Some(prefix.parse::<Repository>()?)),
            None => (place, None),
        };
        if !is_host(host) {
            return Err(wrong().into());
        }
        let server = match host {
            DOCKER_HUB => "registry-1.docker.io",
            host => host,
        };
        let loopback = is_loopback(server.split(':').next().unwrap_or_default());
        let plain = match options.plain_http {
            PlainHttp::Loopback => loopback,
            PlainHttp::Always => true,
            PlainHttp::Never => false,
        };
        let scheme = if plain { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{server}/v2/")).map_err(|_| wrong())?;
        let connection = Connection {
            options: options.clone(),
            plain,
            loopback,
        };
        Ok(Self {
            client: connection.client(false)?,
            auth: Authorizer::new(host, connection, keychain),
            host: host.to_owned(),
            base,
            prefix,
        })
    }

    /// The address of a resource in a repository.
    pub(crate) fn url(&self, repository: &Repository, rest: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty();
            if let Some(prefix) = &self.prefix {
                path.extend(prefix.as_str().split('/'));
            }
            path.extend(repository.as_str().split('/')).extend(rest);
        }
        url
    }

    /// Resolves an address of a response, relative to the response's own; refuses one that is less secure
    /// than this server.
    pub(crate) fn follow(
        &self,
        from: &Url,
        address: &str,
        doing: &str,
    ) -> Result<Url, RegistryError> {
        let wrong = |reason: &str| self.wrong(doing, format!("it refers to {reason}"));
        let mut url = from.join(address).map_err(|_| wrong("no address"))?;
        if self.base.scheme() == "https" && url.scheme() == "http" {
            if url.host_str() != self.base.host_str() {
                return Err(wrong("another server without TLS"));
            }
            // A registry behind a proxy that ends TLS does not know the scheme of the request.
            let changed = url.set_scheme("https").is_ok() && url.set_port(self.base.port()).is_ok();
            if !changed {
                return Err(wrong("an address without TLS"));
            }
        }
        match url.scheme() {
            "http" | "https" => Ok(url),
            _ => Err(wrong("another protocol")),
        }
    }

    /// The address in the `Location` header.
    pub(crate) fn location(&self, response: &Response, doing: &str) -> Result<Url, RegistryError> {
        let headers = response.headers();
        let address = header::text(headers, LOCATION.as_str())
            .ok_or_else(|| self.wrong(doing, "it does not say where to go on".to_owned()))?;
        self.follow(response.url(), address, doing)
    }

    pub(crate) fn wrong(&self, doing: &str, reason: String) -> RegistryError {
        RegistryError::Protocol {
            host: self.host.clone(),
            doing: doing.to_owned(),
            reason,
        }
    }

    pub(crate) fn cut(&self, doing: &str, error: reqwest::Error) -> RegistryError {
        RegistryError::transfer(error, &self.host, doing)
    }

    /// Reads the whole body of a response, up to a bound.
    pub(crate) async fn body(
        &self,
        response: Response,
        limit: u64,
        doing: &str,
    ) -> Result<Bytes, RegistryError> {
        body::read_limited(response, limit)
            .await
            .map_err(|error| match error {
                body::BodyError::Transfer(error) => self.cut(doing, error),
                error => self.wrong(doing, error.to_string()),
            })
    }

    /// Sends the request of `build`, and logs in if the registry asks for it. `build` may run twice.
    pub(crate) async fn send(
        &self,
        ask: &Ask,
        build: impl Fn(&reqwest::Client) -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let doing = &ask.doing;
        let scope = self.scope(&ask.scope);
        let mut login = None;
        let mut challenged = false;
        loop {
            let mut request = build(&self.client)
                .build()
                .map_err(|error| self.cut(doing, error))?;
            // Another server that the registry refers to needs no login: the address itself grants access.
            if self.is_own(request.url()) {
                if !challenged {
                    login = self.auth.header(&self.client, &scope, doing).await?;
                }
                if let Some(value) = &login {
                    request.headers_mut().insert(AUTHORIZATION, value.clone());
                }
            }
            let response = self
                .client
                .execute(request)
                .await
                .map_err(|error| self.cut(doing, error))?;
            if challenged
                || response.status() != StatusCode::UNAUTHORIZED
                || !self.is_own(response.url())
            {
                return self.judge(response, ask, &scope).await;
            }
            challenged = true;
            let challenges: Vec<_> = response
                .headers()
                .get_all(WWW_AUTHENTICATE)
                .iter()
                .filter_map(|value| value.to_str().ok())
                .flat_map(challenge::parse)
                .collect();
            let answer = self
                .auth
                .answer(&self.client, &scope, &challenges, login.as_ref(), doing);
            match answer.await? {
                Some(value) => login = Some(value),
                None => return self.judge(response, ask, &scope).await,
            }
        }
    }

    /// The scope with the repository names of this server.
    fn scope(&self, scope: &Scope) -> Scope {
        let placed = |repository: &str| match &self.prefix {
            Some(prefix) => format!("{prefix}/{repository}"),
            None => repository.to_owned(),
        };
        Scope {
            repository: placed(&scope.repository),
            actions: scope.actions,
            source: scope.source.as_deref().map(placed),
        }
    }

    fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    /// Returns a successful response, or the error that the response means.
    async fn judge(
        &self,
        response: Response,
        ask: &Ask,
        scope: &Scope,
    ) -> Result<Response, RegistryError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let after = header::retry_after(response.headers());
        let known = [401, 403, 404, 410, 429].contains(&status.as_u16());
        let bytes = match body::read_limited(response, LONGEST_ERROR).await {
            Ok(bytes) => bytes,
            // The meaning of the status was in the lost body.
            Err(body::BodyError::Transfer(error)) if !known => {
                return Err(self.cut(&ask.doing, error));
            }
            Err(_) => Bytes::new(),
        };
        let errors = ApiErrors::decode(&bytes);
        let (host, doing) = (self.host.clone(), ask.doing.clone());
        Err(match status.as_u16() {
            401 => RegistryError::Unauthorized {
                host,
                doing,
                used: self.auth.used(scope).await,
                errors,
            },
            403 => RegistryError::Denied {
                host,
                doing,
                used: self.auth.used(scope).await,
                errors,
            },
            404 | 410 => RegistryError::Missing {
                host,
                what: ask.what.clone(),
                errors,
            },
            429 => RegistryError::Limited { host, doing, after },
            status => RegistryError::Status {
                host,
                doing,
                status,
                after,
                errors,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(place: &str) -> Result<Endpoint, RegistryError> {
        let keychain = Arc::new(Keychain::of_files([]));
        Endpoint::new(place, &Options::default(), keychain)
    }

    #[test]
    fn addresses_are_made_from_checked_parts() {
        let repository: Repository = "library/ubuntu".parse().unwrap();
        for (place, url) in [
            (
                "docker.io",
                "https://registry-1.docker.io/v2/library/ubuntu/tags/list",
            ),
            (
                "localhost:5000",
                "http://localhost:5000/v2/library/ubuntu/tags/list",
            ),
            (
                "127.0.0.2:1",
                "http://127.0.0.2:1/v2/library/ubuntu/tags/list",
            ),
            (
                "m.example/a/b",
                "https://m.example/v2/a/b/library/ubuntu/tags/list",
            ),
        ] {
            let endpoint = endpoint(place).unwrap();
            assert_eq!(endpoint.url(&repository, &["tags", "list"]).as_str(), url);
        }
        for bad in ["", "/a", "a.example/", "a.example/..", "a b", "https://a"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_upload_goes_on_where_the_registry_says_but_not_without_tls() {
        let endpoint = endpoint("r.example:5443").unwrap();
        let from = Url::parse("https://r.example:5443/v2/a/blobs/uploads/").unwrap();
        for (location, url) in [
            (
                "/v2/a/blobs/uploads/1?s=2",
                Some("https://r.example:5443/v2/a/blobs/uploads/1?s=2"),
            ),
            ("http://r.example/v2/x", Some("https://r.example:5443/v2/x")),
            (
                "https://store.example/x?sig=1",
                Some("https://store.example/x?sig=1"),
            ),
            ("http://store.example/x", None),
            ("ftp://r.example/x", None),
            ("https://", None),
        ] {
            let followed = endpoint.follow(&from, location, "pushing").ok();
            assert_eq!(followed.as_ref().map(Url::as_str), url, "{location}");
        }
    }
}
