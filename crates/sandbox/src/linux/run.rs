//! The caller's side: starts the re-executed process, passes its lines on, cancels it.

use std::os::fd::OwnedFd;
use std::path::{Component, Path};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until};

use super::error::SandboxError;
use super::lines::Lines;
use super::outcome::Outcome;
use super::request::{Archive, MOST_LAYERS, Mount, Sandbox, Writes};
use super::wire::{Message, NAME, Task, request};
use stackforge_types::{Cancel, LogStream};

/// How long a cancelled run may take to end before it is abandoned. Only a process that the kernel
/// cannot kill, for example one blocked in a driver, takes that long.
const GRACE: Duration = Duration::from_secs(5);
const EXECUTABLE: &str = "/proc/self/exe";

impl Sandbox {
    /// Runs the command to its end. `line` gets each line without its line end, in pieces if it is
    /// longer than 64 KiB.
    ///
    /// # Errors
    /// [`SandboxError`] if the program could not be run, [`SandboxError::Cancelled`] if `cancel` was
    /// set. A failure of the program itself is not an error.
    pub async fn run(
        &self,
        cancel: &Cancel,
        line: &mut (dyn FnMut(LogStream, &[u8]) + Send),
    ) -> Result<Outcome, SandboxError> {
        self.check()?;
        let launcher = self.launcher.as_deref();
        let task = Task::Run(Box::new(self.clone()));
        match talk(launcher, &task, &self.stdin, cancel, line).await? {
            Message::Ended(outcome) => Ok(outcome),
            Message::Failed(fault) => Err(SandboxError::from_fault(fault)),
            Message::Tried(_) | Message::Removed | Message::Archived => Err(SandboxError::Lost),
        }
    }

    pub(super) fn check(&self) -> Result<(), SandboxError> {
        let invalid = |what: String| Err(SandboxError::Invalid { what });
        let layers = self.root.layers.len();
        if layers == 0 || layers > MOST_LAYERS {
            return invalid(format!(
                "a root has 1 to {MOST_LAYERS} layers, this one has {layers}"
            ));
        }
        if self.root.writes == Writes::InPlace && layers != 1 {
            return invalid("only a root of one directory can be written in place".into());
        }
        if self.command.is_empty() {
            return invalid("there is no command".into());
        }
        for target in self.mounts.iter().map(Mount::target) {
            let plain = |c: Component| matches!(c, Component::RootDir | Component::Normal(_));
            if !target.is_absolute() || !target.components().all(plain) || target.parent().is_none()
            {
                return invalid(format!(
                    "a mount's target is an absolute path without `..`, not {}",
                    target.display()
                ));
            }
        }
        Ok(())
    }
}

/// Removes a directory that a run wrote to. An ordinary user cannot otherwise remove files that belong
/// to subordinate IDs.
///
/// # Errors
/// If the launcher cannot be started, or the directory cannot be removed.
pub async fn remove(launcher: Option<&Path>, dir: &Path) -> Result<(), SandboxError> {
    let task = Task::Remove(dir.to_owned());
    match talk(launcher, &task, &[], &Cancel::new(), &mut |_, _| ()).await? {
        Message::Removed => Ok(()),
        Message::Failed(fault) => Err(SandboxError::from_fault(fault)),
        Message::Ended(_) | Message::Tried(_) | Message::Archived => Err(SandboxError::Lost),
    }
}

/// Writes what a run changed as the tar of a layer, with the owners that the program saw.
///
/// # Errors
/// If the launcher cannot be started, the directory cannot be read or the file cannot be written.
pub async fn archive(launcher: Option<&Path>, archive: &Archive) -> Result<(), SandboxError> {
    let task = Task::Archive(archive.clone());
    match talk(launcher, &task, &[], &Cancel::new(), &mut |_, _| ()).await? {
        Message::Archived => Ok(()),
        Message::Failed(fault) => Err(SandboxError::from_fault(fault)),
        Message::Ended(_) | Message::Tried(_) | Message::Removed => Err(SandboxError::Lost),
    }
}

/// The re-executed process. Of the environment it gets PATH alone, to find `newuidmap`.
pub(super) fn command(launcher: Option<&Path>) -> Command {
    let mut command = Command::new(launcher.unwrap_or(Path::new(EXECUTABLE)));
    command
        .arg0(NAME)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name == "PATH"));
    command
}

fn start(launcher: Option<&Path>) -> std::io::Result<(Child, UnixStream)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let child = command(launcher)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok((child, UnixStream::from_std(ours)?))
}

pub(super) async fn talk(
    launcher: Option<&Path>,
    task: &Task,
    stdin: &[u8],
    cancel: &Cancel,
    line: &mut (dyn FnMut(LogStream, &[u8]) + Send),
) -> Result<Message, SandboxError> {
    let setup = |doing: &'static str| {
        move |source| SandboxError::Setup {
            doing: doing.into(),
            source,
        }
    };
    let bytes = request(task, stdin).map_err(setup("write the request"))?;
    let (mut child, control) = start(launcher).map_err(setup("start its process"))?;
    let (mut answers, asking) = control.into_split();
    let mut asking = Some(asking);
    let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(SandboxError::Lost);
    };
    if let Some(asking) = &mut asking {
        // A process that died before it read everything sends nothing back: that is `Lost` below.
        let _ = asking.write_all(&bytes).await;
    }
    let (mut stdout, mut stderr) = (Lines::default(), Lines::default());
    let (mut o, mut e, mut a) = (vec![0; 32 << 10], vec![0; 32 << 10], vec![0; 4 << 10]);
    let (mut more_out, mut more_err, mut more_answers) = (true, true, true);
    let mut answer = Vec::new();
    let mut deadline = Instant::now();
    while more_out || more_err || more_answers {
        let stopping = asking.is_none();
        tokio::select! {
            n = out.read(&mut o), if more_out => match n {
                Ok(n) if n > 0 => stdout.push(&o[..n], &mut |l| line(LogStream::Stdout, l)),
                _ => more_out = false,
            },
            n = err.read(&mut e), if more_err => match n {
                Ok(n) if n > 0 => stderr.push(&e[..n], &mut |l| line(LogStream::Stderr, l)),
                _ => more_err = false,
            },
            n = answers.read(&mut a), if more_answers => match n {
                Ok(n) if n > 0 => answer.extend(&a[..n]),
                _ => more_answers = false,
            },
            () = cancel.cancelled(), if !stopping => {
                // Dropping the write half closes it, which tells the process to stop.
                asking = None;
                deadline = Instant::now() + GRACE;
            }
            () = sleep_until(deadline), if stopping => return Err(SandboxError::Cancelled),
        }
    }
    stdout.end(&mut |l| line(LogStream::Stdout, l));
    stderr.end(&mut |l| line(LogStream::Stderr, l));
    let _ = child.wait().await;
    if asking.is_none() {
        return Err(SandboxError::Cancelled);
    }
    let last = answer.split(|b| *b == b'\n').rfind(|l| !l.is_empty());
    last.and_then(|json| serde_json::from_slice(json).ok())
        .ok_or(SandboxError::Lost)
}
