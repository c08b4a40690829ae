//! The terminal while a command works: all bars, and below them a line with the command's name and how long it has
//! run, so that no command is silent for long. What else is printed comes above them.
//!
//! Without a terminal, with `--quiet` or `--json`, nothing of this is shown.

use super::args::Common;
use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use std::io::IsTerminal as _;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How long a command may take before its line is shown.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two pictures of a spinner.
pub(super) const TICK: Duration = Duration::from_millis(120);
/// Pictures a second, at most.
const HZ: u8 = 20;

/// Set by the first bar or line. Until then nothing is in the way of what is written.
static BARS: OnceLock<MultiProgress> = OnceLock::new();
static STATUS: Mutex<Status> = Mutex::new(Status::Off);
static DOING: Mutex<String> = Mutex::new(String::new());

/// The command's own line.
enum Status {
    Off,
    /// Shown once the command has taken a while.
    Waiting,
    Shown(ProgressBar),
}

/// Whether bars and the command's line can be shown.
pub(super) fn is_live(common: &Common) -> bool {
    let moves = || std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    !common.quiet && !common.json && std::io::stderr().is_terminal() && moves()
}

/// Shows a line for the command once it has taken a while.
pub(super) fn begin(common: &Common, command: String) {
    if !is_live(common) {
        return;
    }
    *status() = Status::Waiting;
    // It ends with the process.
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        let mut status = status();
        if matches!(*status, Status::Waiting) {
            let line = ProgressBar::new_spinner().with_elapsed(PATIENCE);
            let line = bars().add(line.with_style(style()));
            line.set_prefix(command);
            line.set_message(DOING.lock().unwrap_or_else(PoisonError::into_inner).clone());
            line.enable_steady_tick(TICK);
            *status = Status::Shown(line);
        }
    });
}

/// Says on the command's line what it does now. The text has to be printable.
pub(super) fn doing(what: &str) {
    *DOING.lock().unwrap_or_else(PoisonError::into_inner) = what.to_owned();
    if let Status::Shown(line) = &*status() {
        line.set_message(what.to_owned());
    }
}

/// Takes the command's line away, for good.
pub(super) fn end() {
    if let Status::Shown(line) = std::mem::replace(&mut *status(), Status::Off) {
        line.finish_and_clear();
    }
}

/// Adds a bar above the command's line.
pub(super) fn add(bar: ProgressBar) -> ProgressBar {
    let status = status();
    match &*status {
        Status::Shown(line) => bars().insert_before(line, bar),
        Status::Off | Status::Waiting => bars().add(bar),
    }
}

/// Adds a bar right below another.
pub(super) fn add_below(other: &ProgressBar, bar: ProgressBar) -> ProgressBar {
    bars().insert_after(other, bar)
}

/// Writes to the terminal while no bar is in the way.
pub(super) fn over<T>(write: impl FnOnce() -> T) -> T {
    match BARS.get() {
        Some(bars) => bars.suspend(write),
        None => write(),
    }
}

fn bars() -> &'static MultiProgress {
    BARS.get_or_init(|| {
        let terminal = Box::new(Terminal(Term::buffered_stderr()));
        MultiProgress::with_draw_target(ProgressDrawTarget::term_like_with_hz(terminal, HZ))
    })
}

fn status() -> MutexGuard<'static, Status> {
    STATUS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg:.dim}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// The terminal on stderr. One that is gone, as after a hang-up, must not end the work: indicatif panics on some
/// errors, so there are none.
#[derive(Debug)]
struct Terminal(Term);

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        self.0.size().1
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, n: usize) -> std::io::Result<()> {
        self.0.move_cursor_up(n).or(Ok(()))
    }

    fn move_cursor_down(&self, n: usize) -> std::io::Result<()> {
        self.0.move_cursor_down(n).or(Ok(()))
    }

    fn move_cursor_right(&self, n: usize) -> std::io::Result<()> {
        self.0.move_cursor_right(n).or(Ok(()))
    }

    fn move_cursor_left(&self, n: usize) -> std::io::Result<()> {
        self.0.move_cursor_left(n).or(Ok(()))
    }

    fn write_line(&self, text: &str) -> std::io::Result<()> {
        self.0.write_line(text).or(Ok(()))
    }

    fn write_str(&self, text: &str) -> std::io::Result<()> {
        self.0.write_str(text).or(Ok(()))
    }

    fn clear_line(&self) -> std::io::Result<()> {
        self.0.clear_line().or(Ok(()))
    }

    fn flush(&self) -> std::io::Result<()> {
        self.0.flush().or(Ok(()))
    }
}
