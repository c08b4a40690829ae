//! Authorization at a registry: Basic, or a token of its token service.
//!
//! In: a scope, and the challenges of a 401 response. Out: an `Authorization` header. Tokens are kept until
//! they expire and are fetched once for concurrent requests. Credentials are looked up only when a registry
//! asks, and go to its token service only over TLS, or over plain HTTP if the registry itself may use it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::RegistryError;
use super::challenge::Challenge;
use super::connection::Connection;
use super::credentials::{Credentials, Keychain};
use super::error::ApiErrors;
use crate::body;
use crate::failure::{excerpt, is_passing_status};
use stackforge_types::login::{Login, Secret};

const LONGEST_ANSWER: u64 = 1 << 20;
/// Shortest lifetime of a token in seconds: the specification's default, and the least that a client has to
/// expect.
const SHORTEST_LIFE: u64 = 60;

/// The access that a request needs: `repository:a/b:pull`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    pub repository: String,
    pub actions: &'static str,
    /// The repository that a blob is mounted from.
    pub source: Option<String>,
}

impl Scope {
    fn texts(&self) -> Vec<String> {
        let mut texts = vec![format!("repository:{}:{}", self.repository, self.actions)];
        if let Some(source) = &self.source {
            texts.push(format!("repository:{source}:pull"));
        }
        texts
    }
}

pub(super) struct Authorizer {
    /// The host that credentials are stored under.
    host: String,
    connection: Connection,
    keychain: Arc<Keychain>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    service: Option<Service>,
    headers: HashMap<Scope, Header>,
    credentials: HashMap<String, Credentials>,
}

#[derive(Clone)]
struct Service {
    realm: Url,
    service: Option<String>,
}

struct Header {
    value: HeaderValue,
    until: Option<Instant>,
}

impl Authorizer {
    pub(crate) fn new(host: &str, connection: Connection, keychain: Arc<Keychain>) -> Self {
        Self {
            host: host.to_owned(),
            connection,
            keychain,
            state: Mutex::default(),
        }
    }

    /// The header for a scope, as far as the registry has stated what it requires.
    pub(crate) async fn header(
        &self,
        client: &reqwest::Client,
        scope: &Scope,
        doing: &str,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let mut state = self.state.lock().await;
        if let Some(header) = state.headers.get(scope)
            && header.until.is_none_or(|until| Instant::now() < until)
        {
            return Ok(Some(header.value.clone()));
        }
        let Some(service) = state.service.clone() else {
            return Ok(None);
        };
        self.token(&mut state, client, &service, scope, &[], doing)
            .await
            .map(Some)
    }

    /// The header that answers a 401's challenges. `None` if none can be met. `refused` is the header of the
    /// refused request: another task may have renewed the token meanwhile.
    pub(crate) async fn answer(
        &self,
        client: &reqwest::Client,
        scope: &Scope,
        challenges: &[Challenge],
        refused: Option<&HeaderValue>,
        doing: &str,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let mut state = self.state.lock().await;
        if let Some(header) = state.headers.remove(scope)
            && refused != Some(&header.value)
        {
            let value = header.value.clone();
            state.headers.insert(scope.clone(), header);
            return Ok(Some(value));
        }
        for challenge in challenges {
            if challenge.scheme == "bearer"
                && let Some(realm) = challenge.get("realm")
            {
                let service = Service {
                    realm: self.realm(realm, doing)?,
                    service: challenge.get("service").map(str::to_owned),
                };
                state.service = Some(service.clone());
                let asked: Vec<_> = challenge
                    .get("scope")
                    .map(|texts| texts.split(' ').map(str::to_owned).collect())
                    .unwrap_or_default();
                return self
                    .token(&mut state, client, &service, scope, &asked, doing)
                    .await
                    .map(Some);
            }
        }
        if challenges.iter().any(|c| c.scheme == "basic")
            && let Login::Password { user, password } =
                &self.credentials(&mut state, scope).await.login
            && let Some(value) = basic(user, password)
            && refused != Some(&value)
        {
            let header = Header {
                value: value.clone(),
                until: None,
            };
            state.headers.insert(scope.clone(), header);
            return Ok(Some(value));
        }
        Ok(None)
    }

    /// Which credentials are used for a scope, for messages.
    pub(crate) async fn used(&self, scope: &Scope) -> Box<str> {
        let mut state = self.state.lock().await;
        self.credentials(&mut state, scope).await.whence.into()
    }

    async fn credentials(&self, state: &mut State, scope: &Scope) -> Credentials {
        if let Some(known) = state.credentials.get(&scope.repository) {
            return known.clone();
        }
        let found = self.keychain.find(&self.host, &scope.repository).await;
        state
            .credentials
            .insert(scope.repository.clone(), found.clone());
        found
    }

    fn realm(&self, text: &str, doing: &str) -> Result<Url, RegistryError> {
        let wrong = |reason: &str| RegistryError::Protocol {
            host: self.host.clone(),
            doing: doing.to_owned(),
            reason: format!("its token service `{}` {reason}", excerpt(text)),
        };
        let realm = Url::parse(text).map_err(|_| wrong("is not an address"))?;
        match realm.scheme() {
            "https" => Ok(realm),
            "http" if self.connection.plain => Ok(realm),
            _ => Err(wrong("would be sent credentials without TLS")),
        }
    }

    async fn token(
        &self,
        state: &mut State,
        client: &reqwest::Client,
        service: &Service,
        scope: &Scope,
        asked: &[String],
        doing: &str,
    ) -> Result<HeaderValue, RegistryError> {
        let credentials = self.credentials(state, scope).await;
        let wrong = |reason: String, passing: bool| RegistryError::Token {
            realm: service.realm.host_str().unwrap_or_default().to_owned(),
            doing: doing.to_owned(),
            used: credentials.whence.as_str().into(),
            reason,
            passing,
        };
        let mut scopes = scope.texts();
        scopes.extend(asked.iter().filter(|s| !s.is_empty()).take(8).cloned());
        scopes.sort();
        scopes.dedup();

        let request = match &credentials.login {
            Login::Identity(token) => {
                let client = self.connection.client(true)?;
                refresh_request(&client, service, &token.expose_text(), &scopes)
            }
            login @ (Login::Anonymous | Login::Password { .. }) => {
                token_request(client, service, login, &scopes)
            }
        };
        let response = request.send().await.map_err(|error| {
            if error.is_redirect() {
                return wrong("leads to where credentials must not go".to_owned(), false);
            }
            let error = RegistryError::transfer(error, &self.host, doing);
            wrong(format!("fails: {error}"), error.is_passing())
        })?;
        let status = response.status();
        let bytes = body::read_limited(response, LONGEST_ANSWER)
            .await
            .map_err(|error| wrong(format!("breaks off: {error}"), true))?;
        if !status.is_success() {
            let passing = is_passing_status(status.as_u16());
            let details: String = ApiErrors::decode(&bytes)
                .0
                .iter()
                .map(|e| format!(": {e}"))
                .collect();
            return Err(wrong(
                format!("answers {}{details}", status.as_u16()),
                passing,
            ));
        }
        let answer: Answer = serde_json::from_slice(&bytes)
            .map_err(|_| wrong("answers something that is not a token".to_owned(), false))?;
        let token = [answer.token, answer.access_token]
            .into_iter()
            .flatten()
            .find(|token| !token.is_empty())
            .ok_or_else(|| wrong("answers without a token".to_owned(), false))?;
        let value = secret_header(&format!("Bearer {token}"))
            .ok_or_else(|| wrong("answers something that is not a token".to_owned(), false))?;
        // Renewed well before it expires, so that it stays valid during a request.
        let life = answer.expires_in.unwrap_or(0).clamp(SHORTEST_LIFE, 3600) * 3 / 4;
        let header = Header {
            value: value.clone(),
            until: Some(Instant::now() + Duration::from_secs(life)),
        };
        state.headers.insert(scope.clone(), header);
        Ok(value)
    }
}

#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

/// An OAuth 2 request: its form has the syntax of a query.
fn refresh_request(
    client: &reqwest::Client,
    service: &Service,
    token: &str,
    scopes: &[String],
) -> reqwest::RequestBuilder {
    let mut form = service.realm.clone();
    form.set_query(None);
    form.query_pairs_mut()
        .append_pair("grant_type", "refresh_token")
        .append_pair("service", service.service.as_deref().unwrap_or_default())
        .append_pair("client_id", "stackforge")
        .append_pair("scope", &scopes.join(" "))
        .append_pair("refresh_token", token);
    client
        .post(service.realm.clone())
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form.query().unwrap_or_default().to_owned())
}

fn token_request(
    client: &reqwest::Client,
    service: &Service,
    login: &Login,
    scopes: &[String],
) -> reqwest::RequestBuilder {
    let mut url = service.realm.clone();
    {
        let mut query = url.query_pairs_mut();
        if let Some(service) = &service.service {
            query.append_pair("service", service);
        }
        for scope in scopes {
            query.append_pair("scope", scope);
        }
    }
    let request = client.get(url);
    match login {
        Login::Password { user, password } => match basic(user, password) {
            Some(value) => request.header(AUTHORIZATION, value),
            None => request,
        },
        Login::Anonymous | Login::Identity(_) => request,
    }
}

fn basic(user: &str, password: &Secret) -> Option<HeaderValue> {
    let pair = [user.as_bytes(), b":", password.expose()].concat();
    secret_header(&format!("Basic {}", STANDARD.encode(pair)))
}

fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
