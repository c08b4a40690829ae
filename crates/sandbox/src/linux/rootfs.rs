//! Assembles the file system that the program sees, in a mount namespace of its own.
//!
//! Everything of the host is opened before anything is mounted. Then the layers are stacked on a
//! directory in memory, the kernel's file systems and the caller's mounts are attached on top by
//! descriptor, and the result becomes the root. The layers have one-letter names in that directory, so
//! any number of them fits the page that mount(2) takes, however long their paths are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, chmod, mkdirat, open, openat, symlink, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount,
    mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

use super::fault::{Fault, Stage};
use super::identity::Identity;
use super::mountinfo;
use super::place::{Place, attach};
use super::request::{Mount, Network, OWN, Sandbox, Writes};
use super::stubs::Stubs;
use super::system;

/// Directories that every system has. In the sandbox's namespace, one of them is covered by a directory
/// in memory until that becomes the root.
const COVERED: [&str; 6] = ["/tmp", "/var/tmp", "/mnt", "/run", "/srv", "/var"];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Paths of /proc that reveal or change the state of the machine.
const MASKED: [&str; 8] = [
    "kcore",
    "keys",
    "sysrq-trigger",
    "timer_list",
    "latency_stats",
    "sched_debug",
    "kmsg",
    "kallsyms",
];
const MASKED_DIRECTORIES: [&str; 2] = ["acpi", "scsi"];
const FIXED: [&str; 4] = ["bus", "fs", "irq", "sys"];
const NET_FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Descriptors of the host's files, opened before the host's root disappears.
struct Sources {
    layers: Vec<OwnedFd>,
    /// The root itself, for a run in place.
    tree: Option<OwnedFd>,
    /// The only layer, read-only, in case the kernel refuses an overlay on it: it does for an ordinary
    /// user if something is mounted below, as on this machine's own root.
    read_only: Option<OwnedFd>,
    upper: Option<(OwnedFd, OwnedFd)>,
    /// Mounts below the only layer, with their paths.
    below: Vec<(PathBuf, OwnedFd)>,
    devices: Vec<(&'static str, OwnedFd)>,
    sys: Option<OwnedFd>,
    /// One per mount of the sandbox; `None` for those that are created and not opened.
    mounts: Vec<Option<OwnedFd>>,
    net: Vec<(&'static str, OwnedFd)>,
}

/// Returns overlay's work directory, which lies beside `upper`.
pub(crate) fn work(upper: &Path) -> PathBuf {
    let mut name = upper.as_os_str().to_owned();
    name.push(".work");
    name.into()
}

/// Builds the root and enters it.
pub(crate) fn enter(sandbox: &Sandbox, identity: Identity) -> Result<Stubs, Fault> {
    private()?;
    let sources = Sources::open(sandbox, identity)?;
    cover()?;
    let mode = Mode::from_raw_mode(0o755);
    mkdirat(CWD, "root", mode).map_err(Fault::setup("make the root"))?;
    let mut whole = sources.tree.as_ref();
    if whole.is_none() {
        match (overlay(&sources, identity), &sources.read_only) {
            (Ok(()), _) => {}
            (Err(_), Some(tree)) => whole = Some(tree),
            (Err(fault), None) => return Err(fault),
        }
    }
    if let Some(tree) = whole {
        open("root", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .and_then(|at| attach(tree.as_fd(), at.as_fd()))
            .map_err(Fault::setup("mount the root"))?;
    }
    let below = match whole {
        Some(_) => &[][..],
        None => &sources.below,
    };
    let root = open_root()?;
    let written = match (&sources.upper, &sources.tree) {
        (Some((upper, _)), _) => Some(upper.try_clone()),
        (None, Some(tree)) => Some(tree.try_clone()),
        (None, None) => None,
    };
    let written = written
        .transpose()
        .map_err(Fault::setup("keep the written directory"))?;
    let mut place = Place::new(root, written).map_err(Fault::setup("look at the root"))?;
    for (target, mount) in below {
        place.attach(mount.as_fd(), target)?;
    }
    devices(&mut place, &sources, sandbox)?;
    kernel(&mut place, &sources)?;
    for (target, file) in &sources.net {
        place.attach(file.as_fd(), Path::new(target))?;
    }
    for (mount, source) in sandbox.mounts.iter().zip(&sources.mounts) {
        match (mount, source) {
            (Mount::Bind { target, .. }, Some(source)) => place.attach(source.as_fd(), target)?,
            (Mount::Tmpfs { target, size }, _) => {
                let memory = memory(*size, "1777").map_err(Fault::setup("make a tmpfs"))?;
                place.attach(memory.as_fd(), target)?;
            }
            (Mount::Files { target, files }, _) => {
                let memory = filled(files).map_err(Fault::setup("write files into a tmpfs"))?;
                place.attach(memory.as_fd(), target)?;
            }
            (Mount::Link { target, to }, _) => place.link(target, to)?,
            (Mount::Bind { .. }, None) => {}
        }
    }
    become_root(place.root()).map_err(Fault::setup("change the root"))?;
    Ok(place.stubs)
}

/// Makes mounts private: none made from here on is seen outside, and none made outside is seen here.
pub(crate) fn private() -> Result<(), Fault> {
    let flags = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", flags).map_err(Fault::at(Stage::Namespaces, "make mounts private"))
}

/// Makes a directory in memory the current one, which hides the host's directory at that path.
pub(crate) fn cover() -> Result<(), Fault> {
    let fault = || Fault::setup::<Errno>("mount a tmpfs");
    let memory = memory(None, "0755").map_err(fault())?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    let mut last = Errno::NOENT;
    for directory in COVERED {
        match move_mount(&memory, "", CWD, directory, flags) {
            Ok(()) => return chdir(directory).map_err(fault()),
            Err(e) => last = e,
        }
    }
    Err(fault()(last))
}

fn memory(size: Option<u64>, mode: &str) -> Result<OwnedFd, Errno> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "mode", mode)?;
    if let Some(size) = size {
        fsconfig_set_string(&fs, "size", size.to_string())?;
    }
    finish(fs, MountAttrFlags::empty())
}

/// Creates a directory in memory with read-only files.
fn filled(files: &BTreeMap<String, String>) -> std::io::Result<OwnedFd> {
    let memory = memory(None, "0755")?;
    for (path, text) in files {
        for (at, _) in path.match_indices('/') {
            match mkdirat(&memory, &path[..at], Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&memory, path.as_str(), flags, Mode::from_raw_mode(0o644))?;
        File::from(file).write_all(text.as_bytes())?;
    }
    system::read_only(memory.as_fd())?;
    Ok(memory)
}

fn finish(fs: OwnedFd, more: MountAttrFlags) -> Result<OwnedFd, Errno> {
    fsconfig_create(&fs)?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | more;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Opens a detached copy of the mounts at and below a path.
fn tree(path: &Path, writable: bool) -> std::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, path, flags)?;
    if !writable {
        system::read_only(tree.as_fd())?;
    }
    Ok(tree)
}

impl Sources {
    fn open(sandbox: &Sandbox, identity: Identity) -> Result<Self, Fault> {
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let layer = |path: &PathBuf| {
            open(path, directory, Mode::empty())
                .map_err(Fault::setup(format!("open the layer {}", path.display())))
        };
        let root = &sandbox.root;
        let mut sources = Sources {
            layers: root.layers.iter().map(layer).collect::<Result<_, _>>()?,
            tree: None,
            read_only: None,
            upper: None,
            below: Vec::new(),
            devices: Vec::new(),
            sys: tree(Path::new("/sys"), false).ok(),
            mounts: Vec::new(),
            net: Vec::new(),
        };
        let (Some(first), only) = (root.layers.first(), root.layers.len() == 1) else {
            return Err(Fault::setup("open the root")(Errno::INVAL));
        };
        match &root.writes {
            Writes::Discard if only && identity != Identity::Real => {
                sources.read_only = tree(first, false).ok();
            }
            Writes::Discard => {}
            Writes::Keep(upper) => sources.upper = Some((layer(upper)?, layer(&work(upper))?)),
            Writes::InPlace => {
                let tree = tree(first, true).map_err(Fault::setup("open the root"))?;
                sources.tree = Some(tree);
            }
        }
        if only && sources.tree.is_none() {
            let first = std::fs::canonicalize(first).map_err(Fault::setup("find the root"))?;
            for path in mountinfo::below(&mountinfo::here(), &first) {
                // A mount that cannot be copied, such as an automounter's, is left out.
                if let Ok(tree) = tree(&first.join(&path), false) {
                    sources.below.push((Path::new("/").join(path), tree));
                }
            }
        }
        for name in DEVICES {
            let tree = tree(&Path::new("/dev").join(name), true)
                .map_err(Fault::setup(format!("open /dev/{name}")))?;
            sources.devices.push((name, tree));
        }
        for mount in &sandbox.mounts {
            let opened = match mount {
                Mount::Bind {
                    source, writable, ..
                } => Some(
                    tree(source, *writable)
                        .map_err(Fault::setup(format!("open {}", source.display())))?,
                ),
                Mount::Tmpfs { .. } | Mount::Files { .. } | Mount::Link { .. } => None,
            };
            sources.mounts.push(opened);
        }
        if sandbox.network == Network::Host {
            for path in NET_FILES {
                let real = std::fs::canonicalize(path);
                if let Some(tree) = real.ok().and_then(|p| tree(&p, false).ok()) {
                    sources.net.push((path, tree));
                }
            }
        }
        Ok(sources)
    }
}

fn open_root() -> Result<OwnedFd, Fault> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open("root", flags, Mode::empty()).map_err(Fault::setup("open the root"))
}

/// Stacks the layers on `root` of the current directory.
fn overlay(sources: &Sources, identity: Identity) -> Result<(), Fault> {
    let fault = || Fault::at::<Errno>(Stage::Overlay, "mount the overlay");
    let name = |fd: &OwnedFd, name: &str| symlink(through(fd.as_fd()), name).map_err(fault());
    let mut lower = String::new();
    for (number, layer) in sources.layers.iter().enumerate().rev() {
        name(layer, &number.to_string())?;
        if !lower.is_empty() {
            lower.push(':');
        }
        lower.push_str(&number.to_string());
    }
    let mode = Mode::from_raw_mode(0o755);
    match &sources.upper {
        Some((upper, work)) => {
            name(upper, "u")?;
            name(work, "w")?;
        }
        None => {
            mkdirat(CWD, "u", mode).map_err(fault())?;
            mkdirat(CWD, "w", mode).map_err(fault())?;
            // The root has the mode of the topmost layer's root.
            if let Some(top) = sources.layers.last() {
                let stat = rustix::fs::fstat(top).map_err(fault())?;
                chmod("u", Mode::from_raw_mode(stat.st_mode & 0o7777)).map_err(fault())?;
            }
        }
    }
    mount_overlay(&lower, identity).map_err(fault())
}

/// Mounts an overlay of `lower`, `u` and `w` on `root`, all in the current directory.
pub(crate) fn mount_overlay(lower: &str, identity: Identity) -> Result<(), Errno> {
    let mut options = format!("lowerdir={lower},upperdir=u,workdir=w,metacopy=off,index=off");
    options.push_str(match identity {
        Identity::Real => ",redirect_dir=off",
        // `userxattr` turns redirects off, and then the kernel refuses an option that names them.
        Identity::Subordinate | Identity::Single => ",userxattr",
    });
    let options = std::ffi::CString::new(options).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    mount("overlay", "root", "overlay", flags, options.as_c_str())
}

fn through(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Mounts `/dev`: a directory in memory with the few devices that any program may use.
fn devices(place: &mut Place, sources: &Sources, sandbox: &Sandbox) -> Result<(), Fault> {
    let fault = || Fault::setup::<Errno>("make /dev");
    // tmpfs is writable by everyone by default. Where the kernel protects such directories, a /dev/null
    // of another owner could then not be opened with O_CREAT.
    let dev = memory(None, "0755").map_err(fault())?;
    place.attach(dev.as_fd(), Path::new("/dev"))?;
    for (name, device) in &sources.devices {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let at = openat(&dev, *name, flags, Mode::from_raw_mode(0o666)).map_err(fault())?;
        attach(device.as_fd(), at.as_fd()).map_err(fault())?;
    }
    let terminals = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC).map_err(fault())?;
    fsconfig_set_string(&terminals, "ptmxmode", "0666").map_err(fault())?;
    fsconfig_set_string(&terminals, "mode", "0620").map_err(fault())?;
    fsconfig_create(&terminals).map_err(fault())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let terminals = fsmount(&terminals, FsMountFlags::FSMOUNT_CLOEXEC, flags).map_err(fault())?;
    place.attach(terminals.as_fd(), Path::new("/dev/pts"))?;
    let shared = memory(sandbox.shm_size, "1777").map_err(fault())?;
    place.attach(shared.as_fd(), Path::new("/dev/shm"))?;
    mkdirat(
        &dev,
        OWN.trim_start_matches("/dev/"),
        Mode::from_raw_mode(0o755),
    )
    .map_err(fault())?;
    for (name, to) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlinkat(to, &dev, name).map_err(fault())?;
    }
    Ok(())
}

/// Mounts `/proc` without what concerns the machine, and `/sys` read-only.
fn kernel(place: &mut Place, sources: &Sources) -> Result<(), Fault> {
    let fault = || Fault::setup::<Errno>("mount /proc");
    let proc = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)
        .and_then(|fs| finish(fs, MountAttrFlags::MOUNT_ATTR_NOEXEC))
        .map_err(Fault::at(
            Stage::Namespaces,
            "mount /proc (in a container, its masked /proc forbids it)",
        ))?;
    place.attach(proc.as_fd(), Path::new("/proc"))?;
    let within = |name: &str| {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&proc, name, flags, Mode::empty()).ok()
    };
    for name in MASKED {
        if let Some(at) = within(name) {
            let null =
                tree(Path::new("/dev/null"), true).map_err(Fault::setup("open /dev/null"))?;
            attach(null.as_fd(), at.as_fd()).map_err(fault())?;
        }
    }
    let empty = |at: OwnedFd| -> Result<(), Fault> {
        let empty = memory(Some(0), "0555").map_err(fault())?;
        system::read_only(empty.as_fd()).map_err(Fault::setup("mount /proc"))?;
        attach(empty.as_fd(), at.as_fd()).map_err(fault())
    };
    for name in MASKED_DIRECTORIES {
        within(name).map(empty).transpose()?;
    }
    for name in FIXED {
        if let Some(at) = within(name) {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_RECURSIVE;
            let same = open_tree(&proc, name, flags).map_err(fault())?;
            system::read_only(same.as_fd()).map_err(Fault::setup("mount /proc"))?;
            attach(same.as_fd(), at.as_fd()).map_err(fault())?;
        }
    }
    if let Some(sys) = &sources.sys {
        place.attach(sys.as_fd(), Path::new("/sys"))?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if let Ok(at) = openat(sys, "firmware", flags, Mode::empty()) {
            empty(at)?;
        }
    }
    Ok(())
}

fn become_root(root: BorrowedFd<'_>) -> Result<(), Errno> {
    fchdir(root)?;
    // The old root is put on the new root's own directory, so it needs none of its own.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")
}
