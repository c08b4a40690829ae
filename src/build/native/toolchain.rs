//! Makes the root file system in which libraries are compiled. The base, the compilers' OS packages, the
//! Python environment and the wheels that the library needs are a directory each.
//!
//! Unlike the image's layers, these keep all files of their wheels, static libraries too.

use super::super::at_rest::environment;
use super::super::base::io as failed_at;
use super::super::unpacked::unpack_error;
use super::super::{BuildError, BuildEvent};
use super::base::Base;
use super::compile::{link, write};
use super::environment::{PATH_WITH_CUDA, interpreter, scheme, variables};
use super::inputs::Inputs;
use super::layers::{NativeBuilder, tar};
use super::wheels::Fetched;
use crate::render::requirements;
use flate2::read::MultiGzDecoder;
use stackforge_binary::source::FileSource;
use stackforge_image::Layer;
use stackforge_image::layer::{self, Install, Spec, Wheel};
use stackforge_image::unpack::{Owner, unpack};
use stackforge_plan::{Compile, Environment, HOME, Step, Tools};
use stackforge_sandbox::{Root, Sandbox};
use stackforge_stack::catalog::template;
use stackforge_stack::spec::Platform;
use stackforge_types::Digest;
use stackforge_types::LogStream;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufReader, Seek as _};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::task::block_in_place;

/// Increased when an installed wheel becomes other files.
const INSTALLED: u32 = 2;

/// Script that replaces the network's index settings for the installers.
const NO_INDEX: &str =
    "export PIP_NO_INDEX=1 PIP_FIND_LINKS=/dev/stackforge/sources UV_OFFLINE=1\n";

pub(super) struct Toolchain {
    /// Directories without Python packages, the lowest first.
    pub system: Vec<PathBuf>,
    /// Directory with `bin/uv` and a `bin/python` that has pip.
    pub tools: PathBuf,
    /// Variables of the compilers' image, with the paths of Python and CUDA.
    pub env: BTreeMap<OsString, OsString>,
    /// Where the compiles write their output.
    pub log: PathBuf,
}

impl NativeBuilder<'_, '_> {
    /// Makes what libraries are compiled in and with. `None` if nothing has to be compiled.
    pub async fn tools(
        &mut self,
        step: &Step,
        tools: &Tools,
        base: &Base,
        inputs: &Inputs,
    ) -> Result<Option<Toolchain>, BuildError> {
        let Some(first) = inputs.first() else {
            self.found(step);
            return Ok(None);
        };
        if Platform::host() != Some(self.plan.platform) {
            return Err(BuildError::MustCompile {
                library: first.to_owned(),
            });
        }
        let start = Instant::now();
        let devel = self.devel().await?;
        (self.on)(BuildEvent::Phase { name: "compile" });
        let made = block_in_place(|| self.toolchain(tools, base, devel.as_ref(), inputs))?;
        self.finished(&step.id, start);
        Ok(Some(made))
    }

    fn toolchain(
        &mut self,
        tools: &Tools,
        base: &Base,
        devel: Option<&Base>,
        inputs: &Inputs,
    ) -> Result<Toolchain, BuildError> {
        let has_cuda = devel.is_some();
        let base = devel.unwrap_or(base);
        let mut layers = base.layers.clone();
        if !tools.packages.is_empty() {
            layers.push(self.compilers(base, &tools.packages, &inputs.builder)?);
        }
        let system = self.image_of(&layers)?;
        let mut system = self.trees(&system)?;
        let installers = self.installers(tools, &system, &layers, &inputs.installers)?;
        system.push(self.environment_tree(HOME)?);
        let config = base.config.as_ref().and_then(|c| c.config().as_ref());
        let mut env = environment(&config.and_then(|c| c.env().clone()).unwrap_or_default());
        let own = variables().into_iter();
        env.extend(own.map(|(name, value)| (name.into(), value.into())));
        if has_cuda {
            env.insert("PATH".into(), PATH_WITH_CUDA.into());
        }
        Ok(Toolchain {
            system,
            tools: installers,
            env,
            log: self.options.store.new_log(&self.plan.variant)?,
        })
    }

    fn environment_tree(&self, home: &str) -> Result<PathBuf, BuildError> {
        let tar = tar(
            &Environment::at(home, self.plan.python).members,
            self.native.epoch,
        )
        .map_err(|e| failed_at("make a layer for", Path::new(home), e))?;
        self.options.store.tree(&Digest::of(&tar), |into| {
            let done = unpack(tar.as_slice(), into, Owner::of_process());
            Ok(done.map_err(|e| unpack_error(e, into))?.content)
        })
    }

    /// Returns the tree with the installers, made as in the Dockerfile's stage and keyed by all its inputs.
    fn installers(
        &self,
        tools: &Tools,
        system: &[PathBuf],
        layers: &[Layer],
        wheels: &[Fetched],
    ) -> Result<PathBuf, BuildError> {
        let all: Vec<&Fetched> = wheels.iter().collect();
        let mut key = key("tools", &all, self);
        let below = layers.iter().map(|l| l.diff_id.to_string());
        key["below"] = below.collect();
        let script = template(self.options.overlay, "steps/tools.sh").unwrap_or_default();
        key["script"] = Digest::of(script.as_bytes()).to_string().into();
        let key = Digest::of(key.to_string().as_bytes());
        let tree = self.options.store.tree(&key, |into| {
            let scratch = self.options.store.scratch()?;
            let inputs = scratch.path();
            self.lay_scripts(inputs)?;
            write(&inputs.join("index"), NO_INDEX.as_bytes())?;
            for wheel in wheels {
                link(&wheel.path, &inputs.join("sources"))?;
            }
            let lock = inputs.join("lock.txt");
            std::fs::write(&lock, requirements(&tools.installers))
                .map_err(|e| failed_at("write", &lock, e))?;
            let python = format!("/usr/bin/python{}", self.plan.python);
            let command = ["sh", "/dev/stackforge/steps/tools.sh", &python];
            let root = Root::layers(system.to_vec(), into);
            let sandbox = self.sandbox(root, &command, inputs)?;
            self.fill(&sandbox, into, "the installers")
        })?;
        Ok(tree.join("opt/tools"))
    }

    /// Runs a program that fills `into`, a tree of the store. Returns 0 bytes for the tree, which is collected
    /// with the layers below it.
    ///
    /// # Errors
    /// [`BuildError::NoReport`] with the program's last line if it fails; `what` names what it makes.
    pub(super) fn fill(
        &self,
        sandbox: &Sandbox,
        into: &Path,
        what: &str,
    ) -> Result<u64, BuildError> {
        let mut last = String::new();
        let mut keep = |_: LogStream, line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            if !line.trim().is_empty() {
                last = line.into_owned();
            }
        };
        let runtime = tokio::runtime::Handle::current();
        let outcome = runtime.block_on(sandbox.run(self.cancel, &mut keep))?;
        let work = into.with_extension("work");
        if work.exists() {
            runtime.block_on(stackforge_sandbox::remove(None, &work))?;
        }
        match outcome.code() {
            0 => Ok(0),
            code => Err(BuildError::NoReport {
                reason: format!("{what}: {last} (exit code {code})"),
            }),
        }
    }

    /// One installed wheel.
    pub fn wheel_tree(&self, wheel: &Fetched) -> Result<PathBuf, BuildError> {
        let key = key("wheel", &[wheel], self);
        let digest = Digest::of(key.to_string().as_bytes());
        self.options
            .store
            .tree(&digest, |into| self.install(wheel, into))
    }

    /// Installs a wheel below a directory and returns the bytes written.
    fn install(&self, fetched: &Fetched, into: &Path) -> Result<u64, BuildError> {
        let path = &fetched.path;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let source = FileSource::open(path).map_err(|e| failed_at("open the wheel", path, e))?;
        let wheel = Wheel::open(&name, source)?.vouched();
        let install = Install {
            wheel: &wheel,
            requested: fetched.requested,
            drop: &[],
            changed: &BTreeMap::new(),
        };
        let spec = Spec {
            scheme: scheme(self.plan.python),
            python: interpreter(),
            epoch: self.native.epoch,
            // Level 0: the layer is unpacked at once.
            level: 0,
            threads: self.threads,
        };
        let failed = |e| failed_at("install a wheel below", into, e);
        let mut file = tempfile::tempfile_in(self.options.store.dir("tmp")?).map_err(failed)?;
        layer::write(&spec, &[install], &file)?;
        file.rewind().map_err(failed)?;
        let tar = MultiGzDecoder::new(BufReader::new(file));
        let done = unpack(tar, into, Owner::of_process());
        Ok(done.map_err(|e| unpack_error(e, into))?.content)
    }
}

/// Returns the key of a directory of installed wheels.
fn key(kind: &str, wheels: &[&Fetched], builder: &NativeBuilder<'_, '_>) -> serde_json::Value {
    let of = |w: &&Fetched| format!("{} {} {}", w.name, w.sha256.hex(), w.requested);
    serde_json::json!({
        "installed": kind,
        "format": INSTALLED,
        "python": builder.plan.python.to_string(),
        "epoch": builder.native.epoch,
        "wheels": wheels.iter().map(of).collect::<Vec<_>>(),
    })
}

/// Returns the wheels that are installed while `compile` is compiled: those that its stage starts from,
/// with the build's own requirements in place of wheels of the same name.
pub(super) fn present<'a>(
    compile: &Compile,
    wheels: &'a [Fetched],
    requires: &'a [Fetched],
) -> Vec<&'a Fetched> {
    let below: BTreeSet<&str> = compile.below.iter().map(String::as_str).collect();
    let required: BTreeSet<&str> = compile.requires.iter().map(|r| r.name.as_str()).collect();
    let stays = |w: &&Fetched| below.contains(&*w.name) && !required.contains(&*w.name);
    wheels.iter().filter(stays).chain(requires).collect()
}
