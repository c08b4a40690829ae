//! What builds and validations make in an engine for a while: noted in the store before it is made, and
//! removed by the next run where a process was killed before it could.

use stackforge_engine::docker::Docker;
use stackforge_engine::{EngineError, Notes, Temporary};
use stackforge_image::store::{Journal, Store, StoreError};
use std::sync::{Arc, Mutex, PoisonError};

/// Before a line's text: what begins, and what is gone.
const BEGINS: char = '+';
const GONE: char = '-';

/// The same engine, which notes in the store what is made there for a while. What others left there is
/// removed. Where the store cannot be written nothing is noted, and nothing stops.
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
        // What is in another engine waits for a run there.
        if *engine == docker.address() {
            remove(docker, &begun(lines)).await?;
            journal.remove()?;
        }
    }
    Ok(())
}

/// Containers first: an image that one is made of stays.
async fn remove(docker: &Docker, left: &[Temporary]) -> Result<(), EngineError> {
    let (containers, images): (Vec<_>, Vec<_>) = left
        .iter()
        .partition(|left| matches!(left, Temporary::Container(_)));
    for left in containers.into_iter().chain(images) {
        docker.remove_left(left).await?;
    }
    Ok(())
}

/// What began and is not gone.
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
    /// The journal, and how many things are there. None after a note that could not be kept.
    open: Mutex<(Option<Journal>, usize)>,
}

impl Journaled {
    fn add(&self, line: &str, first: bool) -> Result<(), StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (journal, count) = &mut *open;
        let Some(journal) = journal else {
            return Ok(());
        };
        match first {
            true => *count += 1,
            false => *count = count.saturating_sub(1),
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
            // One that stays is read by the next run, which finds nothing to do.
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
