//! Shows a build's events on stderr: bars on a terminal, plain lines elsewhere, JSON lines with `--json`.

mod amount;
mod count;
mod rate;
mod step;

use super::args::Common;
use super::output::{print_event, print_message};
use super::screen;
pub use amount::Amount;
use count::{Count, counted};
use indicatif::{ProgressBar, ProgressStyle};
use rate::Rate;
use stackforge_build::{BuildEvent, Objects, plan_step};
use stackforge_engine::{Event, ImageSize, StepKind};
use stackforge_types::printable;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use step::StepBars;

/// Time between two reports of downloaded bytes, to programs and as lines for people.
const JSON_EVERY: Duration = Duration::from_millis(200);
const PLAIN_EVERY: Duration = Duration::from_secs(5);
/// Seconds from which the end of one of many short steps is printed.
const LONG: f64 = 0.5;

pub struct Progress {
    mode: Mode,
    verbose: bool,
    /// Running steps by number, and whether they are printed only if they take long.
    names: HashMap<u32, (String, bool)>,
    /// How far the steps are that count what they do.
    counts: HashMap<u32, Count>,
    /// Since when bytes of each download arrive.
    rates: HashMap<String, Rate>,
    /// When each download was reported last, and how.
    downloads: HashMap<String, (Instant, String)>,
}

enum Mode {
    Silent,
    Json,
    Plain,
    Live {
        steps: HashMap<u32, StepBars>,
        downloads: HashMap<String, ProgressBar>,
    },
}

impl Progress {
    pub fn new(common: &Common) -> Self {
        let mode = if common.quiet {
            Mode::Silent
        } else if common.json {
            Mode::Json
        } else if screen::is_live(common) && common.verbose == 0 {
            Mode::Live {
                steps: HashMap::new(),
                downloads: HashMap::new(),
            }
        } else {
            Mode::Plain
        };
        Self {
            mode,
            verbose: common.verbose > 0,
            names: HashMap::new(),
            counts: HashMap::new(),
            rates: HashMap::new(),
            downloads: HashMap::new(),
        }
    }

    pub fn line(&self, text: &str) {
        match &self.mode {
            Mode::Silent | Mode::Json => {}
            Mode::Plain | Mode::Live { .. } => {
                print_message(&format!("{}\n", printable::line(text)));
            }
        }
    }

    pub fn on_event(&mut self, event: &BuildEvent) {
        if let Mode::Json = self.mode {
            let printed = match event {
                BuildEvent::Download { what, done, total } => {
                    let text = || format!("{done} of {total}");
                    self.due(what, text, is_finished(*done, *total), JSON_EVERY)
                        .is_some()
                }
                _ => true,
            };
            if printed {
                print_event(event);
            }
            return;
        }
        match event {
            BuildEvent::Phase { name } => {
                self.without_unknown();
                self.line(&format!("== {name}"));
                screen::doing(name);
            }
            BuildEvent::Retry { step, jobs } => self.line(&format!(
                "killed for memory: {}; once more with {jobs} jobs",
                short(step)
            )),
            BuildEvent::Waiting { step } => self.line(&waiting(step)),
            BuildEvent::Objects { library, objects } => {
                if let Some(text) = from_cache(objects) {
                    self.line(&format!("{library}: {text}"));
                }
            }
            BuildEvent::Download { what, done, total } => self.download(what, *done, *total),
            BuildEvent::Engine(event) => self.engine(event),
        }
    }

    /// Returns the text that says how much is downloaded, if it is to be reported now: it changes thousands of
    /// times a second. A download of several files is finished several times, which is reported once where it
    /// looks the same.
    fn due(
        &mut self,
        what: &str,
        text: impl FnOnce() -> String,
        finished: bool,
        every: Duration,
    ) -> Option<String> {
        let last = self.downloads.get(what);
        if !finished && last.is_some_and(|(at, _)| at.elapsed() <= every) {
            return None;
        }
        let text = text();
        if finished && last.is_some_and(|(_, last)| *last == text) {
            return None;
        }
        let now = Instant::now();
        self.downloads.insert(what.to_owned(), (now, text.clone()));
        Some(text)
    }

    fn download(&mut self, what: &str, done: u64, total: u64) {
        let finished = is_finished(done, total);
        if let Mode::Plain = self.mode {
            let now = Instant::now();
            let rate = self.rates.remove(what);
            let rate = rate.unwrap_or_else(|| Rate::since(now, done));
            let text = || rate.text(now, done, (total > 0).then_some(total));
            if let Some(text) = self.due(what, text, finished, PLAIN_EVERY) {
                self.line(&format!("{what}: {text}"));
            }
            if !finished {
                self.rates.insert(what.to_owned(), rate);
            }
        }
        if let Mode::Live { downloads, .. } = &mut self.mode {
            let bar = downloads.entry(what.to_owned()).or_insert_with(|| {
                screen::add(
                    ProgressBar::new(total)
                        .with_style(if total > 0 {
                            bytes_style()
                        } else {
                            amount_style()
                        })
                        .with_message(printable::line(what).into_owned()),
                )
            });
            if total > 0 {
                bar.set_length(total);
                bar.set_style(bytes_style());
            }
            bar.set_position(done);
            if finished {
                bar.finish_and_clear();
            }
        }
    }

    /// Takes away the bars of downloads of unknown size: they are over when the next thing begins.
    fn without_unknown(&mut self) {
        if let Mode::Live { downloads, .. } = &mut self.mode {
            downloads.retain(|_, bar| {
                let is_known = bar.length().is_some_and(|all| all > 0);
                if !is_known {
                    bar.finish_and_clear();
                }
                is_known
            });
        }
    }

    /// Shows a line of a step's program, and how far it is if it counts.
    fn log(&mut self, id: u32, line: &str) {
        let counted = counted(line);
        if let Some((done, all)) = counted {
            let now = Instant::now();
            let count = self.counts.entry(id);
            let count = count.or_insert_with(|| Count::since(now, done));
            count.at(done, all, now);
        }
        match &mut self.mode {
            Mode::Plain if self.verbose => self.line(&format!("#{id} | {line}")),
            Mode::Plain if counted.is_some() => {
                let due = self.counts.get_mut(&id).and_then(Count::due);
                if let (Some(text), Some((name, _))) = (due, self.names.get(&id)) {
                    self.line(&format!("#{id} {name}: {text}"));
                }
            }
            Mode::Live { steps, .. } => {
                if let Some(bars) = steps.get_mut(&id) {
                    bars.log(line, self.counts.get(&id).map(Count::text));
                }
            }
            _ => {}
        }
    }

    fn engine(&mut self, event: &Event) {
        match event {
            Event::Connected { server, api } => {
                if self.verbose {
                    self.line(&format!("connected to {server}, API {api}"));
                }
            }
            Event::Uploading { bytes } => {
                self.download("the build's context", *bytes, 0);
            }
            Event::StepStarted { id, name, kind } => {
                self.without_unknown();
                if *kind == StepKind::From {
                    return;
                }
                let name = shown(name);
                let is_short = *kind == StepKind::Layer;
                self.names.insert(*id, (name.clone(), is_short));
                match &mut self.mode {
                    Mode::Plain if !is_short => print_message(&format!("#{id} {name}\n")),
                    Mode::Live { steps, .. } => drop(steps.insert(*id, StepBars::new(name))),
                    _ => {}
                }
            }
            Event::StepLog { id, line, .. } => self.log(*id, line),
            Event::StepProgress {
                id,
                what,
                current,
                total,
            } => {
                if let Mode::Live { steps, .. } = &mut self.mode
                    && let Some(bars) = steps.get_mut(id)
                {
                    bars.transfer(what, *current, *total);
                }
            }
            Event::StepFinished {
                id,
                name,
                cached,
                seconds,
                error,
            } => {
                self.counts.remove(id);
                let Some((name, is_short)) = self.names.remove(id).or_else(|| {
                    let visible = *cached && !name.contains("] FROM ");
                    visible.then(|| (shown(name), false))
                }) else {
                    return;
                };
                if let Mode::Live { steps, .. } = &mut self.mode
                    && let Some(bars) = steps.remove(id)
                {
                    bars.clear();
                }
                let end = match (error, cached) {
                    (Some(_), _) => "failed".to_owned(),
                    (None, true) => "cached".to_owned(),
                    (None, false) => format!("{seconds:.1} s"),
                };
                if !is_short || error.is_some() || *seconds >= LONG {
                    self.line(&format!("#{id} {name}: {end}"));
                }
            }
            Event::Warning { message, .. } => {
                self.line(&format!("warning: {message}"));
            }
        }
    }
}

/// Says that another build does a step.
pub(super) fn waiting(step: &str) -> String {
    format!("waiting for another build that does {}", shown(step))
}

/// Says what of a compile came from the cache of objects. `None` if it was not asked.
pub(super) fn from_cache(objects: &Objects) -> Option<String> {
    let Objects {
        objects: all,
        cached,
        ..
    } = objects;
    let whole = format!("{cached} of {all} objects from the cache");
    match (all, objects.device) {
        (0, 0) => None,
        (_, 0) => Some(whole),
        (_, device) => Some(format!(
            "{whole}, {} of {device} steps of their device code",
            objects.cached_device
        )),
    }
}

/// Returns the plan's name of a step, else a short form of the engine's.
pub(super) fn shown(name: &str) -> String {
    let stage = stackforge_build::stage(name);
    let shown = match stage.and_then(plan_step) {
        Some(step) => step.to_string(),
        None => stage.map_or_else(|| short(name), str::to_owned),
    };
    printable::line(&shown).into_owned()
}

fn short(name: &str) -> String {
    let start: String = name.chars().take(72).collect();
    printable::line(&start).into_owned()
}

/// Formats the known sizes, as in `61 MiB packed, 148 MiB unpacked`.
pub fn sizes(size: ImageSize) -> String {
    let known = [(size.packed, "packed"), (size.unpacked, "unpacked")];
    let known = known.map(|(bytes, word)| Some(format!("{} {word}", mib(bytes?))));
    let known: Vec<String> = known.into_iter().flatten().collect();
    if known.is_empty() {
        "size not known".to_owned()
    } else {
        known.join(", ")
    }
}

pub fn mib(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mib if mib < 10_240 => format!("{mib} MiB"),
        mib => format!("{:.1} GiB", mib as f64 / 1024.0),
    }
}

fn bytes_style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Of bytes whose sum is not known.
fn amount_style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {msg} {bytes} {bytes_per_sec}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Whether all of a download is here. A `total` of 0 is not known.
fn is_finished(done: u64, total: u64) -> bool {
    total > 0 && done >= total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_is_told_at_first_now_and_then_and_at_its_end() {
        let mut progress = Progress {
            mode: Mode::Silent,
            verbose: false,
            names: HashMap::new(),
            counts: HashMap::new(),
            rates: HashMap::new(),
            downloads: HashMap::new(),
        };
        let long = Duration::from_secs(3600);
        let mut due = |what, text: &str, finished, every| {
            progress
                .due(what, || text.to_owned(), finished, every)
                .is_some()
        };
        assert!(due("wheels", "1 of 9", false, long));
        assert!(!due("wheels", "2 of 9", false, long));
        assert!(due("packages", "1 of 5", false, long), "another one");
        assert!(due("wheels", "3 of 9", false, Duration::ZERO));
        assert!(due("wheels", "9 of 9", true, long));
        assert!(!due("wheels", "9 of 9", true, Duration::ZERO), "once");
        assert!(due("wheels", "12 of 12", true, long), "one more file");
        assert!(is_finished(9, 9) && !is_finished(8, 9) && !is_finished(8, 0));
    }
}
