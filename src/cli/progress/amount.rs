//! The bytes of one transfer.

use super::rate::Rate;
use super::{amount_style, bytes_style};
use crate::cli::args::Common;
use crate::cli::output::print_message;
use crate::cli::screen;
use indicatif::ProgressBar;
use stackforge_transfer::registry;
use stackforge_types::printable;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Shows bytes as they arrive: a bar on a terminal, an occasional line elsewhere.
pub struct Amount {
    what: String,
    bar: ProgressBar,
    rate: Rate,
    lines: bool,
    last_printed: Mutex<Instant>,
}

impl Amount {
    /// Returns an observer that counts a registry's transfer events.
    pub fn observer(self: &Arc<Self>) -> registry::Observer {
        let amount = Arc::clone(self);
        Arc::new(move |event| match event {
            registry::Event::Received { bytes, .. } | registry::Event::Reused { bytes, .. } => {
                amount.add(bytes);
            }
            registry::Event::Lost { bytes, .. } => amount.take(bytes),
            _ => {}
        })
    }

    pub fn new(common: &Common, what: &str) -> Self {
        let live = screen::is_live(common);
        let silent = common.quiet || common.json;
        let bar = if live {
            screen::add(ProgressBar::new_spinner().with_style(amount_style()))
        } else {
            ProgressBar::hidden()
        };
        let what = printable::line(what).into_owned();
        bar.set_message(what.clone());
        if live {
            bar.enable_steady_tick(screen::TICK);
        }
        Self {
            what,
            bar,
            rate: Rate::since(Instant::now(), 0),
            lines: !live && !silent,
            last_printed: Mutex::new(Instant::now()),
        }
    }

    /// Adds to the expected bytes, from which the remaining time is computed.
    pub fn expect(&self, bytes: u64) {
        self.bar.set_length(bytes);
        if !self.bar.is_hidden() {
            self.bar.set_style(bytes_style());
        }
    }

    pub fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
        self.print_position();
    }

    /// Subtracts bytes that do not count any more.
    pub fn take(&self, bytes: u64) {
        let left = self.bar.position().saturating_sub(bytes);
        self.bar.set_position(left);
    }

    pub fn set(&self, done: u64, size: Option<u64>) {
        if let Some(size) = size {
            self.bar.set_length(size);
        }
        self.bar.set_position(done);
        self.print_position();
    }

    fn print_position(&self) {
        let Ok(mut last_printed) = self.last_printed.lock() else {
            return;
        };
        if self.lines && last_printed.elapsed() > Duration::from_secs(5) {
            *last_printed = Instant::now();
            let (done, all) = (self.bar.position(), self.bar.length());
            let text = self.rate.text(Instant::now(), done, all);
            print_message(&format!("{}: {text}\n", self.what));
        }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
