//! Starts a container by the engine's API, where its command is not there: in a container that has the engine's socket
//! and nothing else of it.

use crate::error::RunError;
use crate::launch::Launch;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use stackforge_engine::docker::Docker;
use stackforge_engine::{Control, Streams};
use stackforge_types::system::ignores_hangup;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Signals that are passed on, as Docker's command does but for those that concern its own process.
const SIGNALS: [fn() -> SignalKind; 6] = [
    SignalKind::hangup,
    SignalKind::interrupt,
    SignalKind::quit,
    SignalKind::terminate,
    SignalKind::user_defined1,
    SignalKind::user_defined2,
];

/// What came of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It has ended with this exit status and is gone.
    Ended(u8),
    /// It goes on by itself, under this ID.
    Detached(String),
}

impl Launch {
    /// Starts the container. Unless it goes on by itself, this process's streams, signals and terminal are the
    /// container's until it ends.
    ///
    /// # Errors
    /// If it could not be started, or the engine went away.
    pub async fn by_api(&self, docker: &Docker) -> Result<Outcome, RunError> {
        self.prepare()?;
        let request = self.start_request();
        if self.detaches() {
            return Ok(Outcome::Detached(docker.start(&request).await?));
        }
        let controls = controls(request.terminal).map_err(RunError::Signals)?;
        let raw = request.terminal.then(Raw::set).transpose();
        let raw = raw.map_err(|source| RunError::Signals(source.into()))?;
        let streams = Streams {
            input: tokio::io::stdin(),
            output: tokio::io::stdout(),
            errors: tokio::io::stderr(),
        };
        let status = docker.interact(&request, streams, controls).await;
        drop(raw);
        Ok(Outcome::Ended(u8::try_from(status?).unwrap_or(u8::MAX)))
    }
}

/// Takes the signals of this process from now on. With a terminal, its size comes first, and again when it changes.
fn controls(terminal: bool) -> io::Result<Receiver<Control>> {
    let (sender, receiver) = channel(16);
    for kind in SIGNALS {
        let kind = kind();
        // `nohup` means that the program goes on without its terminal.
        if kind == SignalKind::hangup() && ignores_hangup() {
            continue;
        }
        let passed = Control::Signal(kind.as_raw_value());
        tokio::spawn(pass_on(signal(kind)?, sender.clone(), move || Some(passed)));
    }
    if terminal {
        let changed = signal(SignalKind::window_change())?;
        if let Some(now) = size() {
            // An empty channel has room.
            let _ = sender.try_send(now);
        }
        tokio::spawn(pass_on(changed, sender, size));
    }
    Ok(receiver)
}

async fn pass_on(
    mut signal: Signal,
    to: Sender<Control>,
    control: impl Fn() -> Option<Control> + Send,
) {
    while signal.recv().await.is_some() {
        if let Some(control) = control()
            && to.send(control).await.is_err()
        {
            return;
        }
    }
}

fn size() -> Option<Control> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(Control::Resize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// The terminal hands on each key as it is typed: the one in the container interprets them.
struct Raw(Termios);

impl Raw {
    fn set() -> rustix::io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}
