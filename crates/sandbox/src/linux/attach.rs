//! The caller's side of a program that has the caller's streams, terminal and signals.
//!
//! On a terminal the program gets one of its own, in the sandbox: keys and output are passed between the
//! two, and the caller's terminal is raw meanwhile, so Ctrl-C is a byte that the program's terminal
//! makes a signal of. Without one, the program has the caller's standard input and pipes (`outputs`).

use std::future::poll_fn;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::task::Poll;
use std::thread::JoinHandle;

use rustix::termios::{tcgetwinsize, tcsetwinsize};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::descriptors;
use super::error::SandboxError;
use super::outcome::Outcome;
use super::outputs::Outputs;
use super::request::Sandbox;
use super::run::command;
use super::terminal::{Raw, Relay};
use super::wire::{Attached, Message, Task, request};

/// The signals that the program gets.
const PASSED: [SignalKind; 6] = [
    SignalKind::interrupt(),
    SignalKind::terminate(),
    SignalKind::hangup(),
    SignalKind::quit(),
    SignalKind::user_defined1(),
    SignalKind::user_defined2(),
];

impl Sandbox {
    /// Runs the command to its end on this process's standard input, output and error, and passes the
    /// signals INT, TERM, HUP, QUIT, USR1 and USR2 on to it from this call's first poll on. If input and
    /// output are a terminal, the program has a terminal too, which follows the size of this one.
    ///
    /// # Errors
    /// [`SandboxError`] if the program could not be run. A failure of the program itself is not an error.
    pub async fn attach(&self) -> Result<Outcome, SandboxError> {
        self.check()?;
        let setup = |doing: &'static str| {
            move |source: io::Error| SandboxError::Setup {
                doing: doing.into(),
                source,
            }
        };
        let mut signals = Signals::listen().map_err(setup("listen to signals"))?;
        let on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        let to = if on_terminal {
            let size = tcgetwinsize(io::stdout()).unwrap_or(rustix::termios::Winsize {
                ws_row: 24,
                ws_col: 80,
                ws_xpixel: 0,
                ws_ypixel: 0,
            });
            Attached::Terminal {
                rows: size.ws_row,
                columns: size.ws_col,
            }
        } else {
            Attached::Streams
        };
        let (mut child, control, copies) = self.begin(to).map_err(setup("start its process"))?;
        let mut session = Session {
            control,
            terminal: None,
        };
        let answer = session.serve(&mut signals).await;
        // Writes the rest of the output, then gives the terminal back.
        drop(session);
        let _ = child.wait().await;
        Outputs::end(copies);
        match answer.map_err(setup("receive the program's state"))? {
            Some(Message::Ended(outcome)) => Ok(outcome),
            Some(Message::Failed(fault)) => Err(SandboxError::from_fault(fault)),
            Some(Message::Tried(_) | Message::Removed | Message::Archived) | None => {
                Err(SandboxError::Lost)
            }
        }
    }

    /// Starts the launcher and sends it the request.
    fn begin(&self, to: Attached) -> io::Result<(Child, UnixStream, Vec<JoinHandle<()>>)> {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let child = command(self.launcher.as_deref())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let task = Task::Attach(Box::new(self.clone()), to);
        ours.write_all(&request(&task, &[])?)?;
        let mut copies = Vec::new();
        if to == Attached::Streams {
            let (input, outputs) = (io::stdin(), Outputs::begin()?);
            let [output, error] = &outputs.streams;
            descriptors::send(&ours, &[input.as_fd(), output.as_fd(), error.as_fd()])?;
            copies = outputs.given();
        }
        ours.set_nonblocking(true)?;
        Ok((child, UnixStream::from_std(ours)?, copies))
    }
}

/// One attached program.
struct Session {
    control: UnixStream,
    /// The way between the two terminals, and the caller's, which is raw meanwhile.
    terminal: Option<(Relay, Option<Raw>)>,
}

impl Session {
    /// Returns the launcher's last message; `None` if it ended without one.
    async fn serve(&mut self, signals: &mut Signals) -> io::Result<Option<Message>> {
        let Signals { passed, resized } = signals;
        let mut answer = Vec::new();
        loop {
            tokio::select! {
                readable = self.control.readable() => {
                    readable?;
                    match self.receive(&mut answer) {
                        Ok(false) => break,
                        Ok(true) => {}
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => break,
                        Err(e) => return Err(e),
                    }
                }
                number = next(passed) => {
                    // It fails if the launcher has just ended, which the next read finds.
                    let _ = self.control.write_all(&[number]).await;
                }
                _ = resized.recv() => {
                    if let (Some((relay, _)), Ok(size)) = (&self.terminal, tcgetwinsize(io::stdout())) {
                        let _ = tcsetwinsize(relay.terminal(), size);
                    }
                }
            }
        }
        let last = answer.split(|b| *b == b'\n').rfind(|l| !l.is_empty());
        Ok(last.and_then(|json| serde_json::from_slice(json).ok()))
    }

    /// Takes what the launcher sent. Returns `false` at the end of its stream.
    fn receive(&mut self, answer: &mut Vec<u8>) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let (received, descriptors) = self.control.try_io(Interest::READABLE, || {
            Ok(descriptors::receive(&self.control, &mut bytes)?)
        })?;
        answer.extend(&bytes[..received]);
        if let Some(terminal) = descriptors.into_iter().next() {
            // Raw first: what the program shows at once would be changed by this terminal, and what is typed at once
            // kept by it. A terminal that cannot be raw is used as it is.
            let raw = Raw::begin().ok();
            self.terminal = Some((Relay::begin(terminal)?, raw));
        }
        Ok(received > 0)
    }
}

/// The signals of this process.
struct Signals {
    passed: Vec<(u8, Signal)>,
    resized: Signal,
}

impl Signals {
    /// Listens to those that were not ignored when this process started: `nohup` and a shell's `&` stay in
    /// force.
    fn listen() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let ignored = ignored(&status);
        let mut passed = Vec::new();
        for kind in PASSED {
            let Ok(number) = u8::try_from(kind.as_raw_value()) else {
                continue;
            };
            if ignored & (1 << (number - 1)) == 0 {
                passed.push((number, signal(kind)?));
            }
        }
        Ok(Signals {
            passed,
            resized: signal(SignalKind::window_change())?,
        })
    }
}

/// Waits for one of the signals and returns its number.
async fn next(signals: &mut [(u8, Signal)]) -> u8 {
    poll_fn(|context| {
        let came = signals.iter_mut().find_map(|(number, signal)| {
            let came = matches!(signal.poll_recv(context), Poll::Ready(Some(())));
            came.then_some(*number)
        });
        came.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Reads the mask of ignored signals from a process's status.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::ignored;

    #[test]
    fn ignored_signals_are_read() {
        assert_eq!(ignored("SigBlk:\t01\nSigIgn:\t0000000000001003\n"), 0x1003);
        assert_eq!(ignored(""), 0);
    }
}
