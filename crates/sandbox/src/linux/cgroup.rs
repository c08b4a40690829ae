//! Sets limits by control groups, version 2 or 1, where this process may create a group.
//!
//! A group is created beside this process's own group or above it: the first directory whose parent
//! delegates the controllers. If there is none, no limit is set, and [`Applied`] gives the reason.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::mountinfo::{self, Mounted};
use super::outcome::Applied;
use super::request::Limits;

/// The cgroup directories created for one run; [`Cgroup::remove`] removes them.
#[derive(Debug, Default)]
pub(crate) struct Cgroup {
    directories: Vec<PathBuf>,
    /// File with a line `oom_kill N`.
    kills: Option<PathBuf>,
}

/// Period over which processor time is accounted, in microseconds.
const PERIOD: u64 = 100_000;

impl Cgroup {
    /// Creates a group with as many of the limits as this machine allows.
    pub(crate) fn new(limits: &Limits) -> (Self, Applied) {
        let mut group = Cgroup::default();
        let mut applied = Applied::default();
        if *limits == Limits::default() {
            return (group, applied);
        }
        let mounts = mountinfo::here();
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut reasons = Vec::new();
        if let Err(reason) = group.unified(limits, &mounts, &own, &mut applied) {
            reasons.push(reason);
        }
        for (controller, wanted) in controllers(limits) {
            let done = match controller {
                "memory" => &mut applied.memory,
                "pids" => &mut applied.pids,
                _ => &mut applied.cpus,
            };
            if wanted && !*done {
                match group.legacy(controller, limits, &mounts, &own) {
                    Ok(()) => *done = true,
                    Err(reason) => reasons.push(reason),
                }
            }
        }
        let all = (limits.memory.is_none() || applied.memory)
            && (limits.pids.is_none() || applied.pids)
            && (limits.cpus.is_none() || applied.cpus);
        applied.reason = (!all).then(|| reasons.join("; "));
        (group, applied)
    }

    /// Opens the files into which the run's first process writes `0` to enter the group.
    pub(crate) fn doors(&self) -> std::io::Result<Vec<File>> {
        let open = |d: &PathBuf| OpenOptions::new().write(true).open(d.join("cgroup.procs"));
        self.directories.iter().map(open).collect()
    }

    /// Returns how many processes of the group the kernel killed for lack of memory.
    pub(crate) fn kills(&self) -> u64 {
        let text = self
            .kills
            .as_ref()
            .and_then(|f| std::fs::read_to_string(f).ok());
        let count = |text: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix("oom_kill "))?;
            line.trim().parse().ok()
        };
        text.and_then(|t| count(&t)).unwrap_or(0)
    }

    /// Removes the directories. Call it after the last process has ended.
    pub(crate) fn remove(self) {
        for directory in self.directories {
            // The kernel drops a process from its group a moment after the process ended.
            for _ in 0..50 {
                match std::fs::remove_dir(&directory) {
                    Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                    _ => break,
                }
            }
        }
    }

    fn unified(
        &mut self,
        limits: &Limits,
        mounts: &[Mounted],
        own: &str,
        applied: &mut Applied,
    ) -> Result<(), String> {
        let mount = mounts
            .iter()
            .find(|m| m.kind == "cgroup2")
            .ok_or("there is no cgroup file system, version 2")?;
        let root = &mount.at;
        let available = read(&root.join("cgroup.controllers"));
        let names: Vec<&str> = controllers(limits)
            .into_iter()
            .filter(|(name, wanted)| *wanted && has(&available, name))
            .map(|(name, _)| name)
            .collect();
        if names.is_empty() {
            return Err("version 2 has none of the controllers".into());
        }
        let path = own.lines().find_map(|l| l.strip_prefix("0::"));
        let place = place(mount, path.unwrap_or("/"));
        let mut last = "no group can be made".to_owned();
        for parent in place.ancestors().take_while(|p| p.starts_with(root)) {
            match unified_below(parent, &names, limits) {
                Ok(made) => {
                    applied.memory = names.contains(&"memory");
                    applied.pids = names.contains(&"pids");
                    applied.cpus = names.contains(&"cpu");
                    self.kills = Some(made.join("memory.events"));
                    self.directories.push(made);
                    return Ok(());
                }
                Err(e) => last = format!("{}: {e}", parent.display()),
            }
        }
        Err(last)
    }

    fn legacy(
        &mut self,
        controller: &str,
        limits: &Limits,
        mounts: &[Mounted],
        own: &str,
    ) -> Result<(), String> {
        let mount = mounts
            .iter()
            .find(|m| m.kind == "cgroup" && m.options.split(',').any(|o| o == controller))
            .ok_or(format!(
                "there is no cgroup file system with `{controller}`"
            ))?;
        let path = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?;
            controllers
                .split(',')
                .any(|c| c == controller)
                .then(|| fields.next())?
        });
        let made = name_below(&place(mount, path.unwrap_or("/")));
        let mut make = || -> std::io::Result<()> {
            if !made.is_dir() {
                std::fs::create_dir(&made)?;
                self.directories.push(made.clone());
            }
            match (controller, limits) {
                (
                    "memory",
                    Limits {
                        memory: Some(n), ..
                    },
                ) => {
                    write(&made.join("memory.limit_in_bytes"), n)?;
                    // The file is absent if the kernel does not account swap.
                    let _ = write(&made.join("memory.memsw.limit_in_bytes"), n);
                    self.kills = Some(made.join("memory.oom_control"));
                    Ok(())
                }
                ("pids", Limits { pids: Some(n), .. }) => write(&made.join("pids.max"), n),
                (_, Limits { cpus: Some(n), .. }) => {
                    write(&made.join("cpu.cfs_period_us"), &PERIOD)?;
                    write(&made.join("cpu.cfs_quota_us"), &quota(*n))
                }
                _ => Ok(()),
            }
        };
        make().map_err(|e| format!("{}: {e}", made.display()))
    }
}

fn unified_below(parent: &Path, names: &[&str], limits: &Limits) -> std::io::Result<PathBuf> {
    let control = parent.join("cgroup.subtree_control");
    for name in names {
        if !has(&read(&control), name) {
            write(&control, &format!("+{name}"))?;
        }
    }
    let made = name_below(parent);
    std::fs::create_dir(&made)?;
    let fill = || -> std::io::Result<()> {
        if let Some(n) = limits.memory {
            write(&made.join("memory.max"), &n)?;
            // The file is absent if the kernel does not account swap.
            let _ = write(&made.join("memory.swap.max"), &0);
        }
        if let Some(n) = limits.pids {
            write(&made.join("pids.max"), &n)?;
        }
        if let Some(n) = limits.cpus {
            write(&made.join("cpu.max"), &format!("{} {PERIOD}", quota(n)))?;
        }
        // Moving a process here also needs write permission in the common parent group.
        OpenOptions::new()
            .write(true)
            .open(made.join("cgroup.procs"))
            .map(drop)
    };
    fill().inspect_err(|_| {
        let _ = std::fs::remove_dir(&made);
    })?;
    Ok(made)
}

fn controllers(limits: &Limits) -> [(&'static str, bool); 3] {
    [
        ("memory", limits.memory.is_some()),
        ("pids", limits.pids.is_some()),
        ("cpu", limits.cpus.is_some()),
    ]
}

fn quota(cpus: f64) -> u64 {
    // The kernel refuses a quota below one millisecond.
    ((cpus * PERIOD as f64) as u64).max(1000)
}

/// Returns the directory of a group. In a container only a part of the hierarchy is mounted.
fn place(mount: &Mounted, path: &str) -> PathBuf {
    let inside = Path::new(path)
        .strip_prefix(&mount.root)
        .unwrap_or(Path::new(""));
    mount.at.join(inside)
}

fn name_below(parent: &Path) -> PathBuf {
    parent.join(format!("stackforge-{}", std::process::id()))
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

fn has(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|c| c == name)
}

fn write(file: &Path, value: &impl ToString) -> std::io::Result<()> {
    // Opened without `create`: the kernel provides a group's files.
    let mut file = OpenOptions::new().write(true).open(file)?;
    file.write_all(value.to_string().as_bytes())
}
