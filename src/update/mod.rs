//! The newest image for the service of a device, if it is good on this device.
//!
//! In: settings, and an image that somebody else moves. Out: the service runs the new image, or the one
//! before. The image is pulled beside the one that runs, checked against a key, validated on the device's
//! own GPU; then it takes the place of the other one, the service restarts, and if it is not well the one
//! before takes its place back. Each step is announced on disk first (`state.rs`), so whatever ends a run,
//! the next one ends what it began. Never: two runs at once, a service that stays stopped, an image tried
//! for ever that takes the device down.

mod error;
mod health;
mod place;
mod service;
mod settings;
mod state;

use crate::build::chain;
use crate::diag::codes;
use crate::evidence::{PublicKey, Signed, Trust};
use crate::pull::{self, Age, Resolved, Wanted};
use place::{Back, Site};
use stackforge_image::store::write_atomically;
use stackforge_types::Cancel;
use stackforge_types::Digest;
use state::{Desk, Switch};
use std::future::Future;
use std::time::Duration;

pub use error::UpdateError;
pub use place::Place;
pub use settings::Settings;
pub use state::{Last, Outcome, State, Step, now, read, under_way};

/// One run.
pub struct Job<'a> {
    pub settings: &'a Settings,
    /// What the device is.
    pub wanted: &'a Wanted,
    pub pull: &'a pull::Settings<'a>,
    pub cancel: &'a Cancel,
    /// Forget that images were refused.
    pub retry: bool,
}

/// How long a validation that is stopped may take to end.
const STOPPING: Duration = Duration::from_secs(60);

type Line<'a> = &'a mut (dyn FnMut(&str) + Send);
type Ended = Result<(Outcome, String), UpdateError>;

struct Run<'a> {
    job: &'a Job<'a>,
    site: Site<'a>,
    desk: Desk,
}

/// An image that the device may take.
struct Candidate {
    resolved: Resolved,
    age: Option<Age>,
}

impl Candidate {
    fn digest(&self) -> &Digest {
        &self.resolved.manifest.digest
    }
}

/// Brings the device to the image that its reference names now.
///
/// # Errors
/// Why the update could not be done; the service is as it was. A refused image is not an error but an
/// outcome.
pub async fn update(job: &Job<'_>, line: Line<'_>) -> Result<(Last, State), UpdateError> {
    let settings = job.settings;
    let desk = Desk::open(&settings.state, &settings.place)?.ok_or(UpdateError::UnderWay)?;
    let site = Site {
        place: &settings.place,
        store: job.pull.store,
    };
    let mut run = Run { job, site, desk };
    let ended = run.steps(line).await;
    // Whatever it was, a service that was stopped for it runs again.
    let ended = match run.resume().await {
        Ok(()) => ended,
        Err(e) => Ok((Outcome::NeedsHelp, chain(&e))),
    };
    let (outcome, said) = match &ended {
        Ok(ended) => ended.clone(),
        Err(e) if e.is_of_image() => (Outcome::Refused, chain(e)),
        Err(e) => (Outcome::Failed, chain(e)),
    };
    let time = now();
    let last = Last {
        outcome,
        said,
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
            let said = format!("{image} was refused before: {}", refused.why);
            return Ok((Outcome::Refused, said));
        }
        // Where no GPU is asked for, labels of one say nothing.
        let gpu = self.job.settings.validate.gpu;
        if let Some(doubt) = candidate.resolved.doubt.as_ref().filter(|_| gpu) {
            let said = format!("by its labels {image} does not run here: {doubt}");
            return Ok((Outcome::Refused, said));
        }
        let before = self.site.there().await?;
        let known = &self.desk.state;
        if before.is_some() && known.image.as_ref() == Some(&image) && known.id == before {
            if let Some(age) = &candidate.age {
                age.remember(self.job.pull.store)?;
            }
            self.site.settle(Some(&image)).await?;
            return Ok((Outcome::UpToDate, format!("up to date: {image}")));
        }
        line(&format!("{} is {image}: fetching", self.job.settings.image));
        let bring = (self.site).bring(&candidate.resolved, self.job.pull, self.job.cancel);
        let id = self.until_stopped(bring).await?;
        let switch = Switch {
            image,
            id,
            before,
            why: None,
        };
        if switch.before.as_ref() == Some(&switch.id) {
            return self.taken(&switch, &candidate, Outcome::UpToDate).await;
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

    /// Ends what an earlier run has begun. `Some` where nothing more is to be done now.
    async fn recover(&mut self, line: Line<'_>) -> Result<Option<(Outcome, String)>, UpdateError> {
        let ended = match self.desk.state.step.clone() {
            Step::Idle => None,
            Step::Validating { image } => {
                line("the last validation was interrupted");
                if let Err(error) = self.site.forget().await {
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
                // A trial on disk leads back too: a full disk is no reason not to go.
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

    /// Starts the service that was stopped for a validation.
    async fn resume(&mut self) -> Result<(), UpdateError> {
        if !self.desk.state.paused {
            return Ok(());
        }
        if let Some(service) = &self.job.settings.service {
            service.start().await?;
        }
        self.desk.write(|state| state.paused = false)
    }

    /// What the reference names, for this device, if it is to be trusted.
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

    /// Tries an image beside the one that runs. Why it is refused, if it is.
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
            // The image may need more memory than there is, or crash: it is not tried for ever.
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
            let work = self.site.validate(id, validate.gpu, &stop, line);
            tokio::pin!(work);
            let late = tokio::select! {
                done = &mut work => return self.judgement(done?),
                () = tokio::time::sleep(validate.within) => true,
                () = self.job.cancel.cancelled() => false,
            };
            // What runs is stopped, and waited for, though not for ever: the service stands still.
            stop.cancel();
            (tokio::time::timeout(STOPPING, work).await, late)
        };
        match (report, late) {
            // A report of a validation that was cut off says nothing about the image.
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
        report: crate::validate::Report,
    ) -> Result<Result<(), String>, UpdateError> {
        let path = self.desk.report();
        let text = serde_json::to_string_pretty(&report).unwrap_or_default() + "\n";
        write_atomically(&path, text.as_bytes()).map_err(|e| UpdateError::io("write", &path, e))?;
        Ok(match report.ok {
            true => Ok(()),
            false => Err(format!(
                "it does not validate: {}; {} has the report",
                report.summary(),
                path.display()
            )),
        })
    }

    /// Gives the service the new image, and takes it away again where the service is not well with it.
    async fn trial(&mut self, switch: &Switch, candidate: &Candidate, line: Line<'_>) -> Ended {
        let settings = self.job.settings;
        self.desk
            .write(|state| state.step = Step::Trial(switch.clone()))?;
        line(&format!("{} gets {}", settings.place, switch.image));
        let tried = match self.switched(switch).await {
            // A signal ends what runs for us too.
            _ if self.job.cancel.is_cancelled() => Err(UpdateError::Stopped),
            Ok(Ok(())) => return self.taken(switch, candidate, Outcome::Updated).await,
            Ok(Err(why)) => Ok(format!("the service was not well with it: {why}")),
            Err(e) => Err(e),
        };
        let why = match &tried {
            Ok(why) => why.clone(),
            Err(e) => chain(e),
        };
        line(&format!("{why}: going back"));
        let back = Switch {
            // No image is to blame for a signal, an engine that went away or a full disk.
            why: tried.as_ref().ok().cloned(),
            ..switch.clone()
        };
        // A trial on disk leads back too: a full disk is no reason not to go.
        let written = (self.desk).write(|state| state.step = Step::Back(back.clone()));
        if let Some(ended) = self.back(&back).await? {
            return Ok(ended);
        }
        written?;
        tried?;
        if switch.before.is_some()
            && let Ok(Err(still)) = self.well().await
        {
            // Then it is not the image: it may be tried again, though not for ever.
            self.desk.write(|state| {
                state.pardon(&switch.image);
                state.interrupt(&switch.image);
            })?;
            let said = format!("the service is not well with the image before either: {still}");
            return Ok((Outcome::NeedsHelp, said));
        }
        Ok((Outcome::Refused, format!("refused {}: {why}", switch.image)))
    }

    async fn switched(&mut self, switch: &Switch) -> Result<Result<(), String>, UpdateError> {
        self.site
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

    /// The image before has its place again. `Some` where a person has to know more.
    async fn back(&mut self, switch: &Switch) -> Result<Option<(Outcome, String)>, UpdateError> {
        let back = self.site.back(&switch.id, switch.before.as_deref()).await?;
        let restarted = match &self.job.settings.service {
            Some(service) => service.restart(self.job.settings.health.within).await,
            None => Ok(()),
        };
        let there = self.site.there().await?;
        self.desk.write(|state| {
            state.step = Step::Idle;
            state.paused &= restarted.is_err();
            if back == Back::Gone {
                state.image = Some(switch.image.clone());
            } else if state.id != there {
                state.image = None;
            }
            state.id = there;
            match &switch.why {
                // It cannot be refused where it is the only one.
                Some(why) if back != Back::Gone => state.refuse(&switch.image, why),
                _ => {}
            }
        })?;
        self.site.settle(None).await?;
        let place = &self.job.settings.place;
        Ok(match (back, restarted) {
            (Back::Gone, _) => Some((
                Outcome::NeedsHelp,
                format!("the image before is gone: {place} stays {}", switch.image),
            )),
            // Where no image was there before, no service can start.
            (_, Err(e)) if switch.before.is_some() => {
                // Then it is not the image: it may be tried again, though not for ever.
                self.desk.write(|state| {
                    state.pardon(&switch.image);
                    state.interrupt(&switch.image);
                })?;
                let said = chain(&e);
                Some((
                    Outcome::NeedsHelp,
                    format!("the service does not start with the image before: {said}"),
                ))
            }
            _ => None,
        })
    }

    async fn taken(&mut self, switch: &Switch, from: &Candidate, outcome: Outcome) -> Ended {
        // Noted first: what runs and is not known to be the newest could be followed by an older one.
        if let Some(age) = &from.age {
            age.remember(self.job.pull.store)?;
        }
        self.desk.write(|state| {
            state.step = Step::Idle;
            // The restart started a service that was stopped.
            state.paused &= outcome != Outcome::Updated;
            state.image = Some(switch.image.clone());
            state.id = Some(switch.id.clone());
            // Power cuts of earlier years do not count against what runs well.
            state.interrupted.remove(&switch.image.to_string());
        })?;
        self.site.settle(Some(&switch.image)).await?;
        let place = &self.job.settings.place;
        Ok((outcome, format!("{place} is {}", switch.image)))
    }

    async fn refuse(&mut self, switch: &Switch, why: &str) -> Ended {
        self.desk.write(|state| state.refuse(&switch.image, why))?;
        self.site.settle(None).await?;
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
