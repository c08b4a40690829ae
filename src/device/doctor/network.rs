//! Checks whether the package index and the Debian mirror answer.

use super::Question;
use serde::Serialize;
use stackforge_debian::mirror::Mirrors;
use stackforge_resolve::{IndexAddress, index_address, index_answers};
use stackforge_transfer::fetch::client;
use std::time::Duration;

#[derive(Debug, Serialize)]
pub struct Network {
    /// Answer of the index of Python packages that locking uses.
    pub index: Answer,
    /// Answer of the mirror of Debian packages for bootstrapped bases.
    pub debian: Answer,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Answer {
    Reachable,
    Unreachable { why: String },
    NotConfigured { why: String },
    NotAsked { why: String },
}

const PATIENCE: Duration = Duration::from_secs(8);

pub async fn ask(question: &Question<'_>) -> Network {
    if question.offline {
        let why = || Answer::NotAsked {
            why: "`--offline`".to_owned(),
        };
        return Network {
            index: why(),
            debian: why(),
        };
    }
    let (index, debian) = tokio::join!(index(question), debian(question));
    Network { index, debian }
}

/// Asks the index through uv, as locking does, or, if there is no uv yet, at the configured address.
async fn index(question: &Question<'_>) -> Answer {
    let uv = index_answers(question.catalog, question.store);
    match tokio::time::timeout(2 * PATIENCE, uv).await {
        Ok(Some(Ok(()))) => return Answer::Reachable,
        Ok(Some(Err(why))) => return Answer::Unreachable { why },
        Ok(None) => {}
        Err(_) => {
            return Answer::Unreachable {
                why: "no answer in time".to_owned(),
            };
        }
    }
    match index_address() {
        IndexAddress::Url(url) => get(&format!("{}/pip/", url.trim_end_matches('/'))).await,
        IndexAddress::None => Answer::NotConfigured {
            why: "the configuration allows no index".to_owned(),
        },
        IndexAddress::DefaultOfUv => Answer::NotAsked {
            why: "no index is configured, and uv, which has a default one, is not here yet"
                .to_owned(),
        },
    }
}

async fn debian(question: &Question<'_>) -> Answer {
    let bootstrap = question
        .catalog
        .images
        .values()
        .find_map(|i| i.bootstrap.as_ref());
    let Some(suite) = bootstrap.and_then(|b| b.suites.first()) else {
        return Answer::NotAsked {
            why: "no base is made from Debian packages".to_owned(),
        };
    };
    let mirrors = match Mirrors::discover(question.mirrors) {
        Ok(mirrors) => mirrors,
        Err(e) => return Answer::NotConfigured { why: e.to_string() },
    };
    let urls = match mirrors.for_archive("debian") {
        Ok(urls) => urls,
        Err(e) => return Answer::NotConfigured { why: e.to_string() },
    };
    let mut last = None;
    for url in urls {
        match get(&format!("{url}/dists/{suite}/Release")).await {
            Answer::Reachable => return Answer::Reachable,
            other => last = Some(other),
        }
    }
    last.unwrap_or(Answer::Reachable)
}

/// Sends one request and reads only the answer's headers.
async fn get(url: &str) -> Answer {
    let unreachable = |why: String| Answer::Unreachable { why };
    let client = match client() {
        Ok(client) => client,
        Err(e) => return unreachable(stackforge_stack::diag::chain(&e)),
    };
    match client.get(url).timeout(PATIENCE).send().await {
        Ok(response) if response.status().is_success() => Answer::Reachable,
        Ok(response) => unreachable(format!("it answers {}", response.status().as_u16())),
        Err(e) if e.is_timeout() => unreachable("no answer in time".to_owned()),
        Err(e) if e.is_connect() => unreachable("no connection".to_owned()),
        Err(e) => unreachable(stackforge_stack::diag::chain(&e.without_url())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    async fn answer_to(answer: &'static str) -> Answer {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://user:secret@{}/x", server.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        });
        get(&url).await
    }

    #[tokio::test]
    async fn only_a_success_counts() {
        let head = "Content-Length: 0\r\nConnection: close\r\n\r\n";
        let ok: &'static str = Box::leak(format!("HTTP/1.1 200 OK\r\n{head}").into_boxed_str());
        let no: &'static str = Box::leak(format!("HTTP/1.1 403 No\r\n{head}").into_boxed_str());
        assert_eq!(answer_to(ok).await, Answer::Reachable);
        let why = "it answers 403".to_owned();
        assert_eq!(answer_to(no).await, Answer::Unreachable { why });
        match answer_to("nonsense").await {
            Answer::Unreachable { why } => {
                assert!(
                    !why.contains("127.0.0.1") && !why.contains("secret"),
                    "{why}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}
