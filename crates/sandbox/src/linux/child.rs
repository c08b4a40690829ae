//! The re-executed process: supervises one sandbox, cleans up after it and reports the result.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, setsid, waitpid,
};

use super::cgroup::Cgroup;
use super::fault::{Fault, Stage};
use super::identity::{self, Identity};
use super::init::{Init, Report};
use super::outcome::{Applied, End, Memory, Outcome};
use super::request::{Archive, Sandbox, Writes};
use super::streams::Streams;
use super::stubs::Stubs;
use super::system::{self, Fork};
use super::wire::{Attached, Message, NAME, Task, read_request};
use super::{descriptors, probe, rootfs};

/// Does the work of a sandbox and returns its exit code, if this process was started for that. Call it
/// first in `main`, before any thread is started or any descriptor is opened.
pub fn child_main() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    (name.as_bytes() == NAME.as_bytes()).then(serve)
}

fn serve() -> ExitCode {
    // A terminal sends its interrupts to the caller only, and the caller decides what to stop.
    let _ = setsid();
    let inherited = system::close_from(3, false)
        .and_then(|()| io::stdin().as_fd().try_clone_to_owned())
        .map(File::from);
    let Ok(mut control) = inherited else {
        return ExitCode::FAILURE;
    };
    let message = match read_request(&mut control) {
        Ok((Task::Run(sandbox), stdin)) => run(&sandbox, &Streams::Lines(&stdin), control.as_fd()),
        Ok((Task::Attach(sandbox, to), _)) => attach(&sandbox, to, control.as_fd()),
        Ok((Task::Probe, _)) => Ok(Message::Tried(probe::try_all())),
        Ok((Task::Archive(task), _)) => archive(&task).map(|()| Message::Archived),
        Ok((Task::Remove(directory), _)) => remove(&directory).map(|()| Message::Removed),
        Err(_) => return ExitCode::FAILURE,
    };
    let message = message.unwrap_or_else(Message::Failed);
    let Ok(mut line) = serde_json::to_vec(&message) else {
        return ExitCode::FAILURE;
    };
    line.push(b'\n');
    match control.write_all(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// What is held while process 1 runs.
struct Running {
    pid: Pid,
    handle: OwnedFd,
    reports: BufReader<io::PipeReader>,
}

fn attach(sandbox: &Sandbox, to: Attached, control: BorrowedFd<'_>) -> Result<Message, Fault> {
    let streams = match to {
        Attached::Terminal { rows, columns } => Streams::Terminal {
            rows,
            columns,
            control,
        },
        Attached::Streams => {
            let received = descriptors::receive(control, &mut [0]);
            let (_, all) = received.map_err(Fault::setup("receive the caller's streams"))?;
            let all = all.try_into().map_err(|_| rustix::io::Errno::BADF);
            Streams::Inherited(all.map_err(Fault::setup("receive the caller's streams"))?)
        }
    };
    // Process 1 gets this mask. It passes signals on once there is a program; until then they wait.
    system::block_signals().map_err(Fault::setup("hold signals back"))?;
    run(sandbox, &streams, control)
}

fn run(
    sandbox: &Sandbox,
    streams: &Streams<'_>,
    control: BorrowedFd<'_>,
) -> Result<Message, Fault> {
    let written = written(sandbox)?;
    let (group, applied) = Cgroup::new(&sandbox.limits);
    let result = supervise(sandbox, streams, control, &group, applied, written.as_ref());
    group.remove();
    if let Writes::Keep(upper) = &sandbox.root.writes {
        drop_work(&rootfs::work(upper));
    }
    result.map(Message::Ended)
}

fn supervise(
    sandbox: &Sandbox,
    streams: &Streams<'_>,
    control: BorrowedFd<'_>,
    group: &Cgroup,
    applied: Applied,
    written: Option<&OwnedFd>,
) -> Result<Outcome, Fault> {
    let doors = group
        .doors()
        .map_err(Fault::setup("open the control group"))?;
    let (identity, mapper) = identity::choose();
    let identity = match identity {
        Identity::Real => {
            system::unshare(libc::CLONE_NEWPID).map_err(Fault::at(
                Stage::Namespaces,
                "make a namespace of processes",
            ))?;
            identity
        }
        _ => identity::become_root(mapper.as_ref(), libc::CLONE_NEWPID)?,
    };
    let (reader, writer) = io::pipe().map_err(Fault::setup("make a pipe"))?;
    let pid = match system::fork().map_err(Fault::at(Stage::Namespaces, "start process 1"))? {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            drop(reader);
            let init = Init {
                sandbox,
                streams,
                identity,
                doors,
                reports: writer,
            };
            init.run()
        }
    };
    drop((writer, doors));
    let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(Fault::setup("watch process 1"))?;
    let mut running = Running {
        pid,
        handle,
        reports: BufReader::new(reader),
    };
    running.wait(control, streams.are_attached());
    let (stubs, end) = running.read();
    if let (Some(stubs), Some(written)) = (stubs, written) {
        stubs.remove(written.as_fd());
    }
    let end = end?;
    Ok(Outcome {
        end,
        memory: memory(end, group, applied.memory),
        limits: applied,
        identity,
    })
}

impl Running {
    /// Returns when process 1 has ended, by itself or because the caller closed its end of the socket. If
    /// `relays`, what the caller sends are signals, which process 1 gets.
    fn wait(&mut self, control: BorrowedFd<'_>, relays: bool) {
        loop {
            let mut watched = [
                PollFd::new(&self.handle, PollFlags::IN),
                PollFd::from_borrowed_fd(control, PollFlags::IN),
            ];
            match poll(&mut watched, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(_) if !watched[0].revents().is_empty() => break,
                Ok(_) if relays && self.relay(control) => {}
                // The caller sends nothing else after its request, so this is the end of its stream.
                _ => {
                    let _ = pidfd_send_signal(&self.handle, Signal::KILL);
                    break;
                }
            }
        }
        while let Err(rustix::io::Errno::INTR) = waitpid(Some(self.pid), WaitOptions::empty()) {}
    }

    /// Sends process 1 the signals that the caller sent. Returns `false` at the end of its stream.
    fn relay(&self, control: BorrowedFd<'_>) -> bool {
        let mut numbers = [0; 16];
        let received = match rustix::io::read(control, &mut numbers) {
            Err(rustix::io::Errno::INTR) => return true,
            Ok(n) if n > 0 => n,
            Ok(_) | Err(_) => return false,
        };
        for number in &numbers[..received] {
            if let Some(signal) = Signal::from_named_raw(i32::from(*number)) {
                // It fails only if process 1 has just ended.
                let _ = pidfd_send_signal(&self.handle, signal);
            }
        }
        true
    }

    fn read(self) -> (Option<Stubs>, Result<End, Fault>) {
        let mut stubs = None;
        // If process 1 sent no result, we or the OOM killer killed it.
        let mut end = Ok(End::Signalled(libc::SIGKILL));
        for line in self.reports.split(b'\n').map_while(Result::ok) {
            match serde_json::from_slice(&line) {
                Ok(Report::Mounted(made)) => stubs = Some(made),
                Ok(Report::Failed(fault)) => end = Err(fault),
                Ok(Report::Ended(how)) => end = Ok(how),
                Err(_) => {}
            }
        }
        (stubs, end)
    }
}

fn memory(end: End, group: &Cgroup, counted: bool) -> Memory {
    const KILLED: i32 = 128 + libc::SIGKILL;
    match end {
        End::Exited(0) => Memory::Enough,
        _ if group.kills() > 0 => Memory::KilledFor,
        End::Signalled(libc::SIGKILL) | End::Exited(KILLED) if !counted => Memory::MaybeKilledFor,
        _ => Memory::Enough,
    }
}

/// Opens the directory that the run writes to, and creates it if it is missing.
fn written(sandbox: &Sandbox) -> Result<Option<OwnedFd>, Fault> {
    let path = match &sandbox.root.writes {
        Writes::Discard => return Ok(None),
        Writes::InPlace => sandbox.root.layers.first(),
        Writes::Keep(upper) => {
            make(upper, sandbox.root.layers.last())?;
            make(&rootfs::work(upper), None)?;
            Some(upper)
        }
    };
    let Some(path) = path else { return Ok(None) };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
        .map(Some)
        .map_err(Fault::setup(format!("open {}", path.display())))
}

/// Creates a directory with the mode of `like`: the upper directory's mode becomes the root's.
fn make(path: &Path, like: Option<&PathBuf>) -> Result<(), Fault> {
    if path.is_dir() {
        return Ok(());
    }
    let fault = || Fault::setup::<io::Error>(format!("make {}", path.display()));
    std::fs::create_dir_all(path).map_err(fault())?;
    if let Some(like) = like {
        let permissions = std::fs::metadata(like).map_err(fault())?.permissions();
        std::fs::set_permissions(path, permissions).map_err(fault())?;
    }
    Ok(())
}

/// Removes the empty directory, readable by nobody, that the kernel leaves in overlay's work directory.
fn drop_work(work: &Path) {
    let _ = std::fs::remove_dir(work.join("work"));
    if std::fs::remove_dir(work).is_err() {
        let _ = stackforge_types::remove(work);
    }
}

/// Becomes who owns the files of a run.
fn become_owner() -> Result<(), Fault> {
    let (identity, mapper) = identity::choose();
    if identity == Identity::Subordinate {
        identity::become_root(mapper.as_ref(), 0)?;
    }
    Ok(())
}

fn archive(task: &Archive) -> Result<(), Fault> {
    become_owner()?;
    super::archive::write(task).map_err(|error| {
        let doing = format!("archive {}: {error}", task.changed.display());
        Fault::new(Stage::Setup, doing, error)
    })
}

fn remove(directory: &Path) -> Result<(), Fault> {
    become_owner()?;
    stackforge_types::remove(directory)
        .map_err(Fault::setup(format!("remove {}", directory.display())))
}
