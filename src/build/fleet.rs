//! Distributes builds over several engines, and repeats the builds of an engine that is lost.
//!
//! In: jobs and places (engines), each with platforms. Out: the result of each job. A place has one job at
//! a time; of several free places the one with the least load takes the next. A place that does not answer
//! gets no more jobs, and its job moves to the front of the others' queue. This module does not know what a
//! job is or how a place is reached.

use futures_util::future::{LocalBoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use stackforge_stack::spec::Platform;
use stackforge_types::Cancel;
use std::collections::{BTreeSet, VecDeque};

/// Places that may be lost while they do one job before the job is blamed.
const MOST_LOSSES: usize = 3;

/// How a job ended at a place.
#[derive(Debug)]
pub enum End<T> {
    Done(T),
    /// The place was lost, for this reason.
    Lost(String),
}

/// The final result of a job.
#[derive(Debug, PartialEq, Eq)]
pub enum JobResult<T> {
    To(T),
    /// `MOST_LOSSES` places were lost while they did the job.
    Dangerous,
    /// No place for the job's platform is left.
    Nowhere,
    /// The run was cancelled before the job finished.
    Cancelled,
}

/// An event for a reporter. Jobs and places are given by their indices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetEvent<'a> {
    Starts { job: usize, place: usize },
    Lost { place: usize, why: &'a str },
}

/// A job, as far as it decides the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub platform: Platform,
    /// The place to use while it is not lost: it did the job before, or no other can do it.
    pub home: Option<usize>,
}

/// Does every job. `load` returns how busy a place is, or why it cannot be used; `work` does a job at a
/// place.
pub async fn spread<'f, T: 'f>(
    jobs: &[Job],
    places: &[BTreeSet<Platform>],
    cancel: &Cancel,
    load: impl Fn(usize) -> LocalBoxFuture<'f, Result<f64, String>>,
    work: impl Fn(usize, usize) -> LocalBoxFuture<'f, End<T>>,
    on_event: &mut dyn FnMut(FleetEvent<'_>),
) -> Vec<JobResult<T>> {
    let mut came: Vec<Option<JobResult<T>>> = jobs.iter().map(|_| None).collect();
    let mut losses = vec![0; jobs.len()];
    let mut waiting: VecDeque<usize> = (0..jobs.len()).collect();
    let mut idle: BTreeSet<usize> = (0..places.len()).collect();
    let mut gone: BTreeSet<usize> = BTreeSet::new();
    let mut running = FuturesUnordered::new();
    loop {
        while !cancel.is_cancelled() {
            let fits = |place: &&usize, job: usize| match jobs[job].home {
                Some(home) if !gone.contains(&home) => **place == home,
                _ => places[**place].contains(&jobs[job].platform),
            };
            let next = waiting
                .iter()
                .position(|&job| idle.iter().any(|place| fits(&place, job)));
            let Some(next) = next else { break };
            let job = waiting[next];
            let free: Vec<usize> = idle.iter().filter(|p| fits(p, job)).copied().collect();
            let asked = tokio::select! {
                asked = join_all(free.iter().map(|&place| load(place))) => asked,
                () = cancel.cancelled() => break,
            };
            let mut best: Option<(f64, usize, usize)> = None;
            for (place, load) in free.into_iter().zip(asked) {
                match load {
                    Ok(load) => {
                        // On equal load take the place with fewer platforms: others may be needed for theirs.
                        let rank = (load, places[place].len(), place);
                        if best.is_none_or(|best| rank < best) {
                            best = Some(rank);
                        }
                    }
                    Err(why) => {
                        idle.remove(&place);
                        gone.insert(place);
                        on_event(FleetEvent::Lost { place, why: &why });
                    }
                }
            }
            if let Some((_, _, place)) = best {
                waiting.remove(next);
                idle.remove(&place);
                on_event(FleetEvent::Starts { job, place });
                let work = work(job, place);
                running.push(async move { (job, place, work.await) });
            }
        }
        let Some((job, place, end)) = running.next().await else {
            break;
        };
        match end {
            End::Done(what) => {
                came[job] = Some(JobResult::To(what));
                idle.insert(place);
            }
            End::Lost(why) => {
                gone.insert(place);
                on_event(FleetEvent::Lost { place, why: &why });
                losses[job] += 1;
                if losses[job] < MOST_LOSSES {
                    waiting.push_front(job)
                } else {
                    came[job] = Some(JobResult::Dangerous)
                }
            }
        }
    }
    let left = || {
        if cancel.is_cancelled() {
            JobResult::Cancelled
        } else {
            JobResult::Nowhere
        }
    };
    came.into_iter()
        .map(|came| came.unwrap_or_else(left))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use proptest::prelude::*;
    use std::cell::{Cell, RefCell};

    const AMD: Platform = Platform::LinuxAmd64;
    const ARM: Platform = Platform::LinuxArm64;

    fn jobs(platforms: &[Platform]) -> Vec<Job> {
        let job = |&platform: &Platform| Job {
            platform,
            home: None,
        };
        platforms.iter().map(job).collect()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    }

    /// What the places of a simulated fleet did.
    #[derive(Default)]
    struct Made {
        done: RefCell<Vec<(usize, usize)>>,
        busy: RefCell<BTreeSet<usize>>,
    }

    /// Runs `jobs`. `dies` gives for each place the turn in which it is lost, if any.
    fn run(
        jobs: &[Job],
        places: &[BTreeSet<Platform>],
        dies: &[Option<usize>],
        loads: &[f64],
    ) -> (Vec<JobResult<usize>>, Made, Vec<usize>) {
        let made = Made::default();
        let turns = RefCell::new(vec![0; places.len()]);
        let mut lost = Vec::new();
        let runtime = runtime();
        let came = runtime.block_on(spread(
            jobs,
            places,
            &Cancel::new(),
            |place| async move { Ok(loads[place]) }.boxed_local(),
            |job, place| {
                let (made, turns) = (&made, &turns);
                async move {
                    assert!(made.busy.borrow_mut().insert(place), "one at a time");
                    let turn = turns.borrow()[place];
                    turns.borrow_mut()[place] += 1;
                    for _ in 0..1 + (job * 7) % 5 {
                        tokio::task::yield_now().await;
                    }
                    made.busy.borrow_mut().remove(&place);
                    if dies[place] == Some(turn) {
                        return End::Lost("gone".to_owned());
                    }
                    made.done.borrow_mut().push((job, place));
                    End::Done(job)
                }
                .boxed_local()
            },
            &mut |event| {
                if let FleetEvent::Lost { place, .. } = event {
                    lost.push(place);
                }
            },
        ));
        (came, made, lost)
    }

    #[test]
    fn the_least_busy_place_of_the_platform_takes_a_job() {
        let both = BTreeSet::from([AMD, ARM]);
        let places = [BTreeSet::from([AMD]), BTreeSet::from([AMD]), both];
        let (came, made, _) = run(&jobs(&[AMD]), &places, &[None; 3], &[0.5, 0.1, 0.9]);
        assert_eq!(came, [JobResult::To(0)]);
        assert_eq!(*made.done.borrow(), [(0, 1)]);
        // Equally busy places: the one with fewer platforms is taken.
        let (_, made, _) = run(&jobs(&[AMD]), &places, &[None; 3], &[0.5, 0.9, 0.5]);
        assert_eq!(*made.done.borrow(), [(0, 0)]);
        let (_, made, _) = run(&jobs(&[ARM]), &places, &[None; 3], &[0.0; 3]);
        assert_eq!(*made.done.borrow(), [(0, 2)]);
    }

    #[test]
    fn a_job_goes_home_while_its_home_is_there() {
        let places = [
            BTreeSet::from([AMD]),
            BTreeSet::from([AMD]),
            BTreeSet::new(),
        ];
        let mut all = jobs(&[AMD; 4]);
        all[0].home = Some(1);
        all[1].home = Some(1);
        all[3].home = Some(2);
        let (came, made, _) = run(&all, &places, &[None; 3], &[0.0, 0.9, 0.9]);
        assert!(
            came.iter().all(|c| matches!(c, JobResult::To(_))),
            "{came:?}"
        );
        let mut done = made.done.into_inner();
        done.sort_unstable();
        assert_eq!(done, [(0, 1), (1, 1), (2, 0), (3, 2)]);
        // Place 1 dies with the first job, so place 0 does both.
        let (came, made, lost) = run(&all[..2], &places, &[None, Some(0), None], &[0.0; 3]);
        assert_eq!(came, [JobResult::To(0), JobResult::To(1)]);
        assert_eq!(lost, [1]);
        assert!(made.done.borrow().iter().all(|d| d.1 == 0));
    }

    #[test]
    fn what_nothing_can_do_is_told_and_the_rest_is_done() {
        let places = [BTreeSet::from([AMD])];
        let (came, _, lost) = run(&jobs(&[ARM, AMD, ARM]), &places, &[None], &[0.0]);
        assert_eq!(
            came,
            [JobResult::Nowhere, JobResult::To(1), JobResult::Nowhere]
        );
        assert!(lost.is_empty());
    }

    #[test]
    fn a_job_that_takes_places_down_is_not_given_to_all() {
        let places = vec![BTreeSet::from([AMD]); 5];
        let runtime = runtime();
        let started = Cell::new(0);
        let came: Vec<JobResult<()>> = runtime.block_on(spread(
            &jobs(&[AMD, AMD]),
            &places,
            &Cancel::new(),
            |_| async { Ok(0.0) }.boxed_local(),
            |job, _| {
                started.set(started.get() + usize::from(job == 0));
                async move {
                    match job {
                        0 => End::Lost("gone".to_owned()),
                        _ => End::Done(()),
                    }
                }
                .boxed_local()
            },
            &mut |_| {},
        ));
        assert_eq!(came, [JobResult::Dangerous, JobResult::To(())]);
        assert_eq!(started.get(), MOST_LOSSES);
    }

    #[test]
    fn who_does_not_answer_gets_nothing() {
        let places = vec![BTreeSet::from([AMD]); 2];
        let runtime = runtime();
        let mut lost = Vec::new();
        let came: Vec<JobResult<usize>> = runtime.block_on(spread(
            &jobs(&[AMD; 3]),
            &places,
            &Cancel::new(),
            |place| {
                async move {
                    match place {
                        0 => Err("refused".to_owned()),
                        _ => Ok(1.0),
                    }
                }
                .boxed_local()
            },
            |_, place| async move { End::Done(place) }.boxed_local(),
            &mut |s| {
                if let FleetEvent::Lost { place, why } = s {
                    lost.push((place, why.to_owned()));
                }
            },
        ));
        assert_eq!(came, [JobResult::To(1), JobResult::To(1), JobResult::To(1)]);
        assert_eq!(lost, [(0, "refused".to_owned())]);
    }

    #[test]
    fn nothing_starts_after_a_cancel() {
        let cancel = Cancel::new();
        let runtime = runtime();
        let came: Vec<JobResult<()>> = runtime.block_on(spread(
            &jobs(&[AMD; 3]),
            &[BTreeSet::from([AMD])],
            &cancel,
            |_| async { Ok(0.0) }.boxed_local(),
            |_, _| {
                cancel.cancel();
                async { End::Done(()) }.boxed_local()
            },
            &mut |_| {},
        ));
        assert_eq!(
            came,
            [
                JobResult::To(()),
                JobResult::Cancelled,
                JobResult::Cancelled
            ]
        );
    }

    fn platforms() -> impl Strategy<Value = BTreeSet<Platform>> {
        prop_oneof![
            Just(BTreeSet::from([AMD])),
            Just(BTreeSet::from([ARM])),
            Just(BTreeSet::from([AMD, ARM])),
        ]
    }

    proptest! {
        /// Every job is done once, unless no place for it is left or it lost too many places.
        #[test]
        fn each_job_is_done_once_while_a_place_for_it_lives(
            wanted in prop::collection::vec((prop_oneof![Just(AMD), Just(ARM)], prop::option::of(0_usize..6)), 0..12),
            places in prop::collection::vec((platforms(), prop::option::of(0_usize..4), 0.0..1.0), 0..6),
        ) {
            let sets: Vec<_> = places.iter().map(|p| p.0.clone()).collect();
            let dies: Vec<_> = places.iter().map(|p| p.1).collect();
            let loads: Vec<_> = places.iter().map(|p| p.2).collect();
            let job = |(platform, home): &(Platform, Option<usize>)| Job {
                platform: *platform,
                home: home.filter(|&home| home < sets.len()),
            };
            let jobs: Vec<Job> = wanted.iter().map(job).collect();
            let (came, made, lost) = run(&jobs, &sets, &dies, &loads);
            let mut unique = lost.clone();
            unique.sort_unstable();
            unique.dedup();
            prop_assert_eq!(unique.len(), lost.len(), "a place is lost once");
            for (job, came) in came.iter().enumerate() {
                let done: Vec<_> = made.done.borrow().iter().filter(|d| d.0 == job).copied().collect();
                match came {
                    JobResult::To(n) => {
                        prop_assert_eq!(*n, job);
                        prop_assert_eq!(done.len(), 1);
                        let at = done[0].1;
                        let fits = sets[at].contains(&jobs[job].platform);
                        prop_assert!(fits || jobs[job].home == Some(at));
                    }
                    JobResult::Nowhere => {
                        let fit = |p: &usize| sets[*p].contains(&jobs[job].platform);
                        prop_assert!((0..sets.len()).filter(fit).all(|p| lost.contains(&p)));
                    }
                    JobResult::Dangerous => prop_assert!(lost.len() >= MOST_LOSSES),
                    JobResult::Cancelled => prop_assert!(false, "nobody cancelled"),
                }
            }
        }
    }
}
