//! Chooses the user and group IDs of the program, and the user namespace that they need.
//!
//! With CAP_SYS_ADMIN a sandbox needs no user namespace. Its program still gets one, with every ID
//! mapped to itself ([`own_namespace`]): as root it has power over its files but not over the machine.
//! Without CAP_SYS_ADMIN the program is root in a user namespace: with the caller's subordinate IDs if
//! `newuidmap` maps them, otherwise with the caller's ID alone; then calls that change IDs report
//! success without doing anything (`confine`). A program that is to run as another user than root has a
//! namespace of its own there, in which the only ID has that number.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, WaitOptions, getegid, geteuid, getpid, waitpid};
use rustix::thread::{CapabilitySet, capabilities};

use super::fault::{Fault, Stage};
pub(super) use super::outcome::Identity;
use super::request::User;
use super::system::{self, Fork};

/// A range of subordinate IDs, from one line of `/etc/subuid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub first: u32,
    pub count: u32,
}

/// The two programs that may map subordinate IDs, and the ranges to map.
#[derive(Debug, Clone)]
pub(crate) struct Mapper {
    programs: [PathBuf; 2],
    ranges: [Range; 2],
}

pub(crate) fn may_administer() -> bool {
    capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Chooses the identity that this process can set up.
pub(crate) fn choose() -> (Identity, Option<Mapper>) {
    if may_administer() {
        return (Identity::Real, None);
    }
    match mapper() {
        Some(mapper) => (Identity::Subordinate, Some(mapper)),
        None => (Identity::Single, None),
    }
}

fn mapper() -> Option<Mapper> {
    let path = std::env::var_os("PATH")?;
    let find = |name: &str| {
        std::env::split_paths(&path)
            .filter(|d| d.is_absolute())
            .map(|d| d.join(name))
            .find(|p| p.is_file())
    };
    let uid = geteuid().as_raw();
    let name = std::fs::read_to_string("/etc/passwd")
        .ok()
        .and_then(|text| user_name(&text, uid));
    let range = |file: &str| {
        let text = std::fs::read_to_string(file).ok()?;
        subordinate(&text, uid, name.as_deref())
    };
    Some(Mapper {
        programs: [find("newuidmap")?, find("newgidmap")?],
        ranges: [range("/etc/subuid")?, range("/etc/subgid")?],
    })
}

fn user_name(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Returns the user's first range in a file of `NAME-OR-ID:FIRST:COUNT` lines.
pub(crate) fn subordinate(text: &str, uid: u32, name: Option<&str>) -> Option<Range> {
    text.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let (first, count) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let ours = owner.parse() == Ok(uid) || Some(owner) == name;
        (ours && count > 0).then_some(Range { first, count })
    })
}

/// Enters a user namespace in which this process is root, together with the namespaces of `others` in
/// the same call. Returns the identity that was reached.
pub(crate) fn become_root(mapper: Option<&Mapper>, others: libc::c_int) -> Result<Identity, Fault> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let helper = mapper
        .map(|m| Waiting::start(m, getpid(), uid, gid))
        .transpose()
        .map_err(Fault::setup("start newuidmap"))?;
    system::unshare(libc::CLONE_NEWUSER | others)
        .map_err(Fault::at(Stage::Namespaces, "make a user namespace"))?;
    if helper.is_some_and(Waiting::map) {
        return Ok(Identity::Subordinate);
    }
    let write = |file: &str, text: &str| {
        std::fs::write(file, text).map_err(Fault::at(Stage::Namespaces, format!("write {file}")))
    };
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", &format!("0 {gid} 1"))?;
    Ok(Identity::Single)
}

/// Returns the ID map of a user namespace in which every ID equals the one outside. `map` is this
/// process's own map, in lines `INSIDE OUTSIDE COUNT`; each `INSIDE` becomes both values.
fn same_ids(map: &str) -> String {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (first, count) = (words.next()?, words.nth(1)?);
        Some(format!("{first} {first} {count}\n"))
    };
    map.lines().filter_map(line).collect()
}

/// In the program's process, which is root and has the only ID that there is: enters a user namespace in
/// which that ID has these numbers.
pub(crate) fn enter_as(user: &User) -> io::Result<()> {
    system::unshare(libc::CLONE_NEWUSER)?;
    // Only then do the files below belong to this process. Nothing else runs in the sandbox yet.
    system::show_to_others()?;
    std::fs::write("/proc/self/uid_map", format!("{} 0 1", user.uid))?;
    std::fs::write("/proc/self/gid_map", format!("{} 0 1", user.gid))
}

/// In the program's process: enters a user namespace and waits until process 1 has mapped its IDs. If
/// the kernel has no user namespaces, the program keeps the machine's IDs.
pub(crate) fn enter_own_namespace(
    ask: &mut impl io::Write,
    answer: &mut impl io::Read,
) -> io::Result<()> {
    let made = system::unshare(libc::CLONE_NEWUSER).is_ok();
    ask.write_all(if made { b"m" } else { b"-" })?;
    let mut mapped = [0];
    answer.read_exact(&mut mapped)?;
    match mapped {
        [b'm'] | [b'-'] => Ok(()),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// In process 1: maps the IDs of the program's namespace once it exists. Only a process outside of that
/// namespace, with capabilities, may do this.
pub(crate) fn own_namespace(
    program: Pid,
    asked: &mut impl io::Read,
    answer: &mut impl io::Write,
) -> io::Result<()> {
    let mut made = [0];
    // A program that ended reports the reason itself.
    if asked.read_exact(&mut made).is_err() {
        return Ok(());
    }
    if made == *b"m" {
        for file in ["uid_map", "gid_map"] {
            let map = same_ids(&std::fs::read_to_string(format!("/proc/self/{file}"))?);
            let of = program.as_raw_nonzero();
            std::fs::write(format!("/proc/{of}/{file}"), map)?;
        }
    }
    answer.write_all(&made)
}

/// A process outside of the user namespace that maps its IDs once it exists; no process inside may.
struct Waiting {
    pid: Pid,
    go: io::PipeWriter,
}

impl Waiting {
    fn start(mapper: &Mapper, target: Pid, uid: u32, gid: u32) -> io::Result<Self> {
        let (mut wait, go) = io::pipe()?;
        match system::fork()? {
            Fork::Parent(pid) => Ok(Waiting { pid, go }),
            Fork::Child => {
                drop(go);
                let signalled = wait.read(&mut [0]).is_ok_and(|n| n == 1);
                let ids = [uid, gid];
                let all = (0..2).all(|i| {
                    map(&mapper.programs[i], target, ids[i], mapper.ranges[i]).unwrap_or(false)
                });
                system::exit(i32::from(!(signalled && all)));
            }
        }
    }

    /// Writes both maps. Returns whether both were written.
    fn map(mut self) -> bool {
        let signalled = self.go.write_all(b"g").is_ok();
        drop(self.go);
        let ended = waitpid(Some(self.pid), WaitOptions::empty());
        signalled && matches!(ended, Ok(Some((_, status))) if status.exit_status() == Some(0))
    }
}

fn map(program: &Path, target: Pid, id: u32, range: Range) -> io::Result<bool> {
    let words = [
        target.as_raw_nonzero().get() as u32,
        0,
        id,
        1,
        1,
        range.first,
        range.count,
    ];
    let status = Command::new(program)
        .arg0(program.file_name().unwrap_or_default())
        .args(words.map(|w| w.to_string()))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_and_by_number() {
        let text = "other:1:2\nann:100000:65536\n1000:5:6\nbad\nann:x:1\n";
        let range = |first, count| Some(Range { first, count });
        assert_eq!(subordinate(text, 7, Some("ann")), range(100_000, 65536));
        assert_eq!(subordinate(text, 1000, None), range(5, 6));
        assert_eq!(subordinate(text, 7, None), None);
        assert_eq!(subordinate("ann:5:0", 7, Some("ann")), None);
    }

    #[test]
    fn ids_stay_what_they_are() {
        assert_eq!(
            same_ids("         0          0 4294967295\n"),
            "0 0 4294967295\n"
        );
        assert_eq!(same_ids("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }

    #[test]
    fn a_user_is_found_by_number() {
        let text = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\n";
        assert_eq!(user_name(text, 1000).as_deref(), Some("ann"));
        assert_eq!(user_name(text, 1), None);
    }
}
