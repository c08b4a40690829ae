//! Standard output and error of an attached program: pipes that it can open again by `/dev/stdout`.
//!
//! A file, a socket or a terminal of the caller belongs to the caller, and a program that runs as another
//! user could not open it a second time; a socket nobody could. So the program has a pipe, and what comes
//! through it is written here. A pipe that the caller made is passed on as it is.

use std::io::{self, Read as _, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::fs::fstat;
use rustix::process::geteuid;

use super::streams::is_pipe;

pub(crate) struct Outputs {
    /// What the program gets. Closed here once it has them.
    pub streams: [OwnedFd; 2],
    copies: Vec<JoinHandle<()>>,
}

impl Outputs {
    pub(crate) fn begin() -> io::Result<Self> {
        let (out, err) = (io::stdout(), io::stderr());
        let mut copies = Vec::new();
        let first = stream(out.as_fd(), io::stdout(), &mut copies)?;
        // One file under two numbers: one pipe keeps the order of what is written.
        let second = if are_one(out.as_fd(), err.as_fd()) {
            first.try_clone()?
        } else {
            stream(err.as_fd(), io::stderr(), &mut copies)?
        };
        Ok(Outputs {
            streams: [first, second],
            copies,
        })
    }

    /// Waits until everything is written that the program wrote. Every process that has the pipes has ended.
    pub(crate) fn end(copies: Vec<JoinHandle<()>>) {
        for copy in copies {
            let _ = copy.join();
        }
    }

    /// Closes this process's copies of the streams, and returns what still writes.
    pub(crate) fn given(self) -> Vec<JoinHandle<()>> {
        self.copies
    }
}

fn are_one(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let file = |fd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((file(one), file(other)), (Ok(a), Ok(b)) if a == b)
}

fn stream(
    own: BorrowedFd<'_>,
    to: impl Write + Send + 'static,
    copies: &mut Vec<JoinHandle<()>>,
) -> io::Result<OwnedFd> {
    // Only who made a pipe, or root, can hand it over to the program's user.
    let is_ours = fstat(own).is_ok_and(|stat| stat.st_uid == geteuid().as_raw());
    if is_pipe(own) && is_ours {
        return own.try_clone_to_owned();
    }
    let (reader, writer) = io::pipe()?;
    copies.push(std::thread::spawn(move || copy(reader, to)));
    Ok(writer.into())
}

/// Ends with the last writer. If nobody takes the output any more, the program finds its pipe closed.
fn copy(mut from: io::PipeReader, mut to: impl Write) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match from.read(&mut bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Ok(n) if n > 0 => {
                if to.write_all(&bytes[..n]).and_then(|()| to.flush()).is_err() {
                    return;
                }
            }
            Ok(_) | Err(_) => return,
        }
    }
}
