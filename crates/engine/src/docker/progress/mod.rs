//! Folds BuildKit's status stream into events.
//!
//! The input is [`StatusResponse`]s: vertices that are named by digest and repeat, and logs in pieces.
//! The output is [`Event`]s about the steps that a user wrote, each with a stable number. The engine's
//! internal vertices are never shown; their logs only go to the log file.
//!
//! A vertex completes more than once: first when its cache key is known, then when it was loaded from
//! the cache or has run. So a completion counts only if it is a cache hit or an error, if something
//! that needs the step starts, or if some time passes without another start.

use std::collections::HashMap;

use bollard_buildkit_proto::google::protobuf::Timestamp;
use bollard_buildkit_proto::moby::buildkit::v1::{
    StatusResponse, Vertex, VertexLog, VertexStatus, VertexWarning,
};

use super::build_log::{LogFile, Redaction, shown};
use super::step::{State, Step};
use super::{dockerfile, failure};
use crate::{EngineError, Event, StepFailure, StepKind, StepSummary};
use stackforge_types::LogStream;

/// Number of ticks after which a completion is final.
const SETTLED: u32 = 2;

/// The state of a build so far.
pub(super) struct Progress {
    steps: Vec<Step>,
    /// Index into `steps` by vertex digest.
    places: HashMap<String, usize>,
    dockerfile: String,
    redaction: Redaction,
    log: LogFile,
    events: Vec<Event>,
}

impl Progress {
    pub(super) fn new(dockerfile: String, redaction: Redaction, log: LogFile) -> Self {
        Progress {
            steps: Vec::new(),
            places: HashMap::new(),
            dockerfile,
            redaction,
            log,
            events: Vec::new(),
        }
    }

    /// Applies `status` and returns its events.
    pub(super) fn feed(&mut self, status: &StatusResponse) -> Result<Vec<Event>, EngineError> {
        self.number(&status.vertexes);
        for vertex in &status.vertexes {
            self.vertex(vertex);
        }
        for status in &status.statuses {
            self.status(status);
        }
        for log in &status.logs {
            self.log(log);
        }
        for warning in &status.warnings {
            self.warning(warning);
        }
        self.log.check()?;
        Ok(std::mem::take(&mut self.events))
    }

    /// Reports completions after which nothing has started for a while.
    pub(super) fn tick(&mut self) -> Vec<Event> {
        for place in 0..self.steps.len() {
            if let State::Idle { ticks } = &mut self.steps[place].state {
                *ticks += 1;
                if *ticks >= SETTLED {
                    self.report(place);
                }
            }
        }
        std::mem::take(&mut self.events)
    }

    /// Ends the stream and returns the last events. `fate` is the error of steps that were still
    /// running.
    pub(super) fn close(&mut self, fate: Option<&str>) -> Result<Vec<Event>, EngineError> {
        for place in 0..self.steps.len() {
            self.flush_lines(place);
            let step = &mut self.steps[place];
            match step.state {
                State::Running => {
                    step.error = step.error.take().or_else(|| fate.map(str::to_owned));
                    self.report(place);
                }
                State::Idle { .. } => self.report(place),
                State::Waiting | State::Reported => {}
            }
        }
        self.log.check()?;
        Ok(std::mem::take(&mut self.events))
    }

    /// Returns the steps that finished without an error.
    pub(super) fn summary(&self) -> Vec<StepSummary> {
        self.steps
            .iter()
            .filter(|step| step.state == State::Reported && step.error.is_none())
            .map(|step| StepSummary {
                id: step.id,
                name: step.name.clone(),
                kind: step.kind,
                cached: step.cached,
                seconds: step.seconds,
            })
            .collect()
    }

    /// Returns the error of the step that failed the build. `text` is the engine's last message.
    pub(super) fn failure(&self, text: &str) -> EngineError {
        let doing = "building the image";
        // Steps that run beside the failing one end as cancelled.
        let to_blame = self.steps.iter().find(|step| {
            step.error
                .as_deref()
                .is_some_and(|error| !error.contains("context canceled"))
        });
        let Some(step) = to_blame else {
            return failure::of_build(&self.redaction.strike(text), doing);
        };
        let message = step.error.clone().unwrap_or_default();
        if step.no_space || failure::is_disk_full(&message) {
            return EngineError::NoSpace {
                doing: format!("running {}", step.name),
            };
        }
        let exit_code = failure::exit_code(&message);
        EngineError::StepFailed(Box::new(StepFailure {
            id: step.id,
            line: dockerfile::line_of(&self.dockerfile, &step.name),
            name: step.name.clone(),
            exit_code,
            killed_for_memory: step.out_of_memory
                || exit_code == Some(failure::KILLED)
                || failure::is_out_of_memory(&message),
            message,
            tail: step.last_lines(),
            finished: self.summary(),
        }))
    }

    /// Numbers the new steps in the order of the Dockerfile, because BuildKit names them all at once,
    /// in any order.
    fn number(&mut self, vertices: &[Vertex]) {
        let is_new = |vertex: &&Vertex| !self.places.contains_key(&vertex.digest);
        let mut new: Vec<(u32, &Vertex)> = vertices
            .iter()
            .filter(is_new)
            .map(|vertex| {
                let line = dockerfile::line_of(&self.dockerfile, &vertex.name);
                (line.unwrap_or(u32::MAX), vertex)
            })
            .collect();
        new.sort_by_key(|(line, _)| *line);
        for (_, vertex) in new {
            let place = self.steps.len();
            if let Some(kind) = kind(&vertex.name)
                && let Ok(id) = u32::try_from(place + 1)
                && !self.places.contains_key(&vertex.digest)
            {
                let name = self.redaction.strike(&shown(&vertex.name));
                self.steps.push(Step::new(id, name, kind));
                self.places.insert(vertex.digest.clone(), place);
            }
        }
    }

    fn vertex(&mut self, vertex: &Vertex) {
        let Some(&place) = self.places.get(&vertex.digest) else {
            return;
        };
        if vertex.started.is_some() {
            match self.steps[place].kind {
                StepKind::Export => self.done(0..self.steps.len()),
                _ => {
                    let places = vertex
                        .inputs
                        .iter()
                        .filter_map(|input| self.places.get(input));
                    let places: Vec<usize> = places.copied().collect();
                    self.done(places);
                }
            }
        }
        let step = &mut self.steps[place];
        let (began, ended) = (seconds(&vertex.started), seconds(&vertex.completed));
        let again = began.is_some() && began != step.began;
        if again {
            step.began = began;
            step.cached = false;
        }
        if again && matches!(step.state, State::Waiting | State::Reported) {
            self.log.starts(step.id, &step.name);
            self.events.push(Event::StepStarted {
                id: step.id,
                name: step.name.clone(),
                kind: step.kind,
            });
        }
        if again {
            step.state = State::Running;
        }
        if let (Some(ended), State::Running) = (ended, step.state) {
            step.seconds += (ended - began.unwrap_or(ended)).max(0.0);
            step.state = State::Idle { ticks: 0 };
        }
        if ended.is_some() && step.state != State::Reported {
            step.cached |= vertex.cached;
            if !vertex.error.is_empty() {
                step.error = Some(self.redaction.strike(&vertex.error));
            }
            if step.cached || step.error.is_some() {
                self.report(place);
            }
        }
    }

    /// Reports steps as done, because something that needs them has started.
    fn done(&mut self, places: impl IntoIterator<Item = usize>) {
        for place in places {
            if matches!(self.steps[place].state, State::Idle { .. }) {
                self.report(place);
            }
        }
    }

    fn report(&mut self, place: usize) {
        self.flush_lines(place);
        let step = &mut self.steps[place];
        step.state = State::Reported;
        let how = match &step.error {
            Some(error) => format!("failed: {error}"),
            None if step.cached => "is cached".to_owned(),
            None => format!("done in {:.1} s", step.seconds),
        };
        self.log.ends(step.id, &step.name, &how);
        self.events.push(Event::StepFinished {
            id: step.id,
            name: step.name.clone(),
            cached: step.cached,
            seconds: step.seconds,
            error: step.error.clone(),
        });
    }

    fn status(&mut self, status: &VertexStatus) {
        if let Some(&place) = self.places.get(&status.vertex) {
            let what = if status.name.is_empty() {
                &status.id
            } else {
                &status.name
            };
            self.events.push(Event::StepProgress {
                id: self.steps[place].id,
                what: shown(what),
                current: u64::try_from(status.current).unwrap_or(0),
                total: u64::try_from(status.total).ok().filter(|total| *total > 0),
            });
        }
    }

    fn log(&mut self, log: &VertexLog) {
        let Some(&place) = self.places.get(&log.vertex) else {
            for line in String::from_utf8_lossy(&log.msg).lines() {
                self.log.line(0, "engine", &self.redaction.strike(line));
            }
            return;
        };
        let step = &mut self.steps[place];
        let (stream, lines) = match log.stream {
            2 => (LogStream::Stderr, step.err.push(&log.msg)),
            _ => (LogStream::Stdout, step.out.push(&log.msg)),
        };
        for line in lines {
            self.line(place, stream, &line);
        }
    }

    fn flush_lines(&mut self, place: usize) {
        let step = &mut self.steps[place];
        let rests = [
            (LogStream::Stdout, step.out.rest()),
            (LogStream::Stderr, step.err.rest()),
        ];
        for (stream, rest) in rests {
            if let Some(line) = rest {
                self.line(place, stream, &line);
            }
        }
    }

    fn line(&mut self, place: usize, stream: LogStream, raw: &str) {
        let raw = self.redaction.strike(raw);
        let step = &mut self.steps[place];
        self.log.line(step.id, &step.name, &raw);
        let line = shown(&raw);
        step.out_of_memory |= failure::is_out_of_memory(&line);
        step.no_space |= failure::is_disk_full(&line);
        step.remember(stream, &line);
        self.events.push(Event::StepLog {
            id: step.id,
            stream,
            line,
        });
    }

    fn warning(&mut self, warning: &VertexWarning) {
        let start = warning.ranges.first().and_then(|range| range.start);
        let message = shown(&String::from_utf8_lossy(&warning.short));
        self.events.push(Event::Warning {
            message: self.redaction.strike(&message),
            line: start.and_then(|at| u32::try_from(at.line).ok()),
        });
    }
}

/// Returns the kind of a vertex by its name, such as `[build 2/5] RUN …`. `None` if it is not shown.
fn kind(name: &str) -> Option<StepKind> {
    if name.starts_with("exporting to") {
        return Some(StepKind::Export);
    }
    let (stage, instruction) = name.strip_prefix('[')?.split_once("] ")?;
    if !stage.contains('/') {
        return None;
    }
    match instruction.split(' ').next()? {
        "FROM" => Some(StepKind::From),
        "RUN" => Some(StepKind::Run),
        "COPY" => Some(StepKind::Copy),
        "ADD" => Some(StepKind::Add),
        _ => None,
    }
}

fn seconds(timestamp: &Option<Timestamp>) -> Option<f64> {
    let timestamp = timestamp.as_ref()?;
    Some(timestamp.seconds as f64 + f64::from(timestamp.nanos) / 1e9)
}

#[cfg(test)]
mod tests;
