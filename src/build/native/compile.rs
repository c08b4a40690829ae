//! Compiles the plan's libraries in namespaces, on directories, with the same scripts as the Dockerfile.
//! Everything that the scripts would download is already in place, so they need no network.
//!
//! A compiled wheel is audited and then kept by its step's key, as in a Docker engine, so that either
//! engine can use what the other compiled.

use super::super::audit::Meant;
use super::super::base::io as failed_at;
use super::super::{BuildError, BuildEvent, Options};
use super::base::{Base, Sources};
use super::environment::variables;
use super::layers::Maker;
use super::toolchain::{Toolchain, present};
use super::wheels::{Fetched, compiled};
use crate::render::builder;
use stackforge_engine::{Event, StepFailure, StepKind};
use stackforge_image::store::Action;
use stackforge_plan::{Compile, Plan, StepId};
use stackforge_sandbox::{Memory, Mount, OWN, Outcome, Root, Sandbox};
use stackforge_stack::catalog::{template, templates_in};
use stackforge_stack::lock::{PythonFile, SourceLock};
use stackforge_stack::spec::Platform;
use stackforge_types::Digest;
use stackforge_types::LogStream;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::task::block_in_place;

/// Lines of a failed step's log that are shown.
const TAIL: usize = 30;
/// What compiling one library needs, as files of the store.
pub(super) struct Needs {
    pub library: String,
    pub requires: Vec<Fetched>,
    pub source: Option<PathBuf>,
}

/// Returns the libraries that have no compiled wheel in the store.
pub(super) fn missing<'p>(plan: &'p Plan, options: &Options<'_>) -> Vec<&'p Compile> {
    let lacks = |c: &&Compile| compiled(plan, &c.library, &c.version, options).is_err();
    plan.parts.compiles.iter().filter(lacks).collect()
}

/// Returns a library's sdist as a locked file. `None` for a git source.
pub(crate) fn source(compile: &Compile) -> Option<PythonFile> {
    match &compile.source {
        SourceLock::Sdist { file, sha256, size } => Some(PythonFile {
            name: compile.library.clone(),
            version: compile.version.clone(),
            file: file.clone(),
            size: *size,
            sha256: sha256.clone(),
            via: Vec::new(),
        }),
        SourceLock::Git { .. } => None,
    }
}

impl Maker<'_, '_> {
    /// Compiles every library of `needs`, each after the ones that it depends on.
    pub async fn compile(
        &mut self,
        (base, devel): (&Base, Option<&Base>),
        sources: &Sources,
        tools: &[Fetched],
        wheels: &[Fetched],
        needs: &[Needs],
    ) -> Result<(), BuildError> {
        let Some(first) = needs.first() else {
            return Ok(());
        };
        if Platform::host() != Some(self.plan.platform) {
            return Err(BuildError::MustCompile {
                library: first.library.clone(),
            });
        }
        (self.on)(BuildEvent::Phase { name: "compile" });
        let toolchain = block_in_place(|| self.toolchain(base, devel, sources, tools))?;
        let log = self.options.store.new_log(&self.plan.variant)?;
        let rounds = self.plan.parts.rounds();
        for (number, library) in rounds.into_iter().flatten().enumerate() {
            let (Some(need), Some(compile)) = (
                needs.iter().find(|n| n.library == library),
                self.plan
                    .parts
                    .compiles
                    .iter()
                    .find(|c| c.library == library),
            ) else {
                continue;
            };
            let start = Instant::now();
            let number = u32::try_from(number).unwrap_or_default() + 1;
            let mut step = Step {
                number,
                compile,
                need,
                log: &log,
                jobs: self.options.jobs,
                may_retry: true,
            };
            let wheel = loop {
                match self.run_step(&toolchain, wheels, &step).await? {
                    Ended::Made(wheel) => break wheel,
                    Ended::Memory { jobs } => {
                        let name = StepId::compile(library).to_string();
                        (self.on)(BuildEvent::Retry { step: name, jobs });
                        step.jobs = Some(jobs);
                        step.may_retry = false;
                    }
                }
            };
            self.audited(compile, &wheel, start)?;
        }
        Ok(())
    }

    async fn run_step(
        &mut self,
        toolchain: &Toolchain,
        wheels: &[Fetched],
        step: &Step<'_>,
    ) -> Result<Ended, BuildError> {
        let Step { compile, need, .. } = *step;
        let mut roots = toolchain.system.clone();
        block_in_place(|| {
            for wheel in present(self.plan, compile, wheels, &need.requires) {
                roots.push(self.wheel_tree(wheel)?);
            }
            Ok::<_, BuildError>(())
        })?;
        let scratch = self.options.store.scratch()?;
        let inputs = scratch.path().join("inputs");
        self.lay_inputs(step, &inputs)?;
        let upper = scratch.path().join("upper");
        let root = Root::layers(roots, &upper);
        let command = ["sh", "/dev/stackforge/steps/compile.sh"];
        let mut sandbox = self.sandbox(root, &command, &inputs)?;
        sandbox.env.extend(toolchain.env.clone());
        let tools = Mount::read_only(&toolchain.tools, Path::new(OWN).join("tools"));
        sandbox.mounts.push(tools);
        let clones = compile.clones();
        if !clones.is_empty() {
            let tree = block_in_place(|| self.cloned(toolchain, compile, &clones))?;
            let cloned = tree.join("opt/source");
            let own = Path::new(OWN);
            if cloned.join("git").exists() {
                sandbox
                    .mounts
                    .push(Mount::read_only(&cloned, own.join("source")));
            }
            sandbox.mounts.push(Mount::read_only(
                cloned.join("fetched"),
                own.join("fetched"),
            ));
        }
        let outcome = self.run(&sandbox, step).await;
        let made = match outcome {
            Ok(None) => block_in_place(|| self.take(&upper, compile)).map(Ended::Made),
            Ok(Some(jobs)) => Ok(Ended::Memory { jobs }),
            Err(e) => Err(e),
        };
        // This user may not remove files of subordinate user IDs directly.
        for left in [upper.clone(), upper.with_extension("work")] {
            if left.exists() {
                stackforge_sandbox::remove(None, &left).await?;
            }
        }
        made
    }

    /// Returns the sandbox of a step, with the files of `inputs` mounted as in the Dockerfile.
    pub fn sandbox(
        &self,
        root: Root,
        command: &[&str],
        inputs: &Path,
    ) -> Result<Sandbox, BuildError> {
        let mut sandbox = Sandbox::new(root, command);
        for (name, value) in variables() {
            sandbox.env.insert(name.into(), value.into());
        }
        sandbox.env.insert("HOME".into(), "/root".into());
        let own = Path::new(OWN);
        let failed = |e| failed_at("list", inputs, e);
        for entry in std::fs::read_dir(inputs).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let target = own.join(entry.file_name());
            sandbox.mounts.push(Mount::read_only(entry.path(), target));
        }
        Ok(sandbox)
    }

    /// Writes the steps' scripts into `folder`.
    pub fn lay_scripts(&self, folder: &Path) -> Result<(), BuildError> {
        for (from, to) in [("steps", "steps/"), ("builders", "")] {
            for (name, text) in templates_in(from) {
                let own = template(self.options.overlay, &format!("{from}/{name}"));
                let text = own.as_deref().unwrap_or(text);
                write(&folder.join(format!("{to}{name}")), text.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Writes the files that the compile script reads into `folder`.
    fn lay_inputs(&self, step: &Step<'_>, folder: &Path) -> Result<(), BuildError> {
        self.lay_scripts(folder)?;
        for (name, text) in builder(step.compile) {
            // The requirements are already installed.
            let text = if name == "requires.txt" { "" } else { &text };
            write(&folder.join("build").join(name), text.as_bytes())?;
        }
        if let Some(jobs) = step.jobs {
            write(&folder.join("jobs"), jobs.to_string().as_bytes())?;
        }
        let after = step.compile.after.iter();
        let after = after.filter_map(|library| {
            let compile = self.plan.parts.compiles.iter();
            compile.into_iter().find(|c| c.library == *library)
        });
        for before in after {
            let wheel = compiled(self.plan, &before.library, &before.version, self.options)?;
            let place = folder.join("after").join(&before.library);
            link(&wheel.path, &place)?;
        }
        if let Some(source) = &step.need.source {
            link(source, &folder.join("source"))?;
        }
        Ok(())
    }

    /// Runs the compile. `None` on success, else the number of jobs to try again with.
    async fn run(&mut self, sandbox: &Sandbox, step: &Step<'_>) -> Result<Option<u32>, BuildError> {
        let library = &step.compile.library;
        let name = format!("[builder-{library}] compile {library}");
        let failed = |e| failed_at("write", step.log, e);
        let log = File::options().create(true).append(true).open(step.log);
        let mut log = log.map_err(failed)?;
        let id = step.number;
        let start = Instant::now();
        let on = &mut *self.on;
        on(BuildEvent::Engine(Event::StepStarted {
            id,
            name: name.clone(),
            kind: StepKind::Run,
        }));
        let (mut tail, mut jobs) = (VecDeque::new(), None);
        let mut hear = |stream: LogStream, bytes: &[u8]| {
            let line =
                String::from_utf8_lossy(bytes).replace(|c: char| c != '\t' && c.is_control(), "");
            let seconds = start.elapsed().as_secs_f64();
            let _ = writeln!(log, "#{id} {seconds:.3} {line}");
            if let Some(told) = jobs_of(&line) {
                jobs = Some(told);
            }
            if tail.len() == TAIL {
                tail.pop_front();
            }
            tail.push_back(line.clone());
            on(BuildEvent::Engine(Event::StepLog { id, stream, line }));
        };
        let outcome = sandbox.run(self.cancel, &mut hear).await?;
        let error = (outcome.code() != 0).then(|| format!("exit code {}", outcome.code()));
        (self.on)(BuildEvent::Engine(Event::StepFinished {
            id,
            name: name.clone(),
            cached: false,
            seconds: start.elapsed().as_secs_f64(),
            error: error.clone(),
        }));
        let Some(message) = error else {
            return Ok(None);
        };
        let failure = failure(id, name, message, &outcome, tail);
        let fewer = jobs.filter(|&jobs| jobs > 1 && failure.killed_for_memory);
        match fewer {
            Some(jobs) if step.may_retry => Ok(Some(jobs / 2)),
            _ => Err(BuildError::Step {
                failure: Box::new(failure),
                log: step.log.to_owned(),
            }),
        }
    }

    /// Audits and stores the one wheel that the script made.
    fn take(&self, upper: &Path, compile: &Compile) -> Result<Digest, BuildError> {
        let none = |why: String| BuildError::NoReport {
            reason: format!("the compiled wheel of {}: {why}", compile.library),
        };
        let folder = upper.join("opt/wheels");
        let entries = std::fs::read_dir(&folder).map_err(|e| none(e.to_string()))?;
        let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
        let mut names = names.filter(|n| n.ends_with(".whl"));
        let (Some(name), None) = (names.next(), names.next()) else {
            return Err(none("there is not one".to_owned()));
        };
        let path = folder.join(&name);
        // The compile wrote this folder: a symbolic link in it could lead out of the sandbox.
        let there = std::fs::symlink_metadata(&path).map_err(|e| none(e.to_string()))?;
        if !there.is_file() {
            return Err(none(format!("{name} is no file")));
        }
        let file = File::open(&path).map_err(|e| failed_at("open the wheel", &path, e))?;
        let blob = self.options.store.put(file, None)?;
        self.options.store.named(&blob.digest, &name)?;
        Ok(blob.digest)
    }

    fn audited(
        &mut self,
        compile: &Compile,
        wheel: &Digest,
        start: Instant,
    ) -> Result<(), BuildError> {
        let store = self.options.store;
        let file = store.names_of(wheel).into_iter().next().unwrap_or_default();
        let path = store.named(wheel, &file)?;
        let meant = Meant::of(self.plan, self.options.catalog);
        let audit = block_in_place(|| meant.wheel(&path))?;
        if !audit.ok {
            return Err(BuildError::Audit {
                what: format!("the compiled wheel of {}", compile.library),
                audit: Box::new(audit),
            });
        }
        let id = StepId::compile(&compile.library);
        if let Some(step) = self.plan.step(&id) {
            let action = Action {
                step: id.to_string(),
                outputs: [("wheel".to_owned(), wheel.clone())].into(),
                seconds: start.elapsed().as_secs_f64(),
                audit: serde_json::to_value(audit.count()).ok(),
                ..Action::default()
            };
            store.record(&step.key, &action)?;
        }
        self.step(&id.to_string(), false, start);
        Ok(())
    }
}

/// One library that is being compiled.
struct Step<'a> {
    number: u32,
    compile: &'a Compile,
    need: &'a Needs,
    log: &'a Path,
    jobs: Option<u32>,
    /// Whether to try again with fewer jobs if memory runs out.
    may_retry: bool,
}

enum Ended {
    Made(Digest),
    /// The compile was killed for lack of memory while it ran `jobs` jobs.
    Memory {
        jobs: u32,
    },
}

pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), BuildError> {
    let parent = path.parent().unwrap_or(path);
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(path, content))
        .map_err(|e| failed_at("write", path, e))
}

/// Puts a file into a folder under its own name, as a hard link, or as a copy on another file system.
pub(super) fn link(file: &Path, folder: &Path) -> Result<(), BuildError> {
    let to = folder.join(file.file_name().unwrap_or_default());
    std::fs::create_dir_all(folder)
        .and_then(|()| {
            std::fs::hard_link(file, &to).or_else(|_| std::fs::copy(file, &to).map(drop))
        })
        .map_err(|e| failed_at("write", &to, e))
}

fn failure(
    id: u32,
    name: String,
    message: String,
    outcome: &Outcome,
    tail: VecDeque<String>,
) -> StepFailure {
    StepFailure {
        id,
        name,
        line: None,
        exit_code: Some(outcome.code()),
        killed_for_memory: outcome.memory != Memory::Enough,
        message,
        tail: tail.into(),
        finished: Vec::new(),
    }
}

/// Parses the number of jobs that the script prints.
fn jobs_of(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("stackforge: jobs=")?;
    rest.split(' ').next()?.parse().ok()
}
