//! One step of a build: its identity, its state, and its last lines of output.

use std::collections::VecDeque;

use super::build_log::Lines;
use crate::StepKind;
use stackforge_types::LogStream;

/// Number of lines of a failed step's log that go into the error, and the least number of lines of
/// stderr. The engine reads both streams independently, so a last message on stderr may arrive before a
/// page of stdout.
pub(super) const TAIL: usize = 40;
const TAIL_OF_STDERR: usize = 10;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum State {
    Waiting,
    Running,
    /// The step has completed, but may start again.
    Idle {
        ticks: u32,
    },
    Reported,
}

pub(super) struct Step {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) kind: StepKind,
    pub(super) state: State,
    /// When the current run began, and how long the earlier runs took, in seconds.
    pub(super) began: Option<f64>,
    pub(super) seconds: f64,
    pub(super) cached: bool,
    pub(super) error: Option<String>,
    pub(super) out: Lines,
    pub(super) err: Lines,
    /// The last lines, and the last lines of stderr, each with its line number.
    tail: VecDeque<(usize, String)>,
    tail_of_stderr: VecDeque<(usize, String)>,
    lines: usize,
    pub(super) out_of_memory: bool,
    pub(super) no_space: bool,
}

impl Step {
    pub(super) fn new(id: u32, name: String, kind: StepKind) -> Self {
        Step {
            id,
            name,
            kind,
            state: State::Waiting,
            began: None,
            seconds: 0.0,
            cached: false,
            error: None,
            out: Lines::default(),
            err: Lines::default(),
            tail: VecDeque::new(),
            tail_of_stderr: VecDeque::new(),
            lines: 0,
            out_of_memory: false,
            no_space: false,
        }
    }

    /// Keeps a line in case the step fails.
    pub(super) fn remember(&mut self, stream: LogStream, line: &str) {
        self.lines += 1;
        let push = |tail: &mut VecDeque<(usize, String)>, limit| {
            if tail.len() == limit {
                tail.pop_front();
            }
            tail.push_back((self.lines, line.to_owned()));
        };
        push(&mut self.tail, TAIL);
        if stream == LogStream::Stderr {
            push(&mut self.tail_of_stderr, TAIL_OF_STDERR);
        }
    }

    /// Returns the last lines, oldest first.
    pub(super) fn last_lines(&self) -> Vec<String> {
        let first = self.tail.front().map_or(0, |(number, _)| *number);
        let overtaken = self.tail_of_stderr.iter();
        let overtaken: Vec<_> = overtaken.filter(|(number, _)| *number < first).collect();
        let rest = self.tail.len().saturating_sub(overtaken.len());
        let rest = self.tail.iter().skip(self.tail.len() - rest);
        let lines = overtaken.into_iter().chain(rest);
        lines.map(|(_, line)| line.clone()).collect()
    }
}
