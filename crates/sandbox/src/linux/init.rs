//! Process 1 of a sandbox: creates its namespaces, starts the program, reaps processes and reports how
//! the program ended. When process 1 ends, the kernel kills everything else in the sandbox.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, chdir, kill_process, setsid, umask, wait,
};
use serde::{Deserialize, Serialize};

use super::confine::{Command, confine};
use super::fault::{Fault, Stage};
use super::identity::{self, Identity};
use super::outcome::End;
use super::request::{Network, Sandbox};
use super::rootfs;
use super::streams::Streams;
use super::stubs::Stubs;
use super::system::{self, Fork};

/// A message from process 1 to the supervisor, one JSON value per line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Mounted(Stubs),
    Failed(Fault),
    Ended(End),
}

const HOST_NAME: &[u8] = b"stackforge";

pub(crate) struct Init<'a> {
    pub sandbox: &'a Sandbox,
    pub streams: &'a Streams<'a>,
    pub identity: Identity,
    /// Files that a process writes to in order to enter its control groups.
    pub doors: Vec<std::fs::File>,
    pub reports: std::io::PipeWriter,
}

impl Init<'_> {
    pub(crate) fn run(mut self) -> ! {
        let last = match self.work() {
            Ok(end) => Report::Ended(end),
            Err(fault) => Report::Failed(fault),
        };
        self.report(&last);
        system::exit(0)
    }

    fn report(&mut self, report: &Report) {
        if let Ok(mut line) = serde_json::to_vec(report) {
            line.push(b'\n');
            // An error means that the supervisor is gone, and then this process is killed with it.
            let _ = self.reports.write_all(&line);
        }
    }

    fn work(&mut self) -> Result<End, Fault> {
        system::die_with_parent().map_err(Fault::setup("tie the sandbox to its supervisor"))?;
        for door in &mut self.doors {
            door.write_all(b"0")
                .map_err(Fault::setup("enter the control group"))?;
        }
        self.doors.clear();
        let mut flags =
            libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;
        if self.sandbox.network == Network::None {
            flags |= libc::CLONE_NEWNET;
        }
        system::unshare(flags).map_err(Fault::at(Stage::Namespaces, "make namespaces"))?;
        umask(Mode::from_raw_mode(0o022));
        let stubs = rootfs::enter(self.sandbox, self.identity)?;
        self.report(&Report::Mounted(stubs));
        // The program must not read the executable of this process, which is the host's file. It cannot
        // write it either: the kernel refuses to while the supervisor, which outlives every process of
        // the sandbox, runs the same file.
        system::hide_from_others().map_err(Fault::setup("hide process 1"))?;
        if self.sandbox.network == Network::None {
            socket(AddressFamily::INET, SocketType::DGRAM, None)
                .map_err(std::io::Error::from)
                .and_then(|s| system::loopback_up(s.as_fd()))
                .map_err(Fault::setup("start the loopback interface"))?;
        }
        rustix::system::sethostname(HOST_NAME).map_err(Fault::setup("name the host"))?;
        self.start()
    }

    fn start(&mut self) -> Result<End, Fault> {
        let command = Command::new(self.sandbox).map_err(|_| {
            Fault::setup("read the command: it has a NUL byte")(rustix::io::Errno::INVAL)
        })?;
        let (mut failed, failing) = std::io::pipe().map_err(Fault::setup("make a pipe"))?;
        let (mut asked, mut ask) = std::io::pipe().map_err(Fault::setup("make a pipe"))?;
        let (mut answer, mut reply) = std::io::pipe().map_err(Fault::setup("make a pipe"))?;
        let program = match system::fork().map_err(Fault::setup("start the program"))? {
            Fork::Parent(pid) => pid,
            Fork::Child => {
                drop((failed, asked, reply));
                let own = match (self.identity, &self.sandbox.user) {
                    (Identity::Real, _) => identity::enter_own_namespace(&mut ask, &mut answer),
                    (Identity::Single, Some(user)) => identity::enter_as(user),
                    (Identity::Subordinate | Identity::Single, _) => Ok(()),
                };
                let own = own.map_err(Fault::at(Stage::Namespaces, "enter a user namespace"));
                let fault = match own.and_then(|()| self.prepare()) {
                    Ok(()) => command.exec(),
                    Err(fault) => fault,
                };
                // If the report cannot be sent, only exit code 125 remains.
                let _ = serde_json::to_writer(failing, &fault);
                system::exit(125)
            }
        };
        drop((failing, ask, answer));
        if self.identity == Identity::Real {
            identity::own_namespace(program, &mut asked, &mut reply)
                .map_err(Fault::at(Stage::Namespaces, "map the ids of the program"))?;
        }
        let mut fault = Vec::new();
        // The pipe closes when `exec` starts the program.
        let _ = failed.read_to_end(&mut fault);
        if let Ok(fault) = serde_json::from_slice(&fault) {
            return Err(fault);
        }
        if self.streams.are_attached() {
            return relay(program);
        }
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid == program => {
                    if let Some(end) = end(status) {
                        return Ok(end);
                    }
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Fault::setup("wait for the program")(e)),
            }
        }
    }

    fn prepare(&self) -> Result<(), Fault> {
        let io = |doing: &'static str| Fault::setup::<std::io::Error>(doing);
        setsid().map_err(Fault::setup("start a session"))?;
        system::reset_signals();
        let user = self.sandbox.user.as_ref();
        self.streams.install(user)?;
        let cwd: &Path = &self.sandbox.cwd;
        if self.streams.are_attached() {
            // An image may name a working directory that no layer has; engines make it too.
            let _ = std::fs::create_dir_all(cwd);
        }
        chdir(cwd).map_err(Fault::setup(format!("enter {}", cwd.display())))?;
        system::close_from(3, true).map_err(io("close files"))?;
        confine(self.identity, user).map_err(io("give up what the program may not have"))
    }
}

/// Waits for the program, and sends it the signals that this process gets. They are blocked, so none is lost
/// between two looks, and this process, which has no handlers, can still receive them.
fn relay(program: Pid) -> Result<End, Fault> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == program => {
                if let Some(end) = end(status) {
                    return Ok(end);
                }
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => {
                let next = system::next_signal().map_err(Fault::setup("wait for a signal"))?;
                if let Some(signal) = next.filter(|signal| *signal != Signal::CHILD) {
                    let _ = kill_process(program, signal);
                }
            }
            Err(e) => return Err(Fault::setup("wait for the program")(e)),
        }
    }
}

fn end(status: WaitStatus) -> Option<End> {
    let exited = status.exit_status().map(End::Exited);
    exited.or_else(|| status.terminating_signal().map(End::Signalled))
}
