//! Installs OS packages by their own scripts, where one of them is not understood: dpkg runs in the sandbox,
//! without network, over the layers below, and what changed becomes the layer.
//!
//! The scripts are those that a Docker engine's build step runs (`stackforge_debian::configure`). The layer
//! depends on the packages and on what is below, not on the machine or the time: times end at the epoch, and
//! what a script makes up (keys of a host, caches, logs) is removed before the layer is written.

use super::super::base::io as failed_at;
use super::super::unpacked::unpack_error;
use super::super::{BuildError, BuildEvent};
use super::compile::{failure, write};
use super::emulator::emulated_by_kernel;
use super::layers::NativeBuilder;
use stackforge_debian::configure::{CONFIGURE, INSTALL};
use stackforge_debian::finish::FinishError;
use stackforge_debian::rootfs;
use stackforge_engine::{Event, StepKind};
use stackforge_image::Layer;
use stackforge_image::unpack::{Owner, unpack};
use stackforge_plan::StepId;
use stackforge_sandbox::{Archive, Mount, OWN, Root, Sandbox, Writes};
use stackforge_stack::lock::OsPackageLock;
use stackforge_stack::spec::Platform;
use stackforge_types::LogStream;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::runtime::Handle;

/// Lines of a failed step's log that are shown.
const TAIL: usize = 30;

/// Returns what is not understood of the packages, if that is why a layer could not be made.
pub(super) fn not_understood(error: BuildError) -> Result<Box<FinishError>, BuildError> {
    match error {
        BuildError::System(reason) if reason.is_not_understood() => Ok(reason),
        other => Err(other),
    }
}

impl NativeBuilder<'_, '_> {
    /// Makes the layer of a whole system, whose packages' scripts run in it.
    pub fn system_by_scripts(
        &mut self,
        about: &str,
        reason: Box<FinishError>,
        packages: &[OsPackageLock],
        debs: &[PathBuf],
        file: &File,
    ) -> Result<Layer, BuildError> {
        self.can_run(reason, packages.iter().any(|p| p.name == "dpkg"))?;
        let scratch = self.options.store.scratch()?;
        let root = scratch.path().join("root");
        std::fs::create_dir(&root).map_err(|e| failed_at("create", &root, e))?;
        self.unpacked(debs, &scratch.path().join("unpacked.tar"), &root)?;
        let sandbox = Sandbox::new(
            Root {
                layers: vec![root.clone()],
                writes: Writes::InPlace,
            },
            ["/bin/sh", "/dev/stackforge/scripts/configure.sh"],
        );
        self.run_scripts(&StepId::Base, sandbox, "configure.sh", CONFIGURE)?;
        self.archived(about, packages, root, true, scratch.path(), file)
    }

    /// Makes the layer that adds packages to the system in the directory `below`, by their scripts.
    pub fn packages_by_scripts(
        &mut self,
        step: &StepId,
        below: &Path,
        reason: Box<FinishError>,
        packages: &[OsPackageLock],
        debs: &[PathBuf],
        file: &File,
    ) -> Result<Layer, BuildError> {
        self.can_run(reason, below.join("usr/bin/dpkg").exists())?;
        let scratch = self.options.store.scratch()?;
        let folder = scratch.path().join("debs");
        std::fs::create_dir(&folder).map_err(|e| failed_at("create", &folder, e))?;
        for (place, (package, deb)) in packages.iter().zip(debs).enumerate() {
            // The number keeps the order in which packages are unpacked.
            let to = folder.join(format!("{place:04}-{}.deb", package.name));
            std::fs::hard_link(deb, &to)
                .or_else(|_| std::fs::copy(deb, &to).map(drop))
                .map_err(|e| failed_at("write", &to, e))?;
        }
        let upper = scratch.path().join("upper");
        let own = Path::new(OWN);
        let mut sandbox = Sandbox::new(
            Root::layers(vec![below.to_owned()], &upper),
            ["/bin/sh", "/dev/stackforge/scripts/install.sh"],
        );
        let debs = own.join("debs");
        sandbox.env.insert("DEBS".into(), debs.clone().into());
        sandbox.mounts.push(Mount::read_only(&folder, debs));
        self.run_scripts(step, sandbox, "install.sh", INSTALL)?;
        self.archived("OS packages", packages, upper, false, scratch.path(), file)
    }

    /// Fails if this machine cannot run the packages' programs, or the system has no dpkg to run them.
    fn can_run(&self, reason: Box<FinishError>, has_dpkg: bool) -> Result<(), BuildError> {
        if !has_dpkg {
            return Err(BuildError::System(reason));
        }
        let platform = self.plan.platform;
        if stackforge_sandbox::supported().is_err() {
            return Err(BuildError::ForeignScripts { reason, platform });
        }
        if !rustix::process::geteuid().is_root() {
            return Err(BuildError::ScriptsNeedRoot { reason });
        }
        if Platform::host() == Some(platform) || emulated_by_kernel(platform) {
            return Ok(());
        }
        Err(BuildError::ForeignScripts { reason, platform })
    }

    /// Lays the packages' files into `root`, with dpkg's database in the state "unpacked".
    fn unpacked(&self, debs: &[PathBuf], tar: &Path, root: &Path) -> Result<(), BuildError> {
        let failed = |e| failed_at("write", tar, e);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(tar)
            .map_err(failed)?;
        let (arch, epoch) = (self.plan.platform.arch(), self.native.epoch.into());
        rootfs::write_rootfs(debs, arch, epoch, BufWriter::new(&file))?;
        file.rewind().map_err(failed)?;
        unpack(BufReader::new(file), root, Owner::of_process())
            .map_err(|e| unpack_error(e, root))?;
        std::fs::remove_file(tar).map_err(failed)
    }

    fn run_scripts(
        &mut self,
        step: &StepId,
        mut sandbox: Sandbox,
        name: &str,
        script: &str,
    ) -> Result<(), BuildError> {
        let target = Path::new(OWN).join("scripts");
        let files = [(name.to_owned(), script.to_owned())].into();
        sandbox.mounts.push(Mount::Files { target, files });
        self.run_logged(step, "run the packages' scripts", &sandbox)
    }

    /// Runs a program of the image, whose output goes to the log. `what` says what it does.
    pub fn run_logged(
        &mut self,
        step: &StepId,
        what: &str,
        sandbox: &Sandbox,
    ) -> Result<(), BuildError> {
        let log = match &self.log {
            Some(log) => log.clone(),
            None => self.options.store.new_log(&self.plan.variant)?,
        };
        self.log = Some(log.clone());
        let file = File::options().create(true).append(true).open(&log);
        let mut file = file.map_err(|e| failed_at("write", &log, e))?;
        let id = self.number(&step.to_string());
        // Within a step that is already running, only the program's output is news.
        let is_told = self.running == Some(id);
        let (name, start) = (format!("[{step}] {what}"), Instant::now());
        let on = &mut *self.on;
        if !is_told {
            on(BuildEvent::Engine(Event::StepStarted {
                id,
                name: name.clone(),
                kind: StepKind::Run,
            }));
        }
        let mut tail = VecDeque::new();
        let mut on_output = |stream: LogStream, bytes: &[u8]| {
            let line =
                String::from_utf8_lossy(bytes).replace(|c: char| c != '\t' && c.is_control(), "");
            let _ = writeln!(file, "#{id} {:.3} {line}", start.elapsed().as_secs_f64());
            if tail.len() == TAIL {
                tail.pop_front();
            }
            tail.push_back(line.clone());
            on(BuildEvent::Engine(Event::StepLog { id, stream, line }));
        };
        let outcome = Handle::current().block_on(sandbox.run(self.cancel, &mut on_output))?;
        let error = (outcome.code() != 0).then(|| format!("exit code {}", outcome.code()));
        if !is_told {
            (self.on)(BuildEvent::Engine(Event::StepFinished {
                id,
                name: name.clone(),
                cached: false,
                seconds: start.elapsed().as_secs_f64(),
                error: error.clone(),
            }));
        }
        match error {
            None => Ok(()),
            Some(message) => Err(BuildError::Step {
                failure: Box::new(failure(id, name, message, &outcome, tail)),
                log,
            }),
        }
    }

    /// Packs what the scripts left, and removes it.
    fn archived(
        &mut self,
        about: &str,
        packages: &[OsPackageLock],
        changed: PathBuf,
        whole: bool,
        scratch: &Path,
        mut file: &File,
    ) -> Result<Layer, BuildError> {
        let out = scratch.join("layer.tar");
        write(&out, b"")?;
        let archive = Archive {
            changed: changed.clone(),
            out: out.clone(),
            latest: self.native.epoch.into(),
            whole,
        };
        Handle::current().block_on(stackforge_sandbox::archive(None, &archive))?;
        // The first try to write the layer may have left the head of a stream.
        file.set_len(0)
            .and_then(|()| file.rewind())
            .map_err(|e| failed_at("write", self.options.store.root(), e))?;
        let mut tar = File::open(&out).map_err(|e| failed_at("read", &out, e))?;
        let names = packages.iter().map(|p| p.name.clone()).collect();
        let layer = self.packed(about, names, file, |sink| {
            io::copy(&mut tar, sink).map_err(|e| failed_at("read", &out, e))?;
            Ok(())
        })?;
        // This user may not remove files of subordinate user IDs directly.
        for left in [changed.clone(), changed.with_extension("work")] {
            if left.exists() {
                Handle::current().block_on(stackforge_sandbox::remove(None, &left))?;
            }
        }
        Ok(layer)
    }
}
