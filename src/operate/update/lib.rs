//! Updates the image of a device's service, and goes back if the new image is not good on this device.
//!
//! In: settings, and a reference that the publisher moves to new images. Out: the service runs the new image
//! or the previous one. The new image is pulled beside the current one, its signature is verified, and it is
//! validated on the device's own GPU. Then it takes the current one's place and the service restarts; if the
//! service is not healthy, the previous image gets its place back. Each step is first recorded on disk
//! (`state.rs`), so the next run completes an interrupted one. Never: two runs at once, a service that stays
//! stopped, an image that crashes the device and is tried forever.

mod error;
mod health;
mod place;
mod service;
mod settings;
mod state;

use place::{Back, PlaceContext};
use stackforge_distribute::evidence::{PublicKey, Signed, Trust};
use stackforge_distribute::pull::{self, Age, Resolved, Wanted};
use stackforge_image::store::write_atomically;
use stackforge_stack::diag::{Explained as _, chain, codes};
use stackforge_types::Cancel;
use stackforge_types::Digest;
use state::{Desk, Switch};
use std::future::Future;
use std::time::Duration;

pub use error::UpdateError;
pub use place::Place;
pub use settings::Settings;
pub use state::{Last, Outcome, State, Step, is_running, now, read};

/// The input of one run.
pub struct Job<'a> {
    pub settings: &'a Settings,
    /// Facts about the device, to choose a variant.
    pub wanted: &'a Wanted,
    pub pull: &'a pull::Settings<'a>,
    pub cancel: &'a Cancel,
    /// Whether to try refused images again.
    pub retry: bool,
}

/// How long to wait for a cancelled validation to end.
const STOPPING: Duration = Duration::from_secs(60);

type Line<'a> = &'a mut (dyn FnMut(&str) + Send);
type Ended = Result<(Outcome, String), UpdateError>;

struct Run<'a> {
    job: &'a Job<'a>,
    context: PlaceContext<'a>,
    desk: Desk,
}

/// A resolved image whose signature was verified, if the settings require one.
struct Candidate {
    resolved: Resolved,
    age: Option<Age>,
}

impl Candidate {
    fn digest(&self) -> &Digest {
        &self.resolved.manifest.digest
    }
}

/// Updates the device to the image that its reference names now.
///
/// # Errors
/// The update could not be done and the service is as before. A refused image is not an error but an
/// outcome.
pub async fn update(job: &Job<'_>, line: Line<'_>) -> Result<(Last, State), UpdateError> {
    let settings = job.settings;
    let desk = Desk::open(&settings.state, &settings.place)?.ok_or(UpdateError::UnderWay)?;
    let context = PlaceContext {
        place: &settings.place,
        store: job.pull.store,
    };
    let mut run = Run { job, context, desk };
    let ended = run.steps(line).await;
    // Whatever happened, start a service that was stopped for a validation.
    let ended = match run.resume().await {
        Ok(()) => ended,
        Err(e) => Ok((Outcome::NeedsHelp, chain(&e))),
    };
    let (outcome, message) = match &ended {
        Ok(ended) => ended.clone(),
        Err(e) if e.is_of_image() => (Outcome::Refused, chain(e)),
        Err(e) => (Outcome::Failed, chain(e)),
    };
    let time = now();
    let last = Last {
        outcome,
        said: message,
        time,
    };
    run.desk.write(|state| state.last = Some(last.clone()))?;
    ended.map(|_| (last, run.desk.state))
}

impl Run<'_> {
    async fn steps(&mut self, line: Line<'_>) -> Ended {
        if let Some(ended) = self.recover(line).await? {
            return Ok(ended);
        }
        if self.job.retry {
            self.desk.write(|state| {
                state.refused.clear();
                state.interrupted.clear();
            })?;
        }
        let candidate = self.until_stopped(self.candidate()).await?;
        let image = candidate.digest().clone();
        if let Some(refused) = self.desk.state.is_refused(&image) {
            let message = format!("{image} was refused before: {}", refused.why);
            return Ok((Outcome::Refused, message));
        }
        // Without a required GPU the image's GPU labels do not matter.
        let gpu = self.job.settings.validate.gpu;
        if let Some(doubt) = candidate.resolved.doubt.as_ref().filter(|_| gpu) {
            let message = format!("by its labels {image} does not run here: {doubt}");
            return Ok((Outcome::Refused, message));
        }
        let before = self.context.current_id().await?;
        let known = &self.desk.state;
        if before.is_some() && known.image.as_ref() == Some(&image) && known.id == before {
            if let Some(age) = &candidate.age {
                age.remember(self.job.pull.store)?;
            }
            self.context.settle(Some(&image)).await?;
            return Ok((Outcome::UpToDate, format!("up to date: {image}")));
        }
        line(&format!("{} is {image}: fetching", self.job.settings.image));
        let bring = (self.context).bring(&candidate.resolved, self.job.pull, self.job.cancel);
        let id = self.until_stopped(bring).await?;
        let switch = Switch {
            image,
            id,
            before,
            why: None,
        };
        if switch.before.as_ref() == Some(&switch.id) {
            return self.complete(&switch, &candidate, Outcome::UpToDate).await;
        }
        let times = self.desk.state.interrupted.get(&switch.image.to_string());
        if times.is_some_and(|times| *times >= state::MOST_INTERRUPTED) {
            return self
                .refuse(&switch, "the device went down with it three times")
                .await;
        }
        if let Err(why) = self.validated(&switch, line).await? {
            return self.refuse(&switch, &why).await;
        }
        if self.job.cancel.is_cancelled() {
            return Err(UpdateError::Stopped);
        }
        self.trial(&switch, &candidate, line).await
    }

    /// Completes what an earlier run began. `Some` if this run has nothing more to do.
    async fn recover(&mut self, line: Line<'_>) -> Result<Option<(Outcome, String)>, UpdateError> {
        let ended = match self.desk.state.step.clone() {
            Step::Idle => None,
            Step::Validating { image } => {
                line("the last validation was interrupted");
                if let Err(error) = self.context.forget().await {
                    tracing::debug!(%error, "what is left of it may run");
                }
                self.desk.write(|state| {
                    state.interrupt(&image);
                    state.step = Step::Idle;
                })?;
                None
            }
            Step::Trial(switch) => {
                line("the last update was interrupted: going back");
                // Go back even if this write fails on a full disk: the next run goes back from `Trial` too.
                let written = self.desk.write(|state| {
                    state.interrupt(&switch.image);
                    state.step = Step::Back(switch.clone());
                });
                let ended = self.back(&switch).await?;
                written?;
                ended
            }
            Step::Back(switch) => {
                line("going back was interrupted: going on");
                self.back(&switch).await?
            }
        };
        self.resume().await?;
        Ok(ended)
    }

    /// Starts a service that was stopped for a validation.
    async fn resume(&mut self) -> Result<(), UpdateError> {
        if !self.desk.state.paused {
            return Ok(());
        }
        if let Some(service) = &self.job.settings.service {
            service.start().await?;
        }
        self.desk.write(|state| state.paused = false)
    }

    /// Resolves the reference for this device, and verifies the image's signature and age.
    async fn candidate(&self) -> Result<Candidate, UpdateError> {
        let settings = self.job.settings;
        let reference = &settings.image;
        let resolved = pull::resolve(reference, self.job.wanted, self.job.pull).await?;
        let Some(verify) = &settings.verify else {
            return Ok(Candidate {
                resolved,
                age: None,
            });
        };
        let trust = Trust::new(PublicKey::read(&verify.key)?, verify.names.clone());
        let signed: Vec<Signed> = resolved.verify(reference, &trust).await?;
        let age = Age::of(&pull::name(reference), &resolved, &signed);
        if !verify.downgrade {
            age.check(self.job.pull.store)?;
        }
        let age = Some(age);
        Ok(Candidate { resolved, age })
    }

    /// Validates an image beside the running one. `Ok(Err(reason))` if the image is refused.
    async fn validated(
        &mut self,
        switch: &Switch,
        line: Line<'_>,
    ) -> Result<Result<(), String>, UpdateError> {
        let settings = self.job.settings;
        let service = settings.service.as_ref().filter(|service| service.pause);
        self.desk.write(|state| {
            let image = switch.image.clone();
            state.step = Step::Validating { image };
            state.paused |= service.is_some();
        })?;
        if let Some(service) = service {
            line(&format!(
                "{} stops while the image is validated",
                service.unit
            ));
            if let Err(e) = service.stop().await {
                self.desk.write(|state| state.step = Step::Idle)?;
                return Err(e);
            }
        }
        let judged = self.judged(&switch.id, line).await;
        self.desk.write(|state| {
            // The image may crash or need more memory than there is: count that, so it is not tried forever.
            let crashed = [
                codes::KILLED_FOR_MEMORY,
                codes::NO_REPORT,
                codes::PROGRAM_MISSING,
            ];
            if matches!(&judged, Err(e) if crashed.contains(&e.code())) {
                state.interrupt(&switch.image);
            }
            state.step = Step::Idle;
        })?;
        judged
    }

    async fn judged(&self, id: &str, line: Line<'_>) -> Result<Result<(), String>, UpdateError> {
        let validate = &self.job.settings.validate;
        let stop = Cancel::new();
        let (report, late) = {
            let work = self.context.validate(id, validate.gpu, &stop, line);
            tokio::pin!(work);
            let late = tokio::select! {
                done = &mut work => return self.judgement(done?),
                () = tokio::time::sleep(validate.within) => true,
                () = self.job.cancel.cancelled() => false,
            };
            // Cancel the validation and wait for it, but not forever: the service may be stopped meanwhile.
            stop.cancel();
            (tokio::time::timeout(STOPPING, work).await, late)
        };
        match (report, late) {
            // The report of a cancelled validation says nothing about the image.
            (_, false) => Err(UpdateError::Stopped),
            (Ok(Ok(report)), true) => self.judgement(report),
            (_, true) => {
                let within = humantime::format_duration(validate.within);
                Ok(Err(format!("its validation did not end within {within}")))
            }
        }
    }

    fn judgement(
        &self,
        report: stackforge_build::validate::Report,
    ) -> Result<Result<(), String>, UpdateError> {
        let path = self.desk.report();
        let text = serde_json::to_string_pretty(&report).unwrap_or_default() + "\n";
        write_atomically(&path, text.as_bytes()).map_err(|e| UpdateError::io("write", &path, e))?;
        Ok(if report.ok {
            Ok(())
        } else {
            Err(format!(
                "it does not validate: {}; {} has the report",
                report.summary(),
                path.display()
            ))
        })
    }

    /// Gives the service the new image, and goes back if the service is not healthy with it.
    async fn trial(&mut self, switch: &Switch, candidate: &Candidate, line: Line<'_>) -> Ended {
        let settings = self.job.settings;
        self.desk
            .write(|state| state.step = Step::Trial(switch.clone()))?;
        line(&format!("{} gets {}", settings.place, switch.image));
        let tried = match self.switched(switch).await {
            // A signal also kills our child processes, so this result says nothing about the image.
            _ if self.job.cancel.is_cancelled() => Err(UpdateError::Stopped),
            Ok(Ok(())) => return self.complete(switch, candidate, Outcome::Updated).await,
            Ok(Err(why)) => Ok(format!("the service was not well with it: {why}")),
            Err(e) => Err(e),
        };
        let why = match &tried {
            Ok(why) => why.clone(),
            Err(e) => chain(e),
        };
        line(&format!("{why}: going back"));
        let back = Switch {
            // Do not blame the image for a signal, an engine that went away or a full disk.
            why: tried.as_ref().ok().cloned(),
            ..switch.clone()
        };
        // Go back even if this write fails on a full disk: the next run goes back from `Trial` too.
        let written = (self.desk).write(|state| state.step = Step::Back(back.clone()));
        if let Some(ended) = self.back(&back).await? {
            return Ok(ended);
        }
        written?;
        tried?;
        if switch.before.is_some()
            && let Ok(Err(still)) = self.well().await
        {
            // The image is not to blame. It may be tried again, but not forever.
            self.desk.write(|state| {
                state.pardon(&switch.image);
                state.interrupt(&switch.image);
            })?;
            let message = format!("the service is not well with the image before either: {still}");
            return Ok((Outcome::NeedsHelp, message));
        }
        Ok((Outcome::Refused, format!("refused {}: {why}", switch.image)))
    }

    async fn switched(&mut self, switch: &Switch) -> Result<Result<(), String>, UpdateError> {
        self.context
            .switch(&switch.id, switch.before.as_deref())
            .await?;
        if let Some(service) = &self.job.settings.service {
            let restarted = tokio::select! {
                restarted = service.restart(self.job.settings.health.within) => restarted,
                () = self.job.cancel.cancelled() => return Err(UpdateError::Stopped),
            };
            if let Err(e) = restarted {
                return Ok(Err(chain(&e)));
            }
        }
        self.well().await
    }

    async fn well(&self) -> Result<Result<(), String>, UpdateError> {
        let settings = self.job.settings;
        health::well(&settings.health, settings.service.as_ref(), self.job.cancel).await
    }

    /// Puts the previous image in its place again. `Some` if a person has to look.
    async fn back(&mut self, switch: &Switch) -> Result<Option<(Outcome, String)>, UpdateError> {
        let back = self
            .context
            .back(&switch.id, switch.before.as_deref())
            .await?;
        let restarted = match &self.job.settings.service {
            Some(service) => service.restart(self.job.settings.health.within).await,
            None => Ok(()),
        };
        let current = self.context.current_id().await?;
        self.desk.write(|state| {
            state.step = Step::Idle;
            state.paused &= restarted.is_err();
            if back == Back::Gone {
                state.image = Some(switch.image.clone());
            } else if state.id != current {
                state.image = None;
            }
            state.id = current;
            match &switch.why {
                // The new image cannot be refused if the previous one is gone.
                Some(why) if back != Back::Gone => state.refuse(&switch.image, why),
                _ => {}
            }
        })?;
        self.context.settle(None).await?;
        let place = &self.job.settings.place;
        Ok(match (back, restarted) {
            (Back::Gone, _) => Some((
                Outcome::NeedsHelp,
                format!("the image before is gone: {place} stays {}", switch.image),
            )),
            // Without a previous image no service can start.
            (_, Err(e)) if switch.before.is_some() => {
                // The image is not to blame. It may be tried again, but not forever.
                self.desk.write(|state| {
                    state.pardon(&switch.image);
                    state.interrupt(&switch.image);
                })?;
                let message = chain(&e);
                Some((
                    Outcome::NeedsHelp,
                    format!("the service does not start with the image before: {message}"),
                ))
            }
            _ => None,
        })
    }

    async fn complete(&mut self, switch: &Switch, from: &Candidate, outcome: Outcome) -> Ended {
        // Record the age first: otherwise an older image could replace this one after a crash here.
        if let Some(age) = &from.age {
            age.remember(self.job.pull.store)?;
        }
        self.desk.write(|state| {
            state.step = Step::Idle;
            // The restart has also started a service that was stopped for the validation.
            state.paused &= outcome != Outcome::Updated;
            state.image = Some(switch.image.clone());
            state.id = Some(switch.id.clone());
            // Earlier power cuts do not count against an image that runs well.
            state.interrupted.remove(&switch.image.to_string());
        })?;
        self.context.settle(Some(&switch.image)).await?;
        let place = &self.job.settings.place;
        Ok((outcome, format!("{place} is {}", switch.image)))
    }

    async fn refuse(&mut self, switch: &Switch, why: &str) -> Ended {
        self.desk.write(|state| state.refuse(&switch.image, why))?;
        self.context.settle(None).await?;
        Ok((Outcome::Refused, format!("refused {}: {why}", switch.image)))
    }

    async fn until_stopped<T>(
        &self,
        work: impl Future<Output = Result<T, UpdateError>>,
    ) -> Result<T, UpdateError> {
        tokio::select! {
            done = work => done,
            () = self.job.cancel.cancelled() => Err(UpdateError::Stopped),
        }
    }
}
