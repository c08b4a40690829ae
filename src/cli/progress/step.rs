//! The lines of one running step on a terminal: its name with its time, and below it the last lines of its program.

use super::rate::Rate;
use crate::cli::screen;
use indicatif::{ProgressBar, ProgressStyle};
use stackforge_types::printable;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// How many lines of a program are shown below its step.
const LINES: usize = 3;
/// A longer line is no longer on any terminal.
const MOST: usize = 400;

pub(super) struct StepBars {
    head: ProgressBar,
    /// Of a step that prints a lot: its last lines, the oldest first.
    lines: Vec<ProgressBar>,
    last: VecDeque<String>,
    /// What it transfers.
    rates: HashMap<String, Rate>,
}

impl StepBars {
    /// Shows a step. Its name has to be printable.
    pub fn new(name: String) -> Self {
        let head = screen::add(ProgressBar::new_spinner().with_style(head_style()));
        head.set_prefix(name);
        head.enable_steady_tick(screen::TICK);
        Self {
            head,
            lines: Vec::new(),
            last: VecDeque::new(),
            rates: HashMap::new(),
        }
    }

    /// Shows a line that the step's program printed, and how far the program is if it counts.
    pub fn log(&mut self, line: &str, count: Option<&str>) {
        if let Some(count) = count {
            self.head.set_message(printable::line(count).into_owned());
        }
        let line: String = line.trim().chars().take(MOST).collect();
        if line.is_empty() {
            return;
        }
        if self.last.len() == LINES {
            self.last.pop_front();
        } else {
            let above = self.lines.last().unwrap_or(&self.head);
            let below = ProgressBar::new_spinner().with_style(line_style());
            self.lines.push(screen::add_below(above, below));
        }
        self.last.push_back(printable::line(&line).into_owned());
        for (bar, line) in self.lines.iter().zip(&self.last) {
            bar.set_message(line.clone());
        }
    }

    /// Shows how much of something is transferred, how fast, and how long the rest takes.
    pub fn transfer(&mut self, what: &str, current: u64, total: Option<u64>) {
        let now = Instant::now();
        let rate = self.rates.entry(what.to_owned());
        let rate = rate.or_insert_with(|| Rate::since(now, current));
        let text = format!("{what} {}", rate.text(now, current, total));
        self.head.set_message(printable::line(&text).into_owned());
    }

    pub fn clear(self) {
        for line in &self.lines {
            line.finish_and_clear();
        }
        self.head.finish_and_clear();
    }
}

fn head_style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg:.dim}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn line_style() -> ProgressStyle {
    ProgressStyle::with_template("    {wide_msg:.dim}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}
