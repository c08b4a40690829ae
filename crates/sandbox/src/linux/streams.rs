//! What becomes the program's standard input, output and error.

use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Gid, MemfdFlags, Mode, OFlags, Uid, fchown, fstatfs, memfd_create, open};
use rustix::process::ioctl_tiocsctty;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::descriptors;
use super::fault::Fault;
use super::request::User;
use super::system;

const MULTIPLEXER: &str = "/dev/pts/ptmx";
/// Type of the file system of pipes without a name.
const PIPES: u64 = 0x5049_5045;

/// The program's standard streams.
pub(crate) enum Streams<'a> {
    /// These bytes are its input; its output are the launcher's own streams, which the caller reads as lines.
    Lines(&'a [u8]),
    /// Input, output and error of the caller.
    Inherited([OwnedFd; 3]),
    /// A terminal of the sandbox, the program's controlling one. Its other end goes to the caller over
    /// `control`.
    Terminal {
        rows: u16,
        columns: u16,
        control: BorrowedFd<'a>,
    },
}

impl Streams<'_> {
    /// Whether the caller's own streams, terminal and signals reach the program.
    pub(crate) fn are_attached(&self) -> bool {
        !matches!(self, Streams::Lines(_))
    }

    /// Makes them the streams of this process, which leads a session. `user` can open `/dev/stdout` and its
    /// like again.
    pub(crate) fn install(&self, user: Option<&User>) -> Result<(), Fault> {
        match self {
            Streams::Lines(input) => {
                memory(input).map_err(Fault::setup("make the program's input"))
            }
            Streams::Inherited(all) => {
                for (number, stream) in (0..).zip(all) {
                    if is_pipe(stream) {
                        hand_over(stream, user);
                    }
                    system::become_fd(stream.as_fd(), number)
                        .map_err(Fault::setup("take the caller's streams"))?;
                }
                Ok(())
            }
            Streams::Terminal {
                rows,
                columns,
                control,
            } => terminal(*rows, *columns, *control, user)
                .map_err(Fault::setup("make the program's terminal")),
        }
    }
}

fn memory(bytes: &[u8]) -> io::Result<()> {
    let mut input = std::fs::File::from(memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    input.write_all(bytes)?;
    input.rewind()?;
    system::become_fd(input.as_fd(), 0)
}

/// A terminal of the host's would tell the program a name that the sandbox does not have, and belong to
/// another user.
fn terminal(
    rows: u16,
    columns: u16,
    control: BorrowedFd<'_>,
    user: Option<&User>,
) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let ours = open(MULTIPLEXER, flags, Mode::empty())?;
    unlockpt(&ours)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&theirs, size)?;
    hand_over(&theirs, user);
    ioctl_tiocsctty(&theirs)?;
    descriptors::send(control, &[ours.as_fd()])?;
    (0..3).try_for_each(|number| system::become_fd(theirs.as_fd(), number))
}

/// Whether a descriptor is a pipe without a name.
pub(crate) fn is_pipe(stream: impl AsFd) -> bool {
    fstatfs(stream).is_ok_and(|fs| fs.f_type as u64 == PIPES)
}

/// Makes a stream the user's own. A failure means that the user cannot open it a second time, and no more.
fn hand_over(stream: &OwnedFd, user: Option<&User>) {
    if let Some(user) = user {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        let _ = fchown(stream, Some(uid), Some(gid));
    }
}
