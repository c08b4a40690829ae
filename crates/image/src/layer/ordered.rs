//! Runs jobs on many cores and takes their results in order, in bounded memory.
//!
//! In: jobs, each giving any number of parts. Out: the parts, job by job, as one core would give them. A job
//! starts only when it is among the next few, and a job ahead of its turn blocks once a few of its parts are
//! queued, so memory does not depend on the size of a job.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Most parts of a job that are queued.
const PARTS: usize = 2;

/// The queue that a job puts its parts into.
pub(super) struct Parts<P, E>(SyncSender<Result<P, E>>);

impl<P, E> Parts<P, E> {
    /// Queues a part. False if the receiver is gone, so the job can stop.
    pub(super) fn put(&self, part: P) -> bool {
        self.0.send(Ok(part)).is_ok()
    }
}

/// Runs `work` on each job on `threads` threads, each with its own state, and `take` on each part on the
/// calling thread. The first error in order ends the run.
pub(super) fn run<J: Sync, S, P: Send, E: Send>(
    jobs: &[J],
    threads: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &J, &Parts<P, E>) -> Result<(), E> + Sync,
    mut take: impl FnMut(&J, P) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.max(1);
    type Started<P, E> = Receiver<Result<P, E>>;
    let (starts, started) = sync_channel::<Started<P, E>>(2 * threads);
    let next = Mutex::new((jobs.iter(), starts));
    let worker = || {
        let mut state = state();
        loop {
            let (job, parts) = {
                let Ok(mut next) = next.lock() else { return };
                let Some(job) = next.0.next() else { return };
                let (parts, receiver) = sync_channel(PARTS);
                // Sent under the lock, so that jobs are queued in the order in which they start.
                if next.1.send(receiver).is_err() {
                    return;
                }
                (job, Parts(parts))
            };
            if let Err(error) = work(&mut state, job, &parts) {
                let _ = parts.0.send(Err(error));
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
        // Moved into this scope, so that an error drops it and lets the threads end.
        let started = started;
        for job in jobs {
            let Ok(parts) = started.recv() else { break };
            for part in parts {
                take(job, part?)?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(threads: usize, fails: Option<u32>) -> (Vec<u32>, Result<(), u32>) {
        let jobs: Vec<u32> = (0..200).collect();
        let mut found = Vec::new();
        let answer = run(
            &jobs,
            threads,
            || 0,
            |_, job, parts| {
                for part in 0..job % 7 {
                    if fails == Some(*job) {
                        return Err(*job);
                    }
                    if !parts.put(job * 10 + part) {
                        break;
                    }
                }
                Ok(())
            },
            |job, part| {
                assert_eq!(part / 10, *job);
                found.push(part);
                Ok(())
            },
        );
        (found, answer)
    }

    #[test]
    fn parts_come_in_order_from_any_number_of_threads() {
        let (one, answer) = numbers(1, None);
        assert_eq!(answer, Ok(()));
        assert!(one.is_sorted());
        for threads in [2, 3, 16] {
            assert_eq!(numbers(threads, None).0, one);
        }
    }

    #[test]
    fn an_error_comes_in_its_place_and_ends_the_rest() {
        for threads in [1, 2, 16] {
            let (found, answer) = numbers(threads, Some(100));
            assert_eq!(answer, Err(100));
            assert!(found.iter().all(|part| part / 10 < 100));
            assert_eq!(found, numbers(1, Some(100)).0);
        }
    }

    #[test]
    fn a_taker_that_fails_ends_the_rest() {
        let jobs: Vec<u32> = (0..1000).collect();
        let answer = run(
            &jobs,
            4,
            || (),
            |(), job, parts| {
                while parts.put(*job) {}
                Ok(())
            },
            |job, _| if *job == 0 { Err("full") } else { Ok(()) },
        );
        assert_eq!(answer, Err("full"));
    }
}
