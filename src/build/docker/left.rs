//! Journals the temporary containers and images of a build or validation in the store before they are
//! made, so that the next run removes those that a killed process left.

use stackforge_engine::docker::Docker;
use stackforge_engine::{EngineError, Notes, Temporary};
use stackforge_image::store::{Journal, Store, StoreError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// First character of a journal line: the thing is about to be made, or was removed.
const BEGINS: char = '+';
const GONE: char = '-';
/// Pauses between the tries to remove one thing.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

/// Returns `docker` with a journal of its temporary things, after removing what killed runs left. If the
/// store cannot be written, nothing is journaled and the build goes on.
pub async fn noted(docker: Docker, store: &Store) -> Docker {
    if let Err(error) = sweep(&docker, store).await {
        tracing::warn!("what a killed run left in the engine stays: {error}");
    }
    match store.journal() {
        Ok(journal) => {
            let notes = Journaled {
                engine: docker.address(),
                open: Mutex::new((Some(journal), 0)),
            };
            docker.noting(Arc::new(notes))
        }
        Err(error) => {
            tracing::debug!(%error, "nothing is noted");
            docker
        }
    }
}

async fn sweep(docker: &Docker, store: &Store) -> Result<(), Box<dyn std::error::Error>> {
    for mut journal in store.left_journals()? {
        let lines = journal.lines()?;
        let Some((engine, lines)) = lines.split_first() else {
            journal.remove()?;
            continue;
        };
        // A journal of another engine waits for a run with that engine.
        if *engine == docker.address() {
            remove(docker, &begun(lines)).await?;
            journal.remove()?;
        }
    }
    Ok(())
}

/// Removes containers before images: an image that a container uses cannot be removed. One that stays keeps no other.
async fn remove(docker: &Docker, left: &[Temporary]) -> Result<(), EngineError> {
    let (containers, images): (Vec<_>, Vec<_>) = left
        .iter()
        .partition(|left| matches!(left, Temporary::Container(_)));
    let mut removed = Ok(());
    for left in containers.into_iter().chain(images) {
        removed = removed.and(remove_one(docker, left).await);
    }
    removed
}

/// Tries it a few times: a busy engine may still read a container's files for the process that was killed.
async fn remove_one(docker: &Docker, left: &Temporary) -> Result<(), EngineError> {
    for pause in PAUSES {
        if docker.remove_left(left).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
    }
    docker.remove_left(left).await
}

/// Returns the things that were begun and not removed.
fn begun(lines: &[String]) -> Vec<Temporary> {
    let mut begun: Vec<Temporary> = Vec::new();
    for line in lines {
        if let Some(Ok(what)) = line.strip_prefix(BEGINS).map(str::parse) {
            begun.push(what);
        } else if let Some(Ok(gone)) = line.strip_prefix(GONE).map(str::parse::<Temporary>) {
            begun.retain(|what| *what != gone);
        }
    }
    begun
}

struct Journaled {
    engine: String,
    /// The journal and the number of things that exist now. The journal is `None` after a failed write.
    open: Mutex<(Option<Journal>, usize)>,
}

impl Journaled {
    fn add(&self, line: &str, first: bool) -> Result<(), StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (journal, count) = &mut *open;
        let Some(journal) = journal else {
            return Ok(());
        };
        if first {
            *count += 1
        } else {
            *count = count.saturating_sub(1)
        }
        if first && journal.is_empty() {
            journal.add(&self.engine)?;
        }
        journal.add(line)
    }
}

impl Notes for Journaled {
    fn begins(&self, what: &Temporary) {
        if let Err(error) = self.add(&format!("{BEGINS}{what}"), true) {
            tracing::debug!(%error, "{what} is not noted");
        }
    }

    fn is_gone(&self, what: &Temporary) {
        if let Err(error) = self.add(&format!("{GONE}{what}"), false) {
            tracing::debug!(%error, "{what} stays noted");
        }
    }
}

impl Drop for Journaled {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let (Some(journal), 0) = (open.0.take(), open.1) {
            // If the journal stays, the next run reads it and finds nothing to remove.
            let _ = journal.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_not_left() {
        let lines = [
            "+container a",
            "+image b:c",
            "-container a",
            "+container d",
            "nonsense",
        ];
        let left = begun(&lines.map(str::to_owned));
        let [image, container] = left.as_slice() else {
            panic!("{left:?}");
        };
        assert_eq!(image.to_string(), "image b:c");
        assert_eq!(container.to_string(), "container d");
    }
}
