//! The caller's terminal while a program uses a terminal of the sandbox.

use std::fs::File;
use std::io::{self, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Keeps the terminal of standard input raw: each key is a byte that is read at once, and none makes a
/// signal here. The drop restores what was before.
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    pub(crate) fn begin() -> Result<Self, Errno> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Raw { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Passes what is typed to the program's terminal, and what that shows to standard output. Each way has a
/// thread, so neither waits for the other.
pub(crate) struct Relay {
    terminal: OwnedFd,
    output: Option<JoinHandle<()>>,
    /// Closed to end the thread that reads what is typed.
    stop: Option<PipeWriter>,
    input: Option<JoinHandle<()>>,
}

impl Relay {
    /// Begins with the other end of the program's terminal.
    pub(crate) fn begin(terminal: OwnedFd) -> io::Result<Self> {
        let (stopped, stop) = io::pipe()?;
        let typed = File::from(terminal.try_clone()?);
        let shown = File::from(terminal.try_clone()?);
        Ok(Relay {
            terminal,
            output: Some(std::thread::spawn(move || show(shown))),
            stop: Some(stop),
            input: Some(std::thread::spawn(move || {
                pass(typed, stopped.as_fd());
            })),
        })
    }

    pub(crate) fn terminal(&self) -> &OwnedFd {
        &self.terminal
    }
}

impl Drop for Relay {
    /// Waits until everything that the program wrote is shown. Every process of the sandbox has ended, so its
    /// terminal ends too.
    fn drop(&mut self) {
        if let Some(output) = self.output.take() {
            let _ = output.join();
        }
        drop(self.stop.take());
        if let Some(input) = self.input.take() {
            let _ = input.join();
        }
    }
}

/// Ends with the last process that has the terminal: then reading it fails with EIO.
fn show(mut terminal: File) {
    let mut bytes = vec![0; 16 << 10];
    let mut output = io::stdout();
    while let Ok(n) = terminal.read(&mut bytes) {
        let written = output.write_all(&bytes[..n]).and_then(|()| output.flush());
        if n == 0 || written.is_err() {
            break;
        }
    }
}

fn pass(mut terminal: File, stopped: BorrowedFd<'_>) {
    let mut bytes = vec![0; 4 << 10];
    let input = io::stdin();
    loop {
        let mut watched = [
            PollFd::new(&input, PollFlags::IN),
            PollFd::from_borrowed_fd(stopped, PollFlags::IN),
        ];
        match poll(&mut watched, None) {
            Err(Errno::INTR) => continue,
            Ok(_) if watched[1].revents().is_empty() => {}
            Ok(_) | Err(_) => return,
        }
        // Not through std's buffer: a byte that stays in it would never be passed.
        match rustix::io::read(&input, &mut bytes[..]) {
            Err(Errno::INTR) => {}
            Ok(n) if n > 0 && terminal.write_all(&bytes[..n]).is_ok() => {}
            Ok(_) | Err(_) => return,
        }
    }
}
