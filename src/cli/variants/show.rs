//! Shows the progress of parallel builds.

use super::super::args::Common;
use super::super::output::{print_event, print_message};
use super::super::progress::{from_cache, shown, waiting};
use super::super::screen;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use stackforge_types::printable;
use std::time::Duration;

/// Shows running builds: a line for each builder on a terminal, plain lines elsewhere, with `--json` every
/// build's events with its variant.
pub struct Show {
    json: bool,
    quiet: bool,
    live: bool,
}

impl Show {
    pub fn new(common: &Common) -> Self {
        Self {
            json: common.json,
            quiet: common.quiet,
            live: screen::is_live(common),
        }
    }

    pub fn line(&self, text: &str) {
        if !self.quiet && !self.json {
            print_message(&format!("{}\n", printable::line(text)));
        }
    }

    /// Prints a build's other output: for a failed build always and unchanged.
    pub fn print_output(&self, variant: &str, lines: &[String], failed: bool) {
        for line in lines {
            if failed {
                print_message(&format!("{line}\n"));
            } else if !line.trim().is_empty() {
                self.line(&format!("{variant}: {line}"));
            }
        }
    }

    pub fn bar(&self, variant: &str, place: &str) -> ProgressBar {
        if !self.live {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg:.dim}");
        let bar = screen::add(ProgressBar::new_spinner());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_prefix(printable::line(&format!("{variant} on {place}")).into_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    }

    pub fn event(&self, (variant, place): (&str, &str), bar: &ProgressBar, mut event: Value) {
        if self.json {
            event["variant"] = variant.into();
            event["builder"] = place.into();
            print_event(&event);
            return;
        }
        let name = event["name"].as_str().unwrap_or_default();
        match event["event"].as_str() {
            Some("phase") if !self.live => self.line(&format!("{variant}: {name}")),
            Some("phase") => bar.set_message(printable::line(name).into_owned()),
            Some("step_started") => bar.set_message(shown(name)),
            Some("step_finished") if event["error"].is_null() => {
                let (cached, seconds) = (event["cached"] == true, event["seconds"].as_f64());
                if !cached && seconds.is_some_and(|s| s >= 1.0) {
                    let seconds = seconds.unwrap_or_default();
                    self.line(&format!("{variant}: {}, {seconds:.1} s", shown(name)));
                }
            }
            Some("waiting") => {
                let step = event["step"].as_str().unwrap_or_default();
                self.line(&format!("{variant}: {}", waiting(step)));
            }
            Some("objects") => {
                let library = event["library"].as_str().unwrap_or_default().to_owned();
                let objects = serde_json::from_value(event).ok();
                if let Some(text) = objects.as_ref().and_then(from_cache) {
                    self.line(&format!("{variant}: {library}: {text}"));
                }
            }
            _ => {}
        }
    }
}
